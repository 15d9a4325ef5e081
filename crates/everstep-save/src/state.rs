//! What is to be saved: tensors (whole or as shards) and objects, with where their bytes are.

use std::fmt;

use bytes::Bytes;
use everstep_format::bounds::Bounds;
use everstep_format::dtype::Dtype;
use everstep_format::name::Rank;
use everstep_format::value::Value;

use crate::group::Replicas;

/// Bytes that are fetched when they are needed, such as a range of a file. Must not change during the save.
pub trait ByteSource: Send + Sync {
    /// Bytes in all.
    fn len(&self) -> u64;

    /// Whether there is no byte.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `into` with the bytes from `offset`.
    ///
    /// # Errors
    /// Whatever reading them ran into; a short source is an error, not a short read.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()>;
}

/// Where the bytes of one shard are: row-major, little-endian, exactly the elements of its box.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// In memory.
    Memory(&'a [u8]),
    /// To be read, several threads at once.
    Reader(&'a dyn ByteSource),
}

/// One box of one tensor. Several shards of a tensor may come in any order; equal boxes are replicas.
#[derive(Debug, Clone)]
pub struct Shard<'a> {
    /// Fully qualified name of the tensor: any text but the empty one, up to
    /// [`everstep_format::limits::STATE_NAME_BYTES`].
    pub name: String,
    /// Type of the elements.
    pub dtype: Dtype,
    /// Global shape.
    pub shape: Vec<u64>,
    /// The box in global coordinates.
    pub bounds: Bounds,
    /// The tensor of the same checkpoint whose storage this one shares in the trainer.
    pub alias_of: Option<String>,
    /// Which ranks hold this box with the same bytes.
    pub replicas: Replicas,
    /// Its bytes.
    pub source: Source<'a>,
}

/// The content of an object.
#[derive(Debug, Clone)]
pub enum Content {
    /// A value, stored in the canonical encoding.
    Value(Value),
    /// Bytes, stored as they are.
    Opaque(Bytes),
}

/// Whose an object is, and which rank stores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The whole job has one, and the leader stores it. Other ranks may give the same, or leave it out.
    Job,
    /// The whole job has one, and the rank that gives it stores it: the leader need not have it. Other ranks may give the
    /// same.
    JobFromHere,
    /// Each rank has its own, and this is that of one rank.
    Rank(Rank),
}

impl Owner {
    /// The rank whose own it is; `None` when the whole job has one.
    pub fn rank(self) -> Option<Rank> {
        match self {
            Self::Job | Self::JobFromHere => None,
            Self::Rank(rank) => Some(rank),
        }
    }
}

impl From<Option<Rank>> for Owner {
    /// A rank's own, or else one of the whole job that the leader stores.
    fn from(rank: Option<Rank>) -> Self {
        rank.map_or(Self::Job, Self::Rank)
    }
}

/// One named object.
#[derive(Debug, Clone)]
pub struct ObjectEntry {
    /// Its name; tensors and objects share one space of names.
    pub name: String,
    /// Whose it is.
    pub owner: Owner,
    /// What it is.
    pub content: Content,
}

/// The state of a training run.
#[derive(Debug, Clone, Default)]
pub struct State<'a> {
    /// Tensors, by shard.
    pub shards: Vec<Shard<'a>>,
    /// Objects.
    pub objects: Vec<ObjectEntry>,
}

impl Source<'_> {
    /// Bytes in all.
    pub fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::Reader(reader) => reader.len(),
        }
    }

    /// Whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Memory(_) => "Memory",
            Self::Reader(_) => "Reader",
        };
        write!(f, "{kind}({} bytes)", self.len())
    }
}
