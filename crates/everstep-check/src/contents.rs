//! One checkpoint: its index, its refs, and what the manifest says of both.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use everstep_format::decision::{Manifest, Totals};
use everstep_format::key::Key;
use everstep_format::refs::Refs;
use everstep_format::row::{ElementType, Row};
use everstep_format::{index, invariant};
use everstep_repo::Checkpoint;
use everstep_store::{Span, Store};

use crate::CheckError;
use crate::reading::{Got, get, is_expired, sides};
use crate::report::{Finding, Hurt};

/// What was read of a checkpoint.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) checkpoint: Checkpoint,
    /// The rows, when the index is what the manifest says.
    pub(crate) rows: Option<Vec<Row>>,
    /// Whether these keep their rules, so that what they say can be held against packs.
    pub(crate) believed: bool,
    pub(crate) findings: Vec<Finding>,
    pub(crate) bytes_read: u64,
}

/// The bytes that a checkpoint's judgement needs.
#[derive(Debug)]
pub(crate) struct Fetched {
    checkpoint: Checkpoint,
    index: Got,
    refs: Got,
    /// Whether it turned out to be expired when something was gone.
    expired: bool,
}

/// Fetches index and refs.
pub(crate) async fn fetch(store: &dyn Store, checkpoint: Checkpoint) -> Result<Fetched, CheckError> {
    let (index_key, refs_key) = (checkpoint.index_key(), checkpoint.refs_key());
    let index = get(store, &index_key, Span::AtMost(checkpoint.manifest.index.len));
    let refs = get(store, &refs_key, Span::AtMost(checkpoint.manifest.refs.len));
    let (index, refs) = futures::future::try_join(index, refs).await?;
    let Manifest { run, ordinal, .. } = checkpoint.manifest.as_ref();
    let gone = index == Got::Missing || refs == Got::Missing;
    let expired = gone && is_expired(store, (run, *ordinal)).await?;
    Ok(Fetched { checkpoint, index, refs, expired })
}

/// Judges a checkpoint by what was fetched; `None` when it has expired meanwhile.
pub(crate) fn judge(fetched: Fetched) -> Option<Contents> {
    let Fetched { checkpoint, index, refs, expired } = fetched;
    if expired {
        return None;
    }
    let size = |got: &Got| if let Got::Bytes(bytes) = got { bytes.len() as u64 } else { 0 };
    let bytes_read = size(&index) + size(&refs);
    let mut findings = Vec::new();
    let manifest = checkpoint.manifest.as_ref();
    let rows =
        parse(&checkpoint.index_key(), index, &mut findings, |bytes| index::read_all(bytes, &manifest.index));
    let refs =
        parse(&checkpoint.refs_key(), refs, &mut findings, |bytes| Refs::from_bytes(bytes, &manifest.refs));
    let broken = rows.as_deref().and_then(|rows| broken_rule(&checkpoint, rows));
    let believed = broken.is_none();
    findings.extend(broken);
    findings.extend(rows.as_deref().and_then(|rows| wrong_totals(&checkpoint, rows)));
    if let (Some(rows), Some(refs)) = (&rows, &refs) {
        findings.extend(judge_refs(&checkpoint, rows, refs));
    }
    let hurt = Hurt::of(manifest);
    let findings = findings.into_iter().map(|finding| finding.hurting([hurt.clone()])).collect();
    Some(Contents { rows, believed, findings, bytes_read, checkpoint })
}

/// The rows of an index whose checkpoint may have expired, when they can be read.
pub(crate) fn rows(fetched: Fetched) -> Option<Vec<Row>> {
    match fetched.index {
        Got::Bytes(bytes) => index::read_all(&bytes, &fetched.checkpoint.manifest.index).ok(),
        Got::Missing | Got::Unusable(_) => None,
    }
}

fn parse<T>(
    key: &Key,
    got: Got,
    findings: &mut Vec<Finding>,
    parse: impl FnOnce(&Bytes) -> Result<T, everstep_format::FormatError>,
) -> Option<T> {
    let finding = match got {
        Got::Bytes(bytes) => match parse(&bytes) {
            Ok(parsed) => return Some(parsed),
            Err(error) => Finding::unreadable(key, &error),
        },
        Got::Missing => {
            Finding::damage(key, "it is missing").expect("what the decision refers to", "nothing")
        }
        Got::Unusable(found) => {
            Finding::damage(key, "it is damaged").expect("a file of the size in the decision", found)
        }
    };
    findings.push(finding);
    None
}

/// How the rows break a rule, which can be told without looking at a pack.
fn broken_rule(checkpoint: &Checkpoint, rows: &[Row]) -> Option<Finding> {
    let (expected, found) = sides(&invariant::rows_are_sound(rows).err()?);
    let finding = Finding::damage(checkpoint.index_key(), "its rows break an invariant");
    Some(finding.expect(expected, found).advise("a defect of the writer: report it"))
}

fn wrong_totals(checkpoint: &Checkpoint, rows: &[Row]) -> Option<Finding> {
    let manifest = checkpoint.manifest.as_ref();
    let pieces = rows.iter().filter_map(|row| row.piece.as_ref());
    let chunks: HashMap<_, _> = pieces.map(|piece| (piece.chunk, (piece.raw_len, piece.location))).collect();
    let mut actual = Totals::of(rows, chunks.into_values(), manifest.attempt);
    if rows.iter().any(|row| matches!(row.element, ElementType::Unknown(_))) {
        // Nobody knows how many bytes elements of an unknown type have.
        actual.raw_bytes = manifest.totals.raw_bytes;
    }
    if actual == manifest.totals {
        return None;
    }
    let key = Key::decision(&manifest.run, manifest.ordinal);
    let finding = Finding::damage(key, "the totals in the manifest are not those of the index");
    let finding = finding.expect(format!("{actual:?}"), format!("{:?}", manifest.totals));
    Some(finding.advise("a defect of the writer: report it; the data is not affected"))
}

fn judge_refs(checkpoint: &Checkpoint, rows: &[Row], refs: &Refs) -> Vec<Finding> {
    let mut findings = Vec::new();
    let advice = "garbage collection could delete what is not listed: do not run it; report this";
    let needed = Refs::of(rows);
    if needed != *refs {
        let (needed, listed): (BTreeSet<_>, BTreeSet<_>) =
            (needed.packs().iter().collect(), refs.packs().iter().collect());
        let missing = needed.difference(&listed).count();
        let found =
            format!("{missing} of {} missing, {} too many", needed.len(), listed.difference(&needed).count());
        let finding =
            Finding::damage(checkpoint.refs_key(), "the refs are not the packs that the index uses");
        findings.push(finding.expect("each pack of the index once", found).advise(advice));
    }
    let manifest = checkpoint.manifest.as_ref();
    if refs.owners() != manifest.owners {
        let key = Key::decision(&manifest.run, manifest.ordinal);
        let finding = Finding::damage(key, "the owners in the manifest are not those of the refs");
        let count = |n: usize| format!("{n} attempts");
        let finding = finding.expect(count(refs.owners().len()), count(manifest.owners.len()));
        findings.push(finding.advise(advice));
    }
    findings
}
