//! Sealed JSON objects.

use everstep_format::decision::Decision;
use everstep_format::feature::Operation;
use everstep_format::id::{ContentHash, SessionId};
use everstep_format::intent::Intent;
use everstep_format::marker::Expired;
use everstep_format::name::{Ordinal, RunName};
use everstep_format::repository::RepositoryConfig;
use everstep_format::sealed::SEAL_BYTES;
use everstep_format::session::SessionMark;

/// A sealed object of the kind that the first byte selects. Its seal is put right first, and it is read under the key that
/// it names itself.
pub fn control(bytes: &[u8]) {
    let Some((kind, object)) = bytes.split_first() else { return };
    let object = sealed(object);
    let (run, ordinal) = place(&object);
    match kind % 5 {
        0 => drop(RepositoryConfig::from_bytes(&object).map(|read| read.to_bytes().expect("it was read"))),
        1 => {
            if let Ok(intent) = Intent::from_bytes(&object, &run, ordinal) {
                let _ = intent.requires.check(Operation::Read);
                intent.to_bytes().expect("it was read");
            }
        }
        2 => decision(&object, (&run, ordinal)),
        3 => drop(
            Expired::from_bytes(&object, &run, ordinal).map(|read| read.to_bytes().expect("it was read")),
        ),
        _ => drop(SessionMark::from_bytes(&object, session(&object))),
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

fn place(object: &[u8]) -> (RunName, Ordinal) {
    let json: serde_json::Value = serde_json::from_slice(object).unwrap_or_default();
    let run = json["run"].as_str().and_then(|run| RunName::new(run).ok());
    let run = run.unwrap_or_else(|| RunName::new("run").expect("a name"));
    (run, Ordinal(json["ordinal"].as_u64().unwrap_or(1)))
}

fn session(object: &[u8]) -> SessionId {
    let json: serde_json::Value = serde_json::from_slice(object).unwrap_or_default();
    json["session"].as_str().and_then(|id| id.parse().ok()).unwrap_or(SessionId([0; 16]))
}
