//! The small JSON objects of the protocol: round trips, places, damage, other versions.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use everstep_format::FormatError;
use everstep_format::card::{CalledAttempt, Card, Occasion, ParentIndex, SaveId};
use everstep_format::decision::{Abort, Decision, IndexRef, Manifest, Pin, RefsRef, Totals, Verdict};
use everstep_format::failed::Failed;
use everstep_format::id::{AttemptId, ContentHash, RepositoryId, SessionId};
use everstep_format::intent::{Intent, ParentRef};
use everstep_format::lease::{Lease, LeaseEnd};
use everstep_format::limits;
use everstep_format::marker::Expired;
use everstep_format::name::{Ordinal, PinName, Rank, RunName, Step};
use everstep_format::outcome::{Ending, Outcome};
use everstep_format::repository::{Chunking, ChunkingOverride, RepositoryConfig, WriterMode};
use everstep_format::sealed::SEAL_BYTES;
use everstep_format::session::SessionMark;

const ORDINAL: Ordinal = Ordinal(7);
const SESSION: SessionId = SessionId([3; 16]);

fn run() -> RunName {
    RunName::new("llama").unwrap()
}

fn config() -> RepositoryConfig {
    let rule = ChunkingOverride { pattern: "embed.*".into(), block_elements: 4096 };
    let chunking = Chunking { overrides: vec![rule], ..Chunking::default() };
    RepositoryConfig::new(
        RepositoryId([1; 16]),
        chunking,
        WriterMode::ManyWriters,
        "2026-01-02T03:04:05Z".into(),
    )
}

fn intent() -> Intent {
    let mut intent = Intent::save(run(), ORDINAL, AttemptId([2; 16]), SESSION);
    intent.step = Some(Step(1000));
    intent.world_size = 8;
    intent.job = Some("nightly".into());
    intent.parents = vec![ParentRef { run: run(), ordinal: Ordinal(6), attempt: AttemptId([1; 16]) }];
    intent
}

const SAVE: SaveId = SaveId { session: SESSION, save: 41 };

fn occasion() -> Occasion {
    Occasion { save: SAVE, run: run(), step: Step(1000), world_size: 8 }
}

fn card() -> Card {
    let parent = ParentRef { run: run(), ordinal: Ordinal(6), attempt: AttemptId([1; 16]) };
    let parents = vec![ParentIndex { parent, index: manifest().index }];
    Card::calling(occasion(), CalledAttempt { id: AttemptId([2; 16]), ordinal: ORDINAL, parents })
}

fn outcome() -> Outcome {
    let committed = Outcome::committed(SAVE, AttemptId([2; 16]), ORDINAL);
    committed.ended(Ending::Failed, "rank 2 failed: no space", &[Rank(2)])
}

fn failed() -> Failed {
    Failed::new(AttemptId([2; 16]), Rank(2), "no space")
}

