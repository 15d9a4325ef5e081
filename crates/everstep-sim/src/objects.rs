//! The objects of a simulated store: strongly consistent, watched. Whatever no writer may ever do is noted as an offence.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use bytes::Bytes;
use everstep_format::key::{Key, Prefix, StoredKind};
use everstep_store::{Create, Deleted, Listed, Object, Page, Payload, Span, StoreError, StoreErrorKind};

use crate::executor::Process;
use crate::world::wall_clock;

/// Objects in one page of a listing: few, so that every listing of some size has several pages.
const PAGE: usize = 11;

/// A call to the store.
#[derive(Debug, Clone)]
pub(crate) enum Call {
    Get(Key, Span),
    Put(Key, Bytes),
    Create(Key, Bytes),
    List(Prefix, Option<String>),
    Delete(Vec<Key>),
    Sync,
}

/// The answer of a store that works.
#[derive(Debug)]
pub(crate) enum Reply {
    Object(Object),
    Created(Create),
    Page(Page),
    Deleted(Vec<Deleted>),
    Done,
}

impl Call {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Get(..) => "get",
            Self::Put(..) => "put",
            Self::Create(..) => "create",
            Self::List(..) => "list",
            Self::Delete(_) => "delete",
            Self::Sync => "sync",
        }
    }

    pub(crate) fn target(&self) -> String {
        match self {
            Self::Get(key, _) | Self::Put(key, _) | Self::Create(key, _) => key.to_string(),
            Self::List(prefix, _) => prefix.to_string(),
            Self::Delete(keys) => keys.iter().map(Key::as_str).collect::<Vec<_>>().join(" "),
            Self::Sync => String::new(),
        }
    }

    pub(crate) fn error(&self, kind: StoreErrorKind, detail: &str) -> StoreError {
        StoreError::new(kind, self.name(), self.target(), detail)
    }
}

/// One call that was carried out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Event {
    /// When, since the simulation began.
    pub at: Duration,
    /// Who had sent it.
    pub process: Process,
    /// What became of the request and its answer.
    pub fate: &'static str,
    /// The operation.
    pub operation: &'static str,
    /// Its key, prefix or keys.
    pub target: String,
    /// What it did.
    pub outcome: String,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, process: Process(number), fate, operation, target, outcome } = self;
        let seconds = at.as_secs_f64();
        write!(f, "{seconds:12.3} process {number:2} {operation:6} {target} -> {outcome} ({fate})")
    }
}

#[derive(Debug, Clone)]
struct Stored {
    bytes: Bytes,
    at: Duration,
}

/// Every object, what happened to them, and what should not have happened.
#[derive(Debug, Default)]
pub struct Objects {
    stored: BTreeMap<Key, Stored>,
    history: Vec<Event>,
    offences: Vec<String>,
    collectors: Vec<Process>,
}

/// Who calls, when, and how the request fares.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller {
    pub(crate) at: Duration,
    pub(crate) process: Process,
    pub(crate) fate: &'static str,
}

impl Objects {
    /// The calls carried out, in order.
    pub fn history(&self) -> &[Event] {
        &self.history
    }

