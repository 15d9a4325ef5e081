//! The columns of the index.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};

pub(super) const NAME: &str = "name";
pub(super) const KIND: &str = "kind";
pub(super) const DTYPE: &str = "dtype";
pub(super) const SHAPE: &str = "shape";
pub(super) const OFFSET: &str = "offset";
pub(super) const EXTENT: &str = "extent";
pub(super) const ALIAS_OF: &str = "alias_of";
pub(super) const RANK: &str = "rank";
pub(super) const CHUNK: &str = "chunk";
pub(super) const CHUNK_OFFSET: &str = "chunk_offset";
pub(super) const RAW_LEN: &str = "raw_len";
pub(super) const WRITER_ATTEMPT: &str = "writer_attempt";
pub(super) const WRITER_RANK: &str = "writer_rank";
pub(super) const PACK: &str = "pack";
pub(super) const PACK_LEN: &str = "pack_len";
pub(super) const PACK_OFFSET: &str = "pack_offset";
pub(super) const STORED_LEN: &str = "stored_len";
pub(super) const CODEC: &str = "codec";

/// Of parts alone.
pub(super) const OWN: &str = "own";

pub(super) const TENSOR: &str = "tensor";
pub(super) const OBJECT: &str = "object";

/// Columns that repeat so much that a dictionary holds them best; read back as dictionaries, so that a long string
/// repeated in every row takes memory once.
pub(super) const STRINGS: [&str; 4] = [NAME, KIND, DTYPE, ALIAS_OF];

/// Every column.
pub(super) const ALL: [&str; 18] = [
    NAME,
    KIND,
    DTYPE,
    SHAPE,
    OFFSET,
    EXTENT,
    ALIAS_OF,
    RANK,
    CHUNK,
    CHUNK_OFFSET,
    RAW_LEN,
    WRITER_ATTEMPT,
    WRITER_RANK,
    PACK,
    PACK_LEN,
    PACK_OFFSET,
    STORED_LEN,
    CODEC,
];

/// A list of 64-bit numbers.
pub(super) fn numbers() -> Arc<Field> {
    Arc::new(Field::new("element", DataType::UInt64, false))
}

/// The schema of a part: that of an index, and one column more.
pub(super) fn part_schema() -> Arc<Schema> {
    let own = Arc::new(Field::new(OWN, DataType::FixedSizeBinary(32), true));
    let fields: Vec<Arc<Field>> = schema().fields().iter().cloned().chain([own]).collect();
    Arc::new(Schema::new(fields))
}

/// The schema in the order of the specification.
pub(super) fn schema() -> Arc<Schema> {
    let required = |name: &str, kind: DataType| Field::new(name, kind, false);
    let optional = |name: &str, kind: DataType| Field::new(name, kind, true);
    let list = || DataType::List(numbers());
    Arc::new(Schema::new(vec![
        required(NAME, DataType::Utf8),
        required(KIND, DataType::Utf8),
        required(DTYPE, DataType::Utf8),
        required(SHAPE, list()),
        required(OFFSET, list()),
        required(EXTENT, list()),
        optional(ALIAS_OF, DataType::Utf8),
        optional(RANK, DataType::UInt32),
        optional(CHUNK, DataType::FixedSizeBinary(32)),
        optional(CHUNK_OFFSET, DataType::UInt64),
        optional(RAW_LEN, DataType::UInt64),
        optional(WRITER_ATTEMPT, DataType::FixedSizeBinary(16)),
        optional(WRITER_RANK, DataType::UInt32),
        optional(PACK, DataType::FixedSizeBinary(32)),
        optional(PACK_LEN, DataType::UInt64),
        optional(PACK_OFFSET, DataType::UInt64),
        optional(STORED_LEN, DataType::UInt64),
        optional(CODEC, DataType::UInt8),
    ]))
}
