//! Packs: are they there, as long as they must be, with the table that their key names, and with the chunks that the
//! indexes expect? Deep: is every chunk what its name says?

use std::collections::{BTreeMap, HashMap, HashSet};

use bytes::Bytes;
use everstep_format::FormatError;
use everstep_format::codec::{Codec, Decoder};
use everstep_format::id::ChunkId;
use everstep_format::key::{Key, PackAddress};
use everstep_format::limits;
use everstep_format::pack::{self, PackTable, TableRow};
use everstep_format::row::{Piece, Row};
use everstep_store::{Span, Store};
use rayon::prelude::*;

use crate::CheckError;
use crate::blame::Blamed;
use crate::reading::{Got, get, sides};
use crate::report::Finding;

/// A chunk as the indexes say it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim {
    chunk: ChunkId,
    raw_len: u64,
    stored_len: u64,
    codec: Codec,
}

/// What the indexes say of one pack.
#[derive(Debug, Default)]
pub(crate) struct Use {
    /// Its length: as an index says it, or else the listing.
    pub(crate) len: u64,
    /// Whether an index says it, and another length that another index says.
    told: bool,
    rival_len: Option<u64>,
    /// Chunks by offset.
    claims: BTreeMap<u64, Claim>,
    /// What another index says of an offset that is among `claims`: nobody but the pack can tell who is right.
    rivals: Vec<(u64, Claim)>,
    /// Numbers of the checkpoints that use it, ascending, each once.
    pub(crate) users: Vec<usize>,
}

/// Every pack that some checkpoint uses.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    pub(crate) packs: HashMap<PackAddress, Use>,
}

impl Uses {
    /// Adds the packs that the rows of checkpoint `user` need; what they say of them, too, if it is `believed`.
    pub(crate) fn add(&mut self, user: usize, rows: &[Row], believed: bool) {
        for piece in rows.iter().filter_map(|row| row.piece.as_ref()) {
            let used = self.packs.entry(piece.location.pack).or_default();
            if used.users.last() != Some(&user) {
                used.users.push(user);
            }
            if believed {
                used.claim(piece);
            }
        }
    }

    /// Packs whose length no index tells have the one that they are listed with.
    pub(crate) fn measure(&mut self, listed: &HashMap<PackAddress, u64>) {
        for (address, used) in self.packs.iter_mut().filter(|(_, used)| !used.told) {
            used.len = listed.get(address).copied().unwrap_or_default();
        }
    }

    /// Distinct chunks.
    pub(crate) fn chunks(&self) -> usize {
        let ids = self.packs.values().flat_map(|used| used.claims.values().map(|claim| claim.chunk));
        ids.collect::<HashSet<_>>().len()
    }

    /// Bytes of all packs.
    pub(crate) fn bytes(&self) -> u64 {
        self.packs.values().map(|used| used.len).sum()
    }
}

impl Use {
    fn claim(&mut self, piece: &Piece) {
        let Piece { chunk, raw_len, location: at, .. } = *piece;
        if !self.told {
            (self.told, self.len) = (true, at.pack_len);
        } else if self.len != at.pack_len {
            self.rival_len = Some(at.pack_len);
        }
        let claim = Claim { chunk, raw_len, stored_len: at.stored_len, codec: at.codec };
        if *self.claims.entry(at.pack_offset).or_insert(claim) != claim {
            self.rivals.push((at.pack_offset, claim));
        }
    }

    /// Everything that the indexes say, by offset.
    fn said(&self) -> impl Iterator<Item = (&u64, &Claim)> {
        self.claims.iter().chain(self.rivals.iter().map(|(offset, claim)| (offset, claim)))
    }
}

/// What the listing says: there, and as long as it must be?
pub(crate) fn judge_listed(address: &PackAddress, used: &Use, listed: Option<u64>) -> Option<Blamed> {
    let key = Key::pack(address);
    let finding = match (listed, used.rival_len) {
        (Some(len), None) if len == used.len => return None,
        (Some(len), Some(rival)) => Finding::damage(key, "two indexes say two lengths of it")
            .expect(format!("{} or {rival} bytes", used.len), format!("{len} bytes")),
        (Some(len), None) => Finding::damage(key, "it has another length than the indexes say")
            .expect(format!("{} bytes", used.len), format!("{len} bytes")),
        (None, _) if !used.told => Finding::damage(key, "it is missing").expect("a pack", "nothing"),
        (None, _) => Finding::damage(key, "it is missing").expect(format!("{} bytes", used.len), "nothing"),
    };
    Some(Blamed::pack(finding, *address))
}

/// Reads the table of a pack and judges it; with the bytes that were read.
pub(crate) async fn judge_table(
    store: &dyn Store,
    address: &PackAddress,
    used: &Use,
) -> Result<(Vec<Blamed>, u64), CheckError> {
    let key = Key::pack(address);
    // Header and as many rows as the indexes know of; nearly always that is all of them.
    let guess = pack::HEADER_BYTES as u64 + used.claims.len() as u64 * pack::ROW_BYTES as u64;
    let read = |len: u64| get(store, &key, Span::Range { start: 0, len: len.min(used.len) });
    let mut got = read(guess).await?;
    let mut bytes_read = guess;
    if let Got::Bytes(bytes) = &got
        && let Ok(len) = pack::table_len(bytes)
        && len > guess
        && len <= used.len
    {
        got = read(len).await?;
        bytes_read += len;
    }
    Ok((
        judge_got(address, used, got, |bytes| {
            judge_front(address, used, bytes).err().into_iter().map(|blamed| *blamed).collect()
        }),
        bytes_read,
    ))
}

