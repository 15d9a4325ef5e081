//! Objects as people and scripts read them: like JSON, with what JSON lacks.

use everstep::Value;
use serde_json::{Map, Value as Json, json};

use crate::output::printable;

/// Items of a container, and characters or bytes of one item, that people are shown.
const SHOWN: usize = 100;
/// A value that fits so many columns stands on one line.
const LINE: usize = 90;
/// Bytes of opaque state that are shown.
const DUMPED: usize = 256;

/// Lines for people.
pub(crate) fn lines(value: &Value) -> Vec<String> {
    let (open, close) = match value {
        Value::List(_) => ("[", "]"),
        Value::Tuple(_) => ("(", ")"),
        Value::Map(_) => ("{", "}"),
        _ => return vec![scalar(value)],
    };
    let flat = flat(value, LINE);
    if let Some(text) = flat {
        return vec![text];
    }
    let (items, more) = items(value);
    let mut shown = vec![open.to_owned()];
    for (key, item) in items {
        let mut inner = lines(item);
        if let (Some(key), Some(first)) = (key, inner.first_mut()) {
            first.insert_str(0, &format!("{}: ", scalar(key)));
        }
        if let Some(last) = inner.last_mut() {
            last.push(',');
        }
        shown.extend(inner.into_iter().map(|line| format!("  {line}")));
    }
    if more > 0 {
        shown.push(format!("  ... {more} more"));
    }
    shown.push(close.to_owned());
    shown
}

/// One line, when it fits `room` and nothing is left out.
fn flat(value: &Value, room: usize) -> Option<String> {
    let (open, close) = match value {
        Value::List(_) => ("[", "]"),
        Value::Tuple(items) => ("(", if items.len() == 1 { ",)" } else { ")" }),
        Value::Map(_) => ("{", "}"),
        _ => return Some(scalar(value)).filter(|text| text.len() <= room),
    };
    let (items, more) = items(value);
    let mut text = open.to_owned();
    for (number, (key, item)) in items.into_iter().enumerate() {
        if number > 0 {
            text.push_str(", ");
        }
        if let Some(key) = key {
            text.push_str(&format!("{}: ", scalar(key)));
        }
        text.push_str(&flat(item, room.checked_sub(text.len())?)?);
    }
    text.push_str(close);
    (more == 0 && text.len() <= room).then_some(text)
}

type Item<'v> = (Option<&'v Value>, &'v Value);

/// The first items of a container, and how many more there are.
fn items(value: &Value) -> (Vec<Item<'_>>, usize) {
    match value {
        Value::List(items) | Value::Tuple(items) => {
            (items.iter().take(SHOWN).map(|item| (None, item)).collect(), items.len().saturating_sub(SHOWN))
        }
        Value::Map(pairs) => (
            pairs.iter().take(SHOWN).map(|(key, item)| (Some(key), item)).collect(),
            pairs.len().saturating_sub(SHOWN),
        ),
        _ => (Vec::new(), 0),
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::None => "null".to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Int(number) => number.to_string(),
        Value::BigInt { negative, magnitude } => big(*negative, magnitude),
        Value::Float(number) if number.is_nan() => "nan".to_owned(),
        Value::Float(number) => format!("{number:?}"),
        Value::Text(text) => quoted(text),
        Value::Bytes(bytes) => short_bytes(bytes),
        // As a key they cannot be.
        Value::List(_) | Value::Tuple(_) | Value::Map(_) => String::new(),
    }
}

fn quoted(text: &str) -> String {
    let shown: String = text.chars().take(SHOWN * 10).collect();
    let rest = text.chars().count().saturating_sub(SHOWN * 10);
    let more = if rest > 0 { format!(" ... {rest} more characters") } else { String::new() };
    // JSON escapes quotes and most control characters, the rest is ours.
    format!("{}{more}", printable(&Json::from(shown).to_string()))
}

fn short_bytes(bytes: &[u8]) -> String {
    let more = bytes.len().saturating_sub(SHOWN);
    let shown = bytes[..bytes.len().min(SHOWN)].escape_ascii();
    if more > 0 { format!("b\"{shown}\" ... {more} more bytes") } else { format!("b\"{shown}\"") }
}

