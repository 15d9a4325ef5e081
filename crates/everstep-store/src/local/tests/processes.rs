//! What depends on a whole process: umask, another user, limits, a full file system, being killed. Each test runs
//! itself again as a child, with the child's part behind an environment variable.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, Output};

use super::super::ledger::Flush;
use super::*;

const CHILD: &str = "EVERSTEP_TEST_CHILD";

/// The directory handed to a child, in a child.
fn childs_directory() -> Option<PathBuf> {
    std::env::var_os(CHILD).map(PathBuf::from)
}

/// Runs the test `name` of this module again, started by `wrapper` (a shell line that ends by running `"$@"`).
fn run_child(name: &str, wrapper: &str, directory: &Path) -> Output {
    let copied = copied_test_program();
    let test = format!("local::tests::processes::{name}");
    let mut shell = Command::new("sh");
    shell.args(["-c", wrapper, "sh"]).arg(copied.path().join("program"));
    shell
        .args(["--exact", &test, "--nocapture", "--test-threads=1"])
        .env(CHILD, directory)
        .env("RUST_BACKTRACE", "0");
    shell.current_dir("/").output().unwrap()
}

/// This program where every user can run it; the build directory may be out of reach for others.
fn copied_test_program() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    open_to_all(directory.path());
    let program = directory.path().join("program");
    // By another process: a descriptor of ours, open for writing, could be inherited by the child of a neighbouring test
    // just then, and the program would be "busy".
    let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status().unwrap();
    assert!(copied.success());
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    directory
}

