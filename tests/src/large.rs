//! Tensors beyond 2 and 4 GiB, made up while they are read: nothing holds one of them in memory.

use everstep::{
    Bounds, ByteSource, Checkpoint, Dtype, Replicas, RestoreOptions, Selection, Shard, Source, State, Target,
};
use everstep_format::codec::{Encoder, Habit};
use everstep_format::decision::Totals;
use everstep_format::id::ChunkId;
use everstep_format::key::{Key, Prefix, StoredKind};
use everstep_format::name::{Rank, RunName, Step};
use everstep_format::pack::{self, PackChunk};
use everstep_format::refs::Refs;
use everstep_format::row::{ElementType, Kind, Piece, Row};
use everstep_format::{index, invariant, limits};
use everstep_repo::{CommitOutcome, Draft, Parents, Repository};
use everstep_store::{Class, Payload, Store, list_all};

/// Each begins with its own number, so that a size or an offset that wraps anywhere is seen.
const PAGE: usize = 4096;
/// One run of so many pages in sixteen is noise, so that packs fill up as well.
const RUN: u64 = 2048;
/// Bytes compared at a time; no multiple of anything, so that boxes end everywhere.
const SLAB: u64 = (48 << 20) - 20;
/// The values of the first and of the last five elements.
const MARKS: [u8; 5] = [100, 101, 102, 103, 104];

/// So many elements of a vector.
pub fn run(start: u64, count: u64) -> Bounds {
    Bounds { offset: (&[start][..]).into(), extent: (&[count][..]).into() }
}

/// A one-dimensional tensor whose first and last five elements are 100 to 104.
#[derive(Debug)]
pub struct Large {
    pub name: &'static str,
    pub dtype: Dtype,
    pub elements: u64,
}

impl Large {
    /// 2 GiB and 4 bytes, in elements of 4 bytes.
    pub fn floats() -> Self {
        Self { name: "floats", dtype: Dtype::F32, elements: (1 << 29) + 1 }
    }

    /// 4 GiB and 1 byte, in elements of one.
    pub fn bytes() -> Self {
        Self { name: "bytes", dtype: Dtype::U8, elements: (1 << 32) + 1 }
    }

    fn width(&self) -> u64 {
        self.dtype.bits() / 8
    }

    fn shape(&self) -> Vec<u64> {
        vec![self.elements]
    }

    /// The element that is `value`, in memory.
    fn element(&self, value: u8) -> Vec<u8> {
        match self.dtype {
            Dtype::F32 => f32::from(value).to_le_bytes().to_vec(),
            _ => vec![value],
        }
    }

    pub fn state(&self) -> State<'_> {
        let shape = self.shape();
        let shard = Shard {
            name: self.name.to_owned(),
            dtype: self.dtype,
            bounds: Bounds::whole(&shape),
            shape,
            alias_of: None,
            replicas: Replicas::None,
            source: Source::Reader(self),
        };
        State { shards: vec![shard], objects: Vec::new() }
    }

    /// `count` elements from `start`, as they must be.
    pub fn expected(&self, start: u64, count: u64) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(count * self.width()).unwrap()];
        self.fill(start * self.width(), &mut bytes);
        bytes
    }

    fn fill(&self, offset: u64, into: &mut [u8]) {
        let (mut at, mut rest) = (offset, &mut *into);
        while !rest.is_empty() {
            let within = usize::try_from(at % PAGE as u64).unwrap();
            let (here, after) = rest.split_at_mut(rest.len().min(PAGE - within));
            fill_page(at / PAGE as u64, within, here);
            at += here.len() as u64;
            rest = after;
        }
        for (n, value) in (0..).zip(MARKS) {
            let element = self.element(value);
            overlay(n * self.width(), &element, (offset, &mut *into));
            overlay((self.elements - 5 + n) * self.width(), &element, (offset, &mut *into));
        }
    }

    /// Compares all of it with what `checkpoint` has, a slab at a time, and the ends with what the case says.
    pub fn assert_stored(&self, checkpoint: &Checkpoint) {
        let entries = checkpoint.entries(&Selection::all()).unwrap();
        let entry = entries.iter().find(|entry| &*entry.name == self.name).unwrap();
        assert_eq!((&entry.shape[..], entry.raw_bytes), (&self.shape()[..], self.len()));
        let step = SLAB / self.width();
        let mut buffer = vec![0; usize::try_from(step * self.width()).unwrap()];
        for start in (0..self.elements.div_ceil(step)).map(|n| n * step) {
            let count = step.min(self.elements - start);
            let expected = self.expected(start, count);
            let found = &mut buffer[..expected.len()];
            self.load(checkpoint, start, found);
            assert!(found == expected, "{} differs in the {count} elements from {start}", self.name);
        }
        let ends: Vec<u8> = MARKS.iter().flat_map(|&value| self.element(value)).collect();
        for start in [0, self.elements - 5] {
            assert_eq!(checkpoint.read(self.name, Some(run(start, 5))).unwrap(), ends, "from {start}");
        }
    }

    fn load(&self, checkpoint: &Checkpoint, start: u64, into: &mut [u8]) {
        let target = Target {
            name: self.name.to_owned(),
            dtype: self.dtype,
            shape: self.shape(),
            bounds: run(start, into.len() as u64 / self.width()),
            into,
        };
        checkpoint.load(vec![target], &RestoreOptions::default()).unwrap();
    }

    /// Two slices of 16 bytes, and in how many chunks each lies: one shortly before the end, and the last. A block has a
    /// power of two elements, so that the very last element is a block, and a chunk, of its own.
    pub fn slices(&self) -> [(Bounds, u64); 2] {
        let count = 16 / self.width();
        [(run(self.elements - 1 - 2 * count, count), 1), (run(self.elements - count, count), 2)]
    }
}

