//! The protocol as a model, searched exhaustively, and its weakened variants, each of which must be refuted.

mod actions;
mod collector;
mod configs;
mod marking;
mod properties;
mod reader;
mod session;
mod state;
mod variants;
mod writer;

use std::collections::BTreeSet;

use stateright::{Checker, HasDiscoveries, Model};

use actions::Protocol;
use configs::{
    ANEW, ATTEMPTS, Config, DELTAS, FAULTY_COLLECTION, FENCED_COLLECTION, FENCED_RIVALS, FENCED_TURNS, HINTS,
    LARGE, LARGE_FAMILIES, LARGE_KEEPERS, LARGE_RIVALS, LEASES, LEASES_OF_RIVALS, NEW_RUN, NEWER, PINS,
    RANKS, READERS, RESTARTS, RIVALS, ROLLBACK, SHARDS, TURNS, TWO_PARENTS, TWO_RUNS,
};
use properties::decided::{FINAL, MATCHING};
use properties::fenced::{FENCED, LEARNED, REMEMBERED, STANDING};
use properties::honest::HONEST;
use properties::read::{FRESH, HELD};
use properties::whole::{READABLE, WHOLE};
use variants::Weakness;

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
    eprintln!("model with {weakness:?}: refuted (\"{rule}\") after {states} states:");
    path.clone().into_actions().iter().for_each(|action| eprintln!("    {action:?}"));
}

#[test]
fn the_protocol_holds_over_restarts_and_zombies() {
    proves("restarts", RESTARTS);
}

#[test]
fn the_protocol_holds_over_processes_of_one_session() {
    proves("turns", TURNS);
}

#[test]
fn the_protocol_holds_over_processes_of_one_session_that_are_fenced() {
    proves("fenced turns", FENCED_TURNS);
}

#[test]
fn without_abort_of_what_another_process_left_that_commits_unseen() {
    refutes(Weakness::NoAbortOfLeft, TURNS, &[LEARNED]);
}

#[test]
fn with_a_walk_past_what_another_process_committed_that_goes_unseen() {
    refutes(Weakness::NothingLearned, TURNS, &[LEARNED]);
}

#[test]
fn the_protocol_holds_over_repeated_attempts_and_lost_replies() {
    proves("attempts", ATTEMPTS);
}

#[test]
fn the_protocol_holds_over_fences_expiry_and_collection() {
    proves("fenced collection", FENCED_COLLECTION);
}

