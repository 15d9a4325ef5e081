//! Element types.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use crate::FormatError;

macro_rules! dtypes {
    ($($variant:ident, $name:literal, $bits:literal, $plane:literal, $doc:literal;)*) => {
        /// An element type. Bytes are little-endian; sub-byte types stay packed as the framework packs them
        /// (two to a byte, the shape counts logical elements).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Dtype { $(#[doc = $doc] $variant,)* }

        impl Dtype {
            /// Every type, in the order of the specification.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The stored name.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Bits of one logical element: 4, 8, 16, 32, 64 or 128.
            pub fn bits(self) -> u64 {
                match self { $(Self::$variant => $bits,)* }
            }

            /// Bytes of the float that the planes codec splits (the halves of a complex number count singly);
            /// `None` for types that are no floats of two bytes or more.
            pub fn plane_width(self) -> Option<usize> {
                match self { $(Self::$variant => match $plane { 0 => None, width => Some(width) },)* }
            }
        }

        impl FromStr for Dtype {
            type Err = FormatError;
            fn from_str(name: &str) -> Result<Self, FormatError> {
                match name {
                    $($name => Ok(Self::$variant),)*
                    _ => Err(FormatError::Unsupported {
                        what: "dtype",
                        found: name.to_owned(),
                        supported: [$($name),*].join(", "),
                    }),
                }
            }
        }
    };
}

dtypes! {
    Bool, "bool", 8, 0, "One byte, 0 or 1.";
    U8, "u8", 8, 0, "Unsigned 8-bit.";
    U16, "u16", 16, 0, "Unsigned 16-bit.";
    U32, "u32", 32, 0, "Unsigned 32-bit.";
    U64, "u64", 64, 0, "Unsigned 64-bit.";
    I8, "i8", 8, 0, "Signed 8-bit.";
    I16, "i16", 16, 0, "Signed 16-bit.";
    I32, "i32", 32, 0, "Signed 32-bit.";
    I64, "i64", 64, 0, "Signed 64-bit.";
    F16, "f16", 16, 2, "IEEE half.";
    Bf16, "bf16", 16, 2, "Brain float.";
    F32, "f32", 32, 4, "IEEE single.";
    F64, "f64", 64, 8, "IEEE double.";
    Complex64, "complex64", 64, 4, "Two f32: real, imaginary.";
    Complex128, "complex128", 128, 8, "Two f64: real, imaginary.";
    F8E4m3fn, "float8_e4m3fn", 8, 0, "8-bit float, 4 exponent bits, finite, NaN at 7F and FF.";
    F8E4m3fnuz, "float8_e4m3fnuz", 8, 0, "8-bit float, 4 exponent bits, no negative zero, NaN at 80.";
    F8E5m2, "float8_e5m2", 8, 0, "8-bit float, 5 exponent bits.";
    F8E5m2fnuz, "float8_e5m2fnuz", 8, 0, "8-bit float, 5 exponent bits, no negative zero, NaN at 80.";
    F8E8m0fnu, "float8_e8m0fnu", 8, 0, "8-bit scale, exponent only.";
    F4E2m1, "float4_e2m1", 4, 0, "4-bit float, two to a byte.";
    I4, "int4", 4, 0, "Signed 4-bit, two to a byte.";
    U4, "uint4", 4, 0, "Unsigned 4-bit, two to a byte.";
}

impl Dtype {
    /// Bytes of `elements` logical elements, or `None` when that overflows. An odd count of 4-bit elements
    /// takes the half byte's whole byte.
    pub fn byte_len(self, elements: u64) -> Option<u64> {
        Some(elements.checked_mul(self.bits())?.div_ceil(8))
    }

    /// Bytes of the run of `flat_len` elements from `flat_start`, both in row-major order, of a tensor of
    /// `total` elements: `None` when the run leaves the tensor, or when an end of it would cut a byte that
    /// two elements share (an end of the tensor cuts nothing).
    pub fn byte_range(self, flat_start: u64, flat_len: u64, total: u64) -> Option<Range<u64>> {
        let flat_end = flat_start.checked_add(flat_len).filter(|end| *end <= total)?;
        let whole = |flat: u64| flat.checked_mul(self.bits()).is_some_and(|bits| bits % 8 == 0);
        if !whole(flat_start) || !(whole(flat_end) || flat_end == total) {
            return None;
        }
        Some(self.byte_len(flat_start)?..self.byte_len(flat_end)?)
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c21_every_dtype_keeps_its_own_name() {
        for dtype in Dtype::ALL {
            assert_eq!(dtype.name().parse(), Ok(*dtype));
        }
        let names: std::collections::BTreeSet<_> = Dtype::ALL.iter().map(|dtype| dtype.name()).collect();
        assert_eq!(names.len(), Dtype::ALL.len());
        assert_ne!("float8_e4m3fn".parse::<Dtype>(), "float8_e4m3fnuz".parse());
    }

    #[test]
    fn an_unknown_dtype_is_unsupported_and_named() {
        let error = "float6_e3m2".parse::<Dtype>().unwrap_err();
        assert!(
            matches!(&error, FormatError::Unsupported { found, .. } if found == "float6_e3m2"),
            "{error}"
        );
    }

    #[test]
    fn planes_have_the_width_of_the_float_inside() {
        for dtype in Dtype::ALL {
            let Some(width) = dtype.plane_width() else { continue };
            let floats = if dtype.name().starts_with("complex") { 2 } else { 1 };
            assert_eq!(dtype.bits(), width as u64 * 8 * floats, "{dtype}");
        }
        assert_eq!(Dtype::Complex128.plane_width(), Some(8));
        assert_eq!(Dtype::I32.plane_width(), None);
    }

    #[test]
    fn c21_a_run_that_would_cut_a_packed_pair_has_no_bytes_of_its_own() {
        // Five packed elements: 01 23 4-, three bytes.
        let int4 = |start, len| Dtype::I4.byte_range(start, len, 5);
        assert_eq!(int4(0, 5), Some(0..3));
        assert_eq!(int4(0, 2), Some(0..1));
        assert_eq!(int4(2, 3), Some(1..3));
        assert_eq!(int4(4, 1), Some(2..3));
        assert_eq!(int4(1, 2), None);
        assert_eq!(int4(0, 3), None);
        assert_eq!(int4(5, 0), None);
        assert_eq!(int4(2, 0), Some(1..1));
        assert_eq!(int4(4, 2), None, "beyond the tensor");
    }

    #[test]
    fn c21_packed_fours_count_logical_elements() {
        // Eight bytes of shape [2, 4] are sixteen elements of shape [2, 8].
        assert_eq!(Dtype::F4E2m1.byte_len(16), Some(8));
        assert_eq!(Dtype::F4E2m1.byte_range(8, 8, 16), Some(4..8));
        assert_eq!(Dtype::I4.byte_len(5), Some(3));
    }

    #[test]
    fn lengths_that_overflow_have_no_bytes() {
        assert_eq!(Dtype::F64.byte_len(u64::MAX), None);
        assert_eq!(Dtype::F32.byte_range(u64::MAX, 1, u64::MAX), None);
        assert_eq!(Dtype::F32.byte_range(u64::MAX - 1, 1, u64::MAX), None);
        assert_eq!(Dtype::Bf16.byte_range(3, 4, 7), Some(6..14));
    }
}
