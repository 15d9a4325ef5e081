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

/// A damage: what each object it concerns is now, `None` for nothing.
pub(crate) struct Damage {
    pub(crate) kind: Kind,
    pub(crate) now: Vec<(String, Option<Bytes>)>,
}

impl Damage {
    /// `None` when it would change nothing.
    pub(crate) fn of(image: &Image, kind: Kind, key: &str) -> Option<Self> {
        let bytes = image.bytes(key);
        let flip = |at: usize| {
            let mut bytes = bytes.to_vec();
            *bytes.get_mut(at)? ^= 0x10;
            Some(Bytes::from(bytes))
        };
        let now = match kind {
            Kind::FlipFirst => Some(flip(0)?),
            Kind::FlipMiddle => Some(flip(bytes.len() / 2)?),
            Kind::FlipLast => Some(flip(bytes.len().checked_sub(1)?)?),
            Kind::CutToHalf => Some(bytes.slice(..bytes.len() / 2)),
            Kind::CutToNothing => Some(Bytes::new()),
            Kind::Delete => None,
            Kind::StripSeal => Some(without_seal(bytes).into()),
            Kind::StripIndexHash => Some(without_index_hash(bytes).into()),
            Kind::Swap => return None,
        };
        Some(Self { kind, now: vec![(key.to_owned(), now)] })
    }

    pub(crate) fn swap(image: &Image, one: &str, two: &str) -> Self {
        let now = |key: &str, other: &str| (key.to_owned(), Some(image.bytes(other).clone()));
        Self { kind: Kind::Swap, now: vec![now(one, two), now(two, one)] }
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.now.iter().map(|(key, _)| key.clone()).collect()
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
