//! The processes of a storm.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

use everstep_tests::binaries::binary_of;
use everstep_tests::servers::{ACCESS_KEY, SECRET_KEY};

use super::Site;
use super::actor::{ADDRESS, ENDPOINT, REPORT, ROLE};

const SIGKILL: i32 = 9;
/// Exit statuses of a collection that was in nobody's way: done, and "others collect all the time".
const COLLECTED: [i32; 2] = [0, 5];

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// Saves into this run, again and again.
    Writer(&'static str),
    /// Collects once.
    Collector,
    /// Loads whatever is new in this run.
    Follower(&'static str),
}

struct Actor {
    role: Role,
    process: Option<Child>,
}

/// Processes, which end with this.
pub(crate) struct Crew<'s> {
    site: &'s Site,
    actors: Vec<Actor>,
    killed: Killed,
}

/// How many were killed while they ran.
#[derive(Debug, Clone, Default)]
pub(crate) struct Killed(BTreeMap<&'static str, u32>);

impl<'s> Crew<'s> {
    /// Starts one process for each role.
    pub(crate) fn new(site: &'s Site, roles: &[Role]) -> Self {
        let actors = roles.iter().map(|role| Actor { role: *role, process: None }).collect();
        let mut crew = Self { site, actors, killed: Killed::default() };
        crew.wake_all();
        crew
    }

    pub(crate) fn len(&self) -> usize {
        self.actors.len()
    }

    /// Starts those that have ended, which must have ended well.
    pub(crate) fn wake_all(&mut self) {
        (0..self.actors.len()).for_each(|n| _ = self.wake(n));
    }

    /// Starts process `n` if it does not run; whether it did that.
    pub(crate) fn wake(&mut self, n: usize) -> bool {
        let actor = &mut self.actors[n];
        if let Some(process) = &mut actor.process {
            let Some(status) = process.try_wait().expect("our own child") else { return false };
            let fine = match actor.role {
                Role::Collector => status.code().is_some_and(|code| COLLECTED.contains(&code)),
                _ => status.success(),
            };
            assert!(fine, "{:?} ended with {status}:\n{}", actor.role, self.site.output(n));
        }
        actor.process = Some(self.site.start(actor.role, n));
        true
    }

    /// Kills process `n`, if it runs.
    pub(crate) fn kill(&mut self, n: usize) {
        self.wake(n);
        let actor = &mut self.actors[n];
        let mut process = actor.process.take().expect("it was started");
        process.kill().expect("our own child");
        let status = process.wait().expect("our own child");
        // It may have been faster.
        if status.signal() == Some(SIGKILL) {
            self.killed.count(actor.role);
        }
    }

    /// Kills all.
    pub(crate) fn end(mut self) -> Killed {
        (0..self.actors.len()).for_each(|n| self.kill(n));
        self.killed.clone()
    }
}

impl Drop for Crew<'_> {
    fn drop(&mut self) {
        for process in self.actors.iter_mut().filter_map(|actor| actor.process.as_mut()) {
            _ = process.kill();
            _ = process.wait();
        }
    }
}

impl Killed {
    fn count(&mut self, role: Role) {
        let name = match role {
            Role::Writer(_) => "writers",
            Role::Collector => "collectors",
            Role::Follower(_) => "followers",
        };
        *self.0.entry(name).or_default() += 1;
    }
}

impl fmt::Display for Killed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(|(role, count)| format!("{count} {role}")).collect();
        write!(f, "{} killed", all.join(", "))
    }
}

impl Site {
    pub(crate) fn init(&self) {
        self.must(&self.tool("ckpt-inspect", &["init", &self.address]));
    }

    /// Reads everything, beside whatever goes on.
    pub(crate) fn verify(&self) {
        self.must(&self.tool("ckpt-inspect", &["verify", &self.address, "--deep"]));
    }

    fn collection(&self) -> Vec<String> {
        let policy = self.folder.path().join("policy.toml").display().to_string();
        self.tool("ckpt-gc", &["run", &self.address, "--policy", &policy, "--idle-after", "5s"])
    }

    fn tool(&self, name: &str, args: &[&str]) -> Vec<String> {
        let endpoint = self.endpoint.iter().flat_map(|url| ["--endpoint-url", url, "--allow-http"]);
        let args = args.iter().copied().chain(endpoint).map(str::to_owned);
        [binary_of(name).display().to_string()].into_iter().chain(args).collect()
    }

    fn command(&self, words: &[String]) -> Command {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env_clear().env("HOME", self.folder.path()).stdin(Stdio::null());
        command.env("AWS_ACCESS_KEY_ID", ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", SECRET_KEY);
        command.env("AWS_EC2_METADATA_DISABLED", "true").env("AWS_REGION", "us-east-1");
        command
    }

    fn must(&self, words: &[String]) {
        let done = self.command(words).output().expect("it starts");
        let said =
            [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        assert!(done.status.success(), "{words:?} ended with {}:\n{said}", done.status);
    }

    fn start(&self, role: Role, n: usize) -> Child {
        let mut command = match role {
            Role::Collector => self.command(&self.collection()),
            Role::Writer(run) => self.actor(&format!("writer {run}")),
            Role::Follower(run) => self.actor(&format!("follower {run}")),
        };
        let output = File::create(self.folder.path().join(format!("output-{n}"))).expect("a file");
        let errors = output.try_clone().expect("a second handle");
        command.stdout(output).stderr(errors).spawn().expect("it starts")
    }

    fn actor(&self, role: &str) -> Command {
        let itself = std::env::current_exe().expect("this test binary").display().to_string();
        let words = [itself.as_str(), "--exact", "storm::actor::actor", "--ignored", "--nocapture"];
        let mut command = self.command(&words.map(str::to_owned));
        command.env(ADDRESS, &self.address).env(ROLE, role).env(REPORT, self.report());
        command.envs(self.endpoint.iter().map(|url| (ENDPOINT, url)));
        command
    }

    /// What the last process of this number said.
    fn output(&self, n: usize) -> String {
        std::fs::read_to_string(self.folder.path().join(format!("output-{n}"))).unwrap_or_default()
    }

    pub(crate) fn report(&self) -> std::path::PathBuf {
        self.folder.path().join("report")
    }
}
