//! Parquet: indexes, their footers, parts.

use bytes::Bytes;
use everstep_format::decision::IndexRef;
use everstep_format::id::ContentHash;
use everstep_format::index::part::{self, PartRef};
use everstep_format::index::{self, Footer};
use everstep_format::invariant;
use serde_json::Value as Json;

/// What precedes the directory in parquet metadata.
const KEY: &[u8] = b"everstep.index";

/// A whole index file. Sound rows return from being written.
pub fn index(bytes: &[u8]) {
    let Some((file, reference)) = repaired(bytes) else { return };
    let Ok(rows) = index::read_all(&file, &reference) else { return };
    if let Some(row) = rows.first() {
        named(&file, &reference, &row.name);
    }
    if let Ok(rows) = invariant::rows_are_sound(&rows) {
        let again = index::write(rows).expect("sound rows can be written");
        let read = index::read_all(&again.bytes, &again.reference).expect("and read");
        assert!(read == *rows, "rows changed on their way");
    }
}

/// One name is found as in the whole.
fn named(file: &Bytes, reference: &IndexRef, name: &str) {
    let start = usize::try_from(reference.footer_offset).expect("it was read");
    let footer = Footer::parse(&file.slice(start..), reference).expect("it was read");
    for number in footer.groups_of(name) {
        let range = footer.groups()[number].range.clone();
        let (from, to) = (usize::try_from(range.start), usize::try_from(range.end));
        let group = file.slice(from.expect("it was read")..to.expect("it was read"));
        footer.read_named(number, &group, name).expect("it was read");
    }
}

/// Parquet metadata, as the footer of an index whose row groups fit.
pub fn footer(bytes: &[u8]) {
    let Some(directory) = directory(bytes) else { return };
    let footer_offset = directory.end();
    let len = u32::try_from(bytes.len()).expect("small").to_le_bytes();
    let tail = Bytes::from([bytes, &len, b"PAR1"].concat());
    let reference = IndexRef {
        blake3: ContentHash::of(b""),
        len: footer_offset.saturating_add(tail.len() as u64),
        rows: directory.rows(),
        footer_offset,
        footer_blake3: ContentHash::of(&tail),
    };
    if let Ok(footer) = Footer::parse(&tail, &reference) {
        for group in footer.groups() {
            assert!(footer.groups_of(&group.first_name).len() <= footer.groups().len());
        }
    }
}

/// A part: the rows of one writer.
pub fn part(bytes: &[u8]) {
    let Some((file, reference)) = repaired(bytes) else { return };
    let reference = PartRef { blake3: reference.blake3, len: reference.len };
    if let Ok(rows) = part::read(&file, &reference) {
        let (again, told) = part::write(&rows).expect("what was read can be written");
        assert!(part::read(&again, &told).expect("and read") == rows, "rows changed on their way");
    }
}

/// The file with the hashes that its row groups have, and what a manifest would say of it.
fn repaired(bytes: &[u8]) -> Option<(Bytes, IndexRef)> {
    let metadata = u32::from_le_bytes(*bytes.get(bytes.len().checked_sub(8)?..)?.first_chunk::<4>()?);
    let footer = bytes.len().checked_sub(usize::try_from(metadata).ok()? + 8)?;
    let directory = directory(&bytes[footer..])?;
    let mut file = bytes.to_vec();
    for group in directory.groups() {
        let _ = repair(&mut file, footer, group);
    }
    let reference = IndexRef {
        blake3: ContentHash::of(&file),
        len: file.len() as u64,
        rows: directory.rows(),
        footer_offset: footer as u64,
        footer_blake3: ContentHash::of(&file[footer..]),
    };
    Some((file.into(), reference))
}

/// Overwrites the hash of one group where it stands in the footer.
fn repair(file: &mut [u8], footer: usize, group: &Json) -> Option<()> {
    let number = |field: &str| usize::try_from(group[field].as_u64()?).ok();
    let start = number("start")?;
    let hash = ContentHash::of(file.get(start..start.checked_add(number("len")?)?)?).to_string();
    let old = group["blake3"].as_str().filter(|old| old.len() == hash.len())?;
    let at = footer + find(&file[footer..], old.as_bytes())?;
    file[at..at + hash.len()].copy_from_slice(hash.as_bytes());
    Some(())
}

/// The directory of row groups as JSON, whatever it says.
struct Directory(Json);

impl Directory {
    fn groups(&self) -> impl Iterator<Item = &Json> {
        self.0["groups"].as_array().into_iter().flatten()
    }

    fn sum(&self, field: &str) -> u64 {
        self.groups().filter_map(|group| group[field].as_u64()).fold(0, u64::saturating_add)
    }

    fn rows(&self) -> u64 {
        self.sum("rows")
    }

    fn end(&self) -> u64 {
        self.sum("len").saturating_add(4)
    }
}

fn directory(metadata: &[u8]) -> Option<Directory> {
    let after = &metadata[find(metadata, KEY)? + KEY.len()..];
    let json = &after[find(after, b"{")?..];
    serde_json::Deserializer::from_slice(json).into_iter().next()?.ok().map(Directory)
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
