//! A real process on `file://`, killed by SIGKILL at every call to the store.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use everstep_repo::{InitOptions, Repository};
use everstep_sim::{CrashStore, Death, Moment};
use everstep_store::{LocalOptions, LocalStore, Store, SystemWorld};
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::states::{NEW, OLD, judge, save};

const DIRECTORY: &str = "EVERSTEP_CRASH_DIRECTORY";
const CALL: &str = "EVERSTEP_CRASH_CALL";
const MOMENT: &str = "EVERSTEP_CRASH_MOMENT";
const SIGKILL: i32 = 9;

fn store(directory: &Path) -> Arc<dyn Store> {
    Arc::new(LocalStore::open(directory, LocalOptions::default()).expect("a directory"))
}

fn pool() -> ThreadPool {
    ThreadPoolBuilder::new().num_threads(1).build().expect("a pool")
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

/// The victim: saves `NEW` and dies at the call that the environment names.
#[test]
#[ignore = "the child process of the test below; alone it does nothing"]
fn victim() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let call = std::env::var(CALL).expect("a call").parse().expect("a number");
    let moment =
        if std::env::var(MOMENT).expect("a moment") == "after" { Moment::After } else { Moment::Before };
    let store = Arc::new(CrashStore::dying(store(Path::new(&directory)), (call, moment), Death::Killed));
    runtime().block_on(async {
        let repository = Repository::open(store, Arc::new(SystemWorld::new())).await.expect("it opens");
        save(&repository, NEW, &pool()).await.expect("it saves unless it dies");
    });
}

/// Whether the victim was killed.
fn kill(directory: &Path, call: u64, moment: Moment) -> bool {
    let status = Command::new(std::env::current_exe().expect("this test binary"))
        .args(["--exact", "killed::victim", "--ignored", "--quiet"])
        .env(DIRECTORY, directory)
        .env(CALL, call.to_string())
        .env(MOMENT, if moment == Moment::After { "after" } else { "before" })
        .stdout(Stdio::null())
        .status()
        .expect("the victim starts");
    assert!(status.success() || status.signal() == Some(SIGKILL), "the victim ended with {status}");
    !status.success()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a copy");
        }
    }
}

/// A repository that holds `OLD`.
async fn prepare(directory: &Path, pool: &ThreadPool) {
    let world = Arc::new(SystemWorld::new());
    let repository =
        Repository::init(store(directory), world, InitOptions::default()).await.expect("a repository");
    save(&repository, OLD, pool).await.expect("the old checkpoint");
}

/// Kills a process that saves over a copy of `template`; the version that is `latest` then, `None` when it got through.
fn try_call(template: &Path, at: (u64, Moment), pool: &ThreadPool) -> Option<u64> {
    let scratch = tempfile::tempdir().expect("a directory");
    let directory = scratch.path().join("repository");
    copy(template, &directory);
    let killed = kill(&directory, at.0, at.1);
    let version = runtime().block_on(async {
        let world = Arc::new(SystemWorld::new());
        let repository = Repository::open(store(&directory), world).await.expect("it opens");
        judge(&repository, pool).await
    });
    assert!(killed || version == NEW, "a process that was not killed has saved");
    killed.then_some(version)
}

#[test]
fn c01_a_process_killed_at_any_call_leaves_the_old_or_the_new_checkpoint() {
    let template = tempfile::tempdir().expect("a directory");
    let pool = pool();
    runtime().block_on(prepare(template.path(), &pool));
    let mut seen = Vec::new();
    for call in 1.. {
        let versions: Vec<u64> = [Moment::Before, Moment::After]
            .into_iter()
            .filter_map(|moment| try_call(template.path(), (call, moment), &pool))
            .collect();
        if versions.is_empty() {
            break;
        }
        seen.extend(versions);
    }
    assert!(seen.contains(&OLD) && seen.contains(&NEW), "{seen:?}");
    eprintln!("crash: {} processes killed", seen.len());
}
