//! What readers are promised.

use stateright::Property;

use super::whole::is_whole;
use crate::actions::Protocol;
use crate::state::{Lessee, Resolver, Set, State};

/// L1 and L2.
pub(crate) const HELD: &str = "what a lease holds stays until somebody ends it, whether or not it expires";
/// `latest` without a fence.
pub(crate) const FRESH: &str = "whoever resolves latest never finds less than was there when it began";

pub(crate) fn rules() -> Vec<Property<Protocol>> {
    vec![
        Property::always(HELD, |_, state: &State| leases_hold(state)),
        Property::always(FRESH, |_, state: &State| match state.resolver {
            Resolver::Answered { found, floor } => found >= floor,
            _ => true,
        }),
    ]
}

fn leases_hold(state: &State) -> bool {
    (0..).zip(&state.lessees).all(|(l, lessee)| match *lessee {
        Lessee::Holding(place) if !state.store.lease(l).revoked => {
            let attempt = state.store.slot(place).attempt();
            attempt.is_some_and(|attempt| is_whole(&state.store, attempt, Set::default()))
        }
        _ => true,
    })
}
