//! After a save whose future was dropped half-way: nobody need wait for what will never come.

use std::sync::Arc;

use everstep_format::card::{Card, Occasion, SaveId};
use everstep_format::id::AttemptId;
use everstep_format::name::Step;
use everstep_format::outcome::{Ending, Outcome};
use everstep_repo::{Rendezvous, RepoError, Session};
use futures::FutureExt;

use crate::SaveError;
use crate::group::{Group, LEADER};

/// What those that wait are told.
pub(crate) const WHY: &str = "it was interrupted";

/// Gives up, in the background, what a save left behind: the attempt it had begun, unless its commit was under way, and
/// the other ranks, which it may have called. `before` is the save that the session's ticket named when it began.
pub fn let_go(session: &mut Session, before: SaveId, (step, group): (Step, Group)) {
    let given_up = session.let_go(WHY);
    let SaveId { session: id, save: next } = session.ticket().next;
    if next == before.save {
        return;
    }
    // It may have passed over names that another process of the session has used.
    let last = SaveId { session: id, save: next - 1 };
    let (run, world_size) = (session.run().clone(), group.world_size);
    let occasion = Occasion { save: last, run, step, world_size };
    let rendezvous = group.rendezvous_in(session.repository());
    let told = async move {
        if let Err(error) = tell(&rendezvous, occasion, &given_up).await {
            tracing::warn!(save = last.save, %error, "the other ranks were not told that the save was interrupted");
        }
    };
    session.repository().world().spawn(told.boxed());
}

/// Tells the other ranks of `group`, who are about to save `step`, that there will be no attempt, and `why`.
///
/// # Errors
/// [`SaveError::Repo`] when it could not be told; then they wait until their deadline.
pub async fn call_off(
    session: &mut Session,
    (step, group): (Step, &Group),
    why: &str,
) -> Result<(), SaveError> {
    if group.check(true)?.is_alone() {
        return Ok(());
    }
    let (run, world_size) = (session.run().clone(), group.world_size);
    let occasion = Occasion { save: session.next_call(), run, step, world_size };
    let why = format!("the leader, rank {LEADER}, failed: {why}");
    Ok(group.rendezvous_in(session.repository()).call(&Card::off(occasion, &why)).await?)
}

async fn tell(
    rendezvous: &Arc<dyn Rendezvous>,
    occasion: Occasion,
    given_up: &[AttemptId],
) -> Result<(), RepoError> {
    let why = format!("the leader, rank {LEADER}, failed: {WHY}");
    match rendezvous.card(occasion.save).await?.map(|card| card.attempt) {
        None => rendezvous.call(&Card::off(occasion, &why)).await,
        // It called the save off itself.
        Some(None) => Ok(()),
        // Another process of the session saved under this name.
        Some(Some(_)) if rendezvous.outcome(occasion.save).await?.is_some() => Ok(()),
        Some(Some(attempt)) => {
            let committed = Outcome::committed(occasion.save, attempt.id, attempt.ordinal);
            let outcome = match given_up.contains(&attempt.id) {
                true => committed.ended(Ending::Failed, &why, &[LEADER]),
                false => committed.ended(Ending::Unknown, &why, &[]),
            };
            rendezvous.conclude(&outcome).await
        }
    }
}