fn open_to_all(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn passed(output: &Output) {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success() && text.contains("1 passed"), "the child failed: {text}");
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn c19_modes_follow_the_umask() {
    if let Some(root) = childs_directory() {
        return block_on(async {
            for (number, store) in [open(&root), named(&root)].iter().enumerate() {
                store.put(&key(&format!("packs/{number}/a")), body("x"), Class::Bulk).await.unwrap();
                store.create(&key(&format!("runs/{number}/a")), body("x")).await.unwrap();
                store.put(&key(&format!("packs/{number}/a")), body("y"), Class::Bulk).await.unwrap();
            }
        });
    }
    for (umask, file, directory) in [("022", 0o644, 0o755), ("002", 0o664, 0o775), ("077", 0o600, 0o700)] {
        let above = tempfile::tempdir().unwrap();
        let root = above.path().join("repository");
        passed(&run_child("c19_modes_follow_the_umask", &format!("umask {umask}; exec \"$@\""), &root));
        for number in 0..2 {
            assert_eq!(mode(&root.join(format!("packs/{number}/a"))), file, "umask {umask}");
            assert_eq!(mode(&root.join(format!("runs/{number}/a"))), file, "umask {umask}");
            assert_eq!(mode(&root.join(format!("runs/{number}"))), directory, "umask {umask}");
        }
        assert_eq!(mode(&root), directory, "umask {umask}");
    }
}

fn block_on(work: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
}

fn named(root: &Path) -> LocalStore {
    LocalStore::on(Tree::new(root.to_owned()), Staging::named_only(), Ledger::default())
}

#[test]
fn c19_a_directory_that_may_not_be_read_is_denied_and_not_missing() {
    if let Some(root) = childs_directory() {
        return block_on(expect_denied(&root));
    }
    let above = tempfile::tempdir().unwrap();
    open_to_all(above.path());
    let root = above.path().join("repository");
    block_on(async {
        let store = open(&root);
        store.create(&key("runs/a/intents/1"), body("x")).await.unwrap();
        store.create(&key("open/x"), body("x")).await.unwrap();
    });
    std::fs::set_permissions(root.join("runs"), std::fs::Permissions::from_mode(0o000)).unwrap();
    // Root may read everything, so a child without its powers looks.
    let wrapper = match rustix::process::geteuid().is_root() {
        true => "exec setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"",
        false => "exec \"$@\"",
    };
    let output = run_child("c19_a_directory_that_may_not_be_read_is_denied_and_not_missing", wrapper, &root);
    std::fs::set_permissions(root.join("runs"), std::fs::Permissions::from_mode(0o755)).unwrap();
    passed(&output);
}

async fn expect_denied(root: &Path) {
    let store = open(root);
    assert_eq!(read(&store, "open/x").await.unwrap(), "x", "what is readable is read, also by another user");
    let get = store.get(&key("runs/a/intents/1"), Span::Whole).await.unwrap_err();
    let list = store.list(&Prefix::runs(), None).await.unwrap_err();
    let all = store.list(&Prefix::everything(), None).await.unwrap_err();
    let put = store.put(&key("runs/a/new"), body("x"), Class::Bulk).await.unwrap_err();
    let create = store.create(&key("new"), body("x")).await.unwrap_err();
    let delete = store.delete(&[key("runs/a/intents/1")]).await.unwrap().remove(0).result.unwrap_err();
    let opened = LocalStore::open(&root.join("runs/a"), LocalOptions::default()).unwrap_err();
    for error in [get, list, all, put, create, delete, opened] {
        assert_eq!(error.kind, StoreErrorKind::Denied, "{error}");
        assert!(error.detail.contains(root.to_str().unwrap()), "{error}");
    }
}

#[test]
fn c19_a_file_beyond_the_limit_is_full_and_leaves_nothing() {
    if let Some(root) = childs_directory() {
        return block_on(async {
            for store in [open(&root), named(&root)] {
                store.put(&key("packs/small"), body("fits"), Class::Bulk).await.unwrap();
                let big = Payload::from(vec![1; 1 << 20]);
                let error = store.put(&key("packs/big"), big, Class::Bulk).await.unwrap_err();
                assert_eq!(error.kind, StoreErrorKind::Full, "{error}");
                assert!(error.detail.contains("1048576 bytes needed"), "{error}");
                assert!(error.detail.contains("packs/big"), "{error}");
                assert_eq!(read(&store, "packs/small").await.unwrap(), "fits");
                assert_eq!(everything_below(&root), names(&["packs", "packs/small"]));
            }
        });
    }
    let root = tempfile::tempdir().unwrap();
    let wrapper = "trap '' XFSZ; ulimit -f 64; exec \"$@\"";
    passed(&run_child("c19_a_file_beyond_the_limit_is_full_and_leaves_nothing", wrapper, root.path()));
}

#[test]
fn c19_on_a_full_file_system_the_space_comes_back_and_older_objects_stay() {
    if let Some(root) = childs_directory() {
        return block_on(fill(&root));
    }
    let root = tempfile::tempdir().unwrap();
    // A mount namespace of its own; as root or, where the system lets them, any user.
    let mount = format!("mount -t tmpfs -o size=64m none {}", root.path().display());
    if !Command::new("unshare")
        .args(["-r", "-m", "sh", "-c", &mount])
        .output()
        .is_ok_and(|o| o.status.success())
    {
        eprintln!("SKIPPED: this system lets us mount no tmpfs; the file size limit is tested on its own");
        return;
    }
    let wrapper = format!("exec unshare -r -m sh -c '{mount} && exec \"$@\"' sh \"$@\"");
    let name = "c19_on_a_full_file_system_the_space_comes_back_and_older_objects_stay";
    passed(&run_child(name, &wrapper, root.path()));
}

async fn fill(root: &Path) {
    let store = open(root);
    let chunk = || Payload::from(vec![7; 20 << 20]);
    store.put(&key("packs/1/a"), chunk(), Class::Bulk).await.unwrap();
    store.sync().await.unwrap();
    let before = store.free_space().await.unwrap().unwrap();
    assert!(before < 100 << 20, "a preflight can tell that 100 MiB do not fit: {before}");
    let mut written = Vec::new();
    let error = loop {
        let key = key(&format!("packs/2/{}", written.len()));
        match store.put(&key, chunk(), Class::Bulk).await {
            Ok(()) => written.push(key),
            Err(error) => break error,
        }
        assert!(written.len() < 5);
    };
    assert_eq!(error.kind, StoreErrorKind::Full);
    let said = error.to_string();
    assert!(
        said.contains("packs/2/") && said.contains("20971520 bytes needed") && said.contains(" free"),
        "{said}"
    );
    assert_eq!(
        list_all(&store, &Prefix::packs()).await.unwrap().len(),
        1 + written.len(),
        "nothing half-written"
    );
    store.delete(&written).await.unwrap();
    assert_eq!(store.free_space().await.unwrap().unwrap(), before);
    assert_eq!(store.get(&key("packs/1/a"), Span::Whole).await.unwrap().bytes.len(), 20 << 20);
    store.put(&key("packs/3/a"), chunk(), Class::Bulk).await.unwrap();
    store.sync().await.unwrap();
}

#[test]
fn a_killed_writer_leaves_nothing_or_what_the_next_one_removes() {
    if let Some(root) = childs_directory() {
        return block_on(die_while_writing(&root));
    }
    for staging in ["unnamed", "named"] {
        let root = tempfile::tempdir().unwrap();
        let wrapper = format!("export EVERSTEP_TEST_STAGING={staging}; exec \"$@\"");
        let output =
            run_child("a_killed_writer_leaves_nothing_or_what_the_next_one_removes", &wrapper, root.path());
        assert_eq!(output.status.signal(), Some(9));
        let left = everything_below(root.path());
        let staged = |name: &&String| name.starts_with(staging::DIRECTORY);
        assert_eq!(left.iter().filter(staged).count(), if staging == "named" { 2 } else { 0 }, "{left:?}");
        assert!(!left.contains("runs/a"), "half-written under its own name");
        block_on(async {
            let store = open(root.path());
            assert_eq!(list_all(&store, &Prefix::everything()).await.unwrap(), []);
            store.put(&key("runs/b"), body("x"), Class::Bulk).await.unwrap();
        });
        assert_eq!(everything_below(root.path()), names(&["runs", "runs/b"]));
    }
}

/// Dies by SIGKILL when the body is written and its flush begins.
async fn die_while_writing(root: &Path) {
    let die = |_: &Path, _: &std::fs::File| -> io::Result<()> {
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)?;
        loop {
            std::hint::spin_loop();
        }
    };
    let staging = match std::env::var("EVERSTEP_TEST_STAGING").as_deref() {
        Ok("named") => Staging::named_only(),
        _ => Staging::default(),
    };
    let ledger = Ledger::with_flush(Flush(Arc::new(die)));
    let store = LocalStore::on(Tree::new(root.to_owned()), staging, ledger);
    let _ = store.create(&key("runs/a"), Payload::from(vec![1; 1 << 20])).await;
}

#[tokio::test]
async fn a_sweep_leaves_the_files_of_living_writers_alone() {
    let Home { root, store } = home_with_named_files();
    let tree = Tree::new(std::fs::canonicalize(root.path()).unwrap());
    let writer = Staging::named_only();
    let alive = writer.begin(&tree).unwrap();
    let dead = root.path().join(staging::DIRECTORY).join("1-1");
    std::fs::write(&dead, "left").unwrap();
    store.put(&key("a"), body("x"), Class::Bulk).await.unwrap();
    assert!(!dead.exists());
    assert_eq!(everything_below(&root.path().join(staging::DIRECTORY)).len(), 1);
    drop(alive);
    assert_eq!(everything_below(root.path()), names(&["a"]));
}
