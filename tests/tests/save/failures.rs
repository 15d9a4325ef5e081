//! A save that fails leaves the run as it was, says what it failed on, and the next one works.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use everstep_format::dtype::Dtype;
use everstep_format::name::RunName;
use everstep_format::repository::Chunking;
use everstep_repo::AttemptState;
use everstep_save::{ByteSource, SaveError, Source, State};
use everstep_store::{SystemWorld, World};
use futures::future::BoxFuture;

use crate::bench::{Bench, Fault, noise, tensors, whole};
use crate::read_back::tensor;

const MIB: usize = 1 << 20;

/// Fails in its second half while broken.
struct Flaky {
    bytes: Vec<u8>,
    broken: AtomicBool,
}

impl ByteSource for Flaky {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        let start = usize::try_from(offset).unwrap();
        if start >= self.bytes.len() / 2 && self.broken.load(Ordering::SeqCst) {
            return Err(std::io::Error::other("the disk is on fire"));
        }
        into.copy_from_slice(&self.bytes[start..start + into.len()]);
        Ok(())
    }
}

async fn last_state(bench: &Bench) -> AttemptState {
    let attempts = bench.repository.attempts(&RunName::new("run").unwrap()).await.unwrap();
    attempts.into_iter().next_back().unwrap().1
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_cannot_be_read_fails_the_save_naming_the_tensor() {
    let bench = Bench::with_blocks(1000).await;
    let mut session = bench.session().await;
    let file = Flaky { bytes: noise(1, 40_000), broken: AtomicBool::new(true) };
    let mut shard = whole("opt.state", Dtype::F32, &[10_000], &[]);
    shard.source = Source::Reader(&file);
    let state = tensors(vec![shard]);
    let error = bench.save(&mut session, &state).await.unwrap_err();
    assert!(
        matches!(&error, SaveError::Source { tensor, offset: 20_000, .. } if tensor == "opt.state"),
        "{error}"
    );
    assert!(matches!(last_state(&bench).await, AttemptState::Aborted(..)));
    file.broken.store(false, Ordering::SeqCst);
    let report = bench.save(&mut session, &state).await.unwrap();
    assert_eq!(tensor(&bench, &report.checkpoint, "opt.state").await, file.bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_pack_stops_the_others_and_names_pack_and_tensor() {
    let mut bench = Bench::new().await;
    bench.settings.uploads = 2;
    bench.settings.pack_target = 1 << 16;
    let mut session = bench.session().await;
    let names: Vec<String> = (0..200).map(|n| format!("t{n:03}")).collect();
    let data: Vec<Vec<u8>> = (0..200).map(|n| noise(n, 70_000)).collect();
    let shards =
        || names.iter().zip(&data).map(|(name, bytes)| whole(name, Dtype::U8, &[70_000], bytes)).collect();
    *bench.spy.fault.lock().unwrap() = Fault::PacksBeyond(3);
    let error = bench.save(&mut session, &tensors(shards())).await.unwrap_err();
    assert!(matches!(&error, SaveError::Upload { cause, .. } if cause.detail.contains("403")), "{error}");
    let text = error.to_string();
    assert!(text.contains("packs/") && text.contains("\"t"), "{text}");
    assert!(bench.spy.packs().len() <= 4, "the others were stopped: {}", bench.spy.packs().len());
    assert!(matches!(last_state(&bench).await, AttemptState::Aborted(..)));
    *bench.spy.fault.lock().unwrap() = Fault::None;
    let report = bench.save(&mut session, &tensors(shards())).await.unwrap();
    assert_eq!(report.chunks_uploaded, 200, "nothing of a failed attempt is known");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_index_fails_the_save() {
    let bench = Bench::new().await;
    let mut session = bench.session().await;
    *bench.spy.fault.lock().unwrap() = Fault::Index;
    let error = bench.save(&mut session, &State::default()).await.unwrap_err();
    assert!(matches!(&error, SaveError::Upload { holds, .. } if holds == "the index"), "{error}");
    *bench.spy.fault.lock().unwrap() = Fault::None;
    bench.save(&mut session, &State::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_without_an_answer_is_unknown_and_nothing_is_given_up() {
    let bench = Bench::new().await;
    let mut session = bench.session().await;
    let bytes = noise(1, MIB);
    *bench.spy.fault.lock().unwrap() = Fault::DecisionsLost;
    let state = tensors(vec![whole("w", Dtype::U8, &[MIB as u64], &bytes)]);
    let error = bench.save(&mut session, &state).await.unwrap_err();
    assert!(matches!(&error, SaveError::Unknown { run, .. } if run.as_str() == "run"), "{error}");
    *bench.spy.fault.lock().unwrap() = Fault::None;
    assert!(matches!(last_state(&bench).await, AttemptState::Undecided(_)), "no ABORT was tried");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fenced_session_gets_a_conflict() {
    let bench = Bench::new().await;
    let mut old = bench.session().await;
    bench.save(&mut old, &State::default()).await.unwrap();
    let mut new = bench.session().await;
    let error = bench.save(&mut old, &State::default()).await.unwrap_err();
    assert!(matches!(error, SaveError::Conflict(_)), "{error}");
    bench.save(&mut new, &State::default()).await.unwrap();
}

/// Drops background tasks, as a runtime does that is being shut down.
#[derive(Debug)]
struct Forgetful(SystemWorld);

#[async_trait]
impl World for Forgetful {
    fn now(&self) -> SystemTime {
        self.0.now()
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    async fn sleep(&self, time: Duration) {
        self.0.sleep(time).await;
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        self.0.fill_random(bytes);
    }

    fn spawn(&self, _task: BoxFuture<'static, ()>) {}
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_that_nobody_runs_are_noticed() {
    let bench = Bench::in_world(Chunking::default(), Arc::new(Forgetful(SystemWorld::new()))).await;
    let mut session = bench.session().await;
    let state = tensors(vec![whole("w", Dtype::U8, &[1000], &[1; 1000])]);
    let error = bench.save(&mut session, &state).await.unwrap_err();
    assert!(matches!(error, SaveError::UploadsLost { lost: 1, started: 1 }), "{error}");
}