impl ByteSource for Large {
    fn len(&self) -> u64 {
        self.elements * self.width()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        assert!(offset + into.len() as u64 <= self.len(), "{} bytes at {offset}", into.len());
        self.fill(offset, into);
        Ok(())
    }
}

/// The bytes of page `number` from `within` on.
fn fill_page(number: u64, within: usize, into: &mut [u8]) {
    let label = (number + 1).to_le_bytes();
    if (number / RUN) % 16 == 3 {
        let mut noise = blake3::Hasher::new().update(&label).finalize_xof();
        noise.set_position(within as u64);
        return noise.fill(into);
    }
    into.fill(0);
    overlay(0, &label, (within as u64, into));
}

/// Puts `bytes`, which lie at `at`, over what of them `window`, which lies at its own offset, shows.
fn overlay(at: u64, bytes: &[u8], (offset, window): (u64, &mut [u8])) {
    let (start, end) = (at.max(offset), (at + bytes.len() as u64).min(offset + window.len() as u64));
    if start < end {
        let here = |base: u64| usize::try_from(start - base).unwrap()..usize::try_from(end - base).unwrap();
        window[here(offset)].copy_from_slice(&bytes[here(at)]);
    }
}

/// Every pack keeps within the limit of the format, and there is more than one. Bytes of all packs.
pub async fn assert_packs_within_their_limit(store: &dyn Store) -> u64 {
    let objects = list_all(store, &Prefix::packs()).await.unwrap();
    let packs: Vec<u64> = objects
        .iter()
        .filter(|object| matches!(object.key.kind(), Some(StoredKind::Pack(_))))
        .map(|object| object.size)
        .collect();
    assert!(packs.len() > 1 && packs.iter().all(|bytes| *bytes <= limits::PACK_BYTES), "{packs:?}");
    packs.iter().sum()
}

/// Name of the tensor of [`commit_vast`].
pub const VAST: &str = "vast";
/// Its elements, of one byte each.
pub const VAST_ELEMENTS: u64 = 1 << 40;

/// Commits a tensor of 1 TiB of zeros, all of whose blocks are one chunk of a few bytes: what has to be true of any
/// offset and any length can be seen without a byte being there.
pub async fn commit_vast(repository: &Repository, name: &str) -> everstep_repo::Checkpoint {
    let run: RunName = name.parse().unwrap();
    let mut session = repository.open_session(&run, Default::default()).await.unwrap();
    let attempt = session.begin(Step(1), 1, Parents::Latest).await.unwrap();
    let zeros = vec![0; usize::try_from(limits::CHUNK_RAW_BYTES).unwrap()];
    let encoded = Encoder::default().encode(&zeros, Some(Dtype::U8), &mut Habit::default());
    let chunk = PackChunk { chunk: ChunkId::of(&zeros), raw_len: zeros.len() as u64, encoded };
    let pack = pack::build(attempt.id, Rank(0), vec![chunk]).unwrap();
    let (chunk, raw_len, location) = pack.chunks[0];
    let piece = Piece { chunk, chunk_offset: 0, raw_len, location };
    let rows: Vec<Row> = (0..VAST_ELEMENTS / raw_len).map(|n| vast_row(n * raw_len, &piece)).collect();
    let (index, refs) = (index::write(invariant::rows_are_sound(&rows).unwrap()).unwrap(), Refs::of(&rows));
    let (refs_bytes, refs_reference) = refs.to_bytes().unwrap();
    let index_key = Key::index(attempt.id, index.reference.blake3);
    let totals = Totals::of(&rows, [(raw_len, location)].into_iter(), attempt.id);
    for (key, body) in [
        (Key::pack(&pack.address), Payload(pack.segments)),
        (index_key, index.bytes.into()),
        (Key::refs(attempt.id, refs_reference.blake3), refs_bytes.into()),
    ] {
        repository.store().put(&key, body, Class::Bulk).await.unwrap();
    }
    repository.store().sync().await.unwrap();
    let (owners, metadata) = (refs.owners(), serde_json::Map::new());
    let draft = Draft { index: index.reference, refs: refs_reference, owners, totals, metadata, stats: None };
    let outcome = session.commit(attempt, draft).await.unwrap();
    session.close().await.unwrap();
    match outcome {
        CommitOutcome::Committed(checkpoint) => checkpoint,
        other => panic!("{other:?}"),
    }
}

fn vast_row(start: u64, piece: &Piece) -> Row {
    Row {
        name: VAST.into(),
        kind: Kind::Tensor,
        element: ElementType::Dtype(Dtype::U8),
        shape: (&[VAST_ELEMENTS][..]).into(),
        bounds: run(start, piece.raw_len),
        alias_of: None,
        rank: None,
        piece: Some(piece.clone()),
    }
}