fn big(negative: bool, magnitude: &[u8]) -> String {
    let sign = if negative { "-" } else { "" };
    let digits = hex(magnitude);
    let digits = digits.trim_start_matches('0');
    format!("{sign}0x{}", if digits.is_empty() { "0" } else { digits })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Opaque bytes for people: offsets, hex digits, text.
pub(crate) fn dump(bytes: &[u8]) -> Vec<String> {
    let line = |(number, row): (usize, &[u8])| {
        let digits: Vec<String> = row.iter().map(|byte| format!("{byte:02x}")).collect();
        let text: String =
            row.iter().map(|&b| if (0x20..0x7f).contains(&b) { char::from(b) } else { '.' }).collect();
        format!("{:08x}  {:<47}  {text}", number * 16, digits.join(" "))
    };
    let mut lines: Vec<String> = bytes[..bytes.len().min(DUMPED)].chunks(16).enumerate().map(line).collect();
    if bytes.len() > DUMPED {
        lines.push(format!("... {} more bytes (--raw writes them all)", bytes.len() - DUMPED));
    }
    lines
}

/// For scripts. What JSON lacks is an object with one field whose name begins with `$`.
pub(crate) fn json(value: &Value) -> Json {
    match value {
        Value::None => Json::Null,
        Value::Bool(truth) => (*truth).into(),
        Value::Int(number) => (*number).into(),
        Value::BigInt { negative, magnitude } => json!({ "$int": big(*negative, magnitude) }),
        Value::Float(number) if number.is_nan() => json!({ "$float": "NaN" }),
        Value::Float(number) if number.is_infinite() => {
            json!({ "$float": if *number > 0.0 { "Infinity" } else { "-Infinity" } })
        }
        Value::Float(number) => json!(number),
        Value::Text(text) => text.as_str().into(),
        Value::Bytes(bytes) => json!({ "$bytes": hex(bytes) }),
        Value::List(items) => items.iter().map(json).collect(),
        Value::Tuple(items) => json!({ "$tuple": items.iter().map(json).collect::<Json>() }),
        Value::Map(pairs) => map(pairs),
    }
}

fn map(pairs: &[(Value, Value)]) -> Json {
    let plain = |(key, item): &(Value, Value)| match key {
        Value::Text(key) if !key.starts_with('$') => Some((key.clone(), json(item))),
        _ => None,
    };
    match pairs.iter().map(plain).collect::<Option<Map<_, _>>>() {
        Some(map) => Json::Object(map),
        None => {
            let pairs: Json = pairs.iter().map(|(key, item)| json!([json(key), json(item)])).collect();
            json!({ "$map": pairs })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::Text(text.to_owned())
    }

    #[test]
    fn types_stay_apart_for_people() {
        let value = Value::Map(vec![
            (text("betas"), Value::Tuple(vec![Value::Float(0.9), Value::Int(2)])),
            (Value::Int(0), Value::None),
            (
                text("x\u{1b}[2J"),
                Value::List(vec![Value::Float(f64::NAN), Value::Float(-0.0), Value::Bool(true)]),
            ),
            (text("raw"), Value::Bytes(vec![0, b'a', 255])),
        ]);
        let shown = lines(&value);
        assert_eq!(
            shown.join("\n"),
            "{\"betas\": (0.9, 2), 0: null, \"x\\u001b[2J\": [nan, -0.0, true], \"raw\": b\"\\x00a\\xff\"}"
        );
        let long =
            Value::Map(vec![(text("a"), text(&"x".repeat(80))), (Value::Int(1), Value::Tuple(vec![]))]);
        assert_eq!(lines(&long), ["{", &format!("  \"a\": \"{}\",", "x".repeat(80)), "  1: (),", "}"]);
        assert_eq!(lines(&Value::Tuple(vec![Value::Int(1)])), ["(1,)"]);
        assert_eq!(lines(&Value::integer(true, &[1, 0, 0, 0, 0, 0, 0, 0, 0])), ["-0x10000000000000000"]);
    }

    #[test]
    fn long_values_are_cut_and_say_so() {
        let many = Value::List((0..1000).map(Value::Int).collect());
        let shown = lines(&many);
        assert_eq!((shown.len(), shown[101].as_str()), (103, "  ... 900 more"));
        assert!(lines(&text(&"a".repeat(5000)))[0].ends_with("... 4000 more characters"));
        assert_eq!(dump(&[7; 300]).len(), 17);
        assert_eq!(dump(b"ab\x1b")[0], format!("00000000  {:<47}  ab.", "61 62 1b"));
    }

    #[test]
    fn json_says_what_it_has_no_types_for() {
        let value = Value::Map(vec![(text("a"), Value::Tuple(vec![Value::Float(f64::INFINITY)]))]);
        assert_eq!(json(&value), json!({ "a": { "$tuple": [{ "$float": "Infinity" }] } }));
        let keyed = Value::Map(vec![(Value::Int(1), text("$x")), (text("$y"), Value::Bytes(vec![1, 255]))]);
        assert_eq!(json(&keyed), json!({ "$map": [[1, "$x"], ["$y", { "$bytes": "01ff" }]] }));
    }
}
