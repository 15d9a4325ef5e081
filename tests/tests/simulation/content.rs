//! What a simulated trainer trains: a few small tensors, each of which is a function of a random version.

use std::time::Duration;

use bytes::Bytes;
use everstep_format::bounds::Bounds;
use everstep_format::dtype::Dtype;
use everstep_format::name::Ordinal;
use everstep_format::value::Value;
use everstep_repo::Checkpoint;
use everstep_restore::{CheckpointReader, RestoreError, RestoreOptions, Selection, Target};
use everstep_save::{Content, ObjectEntry, Owner, Replicas, Shard, Source, State};
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use serde_json::{Map, Value as Json, json};

use crate::site::Site;

/// Elements of a grid block, so that the larger tensors have several.
pub(crate) const BLOCK_ELEMENTS: u64 = 128;

const TENSORS: [(&str, Dtype, &[u64]); 6] = [
    ("embedding.weight", Dtype::F32, &[24, 16]),
    ("layers.0.weight", Dtype::Bf16, &[40, 10]),
    ("layers.1.weight", Dtype::Bf16, &[40, 10]),
    ("optimizer.mean", Dtype::F32, &[24, 16]),
    ("optimizer.step", Dtype::I64, &[]),
    ("rng", Dtype::U8, &[100]),
];

/// Those that every rank has all of: one with several blocks, one with bytes enough for a chunk, two without.
const REPLICATED: [&str; 4] = ["optimizer.mean", "layers.1.weight", "optimizer.step", "rng"];

/// The state of a training run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Weights {
    /// The version of each tensor.
    versions: Vec<u64>,
    /// Of the object.
    epoch: u64,
}

impl Weights {
    pub(crate) fn fresh(rng: &mut StdRng) -> Self {
        Self { versions: TENSORS.iter().map(|_| rng.random()).collect(), epoch: 0 }
    }

    /// One training step: some tensors change.
    pub(crate) fn train(&mut self, rng: &mut StdRng) {
        for version in &mut self.versions {
            if rng.random_bool(0.4) {
                *version = rng.random();
            }
        }
        self.epoch += 1;
    }

    pub(crate) fn bytes(&self) -> Vec<Vec<u8>> {
        TENSORS.iter().zip(&self.versions).map(|(tensor, version)| fill(*version, len(tensor))).collect()
    }

    /// The state to save; `bytes` are [`Weights::bytes`].
    pub(crate) fn state<'a>(&self, bytes: &'a [Vec<u8>]) -> State<'a> {
        let shards = TENSORS.iter().zip(bytes).map(|((name, dtype, shape), bytes)| Shard {
            name: (*name).to_owned(),
            dtype: *dtype,
            shape: shape.to_vec(),
            bounds: Bounds::whole(shape),
            alias_of: None,
            replicas: Replicas::None,
            source: Source::Memory(bytes),
        });
        let epoch = Content::Value(Value::Int(self.epoch.cast_signed()));
        let notes = Content::Opaque(Bytes::from(fill(self.epoch, 40)));
        let object = |name: &str, content| ObjectEntry { name: name.to_owned(), owner: Owner::Job, content };
        State { shards: shards.collect(), objects: vec![object("epoch", epoch), object("notes", notes)] }
    }

    /// What rank `rank` of `ranks` has of the state: its rows of the larger tensors, all of the others, and the objects; of
    /// these the notes only if it leads.
    pub(crate) fn share<'a>(&self, bytes: &'a [Vec<u8>], (rank, ranks): (u32, u32)) -> State<'a> {
        let mut state = self.state(bytes);
        for shard in &mut state.shards {
            let Source::Memory(all) = shard.source else { unreachable!("every shard is in memory") };
            if REPLICATED.contains(&shard.name.as_str()) {
                shard.replicas = Replicas::All;
                continue;
            }
            let rows = shard.shape[0].div_ceil(u64::from(ranks));
            let start = (rows * u64::from(rank)).min(shard.shape[0]);
            let end = (start + rows).min(shard.shape[0]);
            let row = all.len() as u64 / shard.shape[0];
            let at = |position: u64| usize::try_from(position * row).expect("small");
            (shard.bounds.offset[0], shard.bounds.extent[0]) = (start, end - start);
            shard.source = Source::Memory(&all[at(start)..at(end)]);
        }
        if rank > 0 {
            state.objects.retain(|object| object.name != "notes");
        }
        state
    }

    /// What the manifest says of the state, so that anybody can tell what must be restored.
    pub(crate) fn metadata(&self, save: u64) -> Map<String, Json> {
        let Json::Object(map) = json!({ "save": save, "versions": self.versions, "epoch": self.epoch })
        else {
            unreachable!("the literal above is an object")
        };
        map
    }

    /// The state that a checkpoint claims to hold.
    pub(crate) fn claimed(checkpoint: &Checkpoint) -> Self {
        let metadata = &checkpoint.manifest.metadata;
        let number = |json: &Json| json.as_u64().expect("a number");
        let versions = metadata["versions"].as_array().expect("versions").iter().map(number).collect();
        Self { versions, epoch: number(&metadata["epoch"]) }
    }
}

