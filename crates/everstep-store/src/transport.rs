//! What every backend over HTTP shares: connections, bodies whose progress is watched, and words for what went wrong.

pub(crate) mod body;
pub(crate) mod failure;
pub(crate) mod network;
