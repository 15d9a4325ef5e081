//! From a failed call to what a caller can do about it.

use std::error::Error;
use std::time::{Duration, SystemTime};

use crate::{StoreError, StoreErrorKind};

/// A clock that differs by less than this is not what a signature failed for.
const SKEW: Duration = Duration::from_secs(4 * 60);

/// A failed try, taken apart.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    /// What a caller can do about it.
    pub(crate) kind: StoreErrorKind,
    /// The status, if the store answered.
    pub(crate) status: Option<u16>,
    /// The store's code, or nothing.
    pub(crate) code: String,
    /// What happened, in words.
    pub(crate) detail: String,
}

impl Failure {
    /// A failure that no answer of the store describes.
    pub(crate) fn new(kind: StoreErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, status: None, code: String::new(), detail: detail.into() }
    }

    /// A connection that could not be made, or broke.
    pub(crate) fn of_connection(detail: String) -> Self {
        if detail.contains("certificate") {
            let detail = format!("{detail}; name a file of trusted certificates in AWS_CA_BUNDLE");
            return Self::new(StoreErrorKind::Invalid, detail);
        }
        Self::new(StoreErrorKind::Unreachable, detail)
    }

    /// Whether the store answered that it did not do what was asked.
    pub(crate) fn is_refusal(&self) -> bool {
        let transient = [StoreErrorKind::Unreachable, StoreErrorKind::Throttled, StoreErrorKind::Server];
        !transient.contains(&self.kind)
    }

    /// The error for callers.
    pub(crate) fn into_error(self, operation: &'static str, key: &str) -> StoreError {
        StoreError::new(self.kind, operation, key, self.detail)
    }
}

/// What the store answered.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    /// The status.
    pub(crate) status: u16,
    /// Its code, or nothing.
    pub(crate) code: String,
    /// Its own words, or none.
    pub(crate) message: String,
    /// By which its operators find the request.
    pub(crate) request_id: Option<String>,
    /// The bucket's region, where the answer names it.
    pub(crate) region: Option<String>,
    /// Its clock.
    pub(crate) date: Option<SystemTime>,
    /// Whether a redirection means another region.
    pub(crate) has_regions: bool,
}

impl Told {
    /// What a caller can do about it.
    pub(crate) fn kind(&self) -> StoreErrorKind {
        kind_of_code(&self.code).unwrap_or_else(|| kind_of_status(self.status))
    }

    /// A failure that it describes; `now` is our time, to compare with the store's.
    pub(crate) fn into_failure(self, now: SystemTime) -> Failure {
        let kind = self.kind();
        let detail = self.describe(kind, now);
        Failure { kind, status: Some(self.status), code: self.code, detail }
    }

    fn describe(&self, kind: StoreErrorKind, now: SystemTime) -> String {
        let mut text = format!("the store answered {}", self.status);
        for part in [&self.code, &self.message] {
            if !part.is_empty() {
                text.push_str(if part == &self.code { " " } else { ": " });
                text.push_str(part);
            }
        }
        if let Some(id) = &self.request_id {
            text.push_str(&format!(" (request {id})"));
        }
        if let Some(hint) = self.hint(kind, now) {
            text.push_str(&format!("; {hint}"));
        }
        text
    }

    fn hint(&self, kind: StoreErrorKind, now: SystemTime) -> Option<String> {
        if let Some(skew) = self.skew(now).filter(|_| kind == StoreErrorKind::Denied) {
            let minutes = skew.as_secs().div_ceil(60);
            return Some(format!("this machine's clock differs by ~{minutes} min from the store's: set it"));
        }
        if (self.has_regions && matches!(self.status, 301 | 307))
            || self.code == "AuthorizationHeaderMalformed"
        {
            return Some(match &self.region {
                Some(region) => format!("the bucket is in region {region}: pass --region {region}"),
                None => "the bucket is in another region: pass it with --region".to_owned(),
            });
        }
        None
    }

    fn skew(&self, now: SystemTime) -> Option<Duration> {
        let date = self.date?;
        let skew = date.duration_since(now).unwrap_or_else(|earlier| earlier.duration());
        (skew >= SKEW || self.code == "RequestTimeTooSkewed").then_some(skew)
    }
}

/// What a store's code means; `None` for one that says no more than the status.
pub(crate) fn kind_of_code(code: &str) -> Option<StoreErrorKind> {
    Some(match code {
        "NoSuchKey" | "NoSuchBucket" => StoreErrorKind::NotFound,
        "ExpiredToken" | "ExpiredTokenException" | "TokenRefreshRequired" | "InvalidToken" => {
            StoreErrorKind::CredentialsExpired
        }
        "AccessDenied"
        | "SignatureDoesNotMatch"
        | "InvalidAccessKeyId"
        | "RequestTimeTooSkewed"
        | "AllAccessDisabled"
        | "AccountProblem"
        | "NotSignedUp" => StoreErrorKind::Denied,
        "SlowDown"
        | "ServiceUnavailable"
        | "TooManyRequests"
        | "RequestLimitExceeded"
        | "Throttling"
        | "ThrottlingException"
        | "ReducedBandwidth" => StoreErrorKind::Throttled,
        // The store closed an upload that it found too slow.
        "RequestTimeout" => StoreErrorKind::Unreachable,
        "InternalError" | "ConditionalRequestConflict" | "OperationAborted" => StoreErrorKind::Server,
        "InvalidRange" => StoreErrorKind::Truncated,
        "QuotaExceeded" | "InsufficientStorage" | "XMinioStorageFull" => StoreErrorKind::Full,
        "NotImplemented" => StoreErrorKind::Invalid,
        _ => return None,
    })
}

/// What a status means without a code.
pub(crate) fn kind_of_status(status: u16) -> StoreErrorKind {
    match status {
        // An answer that claims success and could not be understood.
        200..300 => StoreErrorKind::Server,
        401 | 403 => StoreErrorKind::Denied,
        404 => StoreErrorKind::NotFound,
        408 => StoreErrorKind::Unreachable,
        416 => StoreErrorKind::Truncated,
        429 | 503 => StoreErrorKind::Throttled,
        501 => StoreErrorKind::Invalid,
        507 => StoreErrorKind::Full,
        409 | 500.. => StoreErrorKind::Server,
        _ => StoreErrorKind::Invalid,
    }
}

/// An error and its causes, once each, without their debug views (which may carry more than people need).
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let part = error.to_string();
        if !text.ends_with(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        cause = error.source();
    }
    text
}

/// The text of the first `<name>` element of a small answer.
pub(crate) fn element(body: &[u8], name: &str) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    Some(rest.split_once('<')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_come_before_statuses() {
        assert_eq!(kind_of_code("ExpiredToken"), Some(StoreErrorKind::CredentialsExpired));
        assert_eq!(kind_of_status(503), StoreErrorKind::Throttled);
        assert_eq!(kind_of_status(200), StoreErrorKind::Server);
        assert_eq!(kind_of_status(400), StoreErrorKind::Invalid);
        assert_eq!(kind_of_status(409), StoreErrorKind::Server);
        assert_eq!(kind_of_status(507), StoreErrorKind::Full);
    }
}
