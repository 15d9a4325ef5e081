//! Signs of life: small objects written again and again in the background. Advisory: losing all of them harms
//! nothing.

use std::time::Duration;

use bytes::Bytes;
use everstep_format::key::Key;
use everstep_store::{Class, Store};
use futures::FutureExt;
use futures::future::{Either, select};
use tokio::sync::oneshot;

use crate::Repository;

/// A running sign of life. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Beat {
    /// Its receiver wakes when this is dropped; nothing is ever sent.
    _alive: oneshot::Sender<()>,
}

impl Beat {
    /// Writes `body` to `key` every `period` from now on, the first time after one `period`.
    pub(crate) fn start(repository: &Repository, key: Key, body: Bytes, period: Duration) -> Self {
        let (alive, mut ended) = oneshot::channel();
        let (store, world) = (repository.store().clone(), repository.world().clone());
        let beat = async move {
            while let Either::Left(((), _)) = select(world.sleep(period), &mut ended).await {
                write_once(store.as_ref(), &key, &body).await;
            }
        };
        repository.world().spawn(beat.boxed());
        Self { _alive: alive }
    }
}

/// One sign of life; a failure is only told to the log.
pub(crate) async fn write_once(store: &dyn Store, key: &Key, body: &Bytes) {
    if let Err(error) = store.put(key, body.clone().into(), Class::Control).await {
        tracing::debug!(%key, %error, "a sign of life was not written; the next one follows");
    }
}
