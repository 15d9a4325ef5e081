//! Values to canonical bytes.

use std::collections::BTreeSet;
use std::ops::Range;

use super::{
    ARRAY, BYTES, FALSE, FLOAT, MAP, NEGATIVE, NEGATIVE_TAG, NULL, POSITIVE_TAG, TAG, TEXT, TRUE, TUPLE_TAG,
    UNSIGNED, Value, announced, deeper, is_canonical_bignum,
};
use crate::{FormatError, limits};

pub(super) fn to_bytes(value: &Value) -> Result<Vec<u8>, FormatError> {
    let mut writer = Writer { out: Vec::new(), items: 0 };
    writer.value(value, 0)?;
    Ok(writer.out)
}

struct Writer {
    out: Vec<u8>,
    /// Values that containers have announced so far.
    items: u64,
}

impl Writer {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), FormatError> {
        match value {
            Value::None => self.put(&[NULL]),
            Value::Bool(truth) => self.put(&[if *truth { TRUE } else { FALSE }]),
            Value::Int(number) => self.int(*number),
            Value::BigInt { negative, magnitude } => self.big(*negative, magnitude),
            Value::Float(number) => {
                self.put(&[FLOAT])?;
                self.put(&number.to_bits().to_be_bytes())
            }
            Value::Text(text) => self.run(TEXT, text.as_bytes()),
            Value::Bytes(bytes) => self.run(BYTES, bytes),
            Value::List(items) => self.items(items, depth),
            Value::Tuple(items) => {
                self.head(TAG, TUPLE_TAG)?;
                self.items(items, depth)
            }
            Value::Map(entries) => self.map(entries, depth),
        }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), FormatError> {
        FormatError::within("value", (self.out.len() + bytes.len()) as u64, limits::VALUE_BYTES)?;
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    /// A major type with its argument, in the shortest form.
    fn head(&mut self, major: u8, argument: u64) -> Result<(), FormatError> {
        let major = major << 5;
        let bytes = argument.to_be_bytes();
        let (info, width) = match argument {
            0..24 => return self.put(&[major | bytes[7]]),
            24..0x100 => (24, 1),
            0x100..0x1_0000 => (25, 2),
            0x1_0000..0x1_0000_0000 => (26, 4),
            _ => (27, 8),
        };
        self.put(&[major | info])?;
        self.put(&bytes[8 - width..])
    }

    fn run(&mut self, major: u8, bytes: &[u8]) -> Result<(), FormatError> {
        self.head(major, bytes.len() as u64)?;
        self.put(bytes)
    }

    fn int(&mut self, number: i64) -> Result<(), FormatError> {
        match u64::try_from(number) {
            Ok(number) => self.head(UNSIGNED, number),
            // -1 - n has exactly the inverted bits of n.
            Err(_) => self.head(NEGATIVE, (!number).unsigned_abs()),
        }
    }

    fn big(&mut self, negative: bool, magnitude: &[u8]) -> Result<(), FormatError> {
        let bytes = if negative { less_one(magnitude) } else { magnitude.to_vec() };
        if !is_canonical_bignum(&bytes) || magnitude.first() == Some(&0) {
            let found = format!("a big integer of {} bytes", magnitude.len());
            return Err(FormatError::invalid("value", found, "one outside 64 bits, without leading zeros"));
        }
        self.head(TAG, if negative { NEGATIVE_TAG } else { POSITIVE_TAG })?;
        self.run(BYTES, &bytes)
    }

    fn items(&mut self, items: &[Value], depth: usize) -> Result<(), FormatError> {
        let depth = deeper(depth)?;
        self.items = announced(self.items, items.len() as u64, 1)?;
        self.head(ARRAY, items.len() as u64)?;
        items.iter().try_for_each(|item| self.value(item, depth))
    }

    fn map(&mut self, entries: &[(Value, Value)], depth: usize) -> Result<(), FormatError> {
        let depth = deeper(depth)?;
        self.items = announced(self.items, entries.len() as u64, 2)?;
        self.head(MAP, entries.len() as u64)?;
        let mut keys = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            keys.push(self.key(key, depth)?);
            self.value(value, depth)?;
        }
        let mut seen = BTreeSet::new();
        match keys.into_iter().zip(entries).find(|(key, _)| !seen.insert(&self.out[key.clone()])) {
            None => Ok(()),
            Some((_, (key, _))) => Err(FormatError::invalid("value", shown(key), "each key of a map once")),
        }
    }

    /// Writes a key; where it stands.
    fn key(&mut self, key: &Value, depth: usize) -> Result<Range<usize>, FormatError> {
        if key.is_container() {
            return Err(FormatError::invalid(
                "value",
                "a container as a map's key",
                "keys that are no containers",
            ));
        }
        let start = self.out.len();
        self.value(key, depth)?;
        Ok(start..self.out.len())
    }
}

fn shown(key: &Value) -> String {
    format!("{key:?}").chars().take(80).collect()
}

/// Big-endian `magnitude` - 1, without leading zeros.
fn less_one(magnitude: &[u8]) -> Vec<u8> {
    let mut bytes = magnitude.to_vec();
    for byte in bytes.iter_mut().rev() {
        let (less, borrow) = byte.overflowing_sub(1);
        *byte = less;
        if !borrow {
            break;
        }
    }
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes.split_off(zeros)
}
