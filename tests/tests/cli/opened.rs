//! C26 by tracing: the kernel tells of every file that is opened where a hostile repository points to, and there is none.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use everstep::format::sealed::SEAL_BYTES;
use rustix::fd::OwnedFd;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use serde_json::Value;

use crate::tool::{Answer, Tool};

/// Sees who opens or reads what (inotify: no privileges, no other program).
struct Watch {
    events: OwnedFd,
    places: HashMap<i32, PathBuf>,
}

impl Watch {
    fn new() -> Self {
        let events =
            inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).expect("the kernel has inotify");
        Self { events, places: HashMap::new() }
    }

    /// A file, or a directory and the files in it.
    fn add(&mut self, place: &Path) {
        let flags = WatchFlags::OPEN | WatchFlags::ACCESS | WatchFlags::DONT_FOLLOW;
        let watch = inotify::add_watch(&self.events, place, flags).expect("it can be watched");
        self.places.insert(watch, place.to_owned());
    }

    /// What was opened since the last call.
    fn seen(&self) -> BTreeSet<PathBuf> {
        let mut buffer = [MaybeUninit::uninit(); 1 << 14];
        let mut reader = inotify::Reader::new(&self.events, &mut buffer);
        let mut seen = BTreeSet::new();
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => return seen,
                Err(error) => panic!("the watch ended: {error}"),
            };
            assert!(!event.events().contains(ReadFlags::QUEUE_OVERFLOW), "too many events");
            let place = &self.places[&event.wd()];
            let name = event.file_name().map(|name| name.to_str().expect("UTF-8"));
            seen.insert(name.map_or_else(|| place.clone(), |name| place.join(name)));
        }
    }
}

/// A repository deep in a folder of its own, where nothing around it may be opened.
struct Trap {
    tool: Tool,
    watch: Watch,
    decoys: BTreeSet<PathBuf>,
}

/// Where the repository lies, and where the tool runs. So deep that `../../` from there still leads into the trap.
const INSIDE: &str = "a/b/c/here";

impl Trap {
    fn new() -> Self {
        let tool = Tool::new();
        fs::create_dir_all(tool.path(INSIDE).join("repository")).expect("made");
        fs::create_dir_all(tool.path("outside")).expect("made");
        fs::create_dir_all(tool.path("output")).expect("made");
        Self { tool, watch: Watch::new(), decoys: BTreeSet::new() }
    }

    fn root(&self) -> PathBuf {
        self.tool.path(INSIDE).join("repository")
    }

    /// Puts a file where none is, if one can be there.
    fn decoy(&mut self, place: PathBuf) {
        let inside = place.starts_with(self.tool.folder.path());
        if !inside || place.exists() || fs::create_dir_all(place.parent().expect("in a folder")).is_err() {
            return;
        }
        fs::write(&place, "decoy").expect("written");
        self.decoys.insert(place);
    }

    /// From now on, what is opened is seen: every decoy, and whatever is around the repository.
    fn arm(&mut self) {
        for place in &self.decoys {
            self.watch.add(place);
        }
        for place in self.tool.path(INSIDE).ancestors() {
            self.watch.add(place);
            if place == self.tool.folder.path() {
                break;
            }
        }
        self.watch.seen();
    }

    /// Runs the tool in the trap; it must not crash, nor open anything but the repository.
    #[track_caller]
    fn run(&self, args: &[&str]) -> Answer {
        let mut command = self.tool.command(args);
        let answer =
            Answer::of(command.current_dir(self.tool.path(INSIDE)).output().expect("it starts"), args);
        assert!(answer.code != 101 && !answer.stderr.contains("panicked"), "{args:?}: {}", answer.stderr);
        let mut seen = self.watch.seen();
        // What it is given by name; and the folder that has the root, which it flushes once it has written.
        let named = [self.root(), self.tool.path("output"), self.tool.path(INSIDE)];
        seen.retain(|place| !named.contains(place));
        assert_eq!(seen, BTreeSet::new(), "{args:?}");
        answer
    }

    /// Opens every decoy, and each is seen: what was not seen before was not opened.
    fn spring(&self) {
        for place in &self.decoys {
            fs::read(place).expect("a decoy");
            assert!(self.watch.seen().contains(place), "{} is not watched", place.display());
        }
        assert!(!self.decoys.is_empty());
    }
}

fn fixtures() -> Vec<PathBuf> {
    let hostile = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/hostile");
    let entries = fs::read_dir(hostile).expect("there").map(|entry| entry.expect("an entry").path());
    let is_path =
        |place: &PathBuf| place.file_name().is_some_and(|n| n.to_string_lossy().starts_with("path-"));
    let mut fixtures: Vec<PathBuf> = entries.filter(is_path).collect();
    fixtures.sort();
    fixtures
}