#[test]
fn the_protocol_holds_over_fences_and_collection_with_faulty_requests() {
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
fn the_protocol_holds_over_two_collectors_whose_deletes_come_late_or_never() {
    proves("rivals", RIVALS);
}

#[test]
fn the_protocol_holds_over_fences_and_two_collectors() {
    proves("fenced rivals", FENCED_RIVALS);
}

#[test]
fn the_protocol_holds_over_a_run_that_appears_while_two_collect() {
    proves("new run", NEW_RUN);
}

#[test]
fn the_protocol_holds_over_attempts_of_two_parents() {
    proves("two parents", TWO_PARENTS);
}

#[test]
fn the_protocol_holds_over_deltas_and_their_bases() {
    proves("deltas", DELTAS);
}

#[test]
fn the_protocol_holds_over_ranks_that_come_late() {
    proves("ranks", RANKS);
}

#[test]
fn the_protocol_holds_over_pins() {
    proves("pins", PINS);
}

#[test]
fn the_protocol_holds_over_leases() {
    proves("leases", LEASES);
    proves("leases of rivals", LEASES_OF_RIVALS);
}

#[test]
fn the_protocol_holds_over_shards_of_a_sweep() {
    proves("shards", SHARDS);
}

#[test]
fn the_protocol_holds_over_hints_that_are_wrong() {
    proves("hints", HINTS);
}

#[test]
fn the_protocol_holds_over_sessions_of_a_later_version() {
    proves("newer", NEWER);
}

#[test]
fn the_protocol_holds_over_readers_without_a_fence() {
    proves("readers", READERS);
}

#[test]
#[ignore = "a world of up to 6.5 million states takes minutes: `make test-long`"]
fn the_protocol_holds_over_everything_at_once() {
    proves("everything", LARGE);
}

#[test]
#[ignore = "a world of up to 6.5 million states takes minutes: `make test-long`"]
fn the_protocol_holds_over_a_restart_and_two_collectors() {
    proves("a restart under rivals", LARGE_RIVALS);
}

#[test]
#[ignore = "a world of up to 6.5 million states takes minutes: `make test-long`"]
fn the_protocol_holds_over_pins_leases_and_two_collectors() {
    proves("all keepers", LARGE_KEEPERS);
}

#[test]
#[ignore = "a world of up to 6.5 million states takes minutes: `make test-long`"]
fn the_protocol_holds_over_two_runs_of_two_parents_and_two_collectors() {
    proves("families under rivals", LARGE_FAMILIES);
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
fn with_one_parent_confirmed_of_two_the_other_is_lost() {
    refutes(Weakness::FirstParentConfirmed, TWO_PARENTS, &[WHOLE, READABLE]);
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
fn with_dedup_by_head_the_object_is_deleted_after_the_head() {
    refutes(Weakness::DedupByHead, ANEW, &[WHOLE]);
}

#[test]
fn with_keys_of_contents_alone_a_delete_lands_on_an_object_written_again() {
    refutes(Weakness::ContentKeys, ANEW, &[WHOLE]);
}

#[test]
fn with_a_base_from_the_host_the_delta_cannot_be_read() {
    refutes(Weakness::BaseFromHost, TWO_PARENTS, &[WHOLE]);
}

#[test]
fn with_refs_that_leave_out_a_base_the_delta_cannot_be_read() {
    refutes(Weakness::RefsWithoutBases, DELTAS, &[WHOLE]);
}

#[test]
fn with_refs_that_leave_out_the_base_of_a_base_the_grandchild_cannot_be_read() {
    refutes(Weakness::RefsWithoutBasesOfBases, DELTAS, &[WHOLE]);
}

#[test]
fn with_a_commit_before_all_ranks_have_handed_in_chunks_are_missing() {
    refutes(Weakness::CommitBeforeParts, RANKS, &[WHOLE]);
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
fn without_l2_a_lease_holds_what_is_gone() {
    refutes(Weakness::NoLeaseCheck, LEASES, &[HELD]);
}

#[test]
fn a_marker_read_before_the_lease_is_durable_is_as_no_l2() {
    refutes(Weakness::MarkerBeforeLease, LEASES, &[HELD]);
}

#[test]
fn without_listing_again_latest_goes_back() {
    refutes(Weakness::NoListingAgain, READERS, &[FRESH]);
}

#[test]
fn with_the_newest_expired_training_stands_on_nothing() {
    refutes(Weakness::NewestExpires, RIVALS, &[STANDING]);
}

#[test]
fn with_deletes_before_the_marker_what_counts_is_lost() {
    refutes(Weakness::MarkerAfterDelete, RIVALS, &[WHOLE]);
}

#[test]
fn with_intents_listed_before_the_dead_are_known_a_parent_is_lost() {
    refutes(Weakness::IntentsBeforeDead, DELTAS, &[WHOLE]);
}

#[test]
fn with_runs_not_listed_anew_a_new_run_loses_its_parent() {
    refutes(Weakness::RunsNotListedAnew, TWO_PARENTS, &[WHOLE, READABLE]);
}

#[test]
fn with_leases_not_listed_anew_a_new_reader_loses_what_it_holds() {
    refutes(Weakness::LeasesNotListedAnew, LEASES, &[HELD]);
}

#[test]
fn with_the_run_of_pins_not_listed_pins_are_lost() {
    refutes(Weakness::PinsNotListed, PINS, &[WHOLE]);
}

#[test]
fn without_pins_by_the_undecided_a_child_commits_after_the_sweep() {
    refutes(Weakness::NoPins, TWO_RUNS, &[WHOLE]);
}

#[test]
fn with_one_parent_pinned_of_two_the_other_is_lost() {
    refutes(Weakness::FirstParentPinned, TWO_PARENTS, &[WHOLE, READABLE]);
}

#[test]
fn without_leases_a_slow_reader_loses_what_it_holds() {
    refutes(Weakness::NoLeases, LEASES, &[HELD]);
}

#[test]
fn with_the_decision_read_before_the_parents_refs_another_collector_strips_the_parent_in_between() {
    refutes(Weakness::DecisionBeforeParents, PINS, &[WHOLE]);
}

#[test]
fn with_vanished_refs_ignored_what_a_newer_checkpoint_shares_with_them_is_lost() {
    refutes(Weakness::VanishedRefsIgnored, RIVALS, &[WHOLE]);
}

#[test]
fn with_unknown_features_passed_over_what_needs_them_is_lost() {
    refutes(Weakness::UnknownPassedOver, NEWER, &[WHOLE]);
}

#[test]
fn with_a_swept_mark_trusted_what_it_names_is_lost() {
    refutes(Weakness::SweptMarkTrusted, HINTS, &[WHOLE]);
}

#[test]
fn with_shards_that_mark_their_own_other_shards_lose_what_they_share() {
    refutes(Weakness::ShardMarksItsOwn, SHARDS, &[WHOLE]);
}

#[test]
fn with_fresh_uploads_swept_a_slow_save_commits_nothing() {
    refutes(Weakness::FreshUploadsSwept, RIVALS, &[WHOLE]);
}

#[test]
fn with_tables_dropped_at_expiry_the_pin_is_unreadable() {
    refutes(Weakness::TablesDroppedAtOnce, TWO_RUNS, &[READABLE]);
}

#[test]
fn with_decisions_deleted_a_late_commit_revives_what_is_gone() {
    refutes(Weakness::DecisionsDeleted, FAULTY_COLLECTION, &[WHOLE]);
}

#[test]
fn with_intents_deleted_a_late_commit_decides_for_somebody_else() {
    refutes(Weakness::IntentsDeleted, FAULTY_COLLECTION, &[MATCHING]);
}
