//! Requests as they arrived.

use http::Method;
use http::request::Parts;

use super::xml::percent_decode;

/// A request as it arrived.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Its method.
    pub method: Method,
    /// Its path on the wire, still encoded.
    pub raw_path: String,
    /// Its query on the wire.
    pub query: String,
    /// Its headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Bytes of its body, once that was read whole.
    pub body_bytes: Option<u64>,
    /// The status that it was answered with, if it was.
    pub status: Option<u16>,
}

impl Seen {
    pub(super) fn of(parts: &Parts) -> Self {
        let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        Self {
            method: parts.method.clone(),
            raw_path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            headers: parts.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect(),
            body_bytes: None,
            status: None,
        }
    }

    /// The first header of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(have, _)| have == name).map(|(_, value)| value.as_str())
    }

    /// The decoded `/bucket/key?query`.
    pub fn target(&self) -> String {
        let question = if self.query.is_empty() { "" } else { "?" };
        format!("{}{question}{}", percent_decode(&self.raw_path), percent_decode(&self.query))
    }

    /// The access key that it is signed with.
    pub fn access_key(&self) -> Option<&str> {
        let (_, rest) = self.header("authorization")?.split_once("Credential=")?;
        rest.split('/').next()
    }

    /// The region that it is signed for.
    pub fn region(&self) -> Option<&str> {
        let (_, rest) = self.header("authorization")?.split_once("Credential=")?;
        rest.split('/').nth(2)
    }

    /// Whether it belongs to a multipart upload.
    pub fn is_multipart(&self) -> bool {
        ["uploads", "uploadId", "partNumber"].iter().any(|word| self.query.contains(word))
    }
}