fn manifest() -> Manifest {
    let hash = ContentHash([5; 32]);
    Manifest {
        run: run(),
        ordinal: ORDINAL,
        step: Step(1000),
        attempt: AttemptId([2; 16]),
        session: SESSION,
        parents: Vec::new(),
        world_size: 1,
        index: IndexRef { blake3: hash, len: 5000, rows: 3, footer_offset: 4000, footer_blake3: hash },
        refs: RefsRef { blake3: hash, len: 76, packs: 1 },
        owners: vec![AttemptId([1; 16]), AttemptId([2; 16])],
        rollback_to: None,
        pin: None,
        totals: Totals::default(),
        metadata: serde_json::from_str(r#"{"loss":0.5,"note":"\u0000"}"#).unwrap(),
        created: "2026-01-02T03:04:05Z".into(),
        tool: "everstep 0.1.0".into(),
        stats: None,
    }
}

/// A COMMIT of the reserved run.
fn pin() -> Manifest {
    let of = ParentRef { run: run(), ordinal: Ordinal(6), attempt: AttemptId([1; 16]) };
    let pin = Pin { name: PinName::new("release-1").unwrap(), of: of.clone() };
    Manifest { run: RunName::pins(), parents: vec![of], pin: Some(pin), ..manifest() }
}

const LEASE: AttemptId = AttemptId([9; 16]);

fn lease() -> Lease {
    let parent = ParentRef { run: run(), ordinal: Ordinal(6), attempt: AttemptId([1; 16]) };
    let mut lease = Lease::new(LEASE, parent, 3600, "2026-01-02T03:04:05Z".into());
    lease.holder = Some("eval".into());
    lease
}

fn abort() -> Abort {
    Abort { reason: "closed".into(), detail: String::new(), by: Some(SESSION) }
}

type Reader = fn(&[u8]) -> Result<Vec<u8>, FormatError>;

/// Every kind: its bytes, and a reader that reads and writes them again.
fn every_kind() -> Vec<(&'static str, Vec<u8>, Reader)> {
    let decision = Decision::commit(manifest()).to_bytes(&run(), ORDINAL).unwrap();
    let aborted = Decision::abort(AttemptId([2; 16]), abort()).to_bytes(&run(), ORDINAL).unwrap();
    let fence = Intent::fence(run(), ORDINAL, AttemptId([2; 16]), SESSION).to_bytes().unwrap();
    let expired =
        Expired::new(run(), ORDINAL, "policy".into(), "2026-01-02T03:04:05Z".into()).to_bytes().unwrap();
    let mark = SessionMark::new(SESSION, run(), Ordinal(6), None).to_bytes().unwrap();
    let pinned = Decision::commit(pin()).to_bytes(&RunName::pins(), ORDINAL).unwrap();
    let end = LeaseEnd::new(LEASE, "closed", "2026-01-02T03:04:05Z".into()).to_bytes().unwrap();
    let read_intent: Reader = |bytes| Intent::from_bytes(bytes, &run(), ORDINAL)?.to_bytes();
    let read_decision: Reader =
        |bytes| Decision::from_bytes(bytes, &run(), ORDINAL)?.to_bytes(&run(), ORDINAL);
    vec![
        ("everstep.json", config().to_bytes().unwrap(), |bytes| {
            RepositoryConfig::from_bytes(bytes)?.to_bytes()
        }),
        ("intent", intent().to_bytes().unwrap(), read_intent),
        ("fence", fence, read_intent),
        ("commit", decision, read_decision),
        ("abort", aborted, read_decision),
        ("pin", pinned, |bytes| {
            Decision::from_bytes(bytes, &RunName::pins(), ORDINAL)?.to_bytes(&RunName::pins(), ORDINAL)
        }),
        ("lease", lease().to_bytes().unwrap(), |bytes| Lease::from_bytes(bytes, LEASE)?.to_bytes()),
        ("end of a lease", end, |bytes| LeaseEnd::from_bytes(bytes, LEASE)?.to_bytes()),
        ("expired", expired, |bytes| Expired::from_bytes(bytes, &run(), ORDINAL)?.to_bytes()),
        ("session", mark, |bytes| SessionMark::from_bytes(bytes, SESSION)?.to_bytes()),
        ("card", card().to_bytes().unwrap(), |bytes| Card::from_bytes(bytes, SAVE)?.to_bytes()),
        ("called off", Card::off(occasion(), "no space").to_bytes().unwrap(), |bytes| {
            Card::from_bytes(bytes, SAVE)?.to_bytes()
        }),
        ("outcome", outcome().to_bytes().unwrap(), |bytes| Outcome::from_bytes(bytes, SAVE)?.to_bytes()),
        ("failed", failed().to_bytes().unwrap(), |bytes| {
            Failed::from_bytes(bytes, AttemptId([2; 16]), Rank(2))?.to_bytes()
        }),
    ]
}

/// Seals `json` again after a change.
fn resealed(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    let body = std::str::from_utf8(&bytes[..bytes.len() - SEAL_BYTES]).unwrap();
    assert!(body.contains(from), "{from} in {body}");
    let body = body.replacen(from, to, 1);
    format!("{body},\"blake3\":\"{}\"}}\n", ContentHash::of(body.as_bytes())).into_bytes()
}

#[test]
fn every_kind_is_read_and_written_again_byte_for_byte() {
    for (what, bytes, read) in every_kind() {
        assert_eq!(read(&bytes).unwrap(), bytes, "{what}");
        serde_json::from_slice::<serde_json::Value>(&bytes).unwrap();
    }
}

/// C25
#[test]
fn c25_every_prefix_flip_and_appended_byte_is_noticed() {
    for (what, bytes, read) in every_kind() {
        for len in 0..bytes.len() {
            assert!(matches!(read(&bytes[..len]), Err(FormatError::Corrupt { .. })), "{what} cut to {len}");
        }
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 0x04;
            assert!(matches!(read(&other), Err(FormatError::Corrupt { .. })), "{what} flipped at {at}");
        }
        assert!(read(&[&bytes[..], b"\n"].concat()).is_err(), "{what}");
    }
}

