//! Whom a damaged pack hurts: which tensors of which checkpoints. Looked up only when there is damage, so that a sound
//! repository costs no memory for names.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use everstep_format::id::ChunkId;
use everstep_format::index;
use everstep_format::key::PackAddress;
use everstep_format::row::{Piece, Row};
use everstep_repo::Checkpoint;
use everstep_store::{Span, Store};

use crate::CheckError;
use crate::packs::Uses;
use crate::reading::{Got, get, is_expired};
use crate::report::{Finding, Hurt};

/// A finding about a pack, and which of its chunks it spoils.
#[derive(Debug)]
pub(crate) struct Blamed {
    finding: Finding,
    spoils: Spoils,
}

#[derive(Debug)]
enum Spoils {
    Nothing,
    Pack(PackAddress),
    Chunks(PackAddress, HashSet<ChunkId>),
}

impl Blamed {
    /// The whole pack is spoilt.
    pub(crate) fn pack(finding: Finding, address: PackAddress) -> Self {
        Self { finding, spoils: Spoils::Pack(address) }
    }

    /// Some of its chunks are.
    pub(crate) fn chunks(finding: Finding, address: PackAddress, chunks: HashSet<ChunkId>) -> Self {
        Self { finding, spoils: Spoils::Chunks(address, chunks) }
    }

    /// No chunk is.
    pub(crate) fn nobody(finding: Finding) -> Self {
        Self { finding, spoils: Spoils::Nothing }
    }

    fn address(&self) -> Option<&PackAddress> {
        match &self.spoils {
            Spoils::Nothing => None,
            Spoils::Pack(address) | Spoils::Chunks(address, _) => Some(address),
        }
    }

    fn spoils(&self, piece: &Piece) -> bool {
        let Piece { chunk, location, .. } = piece;
        match &self.spoils {
            Spoils::Nothing => false,
            Spoils::Pack(address) => location.pack == *address,
            Spoils::Chunks(address, chunks) => location.pack == *address && chunks.contains(chunk),
        }
    }

    fn spoilt<'r>(&self, rows: &'r [Row]) -> impl Iterator<Item = &'r str> {
        let spoilt = rows.iter().filter(|row| row.piece.as_ref().is_some_and(|piece| self.spoils(piece)));
        spoilt.map(|row| &*row.name)
    }
}

/// Names tensors and checkpoints in every finding. A pack that only checkpoints used which have expired meanwhile was
/// collected, not damaged: its finding is dropped.
pub(crate) async fn name(
    store: &dyn Store,
    blamed: Vec<Blamed>,
    (checkpoints, uses): (&[Checkpoint], &Uses),
) -> Result<Vec<Finding>, CheckError> {
    let used = |blamed: &Blamed| blamed.address().and_then(|address| uses.packs.get(address));
    let users: BTreeSet<usize> = blamed.iter().filter_map(used).flat_map(|used| used.users.clone()).collect();
    let mut names: Vec<BTreeSet<String>> = vec![BTreeSet::new(); blamed.len()];
    let mut hurts: Vec<BTreeMap<usize, Hurt>> = vec![BTreeMap::new(); blamed.len()];
    for user in users {
        let Some(rows) = rows_again(store, &checkpoints[user]).await? else { continue };
        for (n, blamed) in blamed.iter().enumerate() {
            let before = names[n].len();
            names[n].extend(blamed.spoilt(&rows).map(str::to_owned));
            if names[n].len() > before || blamed.spoilt(&rows).next().is_some() {
                hurts[n].insert(user, Hurt::of(&checkpoints[user].manifest));
            }
        }
    }
    let named = blamed.into_iter().zip(names.into_iter().zip(hurts));
    let named = named.filter_map(|(blamed, (tensors, hurts))| {
        let collected = matches!(blamed.spoils, Spoils::Pack(_)) && hurts.is_empty();
        let tensors = tensors.into_iter().collect();
        let hurts = hurts.into_values().collect();
        (!collected).then_some(Finding { tensors, hurts, ..blamed.finding })
    });
    Ok(named.collect())
}

/// The rows of a checkpoint whose index was sound a moment ago; `None` when it has expired since.
async fn rows_again(store: &dyn Store, checkpoint: &Checkpoint) -> Result<Option<Vec<Row>>, CheckError> {
    let manifest = checkpoint.manifest.as_ref();
    if is_expired(store, (&manifest.run, manifest.ordinal)).await? {
        return Ok(None);
    }
    match get(store, &checkpoint.index_key(), Span::AtMost(manifest.index.len)).await? {
        Got::Bytes(bytes) => Ok(index::read_all(&bytes, &manifest.index).ok()),
        Got::Missing | Got::Unusable(_) => Ok(None),
    }
}
