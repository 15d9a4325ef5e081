//! Canonical bytes to values.

use std::collections::BTreeSet;

use super::{
    ARRAY, BYTES, FALSE, FLOAT, MAP, NEGATIVE, NEGATIVE_TAG, NULL, POSITIVE_TAG, TAG, TEXT, TRUE, TUPLE_TAG,
    UNSIGNED, Value, announced, deeper, is_canonical_bignum,
};
use crate::{FormatError, limits};

/// Items that memory is taken for before they are seen. A count is only a claim: at every open level this
/// many may turn out to be missing.
const RESERVED_ITEMS: usize = 1024;

pub(super) fn from_bytes(bytes: &[u8]) -> Result<Value, FormatError> {
    FormatError::within("value", bytes.len() as u64, limits::VALUE_BYTES)?;
    let mut reader = Reader { bytes, at: 0, items: 0 };
    let value = reader.value(0)?;
    match bytes.len() - reader.at {
        0 => Ok(value),
        rest => Err(damaged(reader.at, "the end of the value", format!("{rest} bytes more"))),
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Values that containers have announced so far.
    items: u64,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: usize) -> Result<Value, FormatError> {
        let start = self.at;
        match self.peek()? {
            NULL => self.simple(Value::None),
            FALSE => self.simple(Value::Bool(false)),
            TRUE => self.simple(Value::Bool(true)),
            FLOAT => self.float(),
            _ => self.headed(depth, start),
        }
    }

    fn headed(&mut self, depth: usize, start: usize) -> Result<Value, FormatError> {
        let (major, argument) = self.head()?;
        match major {
            UNSIGNED => int(argument, start),
            NEGATIVE => int(argument, start).map(negated),
            BYTES => self.run(argument).map(|bytes| Value::Bytes(bytes.to_vec())),
            TEXT => self.text(argument).map(Value::Text),
            ARRAY => self.items(argument, depth).map(Value::List),
            MAP => self.map(argument, depth).map(Value::Map),
            TAG => self.tagged(argument, depth, start),
            _ => Err(damaged(
                start,
                "false, true, null or a 64-bit float",
                format!("byte {:02x}", self.bytes[start]),
            )),
        }
    }

    fn peek(&self) -> Result<u8, FormatError> {
        self.bytes.get(self.at).copied().ok_or_else(|| damaged(self.at, "a value", "the end"))
    }

    fn simple(&mut self, value: Value) -> Result<Value, FormatError> {
        self.at += 1;
        Ok(value)
    }

    fn float(&mut self) -> Result<Value, FormatError> {
        self.at += 1;
        let mut bits = [0; 8];
        bits.copy_from_slice(self.run(8)?);
        Ok(Value::Float(f64::from_bits(u64::from_be_bytes(bits))))
    }

    /// A major type and its argument, which must have the shortest form.
    fn head(&mut self) -> Result<(u8, u64), FormatError> {
        let start = self.at;
        let first = self.peek()?;
        self.at += 1;
        let (width, least) = match first & 31 {
            info @ 0..24 => return Ok((first >> 5, u64::from(info))),
            24 => (1, 24),
            25 => (2, 1 << 8),
            26 => (4, 1 << 16),
            27 => (8, 1 << 32),
            _ => return Err(damaged(start, "a definite length", format!("byte {first:02x}"))),
        };
        let argument = self.run(width)?.iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
        if argument < least {
            return Err(damaged(
                start,
                format!("the shortest form of {argument}"),
                format!("{width} bytes of it"),
            ));
        }
        Ok((first >> 5, argument))
    }

    /// The next `len` bytes.
    fn run(&mut self, len: u64) -> Result<&'a [u8], FormatError> {
        let left = self.bytes.len() - self.at;
        let taken = usize::try_from(len).ok().filter(|len| *len <= left);
        let len = taken
            .ok_or_else(|| damaged(self.at, format!("{len} bytes"), format!("{left} bytes to the end")))?;
        let run = &self.bytes[self.at..self.at + len];
        self.at += len;
        Ok(run)
    }

    fn text(&mut self, len: u64) -> Result<String, FormatError> {
        let start = self.at;
        let text = std::str::from_utf8(self.run(len)?);
        text.map(str::to_owned).map_err(|error| damaged(start + error.valid_up_to(), "UTF-8", "other bytes"))
    }

    /// A count of items of `each` values, which take a byte at least: more than fit are refused before any is read.
    fn count(&mut self, count: u64, each: u8) -> Result<usize, FormatError> {
        let most = (self.bytes.len() - self.at) / usize::from(each);
        let fitting = usize::try_from(count).ok().filter(|count| *count <= most);
        let fitting =
            fitting.ok_or_else(|| damaged(self.at, format!("{count} items"), format!("room for {most}")))?;
        self.items = announced(self.items, count, each)?;
        Ok(fitting)
    }

    fn items(&mut self, count: u64, depth: usize) -> Result<Vec<Value>, FormatError> {
        let depth = deeper(depth)?;
        let count = self.count(count, 1)?;
        let mut items = Vec::with_capacity(count.min(RESERVED_ITEMS));
        for _ in 0..count {
            items.push(self.value(depth)?);
        }
        Ok(items)
    }

    fn map(&mut self, count: u64, depth: usize) -> Result<Vec<(Value, Value)>, FormatError> {
        let depth = deeper(depth)?;
        let count = self.count(count, 2)?;
        let mut entries = Vec::with_capacity(count.min(RESERVED_ITEMS));
        let mut seen = BTreeSet::new();
        for _ in 0..count {
            let start = self.at;
            let key = self.key(depth)?;
            // One value has one encoding, so equal keys are equal bytes.
            if !seen.insert(&self.bytes[start..self.at]) {
                return Err(damaged(start, "a key that the map has not had", "the same key again"));
            }
            entries.push((key, self.value(depth)?));
        }
        Ok(entries)
    }

    fn key(&mut self, depth: usize) -> Result<Value, FormatError> {
        let start = self.at;
        let key = self.value(depth)?;
        if key.is_container() {
            return Err(damaged(start, "a key that is no container", "a container"));
        }
        Ok(key)
    }

    fn tagged(&mut self, tag: u64, depth: usize, start: usize) -> Result<Value, FormatError> {
        let (major, argument) = self.head()?;
        match (tag, major) {
            (TUPLE_TAG, ARRAY) => self.items(argument, depth).map(Value::Tuple),
            (POSITIVE_TAG | NEGATIVE_TAG, BYTES) => self.big(tag == NEGATIVE_TAG, argument, start),
            _ => Err(damaged(
                start,
                "a tag of a tuple or a big integer",
                format!("tag {tag} before type {major}"),
            )),
        }
    }

    fn big(&mut self, negative: bool, len: u64, start: usize) -> Result<Value, FormatError> {
        let bytes = self.run(len)?;
        if !is_canonical_bignum(bytes) {
            let found = format!("{} bytes that do not need one", bytes.len());
            return Err(damaged(start, "a big integer outside 64 bits, without leading zeros", found));
        }
        let magnitude = if negative { plus_one(bytes) } else { bytes.to_vec() };
        Ok(Value::BigInt { negative, magnitude })
    }
}

fn int(argument: u64, start: usize) -> Result<Value, FormatError> {
    let number = i64::try_from(argument);
    number
        .map(Value::Int)
        .map_err(|_| damaged(start, "an integer of 64 bits with sign", argument.to_string()))
}

/// -1 - n of an integer n, which has exactly its inverted bits.
fn negated(value: Value) -> Value {
    match value {
        Value::Int(number) => Value::Int(!number),
        other => other,
    }
}

/// Big-endian `bytes` + 1.
fn plus_one(bytes: &[u8]) -> Vec<u8> {
    let mut sum = bytes.to_vec();
    for byte in sum.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            return sum;
        }
    }
    sum.insert(0, 1);
    sum
}

fn damaged(at: usize, expected: impl Into<String>, found: impl Into<String>) -> FormatError {
    FormatError::corrupt("value", at as u64, expected, found)
}