/// Every folder below one, itself included, and every file.
fn walk(folder: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let (mut folders, mut files, mut next) = (vec![folder.to_owned()], Vec::new(), 0);
    while next < folders.len() {
        for path in
            fs::read_dir(&folders[next]).expect("a folder").map(|entry| entry.expect("an entry").path())
        {
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
        next += 1;
    }
    (folders, files)
}

/// Copies a fixture into the trap. What is absolute in it leads to `outside`, which is ours to watch.
fn lay(trap: &Trap, fixture: &Path, outside: &str) {
    let from = fixture.join("repository");
    for file in walk(&from).1 {
        let mut bytes = fs::read(&file).expect("read");
        let sealed = |text: &&str| text.starts_with('{') && text.ends_with("\"}\n");
        if let Some(text) = std::str::from_utf8(&bytes).ok().filter(sealed) {
            let body = text[..text.len().saturating_sub(SEAL_BYTES)]
                .replace("\"/etc/passwd\"", &format!("{outside:?}"));
            let body = body.replace("\"file:///x\"", &format!("\"file://{outside}\""));
            bytes = format!("{body},\"blake3\":\"{}\"}}\n", blake3::hash(body.as_bytes())).into_bytes();
        }
        let to = trap.root().join(file.strip_prefix(&from).expect("below"));
        fs::create_dir_all(to.parent().expect("in a folder")).expect("made");
        fs::write(to, bytes).expect("written");
    }
}

/// `base` and what `way` leads to from there, as a path that was joined without thought would.
fn joined(base: &Path, way: &str) -> PathBuf {
    let mut path = PathBuf::new();
    for component in base.join(way).components() {
        if component == Component::ParentDir {
            path.pop();
        } else {
            path.push(component)
        }
    }
    path
}

#[test]
fn c26_no_file_that_a_path_in_a_repository_leads_to_is_ever_opened() {
    let fixtures = fixtures();
    assert!(fixtures.len() >= 13, "{fixtures:?}");
    for fixture in fixtures {
        let mut trap = Trap::new();
        let outside = trap.tool.path("outside/passwd").display().to_string();
        lay(&trap, &fixture, &outside);
        let bases = [vec![trap.tool.path(INSIDE)], walk(&trap.root()).0].concat();
        let with_scheme = format!("file://{outside}");
        // What C makes of a NUL, too.
        let ways =
            ["../../etc/passwd", "../../etc", &outside, "C:\\x", &with_scheme, "a", "s3://another-bucket/x"];
        for (base, way) in bases.iter().flat_map(|base| ways.map(|way| (base, way))) {
            trap.decoy(joined(base, way));
        }
        trap.arm();
        trap.run(&["verify", "repository", "--deep"]);
        trap.run(&["ls", "repository", "--all"]);
        trap.run(&["pins", "repository"]);
        let expect = fs::read_to_string(fixture.join("expect.json")).expect("there");
        let expect: Value = serde_json::from_str(&expect).expect("JSON");
        let output = trap.tool.path("output/x.safetensors").display().to_string();
        for (n, (reference, _)) in expect["checkpoints"].as_object().expect("an object").iter().enumerate() {
            trap.run(&["export", "repository", reference, "-o", &output, "--force"]);
            if n == 0 {
                trap.run(&["cat", "repository", reference, "layer.weight"]);
                trap.run(&["show", "repository", reference]);
            }
        }
        trap.spring();
    }
}

/// Objects and folders of a repository, each in turn a link to its like outside.
#[test]
fn c26_no_link_that_leads_out_of_a_repository_is_ever_opened() {
    let sound = Tool::with_repository();
    sound.import("gpt", 1, &[("w", 1.5, 3000)]);
    sound.import("gpt", 2, &[("w", 2.5, 3000)]);
    sound.run(&["pin", "repo", "gpt@step=1", "kept"]).expect_code(0);
    let (folders, files) = walk(&sound.path("repo"));
    // Of those that differ only in numbers and hashes, the first.
    let mut kinds = BTreeSet::new();
    let digits = |c: char| c.is_ascii_hexdigit();
    let first = |path: &&PathBuf| kinds.insert(path.display().to_string().split(digits).collect::<String>());
    let objects: Vec<&PathBuf> = folders[1..].iter().chain(&files).filter(first).collect();
    assert!(objects.len() > 10, "{objects:?}");
    for object in objects {
        let mut trap = Trap::new();
        for file in &files {
            let to = trap.root().join(file.strip_prefix(sound.path("repo")).expect("below"));
            fs::create_dir_all(to.parent().expect("in a folder")).expect("made");
            fs::copy(file, to).expect("copied");
        }
        let inside = trap.root().join(object.strip_prefix(sound.path("repo")).expect("below"));
        let outside = trap.tool.path("outside/moved");
        fs::rename(&inside, &outside).expect("moved");
        symlink(&outside, &inside).expect("linked");
        let (folders, files) = if outside.is_dir() { walk(&outside) } else { (vec![], vec![outside]) };
        folders.iter().for_each(|folder| trap.watch.add(folder));
        trap.decoys.extend(files);
        trap.arm();
        let output = trap.tool.path("output/x.safetensors").display().to_string();
        trap.run(&["verify", "repository", "--deep"]);
        for reference in ["gpt@step=1", "pin:kept"] {
            trap.run(&["export", "repository", reference, "-o", &output, "--force"]);
        }
        trap.run(&["cat", "repository", "gpt", "w"]);
        trap.run(&["import", "repository", "--run", "gpt", "--step", "3", &output]);
        trap.spring();
    }
}

/// The trap can spring: it sees the tool itself open a decoy, directly and by a link.
#[test]
fn c26_the_trap_sees_what_the_tool_opens() {
    let mut trap = Trap::new();
    let (decoy, link) = (trap.tool.path("outside/passwd"), trap.tool.path("output/link"));
    trap.decoy(decoy.clone());
    symlink(&decoy, &link).expect("linked");
    trap.arm();
    trap.run(&["init", "repository"]).expect_code(0);
    for file in [&decoy, &link] {
        let import = ["import", "repository", "--run", "x", "--step", "1", file.to_str().expect("UTF-8")];
        trap.tool.command(&import).current_dir(trap.tool.path(INSIDE)).output().expect("it starts");
        assert!(trap.watch.seen().contains(&decoy), "{}", file.display());
    }
}
