//! Leases: each by itself, and what they keep.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use everstep_format::id::AttemptId;
use everstep_format::key::{Key, StoredKind};
use everstep_format::lease::{Lease, LeaseEnd};
use everstep_store::{Listed, Store};

use crate::CheckError;
use crate::garbage::Inventory;
use crate::history::Standing;
use crate::reading::{Got, get_control};
use crate::report::{Finding, Hurt};

/// What became of each attempt.
type Standings = HashMap<AttemptId, (Hurt, Standing)>;

/// The leases of a repository, judged.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    /// Attempts whose data a lease keeps that has not ended.
    pub(crate) held: HashSet<AttemptId>,
    pub(crate) findings: Vec<Finding>,
}

impl Leases {
    /// Reads and judges every lease of `inventory`, and every end.
    pub(crate) async fn read(
        store: &dyn Store,
        inventory: &Inventory,
        standings: &Standings,
    ) -> Result<Self, CheckError> {
        let kinds = || inventory.objects.iter().filter_map(|Listed { key, .. }| Some((key, key.kind()?)));
        let ended: HashSet<AttemptId> = kinds()
            .filter_map(|(_, kind)| if let StoredKind::LeaseEnd(id) = kind { Some(id) } else { None })
            .collect();
        let mut leases = Self::default();
        for (key, kind) in kinds() {
            match kind {
                StoredKind::Lease(id) => {
                    // One that has vanished was collected: it had ended.
                    let Some(bytes) = leases.bytes_of(store, key).await? else { continue };
                    match Lease::from_bytes(&bytes, id) {
                        Ok(lease) => leases.judge(key, &lease, (ended.contains(&id), standings)),
                        Err(error) => {
                            leases.findings.push(Finding::unreadable(key, &error).advise(damaged(key)))
                        }
                    }
                }
                StoredKind::LeaseEnd(id) => {
                    let Some(bytes) = leases.bytes_of(store, key).await? else { continue };
                    if let Err(error) = LeaseEnd::from_bytes(&bytes, id) {
                        let advice =
                            "the lease counts as ended all the same: the presence of its end decides";
                        leases.findings.push(Finding::unreadable(key, &error).advise(advice));
                    }
                }
                _ => {}
            }
        }
        Ok(leases)
    }

    /// The bytes of a lease or an end; one that is beyond every limit is told and not read.
    async fn bytes_of(&mut self, store: &dyn Store, key: &Key) -> Result<Option<Bytes>, CheckError> {
        match get_control(store, key).await? {
            Got::Bytes(bytes) => return Ok(Some(bytes)),
            Got::Unusable(found) => {
                let finding = Finding::damage(key, "it is damaged").expect("a small JSON object", found);
                self.findings.push(finding.advise(damaged(key)));
            }
            Got::Missing => {}
        }
        Ok(None)
    }

    fn judge(&mut self, key: &Key, lease: &Lease, (ended, standings): (bool, &Standings)) {
        let parent = &lease.parent;
        if !ended {
            self.held.insert(parent.attempt);
        }
        let standing = standings.get(&parent.attempt);
        // What cannot be read has its own finding.
        let was_checkpoint = standing.is_some_and(|(_, standing)| {
            matches!(standing, Standing::Checkpoint | Standing::Expired | Standing::Unreadable)
        });
        if !was_checkpoint {
            let found = format!("{}@ordinal={}, attempt {}", parent.run, parent.ordinal, parent.attempt);
            let finding = Finding::warning(key, "it keeps something that was never a checkpoint")
                .expect("a checkpoint that was committed before", found)
                .advise("it hurts nothing, and ends when its time to live has passed");
            self.findings.push(finding);
        }
    }
}

fn damaged(key: &Key) -> String {
    format!(
        "its reader goes on, but no garbage is collected while it is there: once that reader has ended, delete it \
         ({key}), then its end"
    )
}
