//! Sealed JSON objects.

use everstep_format::FormatError;
use everstep_format::card::{Card, SaveId};
use everstep_format::decision::Decision;
use everstep_format::failed::Failed;
use everstep_format::feature::Operation;
use everstep_format::id::{AttemptId, ContentHash, SessionId};
use everstep_format::intent::Intent;
use everstep_format::lease::{Lease, LeaseEnd};
use everstep_format::marker::Expired;
use everstep_format::name::{Ordinal, Rank, RunName};
use everstep_format::outcome::Outcome;
use everstep_format::repository::RepositoryConfig;
use everstep_format::sealed::SEAL_BYTES;
use everstep_format::session::SessionMark;

/// A sealed object of the kind that the first byte selects. Its seal is put right first, and it is read under the key that
/// it names itself. What was read can be written, and is then read as the same.
pub fn control(bytes: &[u8]) {
    let Some((kind, object)) = bytes.split_first() else { return };
    let object = sealed(object);
    let named = Named::by(&object);
    let Named { run, ordinal, save, attempt, lease, rank } = &named;
    match kind % 10 {
        0 => returns(&object, RepositoryConfig::from_bytes, RepositoryConfig::to_bytes),
        1 => {
            if let Ok(intent) = Intent::from_bytes(&object, run, *ordinal) {
                let _ = intent.requires.check(Operation::Read);
            }
            returns(&object, |bytes| Intent::from_bytes(bytes, run, *ordinal), Intent::to_bytes);
        }
        2 => decision(&object, (run, *ordinal)),
        3 => returns(&object, |bytes| Expired::from_bytes(bytes, run, *ordinal), Expired::to_bytes),
        4 => returns(&object, |bytes| SessionMark::from_bytes(bytes, save.session), SessionMark::to_bytes),
        5 => returns(&object, |bytes| Card::from_bytes(bytes, *save), Card::to_bytes),
        6 => returns(&object, |bytes| Outcome::from_bytes(bytes, *save), Outcome::to_bytes),
        7 => returns(&object, |bytes| Failed::from_bytes(bytes, *attempt, *rank), Failed::to_bytes),
        8 => returns(&object, |bytes| Lease::from_bytes(bytes, *lease), Lease::to_bytes),
        _ => returns(&object, |bytes| LeaseEnd::from_bytes(bytes, *lease), LeaseEnd::to_bytes),
    }
}

/// What is read returns from being written, unless the written form would be too large.
fn returns<T: PartialEq + std::fmt::Debug>(
    object: &[u8],
    read: impl Fn(&[u8]) -> Result<T, FormatError>,
    write: impl Fn(&T) -> Result<Vec<u8>, FormatError>,
) {
    let Ok(first) = read(object) else { return };
    match write(&first) {
        Ok(written) => assert_eq!(read(&written).expect("what was written"), first),
        Err(error) => assert!(matches!(error, FormatError::TooLarge { .. }), "{error}"),
    }
}

fn decision(object: &[u8], (run, ordinal): (&RunName, Ordinal)) {
    if let Ok(decision) = Decision::from_bytes(object, run, ordinal) {
        let _ = decision.requires.check(Operation::Read);
        // Metadata may take more room than a writer allows itself.
        let _ = decision.to_bytes(run, ordinal);
    }
}

/// With the seal that its body has.
fn sealed(object: &[u8]) -> Vec<u8> {
    let body = &object[..object.len().saturating_sub(SEAL_BYTES)];
    let seal = format!(",\"blake3\":\"{}\"}}\n", ContentHash::of(body));
    [body, seal.as_bytes()].concat()
}

/// What the keys of the various kinds would say.
struct Named {
    run: RunName,
    ordinal: Ordinal,
    save: SaveId,
    attempt: AttemptId,
    lease: AttemptId,
    rank: Rank,
}

impl Named {
    fn by(object: &[u8]) -> Self {
        let json: serde_json::Value = serde_json::from_slice(object).unwrap_or_default();
        let number = |field: &str| json[field].as_u64();
        let id = |field: &str| {
            let read = json[field].as_str().and_then(|id| id.parse().ok());
            read.unwrap_or(AttemptId([0; 16]))
        };
        Self {
            run: json["run"].as_str().and_then(|run| RunName::stored(run).ok()).unwrap_or_else(RunName::pins),
            ordinal: Ordinal(number("ordinal").unwrap_or(1)),
            save: SaveId { session: SessionId(id("session").0), save: number("save").unwrap_or(0) },
            attempt: id("attempt"),
            lease: id("lease"),
            rank: Rank(number("rank").and_then(|rank| u32::try_from(rank).ok()).unwrap_or(0)),
        }
    }
}
