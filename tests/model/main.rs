//! The protocol as a model, searched exhaustively, and its weakened variants, each of which must be refuted.

mod actions;
mod collector;
mod properties;
mod state;
mod variants;
mod writer;

use std::collections::BTreeSet;

use stateright::{Checker, HasDiscoveries, Model};

use actions::Protocol;
use properties::decided::FINAL;
use properties::fenced::{FENCED, REMEMBERED, STANDING};
use properties::honest::HONEST;
use properties::whole::{READABLE, WHOLE};
use variants::{
    ATTEMPTS, COLLECTION, Config, FAULTY_COLLECTION, LARGE, RESTARTS, ROLLBACK, TWO_RUNS, Weakness,
};

/// Searches every state of the unweakened protocol.
fn proves(name: &str, config: Config) {
    let protocol = Protocol { config, weakness: Weakness::None };
    let checker = protocol.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let (unique, depth) = (checker.unique_state_count(), checker.max_depth());
    eprintln!("model {name}: {unique} states, {} transitions, depth {depth}", checker.state_count());
    checker.assert_properties();
}

/// Searches the weakened protocol until it breaks one of `rules`; fails when it does not.
fn refutes(weakness: Weakness, config: Config, rules: &[&'static str]) {
    let wanted: BTreeSet<&'static str> = rules.iter().copied().collect();
    let checker = Protocol { config, weakness }
        .checker()
        .finish_when(HasDiscoveries::AnyOf(wanted.clone()))
        .spawn_bfs()
        .join();
    let found = checker.discoveries();
    let broken = wanted.iter().find_map(|rule| found.get(rule).map(|path| (rule, path)));
    let (rule, path) = broken.unwrap_or_else(|| panic!("{weakness:?} was not refuted by {wanted:?}"));
    let states = checker.unique_state_count();
    eprintln!("model without {weakness:?}: refuted (\"{rule}\") after {states} states:");
    path.clone().into_actions().iter().for_each(|action| eprintln!("    {action:?}"));
}

#[test]
fn the_protocol_holds_over_restarts_and_zombies() {
    proves("restarts", RESTARTS);
}

#[test]
fn the_protocol_holds_over_repeated_attempts_and_lost_replies() {
    proves("attempts", ATTEMPTS);
}

#[test]
fn the_protocol_holds_over_expiry_and_collection() {
    proves("collection", COLLECTION);
}

#[test]
fn the_protocol_holds_over_expiry_and_collection_with_faulty_requests() {
    proves("faulty collection", FAULTY_COLLECTION);
}

#[test]
fn the_protocol_holds_over_deliberate_rollbacks() {
    proves("rollback", ROLLBACK);
}

#[test]
fn the_protocol_holds_over_two_runs() {
    proves("two runs", TWO_RUNS);
}

#[test]
#[ignore = "long: run by make test-long"]
fn the_protocol_holds_over_everything_at_once() {
    proves("everything", LARGE);
}

#[test]
fn without_w2_a_parent_expires_between_choice_and_intent() {
    refutes(Weakness::NoConfirm, TWO_RUNS, &[WHOLE]);
}

#[test]
fn a_marker_read_before_w1_is_durable_is_as_no_w2() {
    refutes(Weakness::MarkerBeforeIntent, TWO_RUNS, &[WHOLE]);
}

#[test]
fn without_a_fence_latest_changes_after_it_was_resolved() {
    refutes(Weakness::NoFence, ATTEMPTS, &[FENCED]);
}

#[test]
fn without_abort_of_lower_ordinals_latest_changes_after_it_was_resolved() {
    refutes(Weakness::NoAbortBelow, RESTARTS, &[FENCED]);
}

#[test]
fn with_ordinals_picked_by_list_a_zombie_jumps_over_the_fence() {
    refutes(Weakness::OrdinalsByList, ATTEMPTS, &[FENCED]);
}

#[test]
fn with_sessions_named_after_the_job_a_zombie_takes_the_fence_for_its_own() {
    refutes(Weakness::SessionFromJobName, ATTEMPTS, &[FENCED]);
}

#[test]
fn with_dedup_against_an_unconfirmed_parent_chunks_are_missing() {
    refutes(Weakness::UnconfirmedParent, TWO_RUNS, &[WHOLE]);
}

#[test]
fn with_dedup_against_an_undecided_attempt_chunks_are_missing() {
    refutes(Weakness::UndecidedParent, FAULTY_COLLECTION, &[WHOLE]);
}

#[test]
fn with_a_decision_that_is_overwritten_commits_come_and_go() {
    refutes(Weakness::DecisionOverwritten, RESTARTS, &[FINAL]);
    refutes(Weakness::DecisionOverwritten, RESTARTS, &[FENCED]);
}

#[test]
fn with_a_lost_reply_taken_for_failure_another_state_is_written_over_a_committed_one() {
    refutes(Weakness::LostReplyIsFailure, ATTEMPTS, &[WHOLE]);
}

#[test]
fn with_unknown_cleaned_up_a_committed_checkpoint_loses_its_packs() {
    refutes(Weakness::UnknownDeletes, ATTEMPTS, &[WHOLE]);
    refutes(Weakness::UnknownDeletes, ATTEMPTS, &[HONEST]);
}

#[test]
fn with_rollback_by_pointer_the_target_expires_or_is_forgotten() {
    refutes(Weakness::RollbackByPointer, ROLLBACK, &[STANDING]);
    refutes(Weakness::RollbackByPointer, ROLLBACK, &[REMEMBERED]);
}

#[test]
fn without_pins_a_child_commits_after_the_sweep() {
    refutes(Weakness::NoPins, TWO_RUNS, &[WHOLE]);
}

#[test]
fn with_the_index_dropped_at_expiry_the_pin_is_unreadable() {
    refutes(Weakness::IndexDroppedAtOnce, TWO_RUNS, &[READABLE]);
}

#[test]
fn with_intents_listed_before_the_dead_are_known_a_parent_is_lost() {
    refutes(Weakness::IntentsBeforeDead, COLLECTION, &[WHOLE]);
}
