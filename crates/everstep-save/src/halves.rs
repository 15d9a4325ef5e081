//! A save in two halves: the leader hands its own share in and returns; the commit comes later, once somebody else knows
//! that all ranks have done theirs.

use std::fmt;

use everstep_format::card::SaveId;
use everstep_format::decision::check_metadata;
use everstep_format::name::Step;
use everstep_repo::Session;

use crate::group::Group;
use crate::item::object_bytes;
use crate::member::HandedIn;
use crate::muster::Muster;
use crate::save::{Begun, Own, begin, decide, own_share, unite};
use crate::{SaveError, SaveOptions, SaveReport, State, Tools};

/// The user's metadata.
type Metadata = serde_json::Map<String, serde_json::Value>;

/// A save of which the leader has stored its own share, and whose commit is still to come. Dropping it leaves the attempt
/// undecided: it is aborted when the session is closed or the run is opened next.
pub struct Uncommitted {
    begun: Begun,
    own: Own,
    muster: Muster,
    report: HandedIn,
}

/// Calls the other ranks of the group and stores the leader's own share of `state`, without waiting for theirs. Nothing is
/// saved yet. Metadata may be given now or with the commit.
///
/// # Errors
/// Those of [`crate::save()`]; the attempt was given up then, and the other ranks were told.
pub async fn hand_in(
    session: &mut Session,
    state: &State<'_>,
    options: SaveOptions,
    tools: &Tools<'_>,
) -> Result<Uncommitted, SaveError> {
    let mut muster = Muster::new(session, &options)?;
    match first_half(session, (state, options), tools, &mut muster).await {
        Ok((begun, own)) => {
            let now = session.repository().world().elapsed();
            let report = HandedIn::of_leader(&begun, &own, (muster.save(), now));
            Ok(Uncommitted { begun, own, muster, report })
        }
        Err(error) => {
            muster.conclude(Err(&error)).await;
            Err(error)
        }
    }
}

async fn first_half(
    session: &mut Session,
    (state, options): (&State<'_>, SaveOptions),
    tools: &Tools<'_>,
    muster: &mut Muster,
) -> Result<(Begun, Own), SaveError> {
    let objects = object_bytes(&state.objects)?;
    let (begun, plan) = begin(session, (state, &objects), options, (tools, muster)).await?;
    let repository = session.repository().clone();
    let own = async {
        muster.call(begun.called(muster.seat)).await?;
        own_share(&repository, (&begun, plan), (tools, muster)).await
    };
    match own.await {
        Ok(own) => Ok((begun, own)),
        Err(error) => {
            session.abandon(begun.attempt, &error.to_string()).await;
            Err(error)
        }
    }
}

impl Uncommitted {
    /// What the leader handed in.
    pub fn report(&self) -> &HandedIn {
        &self.report
    }

    /// The training step.
    pub fn step(&self) -> Step {
        self.begun.attempt.step
    }

    /// Which save of the session it is, as [`crate::let_go`] needs it.
    pub fn save(&self) -> SaveId {
        self.muster.save()
    }

    /// Waits for the reports of all other ranks on the rendezvous of `group`, within its deadline from now on, merges the
    /// shares and commits them, with `metadata` beside that which was given before. `session` is the one that began it.
    ///
    /// # Errors
    /// Those of [`crate::save()`]. In any case the attempt has ended.
    pub async fn commit(
        mut self,
        session: &mut Session,
        metadata: Metadata,
        (group, tools): (&Group, &Tools<'_>),
    ) -> Result<SaveReport, SaveError> {
        let met = self.muster.meet_in(group);
        let Self { mut begun, own, muster, .. } = self;
        begun.metadata.extend(metadata);
        let repository = session.repository().clone();
        let stored = async {
            met?;
            check_metadata(&begun.metadata)?;
            let others = muster.parts(tools).await?;
            unite(&repository, &begun, (own, others), (tools, &muster)).await
        };
        let stored = stored.await;
        let result = decide(session, begun, stored, tools).await;
        muster.conclude(result.as_ref().map(|_| ())).await;
        result
    }

    /// Gives the attempt up, and tells the ranks that wait for its outcome `why`.
    pub async fn give_up(self, session: &mut Session, why: &str) {
        session.abandon(self.begun.attempt, why).await;
        self.muster.give_up(why).await;
    }
}

impl fmt::Debug for Uncommitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Uncommitted").field(&self.report).finish()
    }
}
