//! A made-up job: every tensor is cut into one piece per rank, along its first dimension.

use std::sync::Arc;

use bytes::Bytes;
use everstep_format::bounds::Bounds;
use everstep_format::codec::Codec;
use everstep_format::decision::Totals;
use everstep_format::dtype::Dtype;
use everstep_format::id::{AttemptId, ChunkId, PackId};
use everstep_format::index::EncodedIndex;
use everstep_format::key::{Key, PackAddress};
use everstep_format::name::{Rank, Step};
use everstep_format::part::{self, PartRef, PartRow};
use everstep_format::refs::Refs;
use everstep_format::row::{ElementType, Kind, Location, Piece, Row};
use everstep_repo::{Checkpoint, CommitOutcome, Draft, Parents, Repository};
use everstep_restore::{CheckpointReader, Estimate, Settings, Tools};
use everstep_store::memory::MemoryStore;
use everstep_store::{Class, Counts, Meter, SystemWorld};
use rayon::prelude::*;

use crate::{Cost, cost};

/// Rows of a tensor that each rank has; three halves of as many ranks have a whole number of them, too.
const ROWS: u64 = 6;
const COLUMNS: u64 = 1024;
/// Ranks that share a machine.
pub(crate) const RANKS_A_NODE: u64 = 8;
/// Chunks in one pack, as with pieces of some 20 KB in packs of 8 MiB.
const CHUNKS_A_PACK: u64 = 400;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Job {
    pub(crate) ranks: u32,
    pub(crate) tensors: u64,
}

/// What a rank plans, and what it takes.
#[derive(Debug)]
pub(crate) struct Planned {
    /// Reading the index.
    pub(crate) read: Cost,
    /// Planning, once it is read.
    pub(crate) plan: Cost,
    pub(crate) estimate: Estimate,
    /// Bytes of the index that the ranks of a node read: each by itself, and when one hands it on.
    pub(crate) by_a_node: [u64; 2],
}

impl Job {
    fn shape(self) -> Vec<u64> {
        vec![ROWS * u64::from(self.ranks), COLUMNS]
    }

    fn name(tensor: u64) -> String {
        let (layer, which) = (tensor / 24, tensor % 24);
        format!("optimizer.state.layers.{layer:03}.{which:02}.exp_avg")
    }

    fn row(self, name: &Arc<str>, rank: u32, tensor: u64) -> Row {
        let random =
            |salt: &str, number: u64| *blake3::hash(format!("{salt} {rank} {number}").as_bytes()).as_bytes();
        let chunk = random("chunk", tensor);
        let raw_len = ROWS * COLUMNS * 4;
        let (stored_len, slot) = (raw_len * 7 / 10 + u64::from(chunk[0]), tensor % CHUNKS_A_PACK);
        let pack = PackAddress {
            attempt: AttemptId([1; 16]),
            rank: Rank(rank),
            pack: PackId(random("pack", tensor / CHUNKS_A_PACK)),
        };
        let location = Location {
            pack,
            pack_len: 8 << 20,
            pack_offset: 32_768 + (slot * 18_000).next_multiple_of(64),
            stored_len,
            codec: Codec::Planes,
        };
        Row {
            name: name.clone(),
            kind: Kind::Tensor,
            element: ElementType::Dtype(Dtype::F32),
            shape: self.shape().into(),
            bounds: Bounds { offset: [ROWS * u64::from(rank), 0].into(), extent: [ROWS, COLUMNS].into() },
            alias_of: None,
            rank: None,
            piece: Some(Piece { chunk: ChunkId(chunk), chunk_offset: 0, raw_len, location }),
        }
    }

    /// What every rank hands in.
    pub(crate) fn parts(self) -> Vec<(Bytes, PartRef)> {
        let part = |rank: u32| {
            let row = |tensor| {
                let name: Arc<str> = Self::name(tensor).into();
                PartRow { row: self.row(&name, rank, tensor), own: None }
            };
            part::write(&(0..self.tensors).map(row).collect::<Vec<_>>()).unwrap()
        };
        (0..self.ranks).into_par_iter().map(part).collect()
    }

    /// Commits `index` in memory, and plans what the rank in the middle of `world` ranks would read of it.
    pub(crate) fn plan_for_a_rank_of(self, world: u32, index: &EncodedIndex) -> Planned {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let pool = rayon::ThreadPoolBuilder::new().build().unwrap();
        let tools = Tools { pool: &pool, settings: &Settings::default(), progress: &() };
        let counts = Arc::new(Counts::default());
        let (repository, checkpoint) = runtime.block_on(self.committed(index, counts.clone()));
        let bytes = || counts.snapshot().bytes_read;
        let reader = CheckpointReader::new(&repository, checkpoint.clone());
        let before = bytes();
        let (read, _) = cost(|| runtime.block_on(reader.estimate(&[], &tools)).unwrap());
        let by_a_rank = bytes() - before;
        let boxes = self.boxes(world);
        let (plan, estimate) = cost(|| runtime.block_on(reader.estimate(&boxes, &tools)).unwrap());
        drop(reader);
        let before = bytes();
        let first = CheckpointReader::new(&repository, checkpoint);
        let file = runtime.block_on(first.index_file()).unwrap();
        // Each rank of the node checks it for itself, whatever it then reads.
        let name = Self::name(0);
        for _ in 1..RANKS_A_NODE {
            let reader = first.with_index_file(file.clone()).unwrap();
            assert!(runtime.block_on(reader.entry(&name)).unwrap().is_some());
        }
        let by_a_node = [RANKS_A_NODE * by_a_rank, bytes() - before];
        Planned { read, plan, estimate, by_a_node }
    }

    fn boxes(self, world: u32) -> Vec<(String, Bounds)> {
        let shape = self.shape();
        let share = shape[0] / u64::from(world);
        let bounds = Bounds {
            offset: vec![share * u64::from(world / 2), 0].into(),
            extent: vec![share, COLUMNS].into(),
        };
        (0..self.tensors).map(|tensor| (Self::name(tensor), bounds.clone())).collect()
    }

    async fn committed(self, index: &EncodedIndex, counts: Arc<Counts>) -> (Repository, Checkpoint) {
        let store = Arc::new(Meter::new(MemoryStore::private(), counts));
        let world = Arc::new(SystemWorld::new());
        let repository = Repository::init(store, world, Default::default()).await.unwrap();
        let mut session =
            repository.open_session(&"scale".parse().unwrap(), Default::default()).await.unwrap();
        let attempt = session.begin(Step(1), self.ranks, Parents::Latest).await.unwrap();
        let (bytes, refs) = Refs::of(&[]).to_bytes().unwrap();
        let store = repository.store();
        let key = Key::index(attempt.id, index.reference.blake3);
        store.put(&key, index.bytes.clone().into(), Class::Bulk).await.unwrap();
        store.put(&Key::refs(attempt.id, refs.blake3), bytes.into(), Class::Bulk).await.unwrap();
        let index = index.reference.clone();
        let (owners, totals, metadata) = (Vec::new(), Totals::default(), serde_json::Map::new());
        let draft = Draft { index, refs, owners, totals, metadata, stats: None };
        match session.commit(attempt, draft).await.unwrap() {
            CommitOutcome::Committed(checkpoint) => (repository, checkpoint),
            other => panic!("{other:?}"),
        }
    }
}
