//! Reading: every byte is copied once, into a buffer of the right size.

use aws_sdk_s3::operation::get_object::GetObjectOutput;
use aws_sdk_s3::primitives::ByteStream;
use bytes::{Bytes, BytesMut};
use everstep_format::key::Key;

use super::errors::{Failure, chain};
use super::{S3Store, idle};
use crate::store::too_large;
use crate::transport::body::{Progress, watch};
use crate::{Span, StoreErrorKind};

impl S3Store {
    /// One try at reading `span`.
    pub(super) async fn try_get(&self, key: &Key, span: Span) -> Result<Bytes, Failure> {
        let progress = Progress::default();
        let request = self
            .client
            .get_object()
            .bucket(&self.location.bucket)
            .key(self.location.root.key(key))
            .set_range(range_header(span)?);
        let read = async {
            let answer = request.send().await.map_err(|error| Failure::of(&error, self.world.now()))?;
            progress.step();
            let expected = expected_bytes(&answer, span)?;
            read_body(answer.body, (expected, span.limit()), &progress).await
        };
        watch(&*self.world, self.options.idle_timeout, &progress, read)
            .await
            .unwrap_or_else(|| Err(idle(self)))
    }
}

fn range_header(span: Span) -> Result<Option<String>, Failure> {
    let Span::Range { start, len } = span else { return Ok(None) };
    let last = len.checked_sub(1).and_then(|more| start.checked_add(more));
    let last =
        last.ok_or_else(|| Failure::new(StoreErrorKind::Invalid, format!("no range: {start}+{len}")))?;
    Ok(Some(format!("bytes={start}-{last}")))
}

/// Bytes that the body must have; `None` if the store does not say.
fn expected_bytes(answer: &GetObjectOutput, span: Span) -> Result<Option<u64>, Failure> {
    let told = answer.content_length().and_then(|bytes| u64::try_from(bytes).ok());
    let Span::Range { start, len } = span else { return within_limit(told, span.limit()) };
    let from_start = answer.content_range().map(|range| range.starts_with(&format!("bytes {start}-")));
    let whole_is_the_range = start == 0 && told == Some(len);
    match (from_start, told) {
        (Some(false), _) => Err(bad_range(answer)),
        (None, _) if !whole_is_the_range => Err(bad_range(answer)),
        (_, Some(told)) if told < len => {
            let detail = format!("wanted {len} bytes from {start}, the object ends after {told}");
            Err(Failure::new(StoreErrorKind::Truncated, detail))
        }
        (_, Some(told)) if told > len => Err(bad_range(answer)),
        _ => Ok(Some(len)),
    }
}

fn within_limit(told: Option<u64>, limit: u64) -> Result<Option<u64>, Failure> {
    match told {
        Some(bytes) if bytes > limit => {
            Err(Failure::new(StoreErrorKind::TooLarge, format!("the object {}", too_large(bytes, limit))))
        }
        told => Ok(told),
    }
}

fn bad_range(answer: &GetObjectOutput) -> Failure {
    let range = answer.content_range().unwrap_or("none");
    Failure::new(StoreErrorKind::Server, format!("the store did not answer the range asked for, but {range}"))
}

async fn read_body(
    mut body: ByteStream,
    (expected, limit): (Option<u64>, u64),
    progress: &Progress,
) -> Result<Bytes, Failure> {
    let limit = expected.unwrap_or(limit);
    let capacity = usize::try_from(expected.unwrap_or_default());
    let capacity =
        capacity.map_err(|_| Failure::new(StoreErrorKind::Invalid, "too large for this machine"))?;
    let mut buffer = BytesMut::with_capacity(capacity);
    while let Some(part) = body.next().await {
        let part = part.map_err(|error| Failure::new(StoreErrorKind::Unreachable, chain(&error)))?;
        progress.step();
        if buffer.len() as u64 + part.len() as u64 > limit {
            let kind = if expected.is_some() { StoreErrorKind::Server } else { StoreErrorKind::TooLarge };
            return Err(Failure::new(kind, format!("the body is longer than {limit} bytes")));
        }
        buffer.extend_from_slice(&part);
    }
    match expected {
        Some(expected) if buffer.len() as u64 != expected => {
            let detail = format!("the body ended after {} of {expected} bytes", buffer.len());
            Err(Failure::new(StoreErrorKind::Unreachable, detail))
        }
        _ => Ok(buffer.freeze()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(length: i64, range: Option<&str>) -> GetObjectOutput {
        GetObjectOutput::builder().content_length(length).set_content_range(range.map(str::to_owned)).build()
    }

    #[test]
    fn a_range_that_runs_past_the_end_is_truncated() {
        let failure =
            expected_bytes(&answer(4, Some("bytes 6-9/10")), Span::Range { start: 6, len: 5 }).unwrap_err();
        assert_eq!(failure.kind, StoreErrorKind::Truncated);
    }

    #[test]
    fn a_store_that_ignores_the_range_is_told() {
        let span = Span::Range { start: 6, len: 2 };
        assert_eq!(expected_bytes(&answer(10, None), span).unwrap_err().kind, StoreErrorKind::Server);
        let other = answer(2, Some("bytes 0-1/10"));
        assert_eq!(expected_bytes(&other, span).unwrap_err().kind, StoreErrorKind::Server);
    }

    #[test]
    fn an_object_beyond_every_limit_is_not_read_whole() {
        let beyond = |span: Span| expected_bytes(&answer(1001, None), span).unwrap_err().kind;
        assert_eq!(beyond(Span::AtMost(1000)), StoreErrorKind::TooLarge);
        assert_eq!(expected_bytes(&answer(1000, None), Span::AtMost(1000)).unwrap(), Some(1000));
    }

    #[test]
    fn an_empty_range_is_no_range() {
        assert!(range_header(Span::Range { start: 0, len: 0 }).is_err());
        assert!(range_header(Span::Range { start: u64::MAX, len: 2 }).is_err());
        assert_eq!(range_header(Span::Range { start: 5, len: 3 }).unwrap().as_deref(), Some("bytes=5-7"));
    }
}
