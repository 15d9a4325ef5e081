//! Uploads in the background, bounded in number and in bytes.

use std::sync::Arc;

use everstep_format::key::Key;
use everstep_format::pack::BuiltPack;
use everstep_store::{Class, Payload, Store, World};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

use crate::check::shown;
use crate::{Progress, SaveError};

/// Bytes per permit: a semaphore counts in 32 bits.
const UNIT: u64 = 1024;

/// Room for so many encoded bytes.
pub(crate) type Room = OwnedSemaphorePermit;

/// Whose bytes a pack holds, for messages.
#[derive(Debug)]
pub(crate) struct Holds {
    pub(crate) first: Option<Arc<str>>,
    pub(crate) chunks: usize,
}

/// The packs on their way. Dropping it stops those that are under way.
pub(crate) struct Uploads<'a> {
    store: Arc<dyn Store>,
    world: Arc<dyn World>,
    progress: &'a dyn Progress,
    /// Encoded bytes that may be waiting or under way.
    bytes: Arc<Semaphore>,
    slots: Arc<Semaphore>,
    results: mpsc::UnboundedReceiver<Result<u64, SaveError>>,
    report: mpsc::UnboundedSender<Result<u64, SaveError>>,
    stop: watch::Sender<()>,
    started: u64,
    answered: u64,
}

/// How much may be under way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UploadLimits {
    pub(crate) bytes: u64,
    pub(crate) uploads: usize,
}

impl<'a> Uploads<'a> {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        world: Arc<dyn World>,
        progress: &'a dyn Progress,
        limits: UploadLimits,
    ) -> Self {
        let (report, results) = mpsc::unbounded_channel();
        let units = usize::try_from(u64::from(units(limits.bytes))).unwrap_or(Semaphore::MAX_PERMITS);
        Self {
            store,
            world,
            progress,
            bytes: Arc::new(Semaphore::new(units)),
            slots: Arc::new(Semaphore::new(limits.uploads.clamp(1, Semaphore::MAX_PERMITS))),
            results,
            report,
            stop: watch::Sender::new(()),
            started: 0,
            answered: 0,
        }
    }

    /// Waits for room for `bytes` encoded bytes.
    ///
    /// # Errors
    /// The first failed upload's.
    pub(crate) async fn room(&mut self, bytes: u64) -> Result<Room, SaveError> {
        let acquire = self.bytes.clone().acquire_many_owned(units(bytes));
        tokio::pin!(acquire);
        loop {
            tokio::select! {
                biased;
                Some(result) = self.results.recv() => {
                    self.answered += 1;
                    self.progress.uploaded(result?);
                }
                room = &mut acquire => return Ok(room.expect("the semaphore is never closed")),
            }
        }
    }

    /// Starts uploading `pack`, which takes its part of `room` along.
    pub(crate) fn start(&mut self, pack: BuiltPack, holds: Holds, room: &mut Room) {
        self.started += 1;
        let part = room.split(room.num_permits().min(permits(pack.len)));
        let (store, slots, report) = (self.store.clone(), self.slots.clone(), self.report.clone());
        let mut stopped = self.stop.subscribe();
        let task = async move {
            let put = async {
                let _slot = slots.acquire().await;
                let result = put(store.as_ref(), pack, &holds).await;
                drop(part);
                // Nobody listens any more when the save has failed already.
                let _ = report.send(result);
            };
            tokio::select! {
                biased;
                _ = stopped.changed() => {}
                () = put => {}
            }
        };
        self.world.spawn(Box::pin(task));
    }

    /// Waits until every pack is stored.
    ///
    /// # Errors
    /// The first failed upload's; [`SaveError::UploadsLost`].
    pub(crate) async fn finish(self) -> Result<(), SaveError> {
        let Self { mut results, report, stop, started, mut answered, progress, .. } = self;
        drop(report);
        while let Some(result) = results.recv().await {
            answered += 1;
            progress.uploaded(result?);
        }
        drop(stop);
        if answered == started {
            Ok(())
        } else {
            Err(SaveError::UploadsLost { lost: started - answered, started })
        }
    }
}

async fn put(store: &dyn Store, pack: BuiltPack, holds: &Holds) -> Result<u64, SaveError> {
    let key = Key::pack(&pack.address);
    match store.put(&key, Payload(pack.segments), Class::Bulk).await {
        Ok(()) => Ok(pack.len),
        Err(cause) => Err(SaveError::Upload { key, holds: describe(holds), cause: Box::new(cause) }),
    }
}

fn describe(holds: &Holds) -> String {
    let first = shown(holds.first.as_deref().unwrap_or_default());
    match holds.chunks {
        0 | 1 => format!("a part of {first:?}"),
        n => format!("{n} chunks from {first:?} on"),
    }
}

/// Gives back what `room` has beyond `bytes`.
pub(crate) fn shrink(room: &mut Room, bytes: u64) {
    let surplus = room.num_permits().saturating_sub(permits(bytes));
    drop(room.split(surplus));
}

fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

fn permits(bytes: u64) -> usize {
    usize::try_from(bytes.div_ceil(UNIT)).unwrap_or(usize::MAX)
}
