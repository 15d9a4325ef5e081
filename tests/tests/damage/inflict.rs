//! One damage at a time.

use bytes::Bytes;
use everstep_format::sealed;

use crate::repository::Image;

/// What happens to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    FlipFirst,
    FlipMiddle,
    FlipLast,
    CutToHalf,
    CutToNothing,
    Delete,
    Swap,
    StripSeal,
    StripIndexHash,
}

/// A part of an object that is no longer what it was.
#[derive(Debug, Clone)]
pub(crate) enum Hit {
    /// All of it.
    Whole(String),
    /// One byte.
    Byte(String, usize),
    /// Everything from this byte on.
    From(String, usize),
}

impl Hit {
    pub(crate) fn key(&self) -> &str {
        match self {
            Self::Whole(key) | Self::Byte(key, _) | Self::From(key, _) => key,
        }
    }
}

/// A damage: what each object it concerns is now, `None` for nothing.
pub(crate) struct Damage {
    pub(crate) kind: Kind,
    pub(crate) now: Vec<(String, Option<Bytes>)>,
    hits: Vec<Hit>,
}

impl Damage {
    /// `None` when it would change nothing.
    pub(crate) fn of(image: &Image, kind: Kind, key: &str) -> Option<Self> {
        let bytes = image.bytes(key);
        let flip = |at: usize| {
            let mut bytes = bytes.to_vec();
            *bytes.get_mut(at)? ^= 0x10;
            Some((Some(Bytes::from(bytes)), Hit::Byte(key.to_owned(), at)))
        };
        let cut = |len: usize| Some((Some(bytes.slice(..len)), Hit::From(key.to_owned(), len)));
        let whole = |now: Option<Vec<u8>>| Some((now.map(Bytes::from), Hit::Whole(key.to_owned())));
        let (now, hit) = match kind {
            Kind::FlipFirst => flip(0)?,
            Kind::FlipMiddle => flip(bytes.len() / 2)?,
            Kind::FlipLast => flip(bytes.len().checked_sub(1)?)?,
            Kind::CutToHalf => cut(bytes.len() / 2)?,
            Kind::CutToNothing => cut(0)?,
            Kind::Delete => whole(None)?,
            Kind::StripSeal => whole(Some(without_seal(bytes)))?,
            Kind::StripIndexHash => whole(Some(without_index_hash(bytes)))?,
            Kind::Swap => return None,
        };
        Some(Self { kind, now: vec![(key.to_owned(), now)], hits: vec![hit] })
    }

    pub(crate) fn swap(image: &Image, one: &str, two: &str) -> Self {
        let now = |key: &str, other: &str| (key.to_owned(), Some(image.bytes(other).clone()));
        let hits = vec![Hit::Whole(one.to_owned()), Hit::Whole(two.to_owned())];
        Self { kind: Kind::Swap, now: vec![now(one, two), now(two, one)], hits }
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.now.iter().map(|(key, _)| key.clone()).collect()
    }

    pub(crate) fn hits(&self) -> &[Hit] {
        &self.hits
    }
}

/// The JSON without its closing checksum.
fn without_seal(bytes: &Bytes) -> Vec<u8> {
    let body = &bytes[..bytes.len() - sealed::SEAL_BYTES];
    [body, b"}\n"].concat()
}

/// Sealed anew, without the index's hash.
fn without_index_hash(bytes: &Bytes) -> Vec<u8> {
    let mut json: serde_json::Value = sealed::open("decision", bytes).unwrap();
    let removed = json["manifest"]["index"].as_object_mut().unwrap().remove("blake3");
    assert!(removed.is_some());
    sealed::seal("decision", &json).unwrap()
}