/// The save that a checkpoint says it comes from.
pub(crate) fn save_of(checkpoint: &Checkpoint) -> u64 {
    checkpoint.manifest.metadata["save"].as_u64().expect("a save")
}

fn len((_, dtype, shape): &(&str, Dtype, &[u64])) -> usize {
    let bytes = dtype.byte_len(shape.iter().product()).expect("small");
    usize::try_from(bytes).expect("small")
}

fn fill(version: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    StdRng::seed_from_u64(version).fill_bytes(&mut bytes);
    bytes
}

/// How a restore went.
#[derive(Debug)]
pub(crate) enum Loaded {
    /// Bit-exact.
    Whole(Weights),
    /// The store or the reader failed for a reason that a later try may not meet.
    Failed(RestoreError),
    /// Other bytes than the checkpoint's.
    Wrong(String),
}

/// Restores `checkpoint` by the real code and compares every byte.
pub(crate) async fn load(site: &Site, checkpoint: &Checkpoint) -> Loaded {
    load_slowly(site, checkpoint, Duration::ZERO).await
}

/// As [`load`], with pauses of up to `pause` after the index and after the tensors, so that much can happen in mid-read.
pub(crate) async fn load_slowly(site: &Site, checkpoint: &Checkpoint, pause: Duration) -> Loaded {
    let expected = Weights::claimed(checkpoint);
    match read(site, checkpoint, pause).await {
        Err(error) => Loaded::Failed(error),
        Ok((bytes, epoch)) if bytes == expected.bytes() && epoch == expected.epoch => Loaded::Whole(expected),
        Ok(_) => Loaded::Wrong(describe(checkpoint)),
    }
}

async fn read(
    site: &Site,
    checkpoint: &Checkpoint,
    pause: Duration,
) -> Result<(Vec<Vec<u8>>, u64), RestoreError> {
    let reader = CheckpointReader::new(&site.repository, checkpoint.clone());
    if !pause.is_zero() {
        reader.entries(&Selection::all()).await?;
        site.cluster.pause(pause).await;
    }
    let mut buffers: Vec<Vec<u8>> = TENSORS.iter().map(|tensor| vec![0; len(tensor)]).collect();
    let targets = TENSORS.iter().zip(&mut buffers).map(|((name, dtype, shape), into)| Target {
        name: (*name).to_owned(),
        dtype: *dtype,
        shape: shape.to_vec(),
        bounds: Bounds::whole(shape),
        into,
    });
    let tools = site.restore_tools();
    let options = RestoreOptions::default();
    everstep_restore::restore(&reader, targets.collect(), &options, &tools).await?;
    if !pause.is_zero() {
        site.cluster.pause(pause).await;
    }
    let epoch = match reader.object("epoch", None, &tools).await? {
        everstep_restore::Content::Value(Value::Int(epoch)) => epoch.cast_unsigned(),
        other => panic!("the epoch was saved as an integer and is now {other:?}"),
    };
    Ok((buffers, epoch))
}

/// A checkpoint in words.
pub(crate) fn describe(checkpoint: &Checkpoint) -> String {
    let manifest = &checkpoint.manifest;
    let Ordinal(ordinal) = manifest.ordinal;
    format!("checkpoint {ordinal} of run {}", manifest.run)
}
