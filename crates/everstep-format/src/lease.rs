//! `leases/<id>` and its `.end`: a long reader keeps the data of a checkpoint even when that expires.

use serde::{Deserialize, Serialize};

use crate::FormatError;
use crate::feature::Requires;
use crate::id::AttemptId;
use crate::intent::ParentRef;
use crate::limits;
use crate::sealed;

const MAGIC: &str = "everstep-lease";
const END_MAGIC: &str = "everstep-lease-end";

/// A claim on the data of one checkpoint. It counts until its end is there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lease {
    magic: String,
    /// Integer format version.
    pub version: u32,
    /// Features per operation.
    pub requires: Requires,
    /// Its id, as in the key.
    pub lease: AttemptId,
    /// The checkpoint whose data it keeps, read as COMMIT before this was written.
    pub parent: ParentRef,
    /// Seconds without a sign of life, by the store's clock, after which anybody may end it.
    pub ttl: u64,
    /// Who reads, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Wall-clock time, RFC 3339, informational.
    pub created: String,
    /// Fields of later versions.
    #[serde(flatten)]
    pub extra: serde_json::Map<String, serde_json::Value>,
}

impl Lease {
    /// A lease on `parent`; the holder is set by the caller.
    pub fn new(lease: AttemptId, parent: ParentRef, ttl: u64, created: String) -> Self {
        Self {
            magic: MAGIC.to_owned(),
            version: crate::repository::FORMAT_VERSION,
            requires: Requires::default(),
            lease,
            parent,
            ttl,
            holder: None,
            created,
            extra: serde_json::Map::new(),
        }
    }

    /// The stored bytes.
    ///
    /// # Errors
    /// [`FormatError::TooLarge`] for a label, [`FormatError::Invalid`] for a time to live out of bounds.
    pub fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        let span = limits::LEASE_TTL_SECONDS;
        if !span.contains(&self.ttl) {
            let rule = format!("it must be {} to {} seconds", span.start(), span.end());
            return Err(FormatError::invalid("time to live of a lease", format!("{} s", self.ttl), rule));
        }
        self.check_label()?;
        sealed::seal("lease", self)
    }

    /// Reads the lease stored under `id`.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`] also when it names another id; [`FormatError::Unsupported`].
    pub fn from_bytes(bytes: &[u8], id: AttemptId) -> Result<Self, FormatError> {
        let lease: Self = sealed::open_as("lease", MAGIC, bytes)?;
        sealed::expect("lease", "id", &id, &lease.lease)?;
        let span = limits::LEASE_TTL_SECONDS;
        if !span.contains(&lease.ttl) {
            let expected = format!("a time to live of {} to {} s", span.start(), span.end());
            return Err(FormatError::corrupt("lease", 0, expected, format!("{} s", lease.ttl)));
        }
        lease.check_label()?;
        Ok(lease)
    }

    fn check_label(&self) -> Result<(), FormatError> {
        let label = self.holder.as_ref().map_or(0, String::len);
        FormatError::within("bytes of a holder's label", label as u64, limits::LABEL_BYTES as u64)
    }
}

/// Says that a lease no longer counts. Its presence alone decides; its contents are for people.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LeaseEnd {
    magic: String,
    /// Integer format version.
    pub version: u32,
    /// The lease, as in the key.
    pub lease: AttemptId,
    /// One of the words of the specification: "closed", "dropped", "abandoned".
    pub reason: String,
    /// Wall-clock time, RFC 3339, informational.
    pub created: String,
    /// Fields of later versions.
    #[serde(flatten)]
    pub extra: serde_json::Map<String, serde_json::Value>,
}

impl LeaseEnd {
    /// The end of `lease`.
    pub fn new(lease: AttemptId, reason: &str, created: String) -> Self {
        Self {
            magic: END_MAGIC.to_owned(),
            version: crate::repository::FORMAT_VERSION,
            lease,
            reason: reason.to_owned(),
            created,
            extra: serde_json::Map::new(),
        }
    }

    /// The stored bytes.
    ///
    /// # Errors
    /// [`FormatError::TooLarge`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        sealed::seal("end of a lease", self)
    }

    /// Reads the end stored for the lease `id`.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`], [`FormatError::Unsupported`].
    pub fn from_bytes(bytes: &[u8], id: AttemptId) -> Result<Self, FormatError> {
        let end: Self = sealed::open_as("end of a lease", END_MAGIC, bytes)?;
        sealed::expect("end of a lease", "id", &id, &end.lease)?;
        Ok(end)
    }
}
