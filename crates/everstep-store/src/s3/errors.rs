//! From what the SDK says to what a caller can do about it.

use std::error::Error;
use std::time::{Duration, SystemTime};

use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::primitives::{DateTime, DateTimeFormat};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;

use crate::{StoreError, StoreErrorKind};

/// A clock that differs by less than this is not what a signature failed for.
const SKEW: Duration = Duration::from_secs(4 * 60);

/// A failed try, taken apart.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    /// What a caller can do about it.
    pub(super) kind: StoreErrorKind,
    /// The status, if the store answered.
    pub(super) status: Option<u16>,
    /// The store's code, or nothing.
    pub(super) code: String,
    /// What happened, in words.
    pub(super) detail: String,
}

impl Failure {
    /// A failure that no answer of the store describes.
    pub(super) fn new(kind: StoreErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, status: None, code: String::new(), detail: detail.into() }
    }

    /// Takes a failed call apart. `now` is our time, to compare with the store's.
    pub(super) fn of<E>(error: &SdkError<E, HttpResponse>, now: SystemTime) -> Self
    where
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    {
        match error {
            SdkError::ServiceError(answer) => {
                let told = Told::new(answer.err(), answer.raw());
                let kind = told.kind();
                let detail = told.describe(kind, now);
                Self { kind, status: Some(told.status), code: told.code, detail }
            }
            SdkError::ResponseError(answer) => Self {
                status: Some(answer.raw().status().as_u16()),
                ..Self::new(StoreErrorKind::Server, format!("not an answer of S3: {}", chain(error)))
            },
            SdkError::TimeoutError(_) => Self::new(StoreErrorKind::Unreachable, chain(error)),
            SdkError::ConstructionFailure(_) => Self::new(StoreErrorKind::Invalid, chain(error)),
            _ => Self::of_connection(chain(error)),
        }
    }

    fn of_connection(detail: String) -> Self {
        if detail.contains("certificate") {
            let detail = format!("{detail}; name a file of trusted certificates in AWS_CA_BUNDLE");
            return Self::new(StoreErrorKind::Invalid, detail);
        }
        Self::new(StoreErrorKind::Unreachable, detail)
    }

    /// Whether new credentials may help.
    pub(super) fn is_expired(&self) -> bool {
        self.kind == StoreErrorKind::CredentialsExpired
    }

    /// Whether signing anew, by the store's clock, may help.
    pub(super) fn is_skewed(&self) -> bool {
        self.code == "RequestTimeTooSkewed"
    }

    /// Whether the store may dislike that the body was not signed.
    pub(super) fn may_want_a_signature(&self) -> bool {
        let codes = ["AccessDenied", "XAmzContentSHA256Mismatch", "InvalidRequest", "SignatureDoesNotMatch"];
        codes.contains(&self.code.as_str())
    }

    /// Whether the store answered that it did not do what was asked.
    pub(super) fn is_refusal(&self) -> bool {
        let transient = [StoreErrorKind::Unreachable, StoreErrorKind::Throttled, StoreErrorKind::Server];
        !transient.contains(&self.kind)
    }

    /// The error for callers.
    pub(super) fn into_error(self, operation: &'static str, key: &str) -> StoreError {
        StoreError::new(self.kind, operation, key, self.detail)
    }
}

/// What the store answered.
struct Told {
    status: u16,
    code: String,
    message: String,
    request_id: Option<String>,
    region: Option<String>,
    date: Option<SystemTime>,
}

impl Told {
    fn new(error: &impl ProvideErrorMetadata, response: &HttpResponse) -> Self {
        let header = |name: &str| response.headers().get(name).map(str::to_owned);
        let meta = error.meta();
        let date = header("date").and_then(|date| DateTime::from_str(&date, DateTimeFormat::HttpDate).ok());
        Self {
            status: response.status().as_u16(),
            code: meta.code().unwrap_or_default().to_owned(),
            message: meta.message().unwrap_or_default().to_owned(),
            request_id: header("x-amz-request-id"),
            region: header("x-amz-bucket-region").or_else(|| element(response.body().bytes()?, "Region")),
            date: date.and_then(|date| SystemTime::try_from(date).ok()),
        }
    }

    fn kind(&self) -> StoreErrorKind {
        kind_of_code(&self.code).unwrap_or_else(|| kind_of_status(self.status))
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
        if matches!(self.status, 301 | 307) || self.code == "AuthorizationHeaderMalformed" {
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

fn kind_of_code(code: &str) -> Option<StoreErrorKind> {
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

fn kind_of_status(status: u16) -> StoreErrorKind {
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

/// Kind of the failure of one key in a batch.
pub(super) fn kind_of_key(code: &str) -> StoreErrorKind {
    kind_of_code(code).unwrap_or(StoreErrorKind::Invalid)
}

/// An error and its causes, once each, without their debug views (which may carry more than people need).
pub(super) fn chain(error: &(dyn Error + 'static)) -> String {
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
fn element(body: &[u8], name: &str) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    Some(rest.split_once('<')?.0.to_owned())
}

/// Whether the body of a successful answer is an error all the same.
pub(super) fn is_error_document(body: &[u8]) -> bool {
    let start = &body[..body.len().min(512)];
    start.trim_ascii_start().starts_with(b"<") && start.windows(6).any(|window| window == b"<Error")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_success_with_an_error_document_is_told_from_one_without() {
        assert!(is_error_document(b"<?xml version=\"1.0\"?>\n<Error><Code>InternalError</Code></Error>"));
        assert!(!is_error_document(b""));
        assert!(!is_error_document(b"<PutObjectResult/>"));
    }

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
