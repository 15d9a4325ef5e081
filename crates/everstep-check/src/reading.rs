//! Reading objects so that damage is an answer and only an unreadable store is an error.

use std::sync::Arc;

use bytes::Bytes;
use everstep_format::key::Key;
use everstep_format::name::{Ordinal, RunName};
use everstep_format::{FormatError, limits};
use everstep_store::{Span, Store, StoreError, StoreErrorKind, World};
use tokio::sync::oneshot;

use crate::CheckError;

/// What a read came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Got {
    /// The bytes asked for.
    Bytes(Bytes),
    /// There is no such object.
    Missing,
    /// The object is shorter than it must be, or larger than any of its kind can be, or it is a link, which nobody follows.
    Unusable(String),
}

fn judge(read: Result<Bytes, StoreError>) -> Result<Got, CheckError> {
    match read {
        Ok(bytes) => Ok(Got::Bytes(bytes)),
        Err(error) => match error.kind {
            StoreErrorKind::NotFound => Ok(Got::Missing),
            StoreErrorKind::Truncated | StoreErrorKind::TooLarge | StoreErrorKind::Untrusted => {
                Ok(Got::Unusable(error.detail))
            }
            _ => Err(error.into()),
        },
    }
}

/// Reads bytes of an object.
pub(crate) async fn get(store: &dyn Store, key: &Key, span: Span) -> Result<Got, CheckError> {
    judge(store.get(key, span).await.map(|object| object.bytes))
}

/// Reads a control object.
pub(crate) async fn get_control(store: &dyn Store, key: &Key) -> Result<Got, CheckError> {
    get(store, key, Span::AtMost(limits::JSON_BYTES)).await
}

/// Reads bytes of an object in the background, also while the caller is busy; dropping the future cancels it.
pub(crate) fn get_ahead(
    (store, world): (&Arc<dyn Store>, &Arc<dyn World>),
    key: Key,
    span: Span,
) -> impl Future<Output = Result<Got, CheckError>> + use<> {
    let store = Arc::clone(store);
    let (mut answer, result) = oneshot::channel();
    let lost = StoreError::new(StoreErrorKind::Unreachable, "get", &key, "the read was cancelled");
    world.spawn(Box::pin(async move {
        tokio::select! {
            biased;
            () = answer.closed() => {}
            read = store.get(&key, span) => drop(answer.send(read.map(|object| object.bytes))),
        }
    }));
    async move { judge(result.await.unwrap_or(Err(lost))) }
}

/// Whether the expired marker is there now.
pub(crate) async fn is_expired(
    store: &dyn Store,
    (run, ordinal): (&RunName, Ordinal),
) -> Result<bool, CheckError> {
    Ok(get_control(store, &Key::expired(run, ordinal)).await? != Got::Missing)
}

/// Expected and found of an error about bytes.
pub(crate) fn sides(error: &FormatError) -> (String, String) {
    match error {
        FormatError::Corrupt { expected, found, offset, what } => {
            (expected.clone(), format!("{found} (byte {offset} of the {what})"))
        }
        FormatError::TooLarge { what, limit, found } => {
            (format!("{what} of at most {limit}"), found.to_string())
        }
        FormatError::Unsupported { what, found, supported } => (supported.clone(), format!("{what} {found}")),
        FormatError::Invalid { what, found, expected } => (expected.clone(), format!("{what} {found}")),
        other => ("a sound object".to_owned(), other.to_string()),
    }
}
