//! Values, in a notation that keeps what JSON does not, and their canonical bytes.

use everstep_format::value::Value;
use serde::{Deserialize, Serialize};

use crate::bytes::Hex;
use crate::{Refusal, refusal, vectors};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct ValueVectors {
    about: String,
    values: Vec<ValueVector>,
    refused: Vec<RefusedValue>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct ValueVector {
    name: String,
    value: Notation,
    bytes: Hex,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct RefusedValue {
    name: String,
    bytes: Hex,
    refusal: Refusal,
}

/// A value in JSON, every type apart. An integer is sign and magnitude in hex, a float its 64 bits in hex.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Notation {
    None,
    Bool(bool),
    Int(String),
    Float(String),
    Text(String),
    Bytes(Hex),
    List(Vec<Notation>),
    Tuple(Vec<Notation>),
    Map(Vec<(Notation, Notation)>),
}

#[test]
fn values_agree_with_the_vectors() {
    let fresh = ValueVectors {
        about: "Values and their canonical bytes. `int` is sign and magnitude in hex, `float` the 64 bits of the double \
                in hex. Refused: bytes that a reader must not accept."
            .to_owned(),
        values: cases().iter().map(|(name, value)| vector(name, value)).collect(),
        refused: refused(),
    };
    let stored = vectors("values.json", &fresh);
    assert_eq!(stored, fresh);
    for ValueVector { name, value, bytes } in &stored.values {
        let value = value_of(value);
        assert_eq!(Hex(value.to_bytes().unwrap()), *bytes, "{name}");
        assert_eq!(Value::from_bytes(&bytes.0), Ok(value), "{name}");
    }
    for RefusedValue { name, bytes, refusal: expected } in &stored.refused {
        assert_eq!(refusal(Value::from_bytes(&bytes.0)), *expected, "{name}");
    }
}

fn vector(name: &str, value: &Value) -> ValueVector {
    ValueVector { name: name.to_owned(), value: notation(value), bytes: Hex(value.to_bytes().unwrap()) }
}

fn notation(value: &Value) -> Notation {
    let all = |items: &[Value]| items.iter().map(notation).collect();
    match value {
        Value::None => Notation::None,
        Value::Bool(truth) => Notation::Bool(*truth),
        Value::Int(number) => signed(*number < 0, &number.unsigned_abs().to_be_bytes()),
        Value::BigInt { negative, magnitude } => signed(*negative, magnitude),
        Value::Float(number) => Notation::Float(format!("{:016x}", number.to_bits())),
        Value::Text(text) => Notation::Text(text.clone()),
        Value::Bytes(bytes) => Notation::Bytes(Hex(bytes.clone())),
        Value::List(items) => Notation::List(all(items)),
        Value::Tuple(items) => Notation::Tuple(all(items)),
        Value::Map(entries) => {
            Notation::Map(entries.iter().map(|(key, value)| (notation(key), notation(value))).collect())
        }
    }
}

fn signed(negative: bool, magnitude: &[u8]) -> Notation {
    let digits = String::from(Hex(magnitude.to_vec()));
    let digits = digits.trim_start_matches('0');
    let sign = if negative { "-" } else { "" };
    Notation::Int(format!("{sign}0x{}", if digits.is_empty() { "0" } else { digits }))
}

fn value_of(notation: &Notation) -> Value {
    let all = |items: &[Notation]| items.iter().map(value_of).collect();
    match notation {
        Notation::None => Value::None,
        Notation::Bool(truth) => Value::Bool(*truth),
        Notation::Int(text) => {
            let digits = text.trim_start_matches('-').trim_start_matches("0x");
            let even = format!("{}{digits}", if digits.len() % 2 == 0 { "" } else { "0" });
            Value::integer(text.starts_with('-'), &Hex::try_from(even).unwrap().0)
        }
        Notation::Float(bits) => Value::Float(f64::from_bits(u64::from_str_radix(bits, 16).unwrap())),
        Notation::Text(text) => Value::Text(text.clone()),
        Notation::Bytes(bytes) => Value::Bytes(bytes.0.clone()),
        Notation::List(items) => Value::List(all(items)),
        Notation::Tuple(items) => Value::Tuple(all(items)),
        Notation::Map(entries) => {
            Value::Map(entries.iter().map(|(key, value)| (value_of(key), value_of(value))).collect())
        }
    }
}

fn cases() -> Vec<(String, Value)> {
    let text = |text: &str| Value::Text(text.to_owned());
    let ints = [0, 1, 23, 24, 255, 256, 65_535, 65_536, (1 << 32) - 1, 1 << 32, i64::MAX];
    let negatives = [-1, -24, -25, -256, -257, -65_537, -(1 << 32) - 1, i64::MIN];
    let floats = [
        0,
        1,
        0x3FF0 << 48,
        0x8000 << 48,
        0x7FF0 << 48,
        0xFFF0 << 48,
        (0x7FF0 << 48) | 1,
        (0xFFF8 << 48) | 7,
    ];
    let bigs: [(bool, &[u8]); 5] = [
        (false, &[0x80, 0, 0, 0, 0, 0, 0, 0]),
        (true, &[0x80, 0, 0, 0, 0, 0, 0, 1]),
        (true, &[1, 0, 0, 0, 0, 0, 0, 0, 0]),
        (false, &[0xFF; 16]),
        (true, &[0xFF; 16]),
    ];
    let state = Value::Map(vec![
        (text("epoch"), Value::Int(3)),
        (text("betas"), Value::Tuple(vec![Value::Float(0.9), Value::Float(0.95)])),
        (Value::Int(0), Value::List(vec![Value::None, Value::Map(vec![])])),
        (Value::Bool(true), Value::Bytes(vec![0, 255])),
        (Value::Float(1.0), text("not the key 1")),
        (Value::Int(1), text("nor the key true")),
    ]);
    let mut cases: Vec<(String, Value)> = vec![
        ("none".into(), Value::None),
        ("false".into(), Value::Bool(false)),
        ("true".into(), Value::Bool(true)),
        ("empty text".into(), text("")),
        ("text".into(), text("Übung 日本")),
        ("text of 24 bytes".into(), text(&"x".repeat(24))),
        ("bytes of 256".into(), Value::Bytes(vec![0xAB; 256])),
        ("empty list".into(), Value::List(vec![])),
        ("empty tuple".into(), Value::Tuple(vec![])),
        ("empty map".into(), Value::Map(vec![])),
        ("a trainer's state".into(), state),
    ];
    cases.extend(ints.iter().chain(&negatives).map(|int| (format!("int {int}"), Value::Int(*int))));
    cases.extend(
        floats.iter().map(|bits| (format!("float {bits:016x}"), Value::Float(f64::from_bits(*bits)))),
    );
    cases.extend(bigs.iter().map(|(negative, magnitude)| {
        (format!("big integer of {} bytes", magnitude.len()), Value::integer(*negative, magnitude))
    }));
    cases
}

fn refused() -> Vec<RefusedValue> {
    let deep = [vec![0x81; 129], vec![0]].concat();
    let cases: [(&str, &[u8]); 22] = [
        ("no bytes", &[]),
        ("an integer in too many bytes", &[0x18, 23]),
        ("2^63 without a tag", &[0x1B, 0x80, 0, 0, 0, 0, 0, 0, 0]),
        ("-2^63 - 1 without a tag", &[0x3B, 0x80, 0, 0, 0, 0, 0, 0, 0]),
        ("a big integer that fits 64 bits", &[0xC2, 0x48, 0x7F, 255, 255, 255, 255, 255, 255, 255]),
        ("a big integer with a leading zero", &[0xC2, 0x49, 0, 0x80, 0, 0, 0, 0, 0, 0, 0]),
        ("an array without a definite length", &[0x9F, 0xFF]),
        ("a map without a definite length", &[0xBF, 0xFF]),
        ("bytes without a definite length", &[0x5F, 0xFF]),
        ("text without a definite length", &[0x7F, 0xFF]),
        ("a half-precision float", &[0xF9, 0x3C, 0]),
        ("a single-precision float", &[0xFA, 0x3F, 0x80, 0, 0]),
        ("undefined", &[0xF7]),
        ("another simple value", &[0xF8, 32]),
        ("another tag", &[0xC1, 0]),
        ("a tuple's tag before a map", &[0xDA, 0x45, 0x56, 0x53, 0x54, 0xA0]),
        ("text that is not UTF-8", &[0x61, 0xFF]),
        ("a key twice", &[0xA2, 1, 0, 1, 0]),
        ("a list as a key", &[0xA1, 0x80, 0]),
        ("bytes after the end", &[0, 0]),
        ("a list that ends early", &[0x82, 0]),
        ("an array of 2^64 - 1 items", &[0x9B, 255, 255, 255, 255, 255, 255, 255, 255]),
    ];
    let vector = |name: &str, bytes: &[u8], refusal| RefusedValue {
        name: name.to_owned(),
        bytes: Hex(bytes.to_vec()),
        refusal,
    };
    let mut refused: Vec<_> =
        cases.iter().map(|(name, bytes)| vector(name, bytes, Refusal::Corrupt)).collect();
    refused.push(vector("129 lists in each other", &deep, Refusal::TooLarge));
    refused
}
