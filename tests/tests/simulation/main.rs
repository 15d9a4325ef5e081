//! The real code in a simulated world that crashes, delays, duplicates and loses replies; one seed replays everything.
//!
//! `EVERSTEP_SEEDS=n` plays n seeds instead of the usual number; `EVERSTEP_SEED=n` plays one and prints what happened.

mod content;
mod crew;
mod keepers;
mod oracle;
mod others;
mod scenario;
mod site;
mod trainer;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use everstep_sim::Lie;
use rayon::{ThreadPool, ThreadPoolBuilder};

use scenario::{Outcome, Play, play};
use site::Tally;

const SEEDS: u64 = 1600;
/// Seeds of the scenario of readers and operators.
const KEEPER_SEEDS: u64 = 60;
/// Seeds within which a lie of the store must show.
const MOST_LIES: u64 = 1000;
const REPLAY: &str = "cargo test --workspace --test simulation -- --nocapture";

/// The calling thread as a pool of one, so that no thread's timing can show. Made at most once per thread.
fn own_pool() -> &'static ThreadPool {
    thread_local! {
        static POOL: &'static ThreadPool = Box::leak(Box::new(
            ThreadPoolBuilder::new().num_threads(1).use_current_thread().build().expect("a pool of this thread"),
        ));
    }
    POOL.with(|pool| *pool)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
}

/// Plays a seed; a panic of the code under test counts as wrong.
fn play_safely(how: Play) -> Result<Outcome, String> {
    let pool = own_pool();
    let played = catch_unwind(AssertUnwindSafe(|| play(how, pool)));
    let outcome = played.map_err(|_| "the code under test panicked, see above".to_owned())?;
    if how.trace {
        outcome.trace.iter().for_each(|event| eprintln!("{event}"));
        eprintln!("{:#?}", outcome.tally);
    }
    if outcome.wrong.is_empty() { Ok(outcome) } else { Err(outcome.wrong.join("\n    ")) }
}

/// Plays seeds `0..seeds` on all cores; stops at the first that fails.
fn play_all(seeds: u64) -> Result<Tally, (u64, String)> {
    let next = AtomicU64::new(0);
    let result = Mutex::new(Ok(Tally::default()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return;
            }
            let played = play_safely(Play::honest(seed));
            let mut result = result.lock().expect("no thread panics with it");
            match (&mut *result, played) {
                (Ok(tally), Ok(outcome)) => tally.add(&outcome.tally),
                (Ok(_), Err(wrong)) => {
                    next.store(seeds, Ordering::Relaxed);
                    *result = Err((seed, wrong));
                }
                (Err(_), _) => return,
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    result.into_inner().expect("no thread panics with it")
}

#[test]
fn every_seed_keeps_what_was_committed() {
    if let Some(seed) = number("EVERSTEP_SEED") {
        play_safely(Play { trace: true, ..Play::honest(seed) })
            .unwrap_or_else(|wrong| panic!("seed {seed}:\n    {wrong}"));
        return;
    }
    let seeds = number("EVERSTEP_SEEDS").unwrap_or(SEEDS);
    let tally = play_all(seeds).unwrap_or_else(|(seed, wrong)| {
        panic!("seed {seed}:\n    {wrong}\nreplay it with: EVERSTEP_SEED={seed} {REPLAY}")
    });
    eprintln!("simulation: {seeds} seeds");
    for (what, count) in tally.named() {
        eprintln!("    {count:8} {what}");
        assert!(
            count > 0 || seeds < 500,
            "in {seeds} seeds there were no {what}: the simulation shows too little"
        );
    }
}

/// Plays seeds with readers and operators beside a trainer; each must be sound.
fn keep_all(seeds: std::ops::Range<u64>) -> keepers::Kept {
    let mut sum = keepers::Kept::default();
    for seed in seeds {
        let kept = keepers::play(seed, Lie::None, own_pool());
        assert!(
            kept.wrong.is_empty(),
            "seed {seed}:\n    {}\nreplay it with: EVERSTEP_SEED={seed} {REPLAY}",
            kept.wrong.join("\n    ")
        );
        sum.add(&kept);
    }
    sum
}

#[test]
fn followers_leases_and_pins_keep_what_they_promise_while_checkpoints_expire() {
    if let Some(seed) = number("EVERSTEP_SEED") {
        eprintln!("{:#?}", keep_all(seed..seed + 1));
        return;
    }
    let seeds = number("EVERSTEP_SEEDS").unwrap_or(KEEPER_SEEDS);
    let kept = keep_all(0..seeds);
    eprintln!("simulation: {seeds} seeds of readers and operators");
    for (what, count) in kept.named() {
        eprintln!("    {count:8} {what}");
        assert!(count > 0, "in {seeds} seeds there were no {what}: the simulation shows too little");
    }
}

#[test]
fn a_lease_whose_reader_does_not_see_markers_is_found_out() {
    let sign = "is missing, although";
    let shows = |seed: &u64| {
        let kept = keepers::play(*seed, Lie::NoMarkers, own_pool());
        kept.wrong.iter().any(|wrong| wrong.contains(sign))
    };
    let seed = (0..MOST_LIES).find(shows).expect("the lie shows");
    eprintln!("simulation: leases without L2 show in seed {seed}");
}

#[test]
fn one_seed_replays_everything() {
    let fingerprint = |seed| play_safely(Play::honest(seed)).expect("a sound seed").fingerprint;
    for seed in 1..=6 {
        assert_eq!(fingerprint(seed), fingerprint(seed), "seed {seed} differs from itself");
    }
    assert_ne!(fingerprint(1), fingerprint(2));
}

/// Plays seeds over a store that lies, until the lie shows by a message that has `sign` in it.
fn finds_out(lie: Lie, sign: &str) {
    let shows = |seed| {
        let wrong = play_safely(Play { lie, ..Play::honest(seed) }).err()?;
        wrong.lines().find(|line| line.contains(sign)).map(|line| (seed, line.trim().to_owned()))
    };
    let (seed, wrong) = (0..MOST_LIES)
        .find_map(shows)
        .unwrap_or_else(|| panic!("{lie:?} went unnoticed for {MOST_LIES} seeds"));
    eprintln!("simulation: {lie:?} shows in seed {seed}: {wrong}");
}

#[test]
fn a_store_that_overwrites_decisions_is_found_out() {
    finds_out(Lie::CreateOverwrites, "was reported as");
}

#[test]
fn a_parent_whose_marker_is_not_seen_is_found_out() {
    finds_out(Lie::NoMarkers, "is missing, although");
}

#[test]
fn attempts_of_older_sessions_that_are_not_aborted_are_found_out() {
    finds_out(Lie::AbortsAreLost, "is newest");
}
