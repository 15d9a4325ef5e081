//! The ranks that save together, and the board through which they meet.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use everstep::format::FormatError;
use everstep::format::card::{Card, SaveId};
use everstep::format::failed::Failed;
use everstep::format::id::ContentHash;
use everstep::format::outcome::Outcome;
use everstep::format::part::PartRef;
use everstep::rendezvous::{Report, Spent};
use everstep::{AttemptId, Rank, Rendezvous, RepoError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde::{Deserialize, Serialize};

use crate::repository::seconds;

/// Pauses between two looks, at first and at last, for up to [`FEW_RANKS`]; more ranks look less often.
const PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(200));
const FEW_RANKS: u32 = 64;

/// rank, world_size, deadline (seconds), and a board through which ranks meet (None: over the store).
#[pyclass(frozen, module = "everstep._everstep")]
pub(crate) struct Group {
    rank: u32,
    world_size: u32,
    deadline: Duration,
    board: Option<Py<PyAny>>,
}

impl Group {
    pub(crate) fn inner(&self, py: Python<'_>) -> everstep::Group {
        let group = everstep::Group::new(Rank(self.rank), self.world_size).within(self.deadline);
        match &self.board {
            None => group,
            Some(board) => group.meeting(Arc::new(Board::new(board.clone_ref(py), self.world_size))),
        }
    }
}

#[pymethods]
impl Group {
    #[new]
    #[pyo3(signature = (rank, world_size, deadline, board))]
    fn new(rank: u32, world_size: u32, deadline: f64, board: Option<Py<PyAny>>) -> PyResult<Self> {
        Ok(Self { rank, world_size, deadline: seconds("deadline", deadline)?, board })
    }
}

/// Ranks that meet through an object of Python with `set(key, value)` and `get(key)`. The values are those that the store
/// would have; that a share is handed in, which there shows by its part, is said in JSON.
struct Board {
    board: Arc<Py<PyAny>>,
    world_size: u32,
    /// Reports of one attempt that were seen: they do not change.
    seen: Mutex<(Option<AttemptId>, BTreeMap<Rank, Report>)>,
}

impl fmt::Debug for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Board({} ranks)", self.world_size)
    }
}

/// A share that is handed in.
#[derive(Serialize, Deserialize)]
struct Done {
    blake3: ContentHash,
    len: u64,
    seconds: Option<Seconds>,
}

#[derive(Serialize, Deserialize)]
struct Seconds {
    hash: f64,
    encode: f64,
    upload: f64,
}

impl Done {
    fn new(part: &PartRef, spent: Option<&Spent>) -> Self {
        let seconds = spent.map(|Spent { hash, encode, upload }| Seconds {
            hash: hash.as_secs_f64(),
            encode: encode.as_secs_f64(),
            upload: upload.as_secs_f64(),
        });
        Self { blake3: part.blake3, len: part.len, seconds }
    }

    fn report(self) -> Report {
        let time = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let Self { blake3, len, seconds } = self;
        let spent = seconds.map(|Seconds { hash, encode, upload }| Spent {
            hash: time(hash),
            encode: time(encode),
            upload: time(upload),
        });
        Report::Done(PartRef { blake3, len }, spent)
    }
}

fn unreadable(key: String) -> impl FnOnce(FormatError) -> RepoError {
    move |error| RepoError::Meeting(format!("{key} of the board: {error}"))
}

fn card_key(save: SaveId) -> String {
    format!("card/{}/{}", save.session, save.save)
}

fn outcome_key(save: SaveId) -> String {
    format!("outcome/{}/{}", save.session, save.save)
}

fn report_key(attempt: AttemptId, rank: Rank) -> String {
    format!("report/{attempt}/{rank}")
}

impl Board {
    fn new(board: Py<PyAny>, world_size: u32) -> Self {
        Self { board: Arc::new(board), world_size, seen: Mutex::default() }
    }

