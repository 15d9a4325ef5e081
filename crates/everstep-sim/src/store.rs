//! A store that many simulated processes share, each through its own unreliable connection.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use everstep_format::key::{Key, Prefix, StoredKind};
use everstep_store::{
    Class, Create, Deleted, Object, Page, Payload, Span, Store, StoreError, StoreErrorKind,
};
use futures::channel::oneshot;
use futures::future::pending;
use rand::RngExt;

use crate::executor::{Process, Room};
use crate::faults::{BURST, Fate, Weather};
use crate::objects::{Call, Caller, Objects, Reply, joined};

/// Longest way of a request, and of an answer.
const LATENCY: Duration = Duration::from_millis(40);
/// How late a late request may be.
const LATEST: Duration = Duration::from_secs(2 * 3600);
/// How long a frozen process stands still at most.
const LONGEST_FREEZE: Duration = Duration::from_secs(3600);

/// The store.
#[derive(Clone)]
pub struct SimStore {
    room: Room,
    objects: Arc<Mutex<Objects>>,
}

impl fmt::Debug for SimStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimStore")
    }
}

impl SimStore {
    /// An empty store.
    pub fn new(room: &Room) -> Self {
        Self { room: room.clone(), objects: Arc::default() }
    }

    /// The connection of `process`, in its own weather.
    pub fn connect(&self, process: Process, weather: Weather) -> Connection {
        let burst = Mutex::new((Fate::Fine, 0));
        Connection { store: self.clone(), process, weather, lie: Lie::None, burst }
    }

    /// The objects themselves.
    pub fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, call: &Call, process: Process, fate: &'static str) -> Result<Reply, StoreError> {
        let at = self.room.now();
        self.objects().apply(call, Caller { at, process, fate })
    }

    /// One request on its way, its answer, and what comes much later. Belongs to nobody: it outlives its sender.
    async fn travel(self, sent: Sent) {
        let Sent { call, process, fate, answer } = sent;
        self.room.sleep(self.room.time_between(Duration::ZERO, LATENCY)).await;
        let reply = fate.applies_now().then(|| self.apply(&call, process, fate.name()));
        self.room.sleep(fate.silence() + self.room.time_between(Duration::ZERO, LATENCY)).await;
        // Nobody hears an answer to the dead.
        drop(answer.send(fate.answer(&call, reply)));
        if fate.applies_later() {
            self.room.sleep(self.room.time_between(Duration::ZERO, LATEST)).await;
            drop(self.apply(&call, process, "much later"));
        }
    }
}

struct Sent {
    call: Call,
    process: Process,
    fate: Fate,
    answer: oneshot::Sender<Result<Reply, StoreError>>,
}

/// What a connection lies about: a store that does not keep its promises, to show that a simulation notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// Nothing.
    None,
    /// Put-if-absent of a decision puts, whether or not one is there.
    CreateOverwrites,
    /// Reading an expired marker never finds it, as if W2 were left out.
    NoMarkers,
    /// An ABORT is acknowledged and not stored, as if R2 were left out.
    AbortsAreLost,
}

/// One process's connection to a [`SimStore`].
#[derive(Debug)]
pub struct Connection {
    store: SimStore,
    process: Process,
    weather: Weather,
    lie: Lie,
    /// The failure of the burst that it is in, and how many more calls it lasts.
    burst: Mutex<(Fate, u32)>,
}

impl Connection {
    /// The same connection to a store that lies.
    pub fn lying(self, lie: Lie) -> Self {
        Self { lie, ..self }
    }

    fn fate(&self) -> Fate {
        let mut burst = self.burst.lock().unwrap_or_else(PoisonError::into_inner);
        self.store.room.draw(|rng| {
            if burst.1 == 0 {
                if let Some(fate) = self.weather.burst(rng) {
                    *burst = (fate, rng.random_range(BURST));
                }
                return self.weather.fate(rng);
            }
            burst.1 -= 1;
            burst.0
        })
    }

    async fn call(&self, call: Call) -> Result<Reply, StoreError> {
        let room = &self.store.room;
        let fate = self.fate().of(&call);
        let (answer, reply) = oneshot::channel();
        let sent = Sent { call, process: self.process, fate, answer };
        if fate != Fate::KillBefore {
            room.spawn(Process::NETWORK, Box::pin(self.store.clone().travel(sent)));
        }
        match fate {
            Fate::KillBefore | Fate::KillAfter => room.kill(self.process),
            Fate::Freeze => room.freeze(self.process, room.time_between(Duration::ZERO, LONGEST_FREEZE)),
            _ => {}
        }
        match reply.await {
            Ok(reply) => reply,
            // Never sent: the sender is dead and hears nothing any more.
            Err(oneshot::Canceled) => pending().await,
        }
    }

    /// A reply of another shape than the call's would be a mistake of this module.
    async fn ask<T>(&self, call: Call, take: fn(Reply) -> Option<T>) -> Result<T, StoreError> {
        self.call(call).await.map(|reply| take(reply).expect("each call has its own kind of reply"))
    }
}

/// Whether a decision's body is an ABORT.
fn is_abort(body: &Payload) -> bool {
    let text = joined(body.clone());
    String::from_utf8_lossy(&text).contains("\"decision\":\"ABORT\"")
}

#[async_trait]
impl Store for Connection {
    fn describe(&self) -> String {
        format!("sim://process-{}", self.process.0)
    }

    async fn get(&self, key: &Key, span: Span) -> Result<Object, StoreError> {
        let take = |reply| if let Reply::Object(object) = reply { Some(object) } else { None };
        if self.lie == Lie::NoMarkers && matches!(key.kind(), Some(StoredKind::Expired(..))) {
            return Err(StoreError::new(StoreErrorKind::NotFound, "get", key, "hidden"));
        }
        self.ask(Call::Get(key.clone(), span), take).await
    }

    async fn put(&self, key: &Key, body: Payload, _class: Class) -> Result<(), StoreError> {
        let take = |reply| matches!(reply, Reply::Done).then_some(());
        self.ask(Call::Put(key.clone(), joined(body)), take).await
    }

    async fn create(&self, key: &Key, body: Payload) -> Result<Create, StoreError> {
        let take = |reply| if let Reply::Created(create) = reply { Some(create) } else { None };
        let decision = matches!(key.kind(), Some(StoredKind::Decision(..)));
        if self.lie == Lie::CreateOverwrites && decision {
            return self.put(key, body, Class::Control).await.map(|()| Create::Created);
        }
        if self.lie == Lie::AbortsAreLost && decision && is_abort(&body) {
            return Ok(Create::Created);
        }
        self.ask(Call::Create(key.clone(), joined(body)), take).await
    }

    async fn list(&self, prefix: &Prefix, token: Option<String>) -> Result<Page, StoreError> {
        let take = |reply| if let Reply::Page(page) = reply { Some(page) } else { None };
        self.ask(Call::List(prefix.clone(), token), take).await
    }

    async fn delete(&self, keys: &[Key]) -> Result<Vec<Deleted>, StoreError> {
        let take = |reply| if let Reply::Deleted(results) = reply { Some(results) } else { None };
        self.ask(Call::Delete(keys.to_vec()), take).await
    }

    async fn sync(&self) -> Result<(), StoreError> {
        self.ask(Call::Sync, |reply| matches!(reply, Reply::Done).then_some(())).await
    }
}
