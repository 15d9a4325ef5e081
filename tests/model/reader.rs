//! Those who only read: under a lease, and `latest` without a fence.

use crate::actions::{Luck, Protocol};
use crate::state::{Lessee, Place, Request, Resolver, Set, State};
use crate::variants::Weakness;

/// The next call of lessee `l`.
pub(crate) fn step(protocol: &Protocol, state: &mut State, l: u8, luck: Luck) {
    let check_first = protocol.lacks(Weakness::MarkerBeforeLease);
    let next = match state.lessees[usize::from(l)] {
        Lessee::Taking(place) => {
            take(protocol, state, l, luck);
            // Without an answer nothing is clear, and the lease is ended.
            match luck {
                Luck::Fine | Luck::Twice if check_first => Lessee::Holding(place),
                Luck::Fine | Luck::Twice => Lessee::Checking(place),
                _ => Lessee::Leaving,
            }
        }
        Lessee::Checking(place) => check(protocol, state, place),
        Lessee::Holding(_) => Lessee::Leaving,
        Lessee::Leaving => {
            state.store.leases[usize::from(l)].ended = true;
            Lessee::Gone
        }
        other => other,
    };
    state.lessees[usize::from(l)] = next;
}

/// Reads a COMMIT that counts, and wants a lease on it.
pub(crate) fn choose(protocol: &Protocol, state: &mut State, l: u8, place: Place) {
    let check_first = protocol.lacks(Weakness::MarkerBeforeLease);
    state.lessees[usize::from(l)] = if check_first { Lessee::Checking(place) } else { Lessee::Taking(place) };
    state.store.leases[usize::from(l)].of = Some(place);
}

/// L1.
fn take(protocol: &Protocol, state: &mut State, l: u8, luck: Luck) {
    if !state.store.lease(l).there {
        protocol.send::<()>(state, Request::Lease(l), luck);
    }
}

/// L2.
fn check(protocol: &Protocol, state: &State, place: Place) -> Lessee {
    let stands = !state.store.slot(place).expired || protocol.lacks(Weakness::NoLeaseCheck);
    match stands {
        true if protocol.lacks(Weakness::MarkerBeforeLease) => Lessee::Taking(place),
        true => Lessee::Holding(place),
        false => Lessee::Leaving,
    }
}

/// The next call of the one who resolves `latest`: a LIST, or a decision and its marker.
pub(crate) fn resolve(protocol: &Protocol, state: &mut State) {
    let top = state.store.top(0);
    state.resolver = match state.resolver {
        Resolver::Away => {
            let floor = state.store.latest(0).map_or(0, |place| place.ordinal);
            Resolver::At { ordinal: top, expired: Set::default(), floor }
        }
        Resolver::At { ordinal: 0, floor, .. } => Resolver::Answered { found: 0, floor },
        Resolver::At { ordinal, expired, floor } => {
            let slot = state.store.slot(Place { run: 0, ordinal });
            let is_news = slot.is_commit() && slot.expired && !expired.has(ordinal);
            match slot.counts() {
                true => Resolver::Answered { found: ordinal, floor },
                false if is_news && !protocol.lacks(Weakness::NoListingAgain) => {
                    Resolver::At { ordinal: top, expired: expired.with(Set::one(ordinal)), floor }
                }
                false => Resolver::At { ordinal: ordinal - 1, expired, floor },
            }
        }
        answered => answered,
    };
}