#[test]
fn another_format_version_is_unsupported_and_not_corrupt() {
    for (what, bytes, read) in every_kind() {
        let found = read(&resealed(&bytes, "\"version\":1", "\"version\":2")).unwrap_err();
        assert!(matches!(found, FormatError::Unsupported { what: "format version", .. }), "{what}: {found}");
    }
}

#[test]
fn what_a_draft_wrote_is_unsupported_and_no_newer_program_is_promised() {
    for (what, bytes, read) in every_kind() {
        let found = read(&resealed(&bytes, "\"version\":1", "\"version\":0")).unwrap_err();
        assert!(found.is_of_a_draft() && matches!(found, FormatError::Unsupported { .. }), "{what}: {found}");
        let text = found.to_string();
        assert!(
            text.contains("before the format was released") && !text.contains("upgrade"),
            "{what}: {text}"
        );
        assert!(text.contains("export it with the program that wrote it"), "{what}: {text}");
    }
}

#[test]
fn a_mode_of_writers_that_nobody_knows_yet_is_unsupported_and_not_corrupt() {
    let bytes = config().to_bytes().unwrap();
    for mode in ["many-writers", "single-writer"] {
        RepositoryConfig::from_bytes(&resealed(&bytes, "many-writers", mode)).unwrap();
    }
    let found = RepositoryConfig::from_bytes(&resealed(&bytes, "many-writers", "some-writers")).unwrap_err();
    assert!(matches!(found, FormatError::Unsupported { what: "mode of writers", .. }), "{found}");
    let broken = RepositoryConfig::from_bytes(&resealed(&bytes, "\"many-writers\"", "7")).unwrap_err();
    assert!(matches!(broken, FormatError::Corrupt { .. }), "{broken}");
}

#[test]
fn unknown_fields_survive_rewriting() {
    for (what, bytes, read) in every_kind() {
        let newer = resealed(&bytes, "\"version\":1", "\"version\":1,\"later\":{\"x\":[1,null]}");
        let again = read(&newer).unwrap();
        let text = std::str::from_utf8(&again).unwrap();
        assert!(text.contains("\"later\":{\"x\":[1,null]}"), "{what}: {text}");
    }
}

#[test]
fn an_object_under_another_key_is_corrupt() {
    let other = RunName::new("other").unwrap();
    let intent = intent().to_bytes().unwrap();
    assert!(Intent::from_bytes(&intent, &other, ORDINAL).unwrap_err().to_string().contains("run other"));
    assert!(Intent::from_bytes(&intent, &run(), Ordinal(8)).unwrap_err().to_string().contains("ordinal 8"));
    let decision = Decision::commit(manifest()).to_bytes(&run(), ORDINAL).unwrap();
    assert!(Decision::from_bytes(&decision, &other, ORDINAL).is_err());
    assert!(Decision::from_bytes(&decision, &run(), Ordinal(8)).is_err());
    let mark = SessionMark::new(SESSION, run(), ORDINAL, None).to_bytes().unwrap();
    assert!(SessionMark::from_bytes(&mark, SessionId([4; 16])).is_err());
    let other_save = SaveId { save: 42, ..SAVE };
    let other_session = SaveId { session: SessionId([4; 16]), ..SAVE };
    for save in [other_save, other_session] {
        assert!(Card::from_bytes(&card().to_bytes().unwrap(), save).is_err());
        assert!(Outcome::from_bytes(&outcome().to_bytes().unwrap(), save).is_err());
    }
    let failed = failed().to_bytes().unwrap();
    assert!(Failed::from_bytes(&failed, AttemptId([2; 16]), Rank(3)).is_err());
    assert!(Failed::from_bytes(&failed, AttemptId([3; 16]), Rank(2)).is_err());
    let (_, expired, _) = every_kind().remove(5);
    assert!(Expired::from_bytes(&expired, &run(), Ordinal(8)).is_err());
}

#[test]
fn one_kind_is_never_taken_for_another() {
    let kinds = every_kind();
    for (what, bytes, _) in &kinds {
        let magic = |bytes: &[u8]| std::str::from_utf8(bytes).unwrap().split('"').nth(3).unwrap().to_owned();
        for (other, other_bytes, read) in &kinds {
            if magic(bytes) != magic(other_bytes) {
                assert!(read(bytes).is_err(), "{what} read as {other}");
            }
        }
    }
}

