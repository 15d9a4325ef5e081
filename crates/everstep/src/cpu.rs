//! The CPU threads of a repository: some for callers that wait, and others, which give way, for work in the background.

use std::cell::Cell;
use std::sync::OnceLock;

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::Error;
use crate::options::{Background, Options};

thread_local! {
    static IN_BACKGROUND: Cell<bool> = const { Cell::new(false) };
}

/// Puts back what was before, even when the call panics.
struct Before(bool);

impl Drop for Before {
    fn drop(&mut self) {
        IN_BACKGROUND.set(self.0);
    }
}

/// Runs `act`; every call of this crate that it makes on this thread hashes and codes on the threads of
/// [`Options::background`], which leave the CPU to whoever else wants it.
///
/// ```
/// let opened = everstep::in_background(|| everstep::Repository::open("memory://idle", &Default::default()));
/// assert_eq!(opened.unwrap_err().kind(), everstep::ErrorKind::NotFound);
/// ```
pub fn in_background<T>(act: impl FnOnce() -> T) -> T {
    let _before = Before(IN_BACKGROUND.replace(true));
    act()
}

/// Both kinds of threads. Those for the background start when they are first wanted.
pub(crate) struct CpuThreads {
    waited_for: ThreadPool,
    background: OnceLock<Option<ThreadPool>>,
    settings: Background,
    count: usize,
}

impl CpuThreads {
    pub(crate) fn new(options: &Options, cores: usize) -> Result<Self, Error> {
        let count = options.threads.unwrap_or(cores).max(1);
        let waited_for = started(count, "everstep-cpu", 0)
            .map_err(|e| Error::invalid(format!("cannot start {count} CPU threads: {e}")))?;
        Ok(Self { waited_for, background: OnceLock::new(), settings: options.background, count })
    }

    /// Those that a call on this thread uses.
    pub(crate) fn pool(&self) -> &ThreadPool {
        if !IN_BACKGROUND.get() {
            return &self.waited_for;
        }
        let start = || {
            let Background { threads, nice } = self.settings;
            started(threads.unwrap_or(self.count).max(1), "everstep-idle", nice).ok()
        };
        // Where no more threads can be had, those that are there do the work: it must be done.
        self.background.get_or_init(start).as_ref().unwrap_or(&self.waited_for)
    }
}

fn started(count: usize, name: &'static str, nice: u8) -> Result<ThreadPool, rayon::ThreadPoolBuildError> {
    ThreadPoolBuilder::new()
        .num_threads(count)
        .thread_name(move |n| format!("{name}-{n}"))
        .start_handler(move |_| give_way(nice))
        .build()
}

/// Lets other threads of this machine go first. Nothing depends on it, so that a refusal is none of anybody's business.
#[cfg(target_os = "linux")]
fn give_way(nice: u8) {
    if nice > 0 {
        // Priorities belong to threads here; elsewhere this would slow the whole process.
        let _ = rustix::process::setpriority_process(None, i32::from(nice));
    }
}

#[cfg(not(target_os = "linux"))]
fn give_way(_nice: u8) {}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(pool: &ThreadPool) -> String {
        pool.install(|| std::thread::current().name().unwrap_or_default().to_owned())
    }

    #[test]
    fn only_calls_in_the_background_use_the_threads_that_give_way() {
        let background = Background { threads: Some(1), nice: 7 };
        let threads =
            CpuThreads::new(&Options { background, ..Options::default() }, 2).expect("threads start");
        assert!(name(threads.pool()).starts_with("everstep-cpu"));
        in_background(|| {
            assert!(name(threads.pool()).starts_with("everstep-idle"));
            assert_eq!(threads.pool().current_num_threads(), 1);
            #[cfg(target_os = "linux")]
            assert_eq!(threads.pool().install(|| rustix::process::getpriority_process(None)).ok(), Some(7));
        });
        assert!(name(threads.pool()).starts_with("everstep-cpu"));
        assert_eq!(threads.pool().current_num_threads(), 2);
    }
}
