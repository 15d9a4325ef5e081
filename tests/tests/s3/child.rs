//! A child process that opens a store by its environment: variables and files cannot be set apart for tests that run in
//! one process.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use everstep_store::s3::S3Options;
use everstep_store::{Class, RetryPolicy, StoreOptions, SystemWorld};
use futures::future::join_all;
use tempfile::TempDir;

use crate::stores::{body, key};

/// Names the child's address; its absence means that the test binary was run by hand.
const ADDRESS: &str = "EVERSTEP_CHILD_ADDRESS";
const SETTINGS: [&str; 4] = [
    "EVERSTEP_CHILD_ENDPOINT",
    "EVERSTEP_CHILD_PROFILE",
    "EVERSTEP_CHILD_REGION",
    "EVERSTEP_CHILD_HTTPS_ONLY",
];

/// A child to run.
pub(crate) struct Child {
    home: TempDir,
    variables: Vec<(String, String)>,
}

/// What it said.
#[derive(Debug)]
pub(crate) struct Said {
    /// "wrote" or "failed: ...".
    pub text: String,
    /// How long it took to say so, without the process's own start.
    pub time: Duration,
}

impl Said {
    /// It wrote its objects.
    #[track_caller]
    pub(crate) fn wrote(&self) {
        assert!(self.text.contains("wrote"), "{}", self.text);
    }

    /// It failed, and said every part.
    #[track_caller]
    pub(crate) fn failed_with(&self, parts: &[&str]) {
        assert!(self.text.contains("failed:"), "{}", self.text);
        for part in parts {
            assert!(self.text.contains(part), "{part:?} is not in: {}", self.text);
        }
    }
}

impl Child {
    /// A child with an empty home and an empty environment, whose metadata service is at a port that nobody listens on.
    pub(crate) fn new() -> Self {
        let child = Self { home: tempfile::tempdir().unwrap(), variables: Vec::new() };
        child.set(ADDRESS, "s3://bucket").set("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:9")
    }

    /// Sets a variable; a later value beats an earlier one.
    pub(crate) fn set(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Passes an endpoint by option.
    pub(crate) fn endpoint(self, url: &str) -> Self {
        self.set(SETTINGS[0], url)
    }

    /// Passes a profile by option.
    pub(crate) fn profile(self, name: &str) -> Self {
        self.set(SETTINGS[1], name)
    }

    /// Passes a region by option.
    pub(crate) fn region(self, name: &str) -> Self {
        self.set(SETTINGS[2], name)
    }

    /// Does not allow plain http.
    pub(crate) fn https_only(self) -> Self {
        self.set(SETTINGS[3], "yes")
    }

    /// Opens another address.
    pub(crate) fn address(self, address: &str) -> Self {
        self.set(ADDRESS, address)
    }

    /// Writes a file below its home.
    pub(crate) fn file(self, name: &str, text: &str) -> Self {
        let path = self.home.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self
    }

    /// Its home.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Runs it, without blocking this thread's other tasks for good.
    pub(crate) fn run(&self) -> Said {
        let done = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child::opens_stores_by_its_environment", "--include-ignored", "--nocapture"])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home.path())
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text =
            String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
        let took = text.split_once("took ").and_then(|(_, rest)| rest.split_once(" ms"));
        let took = took.unwrap_or_else(|| panic!("the child said nothing: {text}")).0;
        Said { time: Duration::from_millis(took.parse().unwrap()), text }
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Four stores at once in one process, five objects each.
async fn write(address: &str) -> Result<(), everstep_store::StoreError> {
    let s3 = S3Options {
        endpoint_url: variable(SETTINGS[0]),
        profile: variable(SETTINGS[1]),
        region: variable(SETTINGS[2]),
        allow_http: variable(SETTINGS[3]).is_none(),
        idle_timeout: Duration::from_secs(10),
        ..S3Options::default()
    };
    let retry = RetryPolicy { attempts: 2, ..RetryPolicy::default() };
    let options = &StoreOptions { s3, retry, ..StoreOptions::default() };
    let writers = (0..4).map(|writer| async move {
        let store = everstep_store::open(address, options, Arc::new(SystemWorld::new())).await?;
        for number in 0..5 {
            store.put(&key(writer * 10 + number), body("x"), Class::Bulk).await?;
        }
        Ok(())
    });
    join_all(writers).await.into_iter().collect()
}

#[tokio::test]
#[ignore = "what a child process of other tests runs"]
async fn opens_stores_by_its_environment() {
    let Some(address) = variable(ADDRESS) else { return };
    #[expect(clippy::disallowed_methods, reason = "users wait in real time")]
    let started = Instant::now();
    let result = write(&address).await;
    let took = started.elapsed().as_millis();
    match result {
        Ok(()) => println!("wrote, took {took} ms"),
        Err(error) => println!("failed: {:?} {error}, took {took} ms", error.kind),
    }
}
