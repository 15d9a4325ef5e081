//! Sealed JSON: a JSON object whose last field is the BLAKE3 of every byte before it.
//!
//! ```text
//! {"magic":"everstep-intent", ... ,"blake3":"<64 hex>"}\n
//!  \_______ hashed, from "{" on __/\____ seal, 78 B ___/
//! ```
//! It stays plain JSON for every tool, and any changed, missing or added byte is noticed.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{FormatError, id::ContentHash, limits};

const SEAL_START: &str = ",\"blake3\":\"";
const SEAL_END: &str = "\"}\n";
/// Bytes of the seal: `,"blake3":"` + 64 hex digits + `"}` + newline.
pub const SEAL_BYTES: usize = SEAL_START.len() + 64 + SEAL_END.len();

/// Serialises `value` (which must be a JSON object with at least one field) and seals it.
///
/// # Errors
/// [`FormatError::TooLarge`] above [`limits::JSON_BYTES`]; [`FormatError::Invalid`] when it is no JSON object.
pub fn seal<T: Serialize>(what: &'static str, value: &T) -> Result<Vec<u8>, FormatError> {
    let mut json =
        serde_json::to_vec(value).map_err(|e| FormatError::invalid(what, e.to_string(), "a JSON object"))?;
    if json.len() <= 2 || json.pop() != Some(b'}') {
        return Err(FormatError::invalid(what, "no fields", "a JSON object with fields"));
    }
    let seal = format!("{SEAL_START}{}{SEAL_END}", ContentHash::of(&json));
    json.extend_from_slice(seal.as_bytes());
    FormatError::within(what, json.len() as u64, limits::JSON_BYTES)?;
    Ok(json)
}

/// Checks the seal, then parses.
///
/// # Errors
/// [`FormatError::Corrupt`] for a missing or wrong seal or for JSON of another shape; [`FormatError::TooLarge`].
pub fn open<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, FormatError> {
    FormatError::within(what, bytes.len() as u64, limits::JSON_BYTES)?;
    let body_len = bytes.len().saturating_sub(SEAL_BYTES);
    let (body, seal) = bytes.split_at(body_len);
    let found = std::str::from_utf8(seal)
        .ok()
        .and_then(|s| s.strip_prefix(SEAL_START)?.strip_suffix(SEAL_END)?.parse::<ContentHash>().ok())
        .ok_or_else(|| {
            FormatError::corrupt(
                what,
                body_len as u64,
                "a closing blake3 field",
                format!("{} bytes without one", bytes.len()),
            )
        })?;
    let actual = ContentHash::of(body);
    if actual != found {
        return Err(FormatError::corrupt(
            what,
            0,
            format!("content with BLAKE3 {found}"),
            format!("BLAKE3 {actual}"),
        ));
    }
    // Parsed without the seal, or it would survive rewriting as an unknown field.
    let json = [body, b"}"].concat();
    serde_json::from_slice(&json).map_err(|e| {
        FormatError::corrupt(what, e.column() as u64, "the fields of the specification", e.to_string())
    })
}

/// `Ok` when a parsed field says what its place or key demands.
///
/// # Errors
/// [`FormatError::Corrupt`] naming the field.
pub(crate) fn expect<T: PartialEq + std::fmt::Display>(
    what: &'static str,
    field: &'static str,
    expected: &T,
    found: &T,
) -> Result<(), FormatError> {
    if expected == found {
        return Ok(());
    }
    Err(FormatError::corrupt(what, 0, format!("{field} {expected}"), format!("{field} {found}")))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_sealed_object_returns_and_is_plain_json() {
        let object = json!({"magic": "everstep-test", "step": 7});
        let bytes = seal("test", &object).unwrap();
        assert_eq!(open::<Value>("test", &bytes).unwrap(), object);
        let plain: Value = serde_json::from_slice(&bytes).unwrap();
        let body = &bytes[..bytes.len() - SEAL_BYTES];
        assert_eq!(plain["blake3"], json!(ContentHash::of(body).to_string()));
        assert_eq!(bytes.last(), Some(&b'\n'));
    }

    #[test]
    fn any_changed_missing_or_added_byte_is_noticed() {
        let bytes = seal("test", &json!({"magic": "everstep-test"})).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let missing = [&bytes[..at], &bytes[at + 1..]].concat();
            let added = [&bytes[..at], b" ", &bytes[at..]].concat();
            for damaged in [&changed, &missing, &added, &bytes[..at].to_vec()] {
                let result = open::<Value>("test", damaged);
                assert!(matches!(result, Err(FormatError::Corrupt { .. })), "byte {at}: {result:?}");
            }
        }
        assert!(open::<Value>("test", &[&bytes[..], b"\n"].concat()).is_err());
    }

    #[test]
    fn only_objects_with_fields_are_sealed() {
        for value in [json!({}), json!([1]), json!("}"), json!(1), json!(null)] {
            assert!(matches!(seal("test", &value), Err(FormatError::Invalid { .. })), "{value}");
        }
    }

    #[test]
    fn objects_beyond_the_limit_are_neither_sealed_nor_opened() {
        let large = json!({"metadata": "x".repeat(4 << 20)});
        assert!(matches!(seal("test", &large), Err(FormatError::TooLarge { .. })));
        assert!(matches!(
            open::<Value>("test", &vec![b' '; (4 << 20) + 1]),
            Err(FormatError::TooLarge { .. })
        ));
    }
}
