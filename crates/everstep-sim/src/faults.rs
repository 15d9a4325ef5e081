//! What can become of a request, and how often.

use std::time::Duration;

use everstep_store::{Create, StoreError, StoreErrorKind};
use rand::RngExt;
use rand::rngs::StdRng;

use crate::objects::{Call, Reply};

/// Chances per call, in thousandths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Weather {
    /// The request never arrives; the sender sees a broken connection.
    pub unreachable: u32,
    /// 503: refused before anything was done.
    pub throttled: u32,
    /// 409 to a create, although nothing is there.
    pub conflict: u32,
    /// Carried out; the answer is lost.
    pub lost_reply: u32,
    /// Carried out; the answer is a 500.
    pub server_error: u32,
    /// No answer; carried out much later.
    pub late: u32,
    /// Carried out and answered, and carried out once more much later.
    pub twice: u32,
    /// The body of a read breaks off.
    pub truncated: u32,
    /// The sender stops for a long time right after sending, and goes on as a zombie.
    pub freeze: u32,
    /// The sender dies, before or after the request has left.
    pub kill: u32,
    /// A burst begins: the sender's next calls all share one of the failures of the store.
    pub burst: u32,
}

/// Calls in a burst.
pub(crate) const BURST: std::ops::RangeInclusive<u32> = 4..=60;

/// Failures that come in bursts.
const IN_BURSTS: [Fate; 6] =
    [Fate::Unreachable, Fate::Throttled, Fate::Conflict, Fate::LostReply, Fate::ServerError, Fate::Late];

impl Weather {
    /// Nothing ever fails.
    pub const CALM: Self = Self {
        unreachable: 0,
        throttled: 0,
        conflict: 0,
        lost_reply: 0,
        server_error: 0,
        late: 0,
        twice: 0,
        truncated: 0,
        freeze: 0,
        kill: 0,
        burst: 0,
    };

    /// Everything fails at times, each at its own rate of up to `most` thousandths.
    pub fn drawn(rng: &mut StdRng, most: u32) -> Self {
        let mut rate = || rng.random_range(0..=most);
        Self {
            unreachable: rate(),
            throttled: rate(),
            conflict: rate(),
            lost_reply: rate(),
            server_error: rate(),
            late: rate(),
            twice: rate(),
            truncated: rate(),
            freeze: rate() / 4,
            kill: rate() / 4,
            burst: rate() / 4,
        }
    }

    /// The failure of a burst that begins now, if one does.
    pub(crate) fn burst(&self, rng: &mut StdRng) -> Option<Fate> {
        (rng.random_range(0..1000u32) < self.burst).then(|| IN_BURSTS[rng.random_range(0..IN_BURSTS.len())])
    }

    /// The fate of the next call.
    pub(crate) fn fate(&self, rng: &mut StdRng) -> Fate {
        let mut left = rng.random_range(0..1000u32);
        let chances = [
            (self.unreachable, Fate::Unreachable),
            (self.throttled, Fate::Throttled),
            (self.conflict, Fate::Conflict),
            (self.lost_reply, Fate::LostReply),
            (self.server_error, Fate::ServerError),
            (self.late, Fate::Late),
            (self.twice, Fate::Twice),
            (self.truncated, Fate::Truncated),
            (self.freeze, Fate::Freeze),
            (self.kill, if rng.random_bool(0.5) { Fate::KillBefore } else { Fate::KillAfter }),
        ];
        for (chance, fate) in chances {
            if left < chance {
                return fate;
            }
            left -= chance;
        }
        Fate::Fine
    }
}

/// What becomes of one call. See [`Weather`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Carried out and answered.
    Fine,
    /// Never arrives.
    Unreachable,
    /// 503.
    Throttled,
    /// 409.
    Conflict,
    /// Answer lost.
    LostReply,
    /// Carried out, answered by a 500.
    ServerError,
    /// Carried out later.
    Late,
    /// Carried out twice.
    Twice,
    /// The body breaks off.
    Truncated,
    /// The sender freezes.
    Freeze,
    /// The sender dies before sending.
    KillBefore,
    /// The sender dies after sending.
    KillAfter,
}

impl Fate {
    /// For histories.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Unreachable => "unreachable",
            Self::Throttled => "throttled",
            Self::Conflict => "conflict",
            Self::LostReply => "reply lost",
            Self::ServerError => "answered 500",
            Self::Late => "late",
            Self::Twice => "twice",
            Self::Truncated => "truncated",
            Self::Freeze => "sender frozen",
            Self::KillBefore => "sender killed before",
            Self::KillAfter => "sender killed after",
        }
    }

    /// What it means for a kind of call for which it cannot happen: nothing.
    pub(crate) fn of(self, call: &Call) -> Self {
        let reads = matches!(call, Call::Get(..) | Call::List(..));
        match (self, call) {
            (Self::Conflict, Call::Create(..)) | (Self::Truncated, Call::Get(..)) => self,
            (Self::Conflict | Self::Truncated, _) => Self::Fine,
            (Self::Late | Self::Twice, Call::Put(..) | Call::Create(..) | Call::Delete(_)) => self,
            (Self::Late | Self::Twice, _) => Self::Fine,
            (Self::LostReply | Self::ServerError, _) if reads => Self::Unreachable,
            (_, Call::Sync) => Self::Fine,
            _ => self,
        }
    }

    /// Whether the request is carried out at once.
    pub(crate) fn applies_now(self) -> bool {
        use Fate::{Fine, Freeze, KillAfter, LostReply, ServerError, Truncated, Twice};
        matches!(self, Fine | LostReply | ServerError | Twice | Truncated | Freeze | KillAfter)
    }

    /// Whether it is carried out (again) much later.
    pub(crate) fn applies_later(self) -> bool {
        matches!(self, Self::Late | Self::Twice)
    }

    /// How long the sender waits for nothing.
    pub(crate) fn silence(self) -> Duration {
        match self {
            Self::Late | Self::LostReply | Self::Unreachable => Duration::from_secs(20),
            _ => Duration::ZERO,
        }
    }

    /// What the sender hears; `reply` is what the store said, if the request was carried out.
    pub(crate) fn answer(
        self,
        call: &Call,
        reply: Option<Result<Reply, StoreError>>,
    ) -> Result<Reply, StoreError> {
        let (kind, detail) = match self {
            Self::Throttled => (StoreErrorKind::Throttled, "503 SlowDown"),
            Self::Conflict => (StoreErrorKind::Server, "409 ConditionalRequestConflict"),
            Self::ServerError => (StoreErrorKind::Server, "500 InternalError"),
            Self::Truncated => (StoreErrorKind::Unreachable, "the body broke off"),
            Self::LostReply | Self::Late | Self::Unreachable => {
                (StoreErrorKind::Unreachable, "no answer in time")
            }
            _ => return reply.unwrap_or_else(|| Err(call.error(StoreErrorKind::Unreachable, "not sent"))),
        };
        let error = call.error(kind, detail);
        match call {
            Call::Create(..) if self != Self::Throttled => Ok(Reply::Created(Create::Unknown(error))),
            _ => Err(error),
        }
    }
}
