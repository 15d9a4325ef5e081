//! From what the SDK says to what a caller can do about it.

use std::error::Error;
use std::time::SystemTime;

use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::primitives::{DateTime, DateTimeFormat};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;

use crate::StoreErrorKind;
pub(super) use crate::transport::failure::{Failure, chain};
use crate::transport::failure::{Told, element, kind_of_code};

impl Failure {
    /// Takes a failed call apart. `now` is our time, to compare with the store's.
    pub(super) fn of<E>(error: &SdkError<E, HttpResponse>, now: SystemTime) -> Self
    where
        E: ProvideErrorMetadata + Error + Send + Sync + 'static,
    {
        match error {
            SdkError::ServiceError(answer) => told(answer.err(), answer.raw()).into_failure(now),
            SdkError::ResponseError(answer) => Self {
                status: Some(answer.raw().status().as_u16()),
                ..Self::new(StoreErrorKind::Server, format!("not an answer of S3: {}", chain(error)))
            },
            SdkError::TimeoutError(_) => Self::new(StoreErrorKind::Unreachable, chain(error)),
            SdkError::ConstructionFailure(_) => Self::new(StoreErrorKind::Invalid, chain(error)),
            _ => Self::of_connection(chain(error)),
        }
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
}

/// What the store answered.
fn told(error: &impl ProvideErrorMetadata, response: &HttpResponse) -> Told {
    let header = |name: &str| response.headers().get(name).map(str::to_owned);
    let meta = error.meta();
    let date = header("date").and_then(|date| DateTime::from_str(&date, DateTimeFormat::HttpDate).ok());
    Told {
        status: response.status().as_u16(),
        code: meta.code().unwrap_or_default().to_owned(),
        message: meta.message().unwrap_or_default().to_owned(),
        request_id: header("x-amz-request-id"),
        region: header("x-amz-bucket-region").or_else(|| element(response.body().bytes()?, "Region")),
        has_regions: true,
        date: date.and_then(|date| SystemTime::try_from(date).ok()),
    }
}

/// Kind of the failure of one key in a batch.
pub(super) fn kind_of_key(code: &str) -> StoreErrorKind {
    kind_of_code(code).unwrap_or(StoreErrorKind::Invalid)
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
}
