//! Values there and back, one form per value, and bytes that were made to hurt.

use proptest::prelude::*;

use super::*;

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn bytes_of(value: &Value) -> Vec<u8> {
    value.to_bytes().unwrap()
}

fn assert_form(value: &Value, expected: &[u8]) {
    assert_eq!(bytes_of(value), expected, "{value:?}");
    assert_eq!(Value::from_bytes(expected).as_ref(), Ok(value));
}

fn assert_corrupt(bytes: &[u8]) {
    let result = Value::from_bytes(bytes);
    assert!(matches!(result, Err(FormatError::Corrupt { .. })), "{bytes:02x?}: {result:?}");
}

#[test]
fn scalars_have_the_bytes_of_the_specification() {
    assert_form(&Value::None, &[0xF6]);
    assert_form(&Value::Bool(false), &[0xF4]);
    assert_form(&Value::Bool(true), &[0xF5]);
    assert_form(&Value::Int(0), &[0x00]);
    assert_form(&Value::Int(23), &[0x17]);
    assert_form(&Value::Int(24), &[0x18, 24]);
    assert_form(&Value::Int(256), &[0x19, 1, 0]);
    assert_form(&Value::Int(65_536), &[0x1A, 0, 1, 0, 0]);
    assert_form(&Value::Int(1 << 32), &[0x1B, 0, 0, 0, 1, 0, 0, 0, 0]);
    assert_form(&Value::Int(i64::MAX), &[0x1B, 0x7F, 255, 255, 255, 255, 255, 255, 255]);
    assert_form(&Value::Int(-1), &[0x20]);
    assert_form(&Value::Int(-24), &[0x37]);
    assert_form(&Value::Int(-25), &[0x38, 24]);
    assert_form(&Value::Int(i64::MIN), &[0x3B, 0x7F, 255, 255, 255, 255, 255, 255, 255]);
    assert_form(&Value::Float(1.0), &[0xFB, 0x3F, 0xF0, 0, 0, 0, 0, 0, 0]);
    assert_form(&text("ü"), &[0x62, 0xC3, 0xBC]);
    assert_form(&Value::Bytes(vec![1, 2]), &[0x42, 1, 2]);
}

#[test]
fn containers_have_the_bytes_of_the_specification() {
    assert_form(&Value::List(vec![]), &[0x80]);
    assert_form(&Value::List(vec![Value::Int(1), Value::Bool(true)]), &[0x82, 0x01, 0xF5]);
    assert_form(&Value::Tuple(vec![Value::Int(1)]), &[0xDA, 0x45, 0x56, 0x53, 0x54, 0x81, 0x01]);
    assert_form(&Value::Map(vec![]), &[0xA0]);
    let map = Value::Map(vec![(text("b"), Value::Int(1)), (Value::Int(0), Value::None)]);
    assert_form(&map, &[0xA2, 0x61, b'b', 0x01, 0x00, 0xF6]);
}

