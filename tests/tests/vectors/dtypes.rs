//! Names, widths and byte ranges of element types.

use everstep_format::dtype::Dtype;
use serde::{Deserialize, Serialize};

use crate::vectors;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct DtypeVectors {
    about: String,
    dtypes: Vec<DtypeVector>,
    byte_ranges: Vec<RangeVector>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct DtypeVector {
    name: String,
    bits: u64,
    plane_width: Option<usize>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct RangeVector {
    dtype: String,
    total: u64,
    start: u64,
    len: u64,
    bytes: Option<[u64; 2]>,
}

#[test]
fn dtypes_agree_with_the_vectors() {
    let fresh = DtypeVectors {
        about: "Element types, and the bytes of the run of `len` elements from `start` (row-major) of a tensor of \
                `total`; null where the run has no bytes of its own."
            .to_owned(),
        dtypes: Dtype::ALL.iter().map(dtype_vector).collect(),
        byte_ranges: ranges(),
    };
    assert_eq!(vectors("dtypes.json", &fresh), fresh);
}

fn dtype_vector(dtype: &Dtype) -> DtypeVector {
    DtypeVector { name: dtype.name().to_owned(), bits: dtype.bits(), plane_width: dtype.plane_width() }
}

fn ranges() -> Vec<RangeVector> {
    let runs =
        [(5, 0, 5), (5, 0, 2), (5, 2, 3), (5, 4, 1), (5, 1, 2), (5, 0, 3), (5, 2, 0), (5, 5, 0), (5, 4, 2)];
    let dtypes = [Dtype::I4, Dtype::F4E2m1, Dtype::U8, Dtype::Bf16, Dtype::Complex128];
    let range = |dtype: Dtype, (total, start, len): (u64, u64, u64)| RangeVector {
        dtype: dtype.name().to_owned(),
        total,
        start,
        len,
        bytes: dtype.byte_range(start, len, total).map(|range| [range.start, range.end]),
    };
    dtypes.into_iter().flat_map(|dtype| runs.map(|run| range(dtype, run))).collect()
}
