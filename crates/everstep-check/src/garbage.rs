//! Objects that no checkpoint uses, and strays. None of this is damage.

use std::collections::{BTreeMap, HashMap, HashSet};

use everstep_format::id::AttemptId;
use everstep_format::key::{Key, Prefix, StoredKind};
use everstep_format::session::SessionMark;
use everstep_store::{Listed, Store};

use crate::CheckError;
use crate::history::Standing;
use crate::packs::Uses;
use crate::reading::{Got, get_control, sides};
use crate::report::{Finding, Hurt};

/// Strays named one by one; the rest is counted.
const STRAYS_NAMED: usize = 20;

/// The objects below one prefix, or all of them.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    pub(crate) objects: Vec<Listed>,
    pub(crate) strays: Vec<String>,
}

impl Inventory {
    /// Adds everything below `prefix`.
    pub(crate) async fn add(&mut self, store: &dyn Store, prefix: &Prefix) -> Result<(), CheckError> {
        let mut token = None;
        loop {
            let page = store.list(prefix, token).await?;
            let (ours, strays) = page.objects.into_iter().partition::<Vec<_>, _>(|o| o.key.kind().is_some());
            self.objects.extend(ours);
            self.strays.extend(strays.into_iter().map(|object| object.key.to_string()));
            self.strays.extend(page.strays);
            match page.next {
                None => return Ok(()),
                next => token = next,
            }
        }
    }
}

/// What one attempt has that no checkpoint uses.
#[derive(Debug, Default)]
struct Waste {
    packs: u64,
    others: u64,
    bytes: u64,
}

/// What somebody uses.
pub(crate) struct Used<'u> {
    /// Packs of the checkpoints that count.
    pub(crate) uses: &'u Uses,
    /// Their indexes and refs.
    pub(crate) kept: &'u HashSet<Key>,
    /// Attempts whose data leases keep.
    pub(crate) held: &'u HashSet<AttemptId>,
}

/// Notes about what no checkpoint uses: one for each attempt, one for each stray.
pub(crate) fn judge(
    inventory: &Inventory,
    used: &Used<'_>,
    standings: &HashMap<AttemptId, (Hurt, Standing)>,
) -> Vec<Finding> {
    let mut wasted: BTreeMap<AttemptId, Waste> = BTreeMap::new();
    for Listed { key, size, .. } in &inventory.objects {
        let (attempt, is_pack) = match key.kind() {
            Some(StoredKind::Pack(address)) if !used.uses.packs.contains_key(&address) => {
                (address.attempt, true)
            }
            Some(
                StoredKind::Index(attempt, _)
                | StoredKind::Refs(attempt, _)
                | StoredKind::Part(attempt, ..)
                | StoredKind::Failed(attempt, _),
            ) if !used.kept.contains(key) => (attempt, false),
            _ => continue,
        };
        // What its writers handed in stays beside every checkpoint that several of them saved.
        let committed = matches!(standings.get(&attempt), Some((_, Standing::Checkpoint)));
        if committed && matches!(key.kind(), Some(StoredKind::Part(..))) {
            continue;
        }
        let waste = wasted.entry(attempt).or_default();
        waste.bytes += size;
        *(if is_pack { &mut waste.packs } else { &mut waste.others }) += 1;
    }
    let unused = wasted.iter().map(|(attempt, waste)| {
        let finding = note(*attempt, waste, standings.get(attempt));
        if used.held.contains(attempt) {
            finding.advise("a reader holds a lease on it: it stays until that ends")
        } else {
            finding
        }
    });
    unused.chain(strays(&inventory.strays)).collect()
}

fn note(attempt: AttemptId, waste: &Waste, owner: Option<&(Hurt, Standing)>) -> Finding {
    let (whose, advice) = match owner {
        None => ("no attempt that is known".to_owned(), "its intent may be lost; see other findings"),
        Some((place, standing)) => match standing {
            Standing::Undecided => (
                format!("{place}, which is not decided"),
                "a save is running, or a crash left it: it is kept for now",
            ),
            Standing::Aborted => (format!("{place}, which was aborted"), "garbage collection will free it"),
            Standing::Expired => (format!("{place}, which has expired"), "garbage collection will free it"),
            Standing::Checkpoint => {
                (format!("{place}, which does not use it"), "it stays until that one expires")
            }
            Standing::Unreadable => (
                format!("{place}, whose decision cannot be read"),
                "it may belong to that checkpoint: keep it",
            ),
        },
    };
    let Waste { packs, others, bytes } = waste;
    Finding::note(format!("attempt {attempt}"), format!("no checkpoint uses these objects of {whose}"))
        .expect("nothing", format!("{packs} packs and {others} other objects, {bytes} bytes"))
        .advise(advice)
}

fn strays(strays: &[String]) -> Vec<Finding> {
    let stray = |name: &String| {
        Finding::note(name, "it is not ours")
            .expect("only objects of the repository", "another object")
            .advise("it is ignored, and never deleted")
    };
    let mut notes: Vec<Finding> = strays.iter().take(STRAYS_NAMED).map(stray).collect();
    if let Some(more) = strays.len().checked_sub(STRAYS_NAMED).filter(|more| *more > 0) {
        notes.push(
            Finding::note("more strays", format!("{more} more objects are not ours"))
                .advise("they are ignored"),
        );
    }
    notes
}

/// Signs of life are advisory: a lost one does no harm. A damaged one is still damage of the store.
pub(crate) async fn judge_sessions(
    store: &dyn Store,
    inventory: &Inventory,
) -> Result<Vec<Finding>, CheckError> {
    let mut findings = Vec::new();
    for Listed { key, .. } in &inventory.objects {
        let Some(StoredKind::Session(session)) = key.kind() else { continue };
        let (expected, found) = match get_control(store, key).await? {
            Got::Bytes(bytes) => match SessionMark::from_bytes(&bytes, session) {
                Err(error) => sides(&error),
                Ok(_) => continue,
            },
            Got::Unusable(found) => ("a small JSON object".to_owned(), found),
            Got::Missing => continue,
        };
        let advice =
            "it hurts nothing and may be deleted; but something may be damaging what this store keeps";
        findings.push(Finding::warning(key, "it is damaged").expect(expected, found).advise(advice));
    }
    Ok(findings)
}
