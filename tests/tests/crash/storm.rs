//! Writers, collectors and a follower, each a process of its own, on one repository, killed at random moments. Nothing that
//! a writer was told is committed may ever be lost, and in the end nothing may be left that nobody uses.

mod actor;
mod crew;
mod judge;

use std::time::{Duration, Instant};

use everstep_tests::servers::radosgw;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;

use crew::{Crew, Role};
use judge::judge;

const POLICY: &str = "[[policy]]\nruns = \"*\"\nkeep_last = 2\n";

/// Where processes find the repository, and where they tell what they did.
#[derive(Debug)]
pub(crate) struct Site {
    address: String,
    /// Of an S3 server that takes the keys of the tests.
    endpoint: Option<String>,
    folder: TempDir,
}

impl Site {
    fn new(address: impl FnOnce(&TempDir) -> String, endpoint: Option<String>) -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        std::fs::write(folder.path().join("policy.toml"), POLICY).expect("a new folder");
        Self { address: address(&folder), endpoint, folder }
    }
}

fn random() -> StdRng {
    StdRng::seed_from_u64(17)
}

/// Waits for any number of milliseconds below `most`.
#[expect(clippy::disallowed_methods, reason = "processes run in real time")]
fn pause(rng: &mut StdRng, most: u64) {
    std::thread::sleep(Duration::from_millis(rng.random_range(0..most)));
}

/// Kills so many processes one by one, on a local disk; after each, while the others go on, all must be sound.
fn kills_on_disk(kills: u32) {
    let site = Site::new(|folder| format!("file://{}", folder.path().join("repository").display()), None);
    let started = now();
    site.init();
    let mut rng = random();
    let mut crew = Crew::new(
        &site,
        &[Role::Writer("pretrain"), Role::Writer("tuned"), Role::Collector, Role::Collector],
    );
    for _ in 0..kills {
        pause(&mut rng, 150);
        let victim = rng.random_range(0..crew.len());
        // A collection may have ended by itself: the one that is killed begins now.
        if crew.wake(victim) {
            pause(&mut rng, 60);
        }
        crew.kill(victim);
        site.verify();
        crew.wake_all();
    }
    let killed = crew.end();
    println!("storm: {killed}, verified after each of {kills}; {}; {:.0?}", judge(&site), started.elapsed());
}

#[expect(clippy::disallowed_methods, reason = "processes run in real time")]
fn now() -> Instant {
    Instant::now()
}

#[test]
fn a_few_writers_and_collectors_killed_on_a_disk_lose_nothing_and_leave_nothing() {
    kills_on_disk(16);
}

#[test]
#[ignore = "200 rounds of processes take minutes, a short one is above: `make test-long`"]
fn two_hundred_writers_and_collectors_killed_on_a_disk_lose_nothing_and_leave_nothing() {
    kills_on_disk(200);
}

/// `EVERSTEP_STORM_SECONDS` says for how long, by default 3 minutes.
#[test]
#[ignore = "three minutes of processes and a server: `make stress`, `make test-long`"]
fn three_runs_two_collectors_and_a_follower_killed_on_radosgw_lose_nothing_and_leave_nothing() {
    let server = radosgw();
    let site = Site::new(|_| format!("s3://{}/storm", server.bucket()), Some(server.url.clone()));
    let seconds = std::env::var("EVERSTEP_STORM_SECONDS").map_or(180, |text| text.parse().expect("a number"));
    site.init();
    let mut rng = random();
    let writers = ["pretrain", "tuned", "distilled"].map(Role::Writer);
    let others = [Role::Collector, Role::Collector, Role::Follower("pretrain")];
    let mut crew = Crew::new(&site, &[&writers[..], &others].concat());
    let started = now();
    while started.elapsed() < Duration::from_secs(seconds) {
        pause(&mut rng, 1000);
        crew.kill(rng.random_range(0..crew.len()));
        crew.wake_all();
    }
    let killed = crew.end();
    println!("storm on radosgw: in {seconds} s {killed}; {}", judge(&site));
}
