//! Canonical encoding of objects (non-tensor state): a tagged subset of CBOR that keeps every type apart.

use crate::FormatError;

/// A value that trainers keep beside tensors. Types stay what they were: `1`, `1.0` and `True` differ, tuple and list
/// differ, floats keep their bits (NaN payloads, -0.0), integers have any size, maps keep their order and key types.
#[derive(Debug, Clone)]
pub enum Value {
    /// Nothing.
    None,
    /// Truth.
    Bool(bool),
    /// An integer that fits 64 bits with sign.
    Int(i64),
    /// Any other integer: sign and magnitude, big-endian without leading zeros.
    BigInt {
        /// Whether it is below zero.
        negative: bool,
        /// Magnitude.
        magnitude: Vec<u8>,
    },
    /// A float.
    Float(f64),
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A list.
    List(Vec<Value>),
    /// A tuple.
    Tuple(Vec<Value>),
    /// A map in insertion order; keys are any value but containers.
    Map(Vec<(Value, Value)>),
}

impl Value {
    /// The canonical bytes.
    ///
    /// # Errors
    /// [`FormatError::TooLarge`] beyond [`crate::limits::VALUE_DEPTH`] or [`crate::limits::VALUE_BYTES`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        unimplemented!()
    }

    /// Reads canonical bytes; anything but the canonical form is refused.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`], [`FormatError::TooLarge`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        let _ = bytes;
        unimplemented!()
    }
}
