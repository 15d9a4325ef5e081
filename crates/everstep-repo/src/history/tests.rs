use everstep_format::decision::{IndexRef, RefsRef, Totals};
use everstep_format::id::{AttemptId, ContentHash, SessionId};
use everstep_format::name::Step;

use super::*;

const SESSION: SessionId = SessionId([1; 16]);

fn run() -> RunName {
    "llama".parse().unwrap()
}

fn attempt(ordinal: u64) -> AttemptId {
    let [low, ..] = ordinal.to_le_bytes();
    AttemptId([low; 16])
}

fn manifest(ordinal: u64) -> Manifest {
    let hash = ContentHash([0; 32]);
    Manifest {
        run: run(),
        ordinal: Ordinal(ordinal),
        step: Step(ordinal * 10),
        attempt: attempt(ordinal),
        session: SESSION,
        parents: Vec::new(),
        world_size: 1,
        index: IndexRef { blake3: hash, len: 8, rows: 0, footer_offset: 4, footer_blake3: hash },
        refs: RefsRef { blake3: hash, len: 0, packs: 0 },
        owners: Vec::new(),
        rollback_to: None,
        pin: None,
        totals: Totals::default(),
        metadata: serde_json::Map::new(),
        created: String::new(),
        tool: String::new(),
        stats: None,
    }
}

impl History {
    fn fence(mut self, ordinal: u64) -> Self {
        let intent = Intent::fence(run(), Ordinal(ordinal), attempt(ordinal), SESSION);
        self.intents.insert(Ordinal(ordinal), intent);
        self
    }

    fn save(mut self, ordinal: u64) -> Self {
        let mut intent = Intent::save(run(), Ordinal(ordinal), attempt(ordinal), SESSION);
        intent.step = Some(Step(ordinal.saturating_mul(10)));
        self.intents.insert(Ordinal(ordinal), intent);
        self
    }

    fn decide(mut self, ordinal: u64, attempt: AttemptId, fate: Fate) -> Self {
        let decided = Decided { attempt, requires: Default::default(), fate };
        self.decisions.insert(Ordinal(ordinal), Arc::new(decided));
        self
    }

    fn commit_as(self, manifest: Manifest) -> Self {
        let (Ordinal(ordinal), attempt) = (manifest.ordinal, manifest.attempt);
        self.decide(ordinal, attempt, Fate::Commit(Arc::new(manifest)))
    }

    fn commit(self, ordinal: u64) -> Self {
        self.commit_as(manifest(ordinal))
    }

    fn abort(self, ordinal: u64, reason: &str) -> Self {
        let abort = Abort { reason: reason.to_owned(), detail: String::new(), by: Some(SESSION) };
        self.decide(ordinal, attempt(ordinal), Fate::Abort(abort))
    }

    fn expire(mut self, ordinal: u64) -> Self {
        self.expired.insert(Ordinal(ordinal));
        self
    }

    fn without_intent(mut self, ordinal: u64) -> Self {
        self.intents.remove(&Ordinal(ordinal));
        self
    }

    fn found(&self) -> Vec<(u64, &'static str)> {
        self.findings().into_iter().map(|finding| (finding.ordinal.0, finding.invariant)).collect()
    }
}

/// Fence 1 with an expired and a live checkpoint, closed; fence 4 with a checkpoint and an attempt under way.
fn sound() -> History {
    let first =
        History::empty(run()).fence(1).save(2).commit(2).save(3).commit(3).abort(1, "closed").expire(2);
    first.fence(4).save(5).commit(5).save(6)
}

#[test]
fn a_sound_history_has_no_finding_and_every_state() {
    let history = sound();
    assert_eq!(history.findings(), vec![]);
    let states = history.states();
    assert!(matches!(
        states.iter().map(|(_, state)| state).collect::<Vec<_>>().as_slice(),
        [
            AttemptState::Fence(_),
            AttemptState::Expired(_),
            AttemptState::Committed(_),
            AttemptState::Fence(_),
            AttemptState::Committed(_),
            AttemptState::Undecided(_)
        ]
    ));
    assert_eq!(history.checkpoints().map(|c| c.manifest.ordinal.0).collect::<Vec<_>>(), [3, 5]);
}

#[test]
fn a_missing_intent_is_found_in_the_middle_and_at_the_end() {
    assert_eq!(sound().without_intent(3).found(), [(3, "ordinals_are_dense")]);
    assert_eq!(sound().without_intent(1).found()[0], (1, "ordinals_are_dense"));
    assert_eq!(sound().commit(7).found(), [(7, "ordinals_are_dense")]);
    let far = sound().save(u64::MAX);
    assert_eq!(far.found(), [(7, "ordinals_are_dense")], "one finding, however far the next ordinal is");
}

#[test]
fn an_unreadable_intent_is_not_a_missing_one() {
    let mut history = sound().without_intent(3);
    history.unreadable.push((Ordinal(3), RepoError::Refused("unreadable".to_owned())));
    assert_eq!(history.findings(), vec![]);
}

#[test]
fn a_decision_for_another_attempt_is_found() {
    let theirs = Manifest { attempt: AttemptId([99; 16]), ..manifest(5) };
    assert_eq!(sound().commit_as(theirs).found(), [(5, "decisions_belong_to_their_intents")]);
}

#[test]
fn a_commit_that_says_other_than_its_intent_is_found() {
    let session = Manifest { session: SessionId([2; 16]), ..manifest(5) };
    let step = Manifest { step: Step(7), ..manifest(5) };
    let parent = ParentRef { run: run(), ordinal: Ordinal(3), attempt: attempt(3) };
    let parents = Manifest { parents: vec![parent], ..manifest(5) };
    for manifest in [session, step, parents] {
        assert_eq!(sound().commit_as(manifest).found(), [(5, "manifests_match_their_intents")]);
    }
}

#[test]
fn a_committed_fence_is_found() {
    assert!(sound().commit(4).found().contains(&(4, "fences_never_commit")));
}

#[test]
fn an_undecided_attempt_below_a_settled_fence_is_found() {
    let name = "nothing_is_undecided_below_a_settled_fence";
    let after = |reason: &str| sound().fence(7).abort(7, reason);
    assert_eq!(after("closed").found(), [(6, name)]);
    assert_eq!(after("superseded").found(), [(6, name)]);
    assert_eq!(sound().fence(7).save(8).commit(8).found(), [(6, name)], "its session went on");
    assert_eq!(sound().fence(7).found(), [], "it may just be aborting what lies below");
    assert_eq!(after("abandoned").found(), [], "garbage collection may decide in any order");
    assert_eq!(after("closed").abort(6, "superseded").found(), []);
}

#[test]
fn an_expired_newest_commit_is_found() {
    assert_eq!(sound().expire(5).found(), [(5, "the_newest_commit_is_not_expired")]);
}