#[test]
fn big_integers_are_tagged_only_outside_64_bits() {
    let positive = Value::integer(false, &[0x80, 0, 0, 0, 0, 0, 0, 0]);
    assert_form(&positive, &[0xC2, 0x48, 0x80, 0, 0, 0, 0, 0, 0, 0]);
    let negative = Value::integer(true, &[0x80, 0, 0, 0, 0, 0, 0, 1]);
    assert_form(&negative, &[0xC3, 0x48, 0x80, 0, 0, 0, 0, 0, 0, 0]);
    // -2^64: n is 2^64 - 1, one byte shorter than the magnitude.
    let carried = Value::integer(true, &[1, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_form(&carried, &[0xC3, 0x48, 255, 255, 255, 255, 255, 255, 255, 255]);
    assert_eq!(Value::integer(true, &[0, 0x80, 0, 0, 0, 0, 0, 0, 0]), Value::Int(i64::MIN));
    assert_eq!(Value::integer(false, &[0, 0, 5]), Value::Int(5));
    assert_eq!(Value::integer(true, &[]), Value::Int(0));
}

#[test]
fn c20_special_float_bits_survive() {
    for bits in
        [0x8000_0000_0000_0000u64, 0x7FF0_0000_0000_0001, 0x7FF8_0000_0000_0001, 0xFFF0_0000_0000_0001, 1]
    {
        let back = Value::from_bytes(&bytes_of(&Value::Float(f64::from_bits(bits)))).unwrap();
        assert!(
            matches!(back, Value::Float(number) if number.to_bits() == bits),
            "{bits:016x} became {back:?}"
        );
    }
    assert_ne!(Value::Float(0.0), Value::Float(-0.0));
    assert_eq!(Value::Float(f64::NAN), Value::Float(f64::NAN));
}

#[test]
fn equality_keeps_types_and_order_apart() {
    let different = [
        Value::Int(1),
        Value::Float(1.0),
        Value::Bool(true),
        text("1"),
        Value::Bytes(b"1".to_vec()),
        Value::List(vec![Value::Int(1)]),
        Value::Tuple(vec![Value::Int(1)]),
        Value::Map(vec![(Value::Int(1), Value::None), (Value::Int(2), Value::None)]),
        Value::Map(vec![(Value::Int(2), Value::None), (Value::Int(1), Value::None)]),
        Value::None,
    ];
    for (left, a) in different.iter().enumerate() {
        for (right, b) in different.iter().enumerate() {
            assert_eq!(a == b, left == right, "{a:?} and {b:?}");
            assert_eq!(bytes_of(a) == bytes_of(b), left == right, "{a:?} and {b:?}");
        }
    }
}

#[test]
fn other_spellings_of_a_value_are_corrupt() {
    for bytes in [
        &[0x18, 23][..], // an integer that fits the first byte
        &[0x19, 0, 255], // an integer in too many bytes
        &[0x1A, 0, 0, 255, 255],
        &[0x1B, 0, 0, 0, 0, 255, 255, 255, 255],
        &[0x1B, 0x80, 0, 0, 0, 0, 0, 0, 0], // 2^63 without a tag
        &[0x3B, 0x80, 0, 0, 0, 0, 0, 0, 0],
        &[0x58, 1, 0], // a length in too many bytes
        &[0x9F, 0xFF], // indefinite lengths
        &[0xBF, 0xFF],
        &[0x5F, 0xFF],
        &[0x7F, 0xFF],
        &[0x1C],                   // reserved
        &[0xF9, 0x3C, 0],          // a half
        &[0xFA, 0x3F, 0x80, 0, 0], // a single
        &[0xF7],                   // undefined
        &[0xF8, 32],               // another simple value
        &[0xE0],
        &[0xFF],
        &[0xC2, 0x41, 5], // a small integer as a big one
        &[0xC2, 0x40],
        &[0xC2, 0x48, 0x7F, 255, 255, 255, 255, 255, 255, 255],
        &[0xC2, 0x49, 0, 0x80, 0, 0, 0, 0, 0, 0, 0], // a leading zero
        &[0xC2, 0x01],                               // a tag before the wrong type
        &[0xC1, 0x01],                               // another tag
        &[0xDA, 0x45, 0x56, 0x53, 0x54, 0xA0],
        &[0xDA, 0x45, 0x56, 0x53, 0x54, 0xDA, 0x45, 0x56, 0x53, 0x54, 0x80],
        &[0x61, 0xFF],       // not UTF-8
        &[0xA2, 1, 0, 1, 0], // a key twice
        &[0xA1, 0x80, 0],    // a container as key
        &[0xA1, 0xDA, 0x45, 0x56, 0x53, 0x54, 0x80, 0],
        &[0x00, 0x00], // something after the end
        &[],
    ] {
        assert_corrupt(bytes);
    }
}

#[test]
fn a_value_cut_anywhere_is_corrupt() {
    let value = Value::Map(vec![
        (
            text("state"),
            Value::Tuple(vec![Value::Int(-500), Value::integer(true, &[255; 12]), Value::Float(0.5)]),
        ),
        (Value::Bytes(vec![3; 30]), Value::List(vec![Value::None, Value::Bool(false), text("x")])),
    ]);
    let bytes = bytes_of(&value);
    for len in 0..bytes.len() {
        assert_corrupt(&bytes[..len]);
    }
}

#[test]
fn huge_counts_are_refused_without_memory_for_them() {
    for first in [0x5B, 0x7B, 0x9B, 0xBB] {
        for length in [2u64.pow(32), 2u64.pow(62), u64::MAX] {
            assert_corrupt(&[&[first][..], &length.to_be_bytes()].concat());
        }
    }
    // 100 levels, each claiming as many items as bytes are left.
    let greedy: Vec<u8> = (0..100).flat_map(|_| [0x9A, 0, 1, 0, 0]).chain([0; 70_000]).collect();
    let result = Value::from_bytes(&greedy);
    assert!(matches!(result, Err(FormatError::TooLarge { what: "values within a value", .. })), "{result:?}");
}

#[test]
fn nesting_is_limited_on_both_sides() {
    let nested = |levels: usize| [vec![0x81; levels], vec![0]].concat();
    let deepest = Value::from_bytes(&nested(128)).unwrap();
    assert_eq!(bytes_of(&deepest), nested(128));
    let deeper = Value::List(vec![deepest]);
    for result in [deeper.to_bytes().map(|_| ()), Value::from_bytes(&nested(129)).map(|_| ())] {
        assert!(matches!(result, Err(FormatError::TooLarge { what: "depth of a value", .. })), "{result:?}");
    }
    let tuples = [0xDA, 0x45, 0x56, 0x53, 0x54, 0x81].repeat(100_000);
    for bytes in [nested(100_000), [0xA1, 0x00].repeat(100_000), tuples] {
        assert!(matches!(Value::from_bytes(&bytes), Err(FormatError::TooLarge { .. })));
    }
    // Tags in front of tags nest without containers.
    assert_corrupt(&vec![0xC2; 100_000]);
}

#[test]
fn values_that_have_no_canonical_form_are_not_written() {
    let list = Value::List(vec![]);
    for value in [
        Value::Map(vec![(Value::Int(1), Value::None), (Value::Int(1), Value::None)]),
        Value::Map(vec![(list, Value::None)]),
        Value::BigInt { negative: false, magnitude: vec![5] },
        Value::BigInt { negative: true, magnitude: vec![0x80, 0, 0, 0, 0, 0, 0, 0] },
        Value::BigInt { negative: false, magnitude: [vec![0], vec![255; 9]].concat() },
        Value::BigInt { negative: true, magnitude: vec![0, 1, 0, 0, 0, 0, 0, 0, 0, 0] },
        Value::BigInt { negative: true, magnitude: vec![] },
    ] {
        assert!(matches!(value.to_bytes(), Err(FormatError::Invalid { .. })), "{value:?}");
    }
}

fn scalar() -> impl Strategy<Value = Value> {
    let integer = (any::<bool>(), prop::collection::vec(any::<u8>(), 0..20));
    prop_oneof![
        Just(Value::None),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        (-300i64..300).prop_map(Value::Int),
        integer.prop_map(|(negative, magnitude)| Value::integer(negative, &magnitude)),
        any::<u64>().prop_map(|bits| Value::Float(f64::from_bits(bits))),
        any::<String>().prop_map(Value::Text),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(Value::Bytes),
    ]
}

fn any_value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(5, 64, 6, |inner| {
        let entries = prop::collection::vec((scalar(), inner.clone()), 0..6);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::List),
            prop::collection::vec(inner, 0..6).prop_map(Value::Tuple),
            entries.prop_map(|entries| Value::Map(without_repeats(entries))),
        ]
    })
}

fn without_repeats(entries: Vec<(Value, Value)>) -> Vec<(Value, Value)> {
    let mut seen = std::collections::BTreeSet::new();
    entries.into_iter().filter(|(key, _)| seen.insert(bytes_of(key))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_value_returns(value in any_value()) {
        let bytes = bytes_of(&value);
        prop_assert_eq!(Value::from_bytes(&bytes), Ok(value));
    }

    #[test]
    fn what_is_read_is_written_back_byte_for_byte(
        value in any_value(),
        at in any::<prop::sample::Index>(),
        new in any::<u8>(),
    ) {
        let mut bytes = bytes_of(&value);
        let at = at.index(bytes.len());
        bytes[at] = new;
        if let Ok(read) = Value::from_bytes(&bytes) {
            prop_assert_eq!(bytes_of(&read), bytes);
        }
    }

    #[test]
    fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Value::from_bytes(&bytes);
    }
}
