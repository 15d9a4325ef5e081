//! The whole of a save.

use everstep_repo::Session;

use crate::{SaveError, SaveOptions, SaveReport, State, Tools};

/// Saves `state` as a new checkpoint of the session's run.
///
/// # Errors
/// [`SaveError`]; only [`SaveError::Unknown`] leaves open whether the checkpoint exists.
pub async fn save(
    session: &mut Session,
    state: &State<'_>,
    options: SaveOptions,
    tools: &Tools<'_>,
) -> Result<SaveReport, SaveError> {
    let _ = (session, state, options, tools);
    unimplemented!()
}
