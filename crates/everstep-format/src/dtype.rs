//! Element types.

use std::fmt;
use std::str::FromStr;

use crate::FormatError;

macro_rules! dtypes {
    ($($variant:ident, $name:literal, $bits:literal, $plane:literal, $doc:literal;)*) => {
        /// An element type. Bytes are little-endian; sub-byte types stay packed as the framework packs them (two to a
        /// byte, the shape counts logical elements).
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
    /// Bytes of `elements` logical elements, or `None` when that overflows. An odd count of 4-bit elements takes the
    /// half byte's whole byte.
    pub fn byte_len(self, elements: u64) -> Option<u64> {
        Some(elements.checked_mul(self.bits())?.div_ceil(8))
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
