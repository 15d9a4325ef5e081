//! Reading packs: many ranged reads in the background, bounded in bytes and in number, decoded as they arrive.

use std::sync::Arc;

use bytes::Bytes;
use everstep_format::key::Key;
use everstep_store::{Span, Store, StoreError, StoreErrorKind, World};
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use rayon::prelude::*;
use tokio::sync::oneshot;

use crate::place::{Damage, Placer, size};
use crate::plan::{Plan, Read};
use crate::{Settings, Tools};

/// A restore takes at most this part of what it reads for itself, but never less than [`SMALL_SHARE`].
const SHARE_OF_READ: u64 = 20;
const SMALL_SHARE: u64 = 64 << 20;

/// Why a plan could not be carried out.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A read failed.
    Store {
        /// Which read of the plan.
        read: usize,
        /// How.
        error: StoreError,
    },
    /// A chunk is not what the index says.
    Damaged(Damage),
}

struct Arrived {
    read: usize,
    bytes: Bytes,
}

type Pending = BoxFuture<'static, (usize, Result<Bytes, StoreError>)>;

/// Reads on their way. `bytes` counts those asked for and those not yet decoded.
struct Window<'p> {
    store: &'p Arc<dyn Store>,
    world: &'p Arc<dyn World>,
    settings: &'p Settings,
    /// Bytes at most on their way or not yet decoded.
    room: u64,
    reads: &'p [Read],
    next: usize,
    pending: FuturesUnordered<Pending>,
    bytes: u64,
}

impl Window<'_> {
    fn fill(&mut self) {
        while let Some(read) = self.reads.get(self.next) {
            let more = self.bytes.saturating_add(read.len);
            let room = more <= self.room && self.pending.len() < self.settings.reads;
            // Whatever the bounds say, one read at a time is needed to get anywhere.
            if !room && self.bytes > 0 {
                return;
            }
            self.bytes = more;
            let pending = self.start(self.next, read);
            self.pending.push(pending);
            self.next += 1;
        }
    }

    /// Starts one read in the background; dropping the result cancels it.
    fn start(&self, number: usize, read: &Read) -> Pending {
        let (store, key) = (Arc::clone(self.store), Key::pack(&read.pack));
        let span = Span::Range { start: read.start, len: read.len };
        let (mut answer, result) = oneshot::channel();
        let lost = StoreError::new(StoreErrorKind::Unreachable, "get", &key, "the read was cancelled");
        self.world.spawn(Box::pin(async move {
            tokio::select! {
                biased;
                () = answer.closed() => {}
                read = store.get(&key, span) => drop(answer.send(read.map(|object| object.bytes))),
            }
        }));
        Box::pin(async move { (number, result.await.unwrap_or(Err(lost))) })
    }

    /// Waits for one read and takes all others that are done as well; nothing at the end.
    async fn arrived(&mut self) -> Result<Vec<Arrived>, Failure> {
        let mut batch = Vec::new();
        let mut next = self.pending.next().await;
        while let Some((read, result)) = next {
            let bytes = result.map_err(|error| Failure::Store { read, error })?;
            batch.push(Arrived { read, bytes });
            next = self.pending.next().now_or_never().flatten();
        }
        Ok(batch)
    }
}

/// Carries `plan` out: reads, decodes, places.
pub(crate) async fn carry_out(
    plan: &Plan<'_>,
    placer: &Placer<'_>,
    (store, world): (&Arc<dyn Store>, &Arc<dyn World>),
    tools: &Tools<'_>,
) -> Result<(), Failure> {
    let stored: u64 = plan.reads.iter().map(|read| read.len).sum();
    let mut window = Window {
        store,
        world,
        settings: tools.settings,
        room: tools.settings.bytes_in_flight.min((stored / SHARE_OF_READ).max(SMALL_SHARE)),
        reads: &plan.reads,
        next: 0,
        pending: FuturesUnordered::new(),
        bytes: 0,
    };
    loop {
        window.fill();
        let batch = window.arrived().await?;
        if batch.is_empty() {
            return Ok(());
        }
        tools.pool.install(|| decode(plan, placer, &batch)).map_err(Failure::Damaged)?;
        window.bytes -= batch.iter().map(|arrived| plan.reads[arrived.read].len).sum::<u64>();
    }
}

/// Decodes all chunks of a batch in parallel; of several damaged ones the first in the plan is told.
fn decode(plan: &Plan<'_>, placer: &Placer<'_>, batch: &[Arrived]) -> Result<(), Damage> {
    let damaged = batch
        .par_iter()
        .flat_map(|arrived| {
            let read = &plan.reads[arrived.read];
            read.chunks.clone().into_par_iter().map(move |chunk| (read, chunk, &arrived.bytes))
        })
        .filter_map(|(read, chunk, bytes)| placer.chunk(chunk, stored(plan, read, chunk, bytes)).err())
        .min_by_key(|damage| damage.chunk);
    damaged.map_or(Ok(()), Err)
}

fn stored<'b>(plan: &Plan<'_>, read: &Read, chunk: usize, bytes: &'b Bytes) -> &'b [u8] {
    let at = &plan.chunk(chunk).location;
    let start = size(at.pack_offset - read.start);
    &bytes[start..start + size(at.stored_len)]
}
