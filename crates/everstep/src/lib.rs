//! Training checkpoints that survive: saved deduplicated and compressed into an object store, committed by one atomic
//! write, restored whole, in part, or under another sharding, every byte verified.
//!
//! ```
//! use everstep::{Options, Repository, Replicas, Shard, Source, State, Step, Target, WriterOptions};
//! use everstep::{Bounds, Dtype};
//!
//! # fn main() -> Result<(), everstep::Error> {
//! let repository = Repository::init("memory://quick-start", &Options::default(), Default::default())?;
//! let run = repository.run("gpt")?;
//!
//! // Save: a tensor of shape [2, 2], row-major little-endian bytes.
//! let weights: Vec<u8> = [1.0f32, 2.0, 3.0, 4.0].iter().flat_map(|x| x.to_le_bytes()).collect();
//! let shard = Shard {
//!     name: "layer.weight".to_owned(),
//!     dtype: Dtype::F32,
//!     shape: vec![2, 2],
//!     bounds: Bounds::whole(&[2, 2]),
//!     alias_of: None, replicas: Replicas::None,
//!     source: Source::Memory(&weights),
//! };
//! let mut writer = run.writer(WriterOptions::default())?;
//! writer.save(Step(10), &State { shards: vec![shard], objects: vec![] }, Default::default())?;
//! writer.close()?;
//!
//! // Restore the second row, straight into our own memory.
//! let checkpoint = run.latest()?.expect("one was just saved");
//! let mut row = [0u8; 8];
//! let target = Target {
//!     name: "layer.weight".to_owned(),
//!     dtype: Dtype::F32,
//!     shape: vec![2, 2],
//!     bounds: Bounds { offset: [1, 0].into(), extent: [1, 2].into() },
//!     into: &mut row,
//! };
//! checkpoint.load(vec![target], &Default::default())?;
//! assert_eq!(row, weights[8..]);
//! # Ok(())
//! # }
//! ```
//!
//! Every call blocks the calling thread and drives its I/O on the repository's own threads; from async code, call it
//! through your runtime's `spawn_blocking`. A call made in the scope of a [`Cancel`] can be stopped from another thread.

mod cancel;
mod checkpoint;
mod cpu;
pub mod doctor;
mod error;
mod lease;
mod member;
mod options;
mod pins;
mod progress;
mod repository;
mod retention;
mod run;
mod writer;

pub use cancel::Cancel;
pub use checkpoint::Checkpoint;
pub use cpu::in_background;
pub use error::{Error, ErrorKind};
pub use lease::Lease;
pub use member::Member;
pub use options::{Background, Options};
pub use progress::Progress;
pub use repository::Repository;
pub use retention::{Expirer, Retention};
pub use run::{Attempts, Run, WriterOptions};
pub use writer::{Metadata, Saved, Writer};

pub use everstep_check::{Counts, Finding, Report, Severity, Verdict};
pub use everstep_format as format;
pub use everstep_format::bounds::Bounds;
pub use everstep_format::decision::Manifest;
pub use everstep_format::dtype::Dtype;
pub use everstep_format::id::{AttemptId, ChunkId, SessionId};
pub use everstep_format::name::{Ordinal, PinName, Rank, RunName, Step};
pub use everstep_format::pattern::Pattern;
pub use everstep_format::reference::CheckpointRef;
pub use everstep_format::repository::Chunking;
pub use everstep_format::value::Value;
pub use everstep_gc as gc;
pub use everstep_repo::{
    AttemptState, InitOptions, MemoryRendezvous, Pinned, Pins, Rendezvous, RepoError, Takeover, rendezvous,
};
pub use everstep_restore::{
    Content as StoredContent, Entry, Estimate, RestoreOptions, RestoreReport, Selection, Target,
};
pub use everstep_save::{
    ByteSource, Content, Group, HandedIn, LateRank, ObjectEntry, Owner, Phases, RankSet, Replicas,
    SaveReport, Shard, Source, State,
};