    /// A hash over the whole history.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.history.hash(&mut hasher);
        hasher.finish()
    }

    /// Breaches of what every process owes the store.
    pub fn offences(&self) -> &[String] {
        &self.offences
    }

    /// Lets `process` delete packs and indexes.
    pub fn permit_collection(&mut self, process: Process) {
        self.collectors.push(process);
    }

    /// The bytes of `key`, past all faults.
    pub fn peek(&self, key: &Key) -> Option<Bytes> {
        self.stored.get(key).map(|stored| stored.bytes.clone())
    }

    /// Every key, past all faults.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.stored.keys()
    }

    /// Carries `call` out.
    pub(crate) fn apply(&mut self, call: &Call, caller: Caller) -> Result<Reply, StoreError> {
        let (result, outcome) = match call {
            Call::Get(key, span) => self.get(call, key, *span),
            Call::Put(key, body) => self.put(key, body, caller),
            Call::Create(key, body) => self.create(key, body, caller),
            Call::List(prefix, token) => self.list(prefix, token.as_deref()),
            Call::Delete(keys) => self.delete(keys, caller),
            Call::Sync => (Ok(Reply::Done), String::new()),
        };
        let Caller { at, process, fate } = caller;
        let event = Event { at, process, fate, operation: call.name(), target: call.target(), outcome };
        self.history.push(event);
        result
    }

    fn get(&self, call: &Call, key: &Key, span: Span) -> (Result<Reply, StoreError>, String) {
        let Some(stored) = self.stored.get(key) else {
            return (Err(call.error(StoreErrorKind::NotFound, "no such object")), "not found".to_owned());
        };
        let whole = &stored.bytes;
        match span.within(whole.len() as u64) {
            Ok(range) => {
                let position = |at: u64| usize::try_from(at).expect("a position within a buffer");
                let bytes = whole.slice(position(range.start)..position(range.end));
                let outcome = format!("{} bytes", bytes.len());
                (Ok(Reply::Object(Object { bytes })), outcome)
            }
            Err((kind, why)) => {
                let outcome = format!("{kind:?}");
                (Err(call.error(kind, &why)), outcome)
            }
        }
    }

    fn put(&mut self, key: &Key, body: &Bytes, caller: Caller) -> (Result<Reply, StoreError>, String) {
        self.judge_put(key, body, caller);
        self.stored.insert(key.clone(), Stored { bytes: body.clone(), at: caller.at });
        (Ok(Reply::Done), format!("{} bytes", body.len()))
    }

    fn create(&mut self, key: &Key, body: &Bytes, caller: Caller) -> (Result<Reply, StoreError>, String) {
        if self.stored.contains_key(key) {
            return (Ok(Reply::Created(Create::Exists)), "exists".to_owned());
        }
        self.stored.insert(key.clone(), Stored { bytes: body.clone(), at: caller.at });
        (Ok(Reply::Created(Create::Created)), format!("created, {} bytes", body.len()))
    }

    fn list(&self, prefix: &Prefix, after: Option<&str>) -> (Result<Reply, StoreError>, String) {
        let below = self.stored.iter().filter(|(key, _)| key.as_str().starts_with(prefix.as_str()));
        let mut rest = below.filter(|(key, _)| after.is_none_or(|after| key.as_str() > after)).peekable();
        let mut page = Page::default();
        for (key, stored) in rest.by_ref().take(PAGE) {
            let (size, modified) = (stored.bytes.len() as u64, wall_clock(stored.at));
            page.objects.push(Listed { key: key.clone(), size, modified });
        }
        if rest.peek().is_some() {
            page.next = page.objects.last().map(|last| last.key.to_string());
        }
        let outcome = format!("{} objects", page.objects.len());
        (Ok(Reply::Page(page)), outcome)
    }

    fn delete(&mut self, keys: &[Key], caller: Caller) -> (Result<Reply, StoreError>, String) {
        let mut results = Vec::with_capacity(keys.len());
        for key in keys {
            self.judge_delete(key, caller);
            self.stored.remove(key);
            results.push(Deleted { key: key.clone(), result: Ok(()) });
        }
        (Ok(Reply::Deleted(results)), format!("{} deleted", keys.len()))
    }

    /// Registers are only ever created; anything else has one writer, who repeats the same bytes.
    fn judge_put(&mut self, key: &Key, body: &Bytes, caller: Caller) {
        let kind = key.kind();
        let advisory =
            matches!(kind, Some(StoredKind::Session(_) | StoredKind::Alive(_) | StoredKind::Swept(..)));
        let other = self.stored.get(key).is_some_and(|old| old.bytes != *body);
        if is_register(kind.as_ref()) || is_lease(kind.as_ref()) || (other && !advisory) {
            self.offences.push(format!("process {} overwrote {key}", caller.process.0));
        }
    }

    fn judge_delete(&mut self, key: &Key, caller: Caller) {
        let kind = key.kind();
        let data = is_lease(kind.as_ref())
            || matches!(kind, Some(StoredKind::Pack(_) | StoredKind::Index(..) | StoredKind::Refs(..)));
        let permitted = self.collectors.contains(&caller.process);
        if is_register(kind.as_ref()) || (data && !permitted) {
            self.offences.push(format!("process {} deleted {key}", caller.process.0));
        }
    }
}

fn is_register(kind: Option<&StoredKind>) -> bool {
    use StoredKind::{Decision, Expired, Intent, Repository};
    matches!(kind, Some(Repository | Intent(..) | Decision(..) | Expired(..)))
}

fn is_lease(kind: Option<&StoredKind>) -> bool {
    matches!(kind, Some(StoredKind::Lease(_) | StoredKind::LeaseEnd(_)))
}

/// The bytes of a body in one piece.
pub(crate) fn joined(body: Payload) -> Bytes {
    match <[Bytes; 1]>::try_from(body.0) {
        Ok([single]) => single,
        Err(segments) => segments.concat().into(),
    }
}
