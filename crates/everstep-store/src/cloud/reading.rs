//! Reading: exact bytes, each copied once into a buffer of the right size.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use everstep_format::key::Key;
use futures::StreamExt as _;
use object_store::{GetOptions, GetRange, GetResult};

use super::CloudStore;
use crate::transport::failure::{Failure, chain};
use crate::{Span, StoreErrorKind};

impl CloudStore {
    /// One try at reading `span`.
    pub(super) async fn try_get(&self, key: &Key, span: Span) -> Result<Bytes, Failure> {
        let path = self.path(key)?;
        let options = GetOptions { range: range(span)?, ..GetOptions::default() };
        let exchange = self.exchange();
        exchange
            .run(async {
                let asked = self.provider.objects().get_opts(&path, options).await;
                let answer = match asked {
                    Ok(answer) => answer,
                    Err(error) => {
                        // A range that begins at the end is answered oddly by some, with nothing to be read.
                        exchange.size_heard().map_or(Ok(0..0), |size| within(span, size))?;
                        return Err(exchange.failure(&error));
                    }
                };
                let expected = expected_bytes(&answer, span)?;
                read_body(answer, expected).await
            })
            .await
    }
}

fn range(span: Span) -> Result<Option<GetRange>, Failure> {
    let Span::Range { start, len } = span else { return Ok(None) };
    match start.checked_add(len).filter(|end| *end > start) {
        Some(end) => Ok(Some(GetRange::Bounded(start..end))),
        None => Err(Failure::new(StoreErrorKind::Invalid, format!("no range: {start}+{len}"))),
    }
}

/// Bytes that the body must have, checked before anything is allocated for them. The library has checked that a range
/// is the one asked for, as far as the object reaches.
fn expected_bytes(answer: &GetResult, span: Span) -> Result<u64, Failure> {
    within(span, answer.meta.size).map(|range| range.end - range.start)
}

fn within(span: Span, size: u64) -> Result<Range<u64>, Failure> {
    span.within(size).map_err(|(kind, why)| Failure::new(kind, format!("the object {why}")))
}

async fn read_body(answer: GetResult, expected: u64) -> Result<Bytes, Failure> {
    let capacity = usize::try_from(expected);
    let capacity =
        capacity.map_err(|_| Failure::new(StoreErrorKind::Invalid, "too large for this machine"))?;
    let mut buffer = BytesMut::with_capacity(capacity);
    let mut body = answer.into_stream();
    while let Some(part) = body.next().await {
        let part = part.map_err(|error| Failure::new(StoreErrorKind::Unreachable, chain(&error)))?;
        if buffer.len() + part.len() > capacity {
            let detail = format!("the body is longer than {expected} bytes");
            return Err(Failure::new(StoreErrorKind::Server, detail));
        }
        buffer.extend_from_slice(&part);
    }
    if buffer.len() == capacity {
        return Ok(buffer.freeze());
    }
    let detail = format!("the body ended after {} of {expected} bytes", buffer.len());
    Err(Failure::new(StoreErrorKind::Unreachable, detail))
}
