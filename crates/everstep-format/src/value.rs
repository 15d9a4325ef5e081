//! Canonical encoding of objects (non-tensor state): a tagged subset of CBOR that keeps every type apart.
//!
//! One value has one encoding, so equal objects are equal chunks; and nothing in it can run code or grow
//! beyond its input.

mod decode;
mod encode;
#[cfg(test)]
mod tests;

use crate::{FormatError, limits};

/// A value that trainers keep beside tensors. Types stay what they were: `1`, `1.0` and `True` differ, tuple
/// and list differ, floats keep their bits (NaN payloads, -0.0), integers have any size, maps keep their
/// order and key types.
#[derive(Debug, Clone)]
pub enum Value {
    /// Nothing.
    None,
    /// Truth.
    Bool(bool),
    /// An integer that fits 64 bits with sign.
    Int(i64),
    /// Any other integer: sign and magnitude, big-endian without leading zeros. Made by [`Value::integer`].
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
    /// A map in insertion order; keys are any value but containers, each at most once.
    Map(Vec<(Value, Value)>),
}

/// CBOR tag of a tuple: "EVST". It stands before an array.
const TUPLE_TAG: u64 = 0x4556_5354;
/// CBOR tag of an integer n >= 0 given as bytes.
const POSITIVE_TAG: u64 = 2;
/// CBOR tag of the integer -1 - n, with n given as bytes.
const NEGATIVE_TAG: u64 = 3;

const UNSIGNED: u8 = 0;
const NEGATIVE: u8 = 1;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const ARRAY: u8 = 4;
const MAP: u8 = 5;
const TAG: u8 = 6;

const FALSE: u8 = 0xF4;
const TRUE: u8 = 0xF5;
const NULL: u8 = 0xF6;
const FLOAT: u8 = 0xFB;

impl Value {
    /// The integer of this sign and big-endian magnitude, in the one form that it has: [`Value::Int`] where
    /// it fits.
    pub fn integer(negative: bool, magnitude: &[u8]) -> Self {
        let zeros = magnitude.iter().take_while(|byte| **byte == 0).count();
        let magnitude = &magnitude[zeros..];
        let small = (magnitude.len() <= 8)
            .then(|| magnitude.iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte)));
        let fitting = small.and_then(|small| match negative {
            false => i64::try_from(small).ok(),
            true => 0i64.checked_sub_unsigned(small),
        });
        fitting.map_or_else(|| Self::BigInt { negative, magnitude: magnitude.to_vec() }, Self::Int)
    }

    /// The canonical bytes.
    ///
    /// # Errors
    /// [`FormatError::TooLarge`] beyond [`limits::VALUE_DEPTH`], [`limits::VALUE_ITEMS`] or [`limits::VALUE_BYTES`];
    /// [`FormatError::Invalid`] for a map whose keys repeat or are containers, and for a big integer that
    /// [`Value::integer`] would not make.
    pub fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        encode::to_bytes(self)
    }

    /// Reads canonical bytes; anything but the canonical form is refused. Memory is at most some 64 bytes per
    /// byte read, and some 128 bytes for each of [`limits::VALUE_ITEMS`].
    ///
    /// # Errors
    /// [`FormatError::Corrupt`], [`FormatError::TooLarge`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        decode::from_bytes(bytes)
    }

    fn is_container(&self) -> bool {
        matches!(self, Self::List(_) | Self::Tuple(_) | Self::Map(_))
    }
}

/// Equality of types and bits: `1`, `1.0` and `True` differ, as do `0.0` and `-0.0`; a NaN equals the same
/// NaN; maps in another order differ.
impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::None, Self::None) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Int(a), Self::Int(b)) => a == b,
            (
                Self::BigInt { negative: a, magnitude: left },
                Self::BigInt { negative: b, magnitude: right },
            ) => a == b && left == right,
            (Self::Float(a), Self::Float(b)) => a.to_bits() == b.to_bits(),
            (Self::Text(a), Self::Text(b)) => a == b,
            (Self::Bytes(a), Self::Bytes(b)) => a == b,
            (Self::List(a), Self::List(b)) | (Self::Tuple(a), Self::Tuple(b)) => a == b,
            (Self::Map(a), Self::Map(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Value {}

/// Values announced once a container adds `count` items of `each` values.
fn announced(before: u64, count: u64, each: u8) -> Result<u64, FormatError> {
    let items = count.saturating_mul(each.into()).saturating_add(before);
    FormatError::within("values within a value", items, limits::VALUE_ITEMS)?;
    Ok(items)
}

/// Depth of a scalar's surroundings at the top, and what a container adds.
fn deeper(depth: usize) -> Result<usize, FormatError> {
    let depth = depth + 1;
    FormatError::within("depth of a value", depth as u64, limits::VALUE_DEPTH as u64)?;
    Ok(depth)
}

/// Whether the bytes of a bignum tag (the n of the specification) are canonical: no leading zero, and too big
/// for `Int`.
fn is_canonical_bignum(bytes: &[u8]) -> bool {
    let top = bytes.first().copied().unwrap_or_default();
    top != 0 && (bytes.len() > 8 || (bytes.len() == 8 && top >= 0x80))
}
