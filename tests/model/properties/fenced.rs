//! `latest` is what the newest session says it is.

use stateright::Property;

use crate::actions::Protocol;
use crate::state::{Event, Intent, Place, Session, Slot, State};

/// R1 and R2.
pub(crate) const FENCED: &str = "once a session has resolved latest, no older session commits";
/// A1 to A3, and the walk of a session of several processes.
pub(crate) const LEARNED: &str = "a process knows what others of its session committed below its walk";
/// R3, retention and the rollback rule.
pub(crate) const STANDING: &str = "what an unfenced session stands on is not expired under it";
/// A rollback is an attempt.
pub(crate) const REMEMBERED: &str = "a finished rollback is what the next session starts from";

pub(crate) fn rules() -> Vec<Property<Protocol>> {
    vec![
        Property::always(FENCED, |protocol, state| {
            sessions(protocol, state).all(|(run, session)| is_stable(state, run, session))
        }),
        Property::always(LEARNED, |protocol, state: &State| {
            (0..).zip(&state.sessions).all(|(s, session)| knows(protocol, state, (s, session)))
        }),
        Property::always(STANDING, |protocol, state| {
            sessions(protocol, state).all(|(run, session)| stands(protocol, state, (run, session)))
        }),
        Property::always(REMEMBERED, |_, state: &State| state.event != Some(Event::RollbackForgotten)),
    ]
}

/// The sessions that are past R3, with their runs.
fn sessions<'a>(protocol: &'a Protocol, state: &'a State) -> impl Iterator<Item = (u8, &'a Session)> {
    let all = protocol.config.sessions.iter().copied().zip(&state.sessions);
    all.filter(|(_, session)| session.has_resolved())
}

/// Every COMMIT of an older session was there when `session` resolved `latest`.
fn is_stable(state: &State, run: u8, session: &Session) -> bool {
    let is_older = |slot: &Slot| match slot.intent {
        Some(Intent::Save { session: of, .. }) => {
            state.sessions.get(usize::from(of)).is_some_and(|other| other.fence < session.fence)
        }
        _ => false,
    };
    let mut commits = state.store.claimed(run).filter(|(_, slot)| slot.is_commit());
    commits.all(|(place, slot)| session.seen.has(place.ordinal) || !is_older(slot))
}

fn knows(protocol: &Protocol, state: &State, (s, session): (u8, &Session)) -> bool {
    let others = |slot: &Slot| match slot.intent {
        Some(Intent::Save { session: of, attempt, .. }) => {
            of == protocol.session_of(s) && !protocol.has_begun(s, attempt)
        }
        _ => false,
    };
    let mut commits = state.store.claimed(protocol.run_of(s)).filter(|(_, slot)| slot.is_commit());
    let below = |place: Place| session.has_resolved() && place.ordinal < session.next;
    commits.all(|(place, slot)| !below(place) || !others(slot) || session.seen.has(place.ordinal))
}

fn stands(protocol: &Protocol, state: &State, (run, session): (u8, &Session)) -> bool {
    let Some(standing) = session.standing.filter(|_| !(protocol.config.pins && run == 1)) else {
        return true;
    };
    let newer = |slot: &Slot| matches!(slot.intent, Some(Intent::Fence { .. })) || slot.is_commit();
    let floor = session.fence.max(standing.ordinal);
    let outdated = state.store.claimed(run).any(|(place, slot)| place.ordinal > floor && newer(slot));
    outdated || !state.store.slot(standing).expired
}