#[test]
fn a_decision_is_a_commit_with_a_manifest_or_an_abort_with_a_reason() {
    let commit = Decision::commit(manifest()).to_bytes(&run(), ORDINAL).unwrap();
    let decision = Decision::from_bytes(&commit, &run(), ORDINAL).unwrap();
    assert_eq!(decision.verdict, Verdict::Commit(Box::new(manifest())));
    let read = |bytes: &[u8]| Decision::from_bytes(bytes, &run(), ORDINAL);
    assert!(read(&resealed(&commit, "\"COMMIT\"", "\"ABORT\"")).is_err());
    assert!(read(&resealed(&commit, "\"footer_offset\":4000", "\"footer_offset\":5001")).is_err());
    assert!(read(&resealed(&commit, "\"len\":5000", "\"len\":18446744073709551615")).is_err());
    assert!(read(&resealed(&commit, "\"packs\":1", "\"packs\":-1")).is_err());
    assert!(
        read(&resealed(&commit, "\"manifest\":{\"run\":\"llama\"", "\"manifest\":{\"run\":\"other\""))
            .is_err()
    );
    let unsorted = Manifest { owners: vec![AttemptId([2; 16]), AttemptId([1; 16])], ..manifest() };
    assert!(read(&Decision::commit(unsorted).to_bytes(&run(), ORDINAL).unwrap()).is_err());
}

#[test]
fn limits_hold_when_writing_and_when_reading() {
    let mut wide = intent();
    wide.parents = vec![wide.parents[0].clone(); 17];
    assert!(matches!(wide.to_bytes(), Err(FormatError::TooLarge { .. })));
    let mut labelled = intent();
    labelled.job = Some("j".repeat(257));
    assert!(matches!(labelled.to_bytes(), Err(FormatError::TooLarge { .. })));
    let mut heavy = manifest();
    heavy.metadata.insert("blob".into(), "x".repeat(1 << 20).into());
    assert!(matches!(Decision::commit(heavy).to_bytes(&run(), ORDINAL), Err(FormatError::TooLarge { .. })));
    assert!(Intent::from_bytes(&vec![b' '; 5 << 20], &run(), ORDINAL).is_err());
}

#[test]
fn a_card_calls_to_an_attempt_or_says_why_there_is_none() {
    let bytes = card().to_bytes().unwrap();
    let read = |bytes: &[u8]| Card::from_bytes(bytes, SAVE);
    assert_eq!(read(&bytes).unwrap(), card());
    assert!(read(&resealed(&bytes, "\"world_size\":8", "\"world_size\":8,\"off\":\"x\"")).is_err());
    assert!(read(&resealed(&bytes, "\"attempt\":{\"id\"", "\"later\":{\"id\"")).is_err());
    assert!(read(&resealed(&bytes, "\"world_size\":8", "\"world_size\":0")).is_err());
    assert!(read(&resealed(&bytes, "\"footer_offset\":4000", "\"footer_offset\":5001")).is_err());
    assert!(read(&resealed(&bytes, "\"len\":5000", "\"len\":18446744073709551615")).is_err());
    let mut crowded = card();
    let attempt = crowded.attempt.as_mut().unwrap();
    attempt.parents = vec![attempt.parents[0].clone(); 17];
    assert!(matches!(crowded.to_bytes(), Err(FormatError::TooLarge { .. })));
}

#[test]
fn a_long_reason_is_cut_between_characters_and_ranks_are_counted() {
    let long = "\u{20ac}".repeat(4096);
    let off = Card::off(occasion(), &long).off.unwrap();
    assert!(off.len() <= 4096 && off.len() > 4090 && long.starts_with(&off), "{}", off.len());
    let ranks: Vec<Rank> = (0..10_000).map(Rank).collect();
    let outcome = outcome().ended(Ending::Unknown, &long, &ranks);
    assert_eq!((outcome.why.len(), outcome.ranks.len()), (off.len(), 4096));
    assert!(outcome.to_bytes().is_ok());
}

/// C25
#[test]
fn c25_json_nested_too_deep_is_refused_without_overflow() {
    let bytes = intent().to_bytes().unwrap();
    let deep = format!("\"version\":1,\"later\":{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let found = Intent::from_bytes(&resealed(&bytes, "\"version\":1", &deep), &run(), ORDINAL);
    assert!(matches!(found, Err(FormatError::Corrupt { .. })), "{found:?}");
}

#[test]
fn intents_that_contradict_themselves_are_refused() {
    let mut stepless = intent();
    stepless.step = None;
    assert!(stepless.to_bytes().is_err());
    let mut fence = Intent::fence(run(), ORDINAL, AttemptId([2; 16]), SESSION);
    fence.world_size = 1;
    assert!(fence.to_bytes().is_err());
}