    fn seen(&self) -> MutexGuard<'_, (Option<AttemptId>, BTreeMap<Rank, Report>)> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `act` with the GIL, where waiting for it holds nobody up.
    async fn with_gil<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T> + Send + 'static,
    ) -> Result<T, RepoError> {
        let board = self.board.clone();
        let held = move || Python::try_attach(|py| act(board.bind(py)).map_err(|error| error.to_string()));
        let answer = tokio::task::spawn_blocking(held).await;
        let answer = answer.map_err(|error| RepoError::Meeting(error.to_string()))?;
        let ending = || RepoError::Meeting("the interpreter is ending".to_owned());
        answer.ok_or_else(ending)?.map_err(RepoError::Meeting)
    }

    async fn set(&self, key: String, value: Vec<u8>) -> Result<(), RepoError> {
        let set = move |board: &Bound<'_, PyAny>| {
            board.call_method1("set", (key, PyBytes::new(board.py(), &value))).map(drop)
        };
        self.with_gil(set).await
    }

    /// The values of `keys`, as far as there are any, in one go.
    async fn get(&self, keys: Vec<String>) -> Result<Vec<Option<Vec<u8>>>, RepoError> {
        let get = move |board: &Bound<'_, PyAny>| {
            let one = |key| board.call_method1("get", (key,))?.extract::<Option<Vec<u8>>>();
            keys.into_iter().map(one).collect()
        };
        self.with_gil(get).await
    }

    async fn look<T>(
        &self,
        key: String,
        read: impl FnOnce(&[u8]) -> Result<T, FormatError>,
    ) -> Result<Option<T>, RepoError> {
        let value = self.get(vec![key.clone()]).await?.pop().flatten();
        value.map(|bytes| read(&bytes)).transpose().map_err(unreadable(key))
    }
}

/// A report is either sealed, as that of a failure is, or says that all is done.
fn report(attempt: AttemptId, rank: Rank, bytes: &[u8]) -> Result<Report, FormatError> {
    match serde_json::from_slice::<Done>(bytes) {
        Ok(done) => Ok(done.report()),
        Err(_) => Failed::from_bytes(bytes, attempt, rank).map(|failed| Report::Failed(failed.why)),
    }
}

#[async_trait]
impl Rendezvous for Board {
    async fn call(&self, card: &Card) -> Result<(), RepoError> {
        let key = card_key(card.id());
        let bytes = card.to_bytes().map_err(unreadable(key.clone()))?;
        self.set(key, bytes).await
    }

    async fn card(&self, save: SaveId) -> Result<Option<Card>, RepoError> {
        self.look(card_key(save), |bytes| Card::from_bytes(bytes, save)).await
    }

    async fn report(&self, attempt: AttemptId, rank: Rank, report: &Report) -> Result<(), RepoError> {
        let key = report_key(attempt, rank);
        let bytes = match report {
            Report::Done(part, spent) => serde_json::to_vec(&Done::new(part, spent.as_ref()))
                .map_err(|error| RepoError::Meeting(format!("{key}: {error}")))?,
            Report::Failed(why) => {
                Failed::new(attempt, rank, why).to_bytes().map_err(unreadable(key.clone()))?
            }
        };
        self.set(key, bytes).await
    }

    async fn reports(
        &self,
        attempt: AttemptId,
        ranks: Range<u32>,
    ) -> Result<BTreeMap<Rank, Report>, RepoError> {
        let mut known = match &*self.seen() {
            (of, reports) if *of == Some(attempt) => reports.clone(),
            _ => BTreeMap::new(),
        };
        let open: Vec<Rank> = ranks.map(Rank).filter(|rank| !known.contains_key(rank)).collect();
        let values = self.get(open.iter().map(|rank| report_key(attempt, *rank)).collect()).await?;
        for (rank, bytes) in open.into_iter().zip(values) {
            let Some(bytes) = bytes else { continue };
            let read = report(attempt, rank, &bytes).map_err(unreadable(report_key(attempt, rank)))?;
            known.insert(rank, read);
        }
        *self.seen() = (Some(attempt), known.clone());
        Ok(known)
    }

    async fn conclude(&self, outcome: &Outcome) -> Result<(), RepoError> {
        let key = outcome_key(outcome.id());
        let bytes = outcome.to_bytes().map_err(unreadable(key.clone()))?;
        self.set(key, bytes).await
    }

    async fn outcome(&self, save: SaveId) -> Result<Option<Outcome>, RepoError> {
        self.look(outcome_key(save), |bytes| Outcome::from_bytes(bytes, save)).await
    }

    fn pause(&self, looks: u32) -> Duration {
        let scale = self.world_size.div_ceil(FEW_RANKS).max(1);
        let doubled = PAUSES.0.saturating_mul(1 << looks.saturating_sub(1).min(16));
        doubled.min(PAUSES.1).saturating_mul(scale)
    }
}
