//! Bytes as the vectors spell them: lower-case hex.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Hex(pub(crate) Vec<u8>);

impl TryFrom<String> for Hex {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if !text.len().is_multiple_of(2)
            || text.bytes().any(|digit| !matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
        {
            return Err(format!("{text:?} is no lower-case hex"));
        }
        let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).map_err(|error| error.to_string());
        (0..text.len()).step_by(2).map(byte).collect::<Result<_, _>>().map(Self)
    }
}

impl From<Hex> for String {
    fn from(hex: Hex) -> String {
        hex.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