#[test]
fn chunkings_that_cannot_work_are_refused() {
    let rule = |pattern: &str, block_elements| ChunkingOverride { pattern: pattern.into(), block_elements };
    for chunking in [
        Chunking { block_elements: 0, ..Chunking::default() },
        Chunking { block_bytes: 15, ..Chunking::default() },
        Chunking { block_bytes: 1 << 40, ..Chunking::default() },
        Chunking { overrides: vec![rule("[", 5)], ..Chunking::default() },
        Chunking { overrides: vec![rule("*", 0)], ..Chunking::default() },
        Chunking { overrides: vec![rule("*", 1); 257], ..Chunking::default() },
    ] {
        let mut changed = config();
        changed.chunking = chunking;
        assert!(changed.to_bytes().is_err(), "{:?}", changed.chunking);
    }
}

#[test]
fn a_pin_has_a_name_and_an_origin_in_training_and_nothing_else_has() {
    let read = |manifest: Manifest| {
        let run = manifest.run.clone();
        let bytes = Decision::commit(manifest).to_bytes(&run, ORDINAL).unwrap();
        Decision::from_bytes(&bytes, &run, ORDINAL)
    };
    assert!(read(pin()).is_ok());
    let nameless = Manifest { pin: None, ..pin() };
    let elsewhere = Manifest { run: run(), ..pin() };
    let mut of_a_pin = pin();
    of_a_pin.pin.as_mut().unwrap().of.run = RunName::pins();
    for bad in [nameless, elsewhere, of_a_pin] {
        assert!(matches!(read(bad), Err(FormatError::Corrupt { .. })));
    }
}

#[test]
fn no_attempt_has_itself_or_a_later_one_of_its_run_as_a_parent() {
    for later in [ORDINAL, Ordinal(8)] {
        let mut intent = intent();
        intent.parents[0].ordinal = later;
        let read = |intent: &Intent| Intent::from_bytes(&intent.to_bytes().unwrap(), &run(), ORDINAL);
        assert!(matches!(read(&intent), Err(FormatError::Corrupt { .. })));
        intent.parents[0].run = RunName::new("another").unwrap();
        assert!(read(&intent).is_ok());
        let parent = ParentRef { run: run(), ordinal: later, attempt: AttemptId([1; 16]) };
        let bytes = Decision::commit(Manifest { parents: vec![parent], ..manifest() });
        let bytes = bytes.to_bytes(&run(), ORDINAL).unwrap();
        assert!(matches!(Decision::from_bytes(&bytes, &run(), ORDINAL), Err(FormatError::Corrupt { .. })));
    }
}

#[test]
fn a_lease_stands_under_its_own_id_and_lives_within_bounds() {
    let bytes = lease().to_bytes().unwrap();
    let other = AttemptId([8; 16]);
    assert!(matches!(Lease::from_bytes(&bytes, other), Err(FormatError::Corrupt { .. })));
    let end = LeaseEnd::new(LEASE, "closed", String::new()).to_bytes().unwrap();
    assert!(matches!(LeaseEnd::from_bytes(&end, other), Err(FormatError::Corrupt { .. })));
    assert!(LeaseEnd::from_bytes(&bytes, LEASE).is_err() && Lease::from_bytes(&end, LEASE).is_err());
    for ttl in [0, limits::LEASE_TTL_SECONDS.start() - 1, limits::LEASE_TTL_SECONDS.end() + 1] {
        let mut bad = lease();
        bad.ttl = ttl;
        assert!(matches!(bad.to_bytes(), Err(FormatError::Invalid { .. })), "{ttl}");
    }
    let mut long = lease();
    long.holder = Some("x".repeat(257));
    assert!(matches!(long.to_bytes(), Err(FormatError::TooLarge { .. })));
}

#[test]
fn a_reason_or_a_list_of_ranks_beyond_its_limit_is_not_read() {
    let long = "x".repeat(limits::CAUSE_BYTES + 1);
    let mut off = Card::off(occasion(), "");
    off.off = Some(long.clone());
    assert!(matches!(off.to_bytes(), Err(FormatError::TooLarge { .. })));
    let mut gave_up = failed();
    gave_up.why.clone_from(&long);
    let read = Failed::from_bytes(&gave_up.to_bytes().unwrap(), gave_up.attempt, gave_up.rank);
    assert!(matches!(read, Err(FormatError::TooLarge { .. })));
    for (why, ranks) in [(long, 1), (String::new(), limits::OUTCOME_RANKS + 1)] {
        let mut ended = outcome();
        (ended.why, ended.ranks) = (why, vec![Rank(0); ranks]);
        let read = Outcome::from_bytes(&ended.to_bytes().unwrap(), SAVE);
        assert!(matches!(read, Err(FormatError::TooLarge { .. })));
    }
}
