//! What must hold in every state, and what must be possible.

pub(crate) mod decided;
pub(crate) mod fenced;
pub(crate) mod honest;
pub(crate) mod reachable;
pub(crate) mod read;
pub(crate) mod whole;

use stateright::Property;

use crate::actions::Protocol;
use crate::configs::Config;

/// Every rule, and the reachability that `config` promises.
pub(crate) fn all(config: &Config) -> Vec<Property<Protocol>> {
    let rules = [whole::rules(), decided::rules(), fenced::rules(), honest::rules(), read::rules()].concat();
    rules.into_iter().chain(reachable::promised(config)).collect()
}
