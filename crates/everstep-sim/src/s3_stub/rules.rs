//! Scripted faults: which requests, and what happens to them.

use http::Method;
use tokio::sync::watch;

/// What happens to a request.
#[derive(Debug, Clone)]
pub enum Action {
    /// Nothing is done; the answer is this status and code.
    Refuse(u16, &'static str),
    /// Nothing is done; the answer is 200 with an error document of this code.
    RefuseWith200(&'static str),
    /// Nothing is done; the answer is this status and body.
    Answer(u16, String),
    /// Nothing is done and nothing is answered: the connection closes once the request was read.
    Drop,
    /// The connection closes while the request's body is still arriving.
    ResetMidBody,
    /// It is done, but the connection closes instead of an answer.
    DoThenDrop,
    /// It is done, but the answer is this status and code.
    DoThenAnswer(u16, &'static str),
    /// It is done, but the answer's body ends in the middle.
    CutBody,
    /// It is done once the gate opens.
    HoldThenDo(Gate),
    /// It is done, and answered once the gate opens.
    DoThenHold(Gate),
}

/// A fault for the requests that match.
#[derive(Debug, Clone)]
pub struct Rule {
    method: Option<Method>,
    contains: String,
    skip: u32,
    times: Option<u32>,
    action: Action,
    met: u32,
}

impl Rule {
    /// Every request of `method`, for ever.
    pub fn on(method: Method, action: Action) -> Self {
        Self { method: Some(method), ..Self::always(action) }
    }

    /// Every request, for ever.
    pub fn always(action: Action) -> Self {
        Self { method: None, contains: String::new(), skip: 0, times: None, action, met: 0 }
    }

    /// Only requests whose decoded `/bucket/key?query` contains `text`.
    #[must_use]
    pub fn at(self, text: &str) -> Self {
        Self { contains: text.to_owned(), ..self }
    }

    /// Only after `skip` of the matching requests.
    #[must_use]
    pub fn after(self, skip: u32) -> Self {
        Self { skip, ..self }
    }

    /// Only for so many of the matching requests.
    #[must_use]
    pub fn times(self, times: u32) -> Self {
        Self { times: Some(times), ..self }
    }

    /// The action, if this request is one that the rule is for. Counts the request.
    pub(super) fn meet(&mut self, method: &Method, target: &str) -> Option<Action> {
        let matches =
            self.method.as_ref().is_none_or(|wanted| wanted == method) && target.contains(&self.contains);
        if !matches {
            return None;
        }
        self.met += 1;
        let number = self.met.checked_sub(self.skip + 1)?;
        self.times.is_none_or(|times| number < times).then(|| self.action.clone())
    }
}

/// Holds requests until it is opened.
#[derive(Debug, Clone)]
pub struct Gate {
    arrived: watch::Sender<u32>,
    open: watch::Sender<bool>,
}

impl Gate {
    /// A closed gate.
    pub fn closed() -> Self {
        Self { arrived: watch::channel(0).0, open: watch::channel(false).0 }
    }

    /// Lets all requests pass, now and later.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    /// Waits until `count` requests stand, or stood, at the gate.
    pub async fn arrived(&self, count: u32) {
        let mut arrived = self.arrived.subscribe();
        // The sender lives in this gate, so the wait cannot fail.
        let _ = arrived.wait_for(|so_far| *so_far >= count).await;
    }

    pub(super) async fn pass(&self) {
        let mut open = self.open.subscribe();
        self.arrived.send_modify(|so_far| *so_far += 1);
        let _ = open.wait_for(|open| *open).await;
    }
}