/// Hands sound reads to `judge`.
fn judge_got(
    address: &PackAddress,
    used: &Use,
    got: Got,
    judge: impl FnOnce(&Bytes) -> Vec<Blamed>,
) -> Vec<Blamed> {
    match got {
        Got::Bytes(bytes) => judge(&bytes),
        Got::Missing => judge_listed(address, used, None).into_iter().collect(),
        Got::Unusable(found) => {
            let finding =
                Finding::damage(Key::pack(address), "it is not as long as the indexes say, or no file");
            vec![Blamed::pack(finding.expect(format!("{} bytes", used.len), found), *address)]
        }
    }
}

fn whole(address: &PackAddress, error: &FormatError) -> Box<Blamed> {
    Box::new(Blamed::pack(Finding::unreadable(Key::pack(address), error), *address))
}

/// Header and table: what the key names, where the header says, and the same as the indexes say.
fn judge_front(address: &PackAddress, used: &Use, prefix: &[u8]) -> Result<PackTable, Box<Blamed>> {
    let table = PackTable::parse(prefix, address.pack).map_err(|e| whole(address, &e))?;
    table.check_address(address).map_err(|e| whole(address, &e))?;
    let rows: HashMap<u64, &TableRow> = table.rows.iter().map(|row| (row.offset, row)).collect();
    let agrees = |offset: &u64, claim: &Claim| rows.get(offset).is_some_and(|row| *claim == claim_of(row));
    let wrong: Vec<(&u64, &Claim)> = used.said().filter(|(at, claim)| !agrees(at, claim)).collect();
    if let Some((offset, claim)) = wrong.first() {
        let found = rows.get(offset).map_or("nothing".to_owned(), |row| format!("{:?}", claim_of(row)));
        let finding = Finding::damage(Key::pack(address), "its table is not what the indexes say")
            .expect(format!("{claim:?} at offset {offset}"), found);
        let chunks = wrong.iter().map(|(_, claim)| claim.chunk).collect();
        return Err(Box::new(Blamed::chunks(finding, *address, chunks)));
    }
    Ok(table)
}

fn claim_of(row: &TableRow) -> Claim {
    Claim { chunk: row.chunk, raw_len: row.raw_len, stored_len: row.stored_len, codec: row.codec }
}

/// Judges every byte of a pack. Runs on the pool.
pub(crate) fn judge_bytes(address: &PackAddress, used: &Use, got: Got) -> Vec<Blamed> {
    judge_got(address, used, got, |bytes| match judge_front(address, used, bytes) {
        Err(blamed) => vec![*blamed],
        Ok(table) => judge_chunks(address, &table, bytes),
    })
}

fn judge_chunks(address: &PackAddress, table: &PackTable, bytes: &Bytes) -> Vec<Blamed> {
    let judge = |(decoder, raw): &mut (Decoder, Vec<u8>), row: &TableRow| {
        judge_chunk(row, bytes, (decoder, raw)).err().map(|why| (row.chunk, why))
    };
    let rows = table.rows.par_iter().with_min_len(64);
    let bad: Vec<(ChunkId, (String, String))> = rows.map_init(Default::default, judge).flatten().collect();
    if let Some((chunk, (expected, found))) = bad.first() {
        let what = format!("{} of its {} chunks are damaged, first {chunk}", bad.len(), table.rows.len());
        let finding = Finding::damage(Key::pack(address), what).expect(expected, found);
        return vec![Blamed::chunks(finding, *address, bad.iter().map(|(chunk, _)| *chunk).collect())];
    }
    // Every chunk is right: what is wrong now lies between them, or in their checksums.
    let rest = table.check_pack(bytes).err();
    let harmless = |error: FormatError| {
        let finding = Finding::unreadable(Key::pack(address), &error);
        Blamed::nobody(finding.advise("every chunk in it is sound; restore works"))
    };
    rest.map(harmless).into_iter().collect()
}

fn judge_chunk(
    row: &TableRow,
    bytes: &Bytes,
    (decoder, raw): (&mut Decoder, &mut Vec<u8>),
) -> Result<(), (String, String)> {
    let expected = || format!("raw bytes with BLAKE3 {}", row.chunk);
    let end = row.offset.checked_add(row.stored_len);
    let range = usize::try_from(row.offset).ok().zip(end.and_then(|end| usize::try_from(end).ok()));
    let stored = range.and_then(|(start, end)| bytes.get(start..end));
    let stored = stored.ok_or_else(|| (expected(), format!("a pack of {} bytes", bytes.len())))?;
    let len =
        usize::try_from(row.raw_len.min(limits::CHUNK_RAW_BYTES)).map_err(|e| (expected(), e.to_string()))?;
    if raw.len() < len {
        raw.resize(len, 0);
    }
    let raw = &mut raw[..len];
    decoder.decode(row.codec, stored, raw).map_err(|e| sides(&e))?;
    let actual = ChunkId::of(raw);
    if actual == row.chunk { Ok(()) } else { Err((expected(), format!("BLAKE3 {actual}"))) }
}
