//! Rollbacks and pins: ordinary attempts whose COMMIT carries a copy of another checkpoint's index.

use everstep_format::decision::{Manifest, Totals};
use everstep_format::feature::{Operation, Requires};
use everstep_format::id::ContentHash;
use everstep_format::key::Key;
use everstep_store::Class;
use futures::future::try_join;

use crate::checkpoint::explain_missing;
use crate::commit::{CopyOf, Purpose};
use crate::reading::{check_hash, fetch_at_most};
use crate::session::{Attempt, CommitOutcome, Draft, Parents, Session};
use crate::{Checkpoint, RepoError};

/// An object to copy, with the length and hash that the manifest states.
struct Source(Key, u64, ContentHash);

impl Session {
    /// Commits a copy of `target` as the newest checkpoint of the session's run.
    pub(crate) async fn copy_of(
        &mut self,
        target: &Checkpoint,
        purpose: Purpose,
    ) -> Result<CommitOutcome, RepoError> {
        let Manifest { step, world_size, .. } = *target.manifest;
        let attempt = self.start_attempt((step, world_size), &Parents::These(vec![target.clone()])).await?;
        match self.copy_index(target, &attempt).await {
            Ok((draft, requires)) => self.decide(&attempt, draft, Some(CopyOf { purpose, requires })).await,
            Err(error) => {
                self.abandon(attempt, &format!("{} failed: {error}", purpose.name())).await;
                Err(error)
            }
        }
    }

    /// Stores the index and refs of `target` under the new attempt. Packs stay where they are.
    async fn copy_index(
        &self,
        target: &Checkpoint,
        attempt: &Attempt,
    ) -> Result<(Draft, Requires), RepoError> {
        let Manifest { run, ordinal, .. } = target.manifest.as_ref();
        if attempt.confirmed.is_empty() {
            return Err(RepoError::Expired { run: run.clone(), ordinal: *ordinal });
        }
        let Manifest { index, refs, owners, totals, metadata, .. } = target.manifest.as_ref();
        let new_index = Key::index(attempt.id, index.blake3);
        let new_refs = Key::refs(attempt.id, refs.blake3);
        try_join(
            self.copy_object(target, Source(target.index_key(), index.len, index.blake3), new_index),
            self.copy_object(target, Source(target.refs_key(), refs.len, refs.blake3), new_refs),
        )
        .await?;
        let decided = self.repository.decision(run, *ordinal, Operation::Write).await?;
        let requires = decided.map(|decided| decided.requires.clone()).unwrap_or_default();
        let draft = Draft {
            index: index.clone(),
            refs: refs.clone(),
            owners: owners.clone(),
            totals: all_reused(totals),
            metadata: metadata.clone(),
            stats: None,
        };
        Ok((draft, requires))
    }

    async fn copy_object(
        &self,
        target: &Checkpoint,
        Source(from, len, hash): Source,
        to: Key,
    ) -> Result<(), RepoError> {
        let store = self.repository.store().as_ref();
        let Some(bytes) = fetch_at_most(store, &from, len).await? else {
            return Err(explain_missing(store, target, from).await);
        };
        check_hash(&bytes, hash).map_err(RepoError::object(from))?;
        Ok(store.put(&to, bytes.into(), Class::Bulk).await?)
    }
}

/// The sums of a copy: the same state, nothing stored anew.
fn all_reused(totals: &Totals) -> Totals {
    Totals {
        chunks_new: 0,
        reused_raw_bytes: totals.reused_raw_bytes.saturating_add(totals.new_raw_bytes),
        new_raw_bytes: 0,
        new_stored_bytes: 0,
        ..totals.clone()
    }
}
