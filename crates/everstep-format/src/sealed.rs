//! Sealed JSON: a JSON object whose last field is the BLAKE3 of every byte before it.
//!
//! ```text
//! {"magic":"everstep-intent", ... ,"blake3":"<64 hex>"}\n
//!  \_______ hashed, from "{" on __/\____ seal, 78 B ___/
//! ```
//! It stays plain JSON for every tool, and any changed, missing or added byte is noticed.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{FormatError, id::ContentHash, limits, repository, strict};

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

/// The fields that every sealed object has had since the first version and always will have.
#[derive(Deserialize)]
struct Preface {
    magic: String,
    // As wide as an integer can be: a large one is of a later version, not damaged.
    version: u64,
}

/// Checks the seal, then parses, whatever kind of object it is.
///
/// # Errors
/// [`FormatError::Corrupt`] for a missing or wrong seal or for JSON of another shape; [`FormatError::TooLarge`].
pub fn open<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, FormatError> {
    parse(what, &unseal(what, bytes)?)
}

/// Checks the seal, then `magic`, then the version, and only then what else the object says, so that one of a later shape
/// is unsupported and not damaged.
///
/// # Errors
/// As [`open`], also for another magic; [`FormatError::Unsupported`] for another version.
pub fn open_as<T: DeserializeOwned>(what: &'static str, magic: &str, bytes: &[u8]) -> Result<T, FormatError> {
    let json = unseal(what, bytes)?;
    let preface: Preface = parse(what, &json)?;
    expect(what, "magic", &magic, &preface.magic.as_str())?;
    repository::check_version(preface.version)?;
    parse(what, &json)
}

/// The object without its seal, which would survive rewriting as an unknown field.
fn unseal(what: &'static str, bytes: &[u8]) -> Result<Vec<u8>, FormatError> {
    FormatError::within(what, bytes.len() as u64, limits::JSON_BYTES)?;
    let body_len = bytes.len().saturating_sub(SEAL_BYTES);
    let (body, seal) = bytes.split_at(body_len);
    let found = std::str::from_utf8(seal)
        .ok()
        .and_then(|s| s.strip_prefix(SEAL_START)?.strip_suffix(SEAL_END)?.parse::<ContentHash>().ok())
        .ok_or_else(|| {
            let found = format!("{} bytes without one", bytes.len());
            FormatError::corrupt(what, body_len as u64, "a closing blake3 field", found)
        })?;
    let actual = ContentHash::of(body);
    if actual == found {
        return Ok([body, b"}"].concat());
    }
    Err(FormatError::corrupt(what, 0, format!("content with BLAKE3 {found}"), format!("BLAKE3 {actual}")))
}

fn parse<T: DeserializeOwned>(what: &'static str, json: &[u8]) -> Result<T, FormatError> {
    strict::from_slice(json).map_err(|e| {
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
    use crate::lease::Lease;

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
    fn magic_is_judged_before_the_version_and_the_version_before_all_else() {
        let opened =
            |object: Value| open_as::<Lease>("test", "ours", &seal("test", &object).unwrap()).map(drop);
        for version in [json!(0), json!(2), json!(1_u64 << 32), json!(u64::MAX)] {
            let later = opened(json!({"magic": "ours", "version": version, "requires": [], "lease": 7}));
            assert!(matches!(later, Err(FormatError::Unsupported { .. })), "{version}: {later:?}");
        }
        for (magic, version) in
            [("theirs", json!(2)), ("ours", json!(-1)), ("ours", json!(1.0)), ("ours", json!(1))]
        {
            let bad = opened(json!({"magic": magic, "version": version, "requires": []}));
            assert!(matches!(bad, Err(FormatError::Corrupt { .. })), "{magic} {version}: {bad:?}");
        }
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
