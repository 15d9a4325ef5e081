//! One function per fuzz target: whatever the bytes, no panic, no endless loop, memory in proportion; and what was read
//! is written back as it was. The tests of the workspace replay seeds and former crashes through the same functions.
//!
//! Hashes are put right before anything is read: an attacker would do the same.

mod control;
mod files;
mod safetensors;
mod slices;

use everstep_format::codec::{Codec, Decoder, Encoder, Habit};
use everstep_format::decision::RefsRef;
use everstep_format::id::{ContentHash, PackId};
use everstep_format::key::Key;
use everstep_format::name::RunName;
use everstep_format::pack::{self, PackTable};
use everstep_format::pattern::Pattern;
use everstep_format::reference::CheckpointRef;
use everstep_format::refs::Refs;
use everstep_format::row::ElementType;
use everstep_format::value::Value;

pub use control::control;
pub use files::{footer, index, part};
pub use safetensors::safetensors;

/// Raw bytes that a chunk under test decodes to at most.
const CHUNK: usize = 1 << 20;

/// A target by name.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const ALL: &[Target] = &[
    ("chunk", chunk),
    ("control", control),
    ("footer", footer),
    ("index", index),
    ("pack", pack),
    ("part", part),
    ("refs", refs),
    ("safetensors", safetensors),
    ("text", text),
    ("value", value),
];

/// Splits off a selector and a number: one byte, then four.
fn selected(bytes: &[u8]) -> Option<(u8, u32, &[u8])> {
    let (selector, rest) = bytes.split_first()?;
    let (number, rest) = rest.split_first_chunk::<4>()?;
    Some((*selector, u32::from_le_bytes(*number), rest))
}

/// A stored chunk: codec, raw length, stored bytes; or raw bytes that return from being encoded.
pub fn chunk(bytes: &[u8]) {
    let Some((codec, raw_len, stored)) = selected(bytes) else { return };
    match Codec::from_id(codec % 4) {
        Ok(codec) => {
            let len = usize::try_from(raw_len).map_or(0, |len| len % CHUNK);
            let _ = Decoder::default().decode(codec, stored, &mut vec![0; len]);
        }
        Err(_) => returns(raw_len, stored),
    }
}

fn returns(dtype: u32, raw: &[u8]) {
    if raw.is_empty() {
        return;
    }
    let dtypes = everstep_format::dtype::Dtype::ALL;
    let dtype = dtypes.get(usize::try_from(dtype).map_or(0, |n| n % (dtypes.len() + 1))).copied();
    let encoded = Encoder::default().encode(raw, dtype, &mut Habit::default());
    let mut decoded = vec![0; raw.len()];
    Decoder::default().decode(encoded.codec, &encoded.bytes, &mut decoded).expect("what was encoded decodes");
    assert!(decoded == raw, "a chunk changed on its way");
}

/// A pack, named by whatever its header and table hash to.
pub fn pack(bytes: &[u8]) {
    let Ok(front) = pack::table_len(bytes) else { return };
    let Some(front) = usize::try_from(front).ok().and_then(|len| bytes.get(..len)) else { return };
    let Ok(table) = PackTable::parse(bytes, PackId(*blake3::hash(front).as_bytes())) else { return };
    if table.check_pack(bytes).is_ok() {
        assert_eq!(table.len, bytes.len() as u64);
    }
}

/// Refs, of which a manifest says what is true.
pub fn refs(bytes: &[u8]) {
    let count = bytes.get(16..24).and_then(|count| count.try_into().ok()).map_or(0, u64::from_le_bytes);
    let reference = RefsRef { blake3: ContentHash::of(bytes), len: bytes.len() as u64, packs: count };
    if let Ok(refs) = Refs::from_bytes(bytes, &reference) {
        let (written, told) = refs.to_bytes().expect("what was read can be written");
        assert!(written == bytes && told == reference, "refs have one encoding");
    }
}

/// An object in the canonical encoding.
pub fn value(bytes: &[u8]) {
    if let Ok(value) = Value::from_bytes(bytes) {
        assert!(value.to_bytes().expect("what was read can be written") == bytes, "a value has one encoding");
    }
}

/// What people and listings spell: keys, references, runs; in two lines, a pattern and a name, or a shape and a slice.
pub fn text(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    key(text);
    if let Ok(reference) = text.parse::<CheckpointRef>() {
        let again = reference.to_string().parse::<CheckpointRef>();
        assert_eq!(again.as_ref(), Ok(&reference), "a reference is spelled as it is read");
    }
    if let Ok(run) = RunName::new(text) {
        assert_eq!(run.as_str(), text);
    }
    let (pattern, name) = text.split_once('\n').unwrap_or((text, text));
    slices::slices(pattern, name);
    if let Ok(pattern) = Pattern::new(pattern) {
        pattern.matches(name);
    }
    let _ = ElementType::from_name(text).byte_len(u64::MAX);
}

/// A listed key stays inside the repository, and what it stands for is spelled in one way.
fn key(text: &str) {
    let Some(key) = Key::listed(text) else { return };
    assert!(!key.as_str().split('/').any(|segment| matches!(segment, "" | "." | "..")));
    if let Some(kind) = key.kind() {
        assert_eq!(kind.key(), key, "one spelling");
    }
}
