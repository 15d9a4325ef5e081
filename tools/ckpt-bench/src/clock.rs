//! Stopwatch and load. A benchmark is the one place that looks at the clock itself.

use std::time::Instant;

/// Seconds that `work` takes, and its result.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let started = Instant::now();
    let result = work();
    (started.elapsed().as_secs_f64(), result)
}

/// The load averages, as the system tells them.
pub(crate) fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let averages: Vec<&str> = text.split_whitespace().take(3).collect();
    if averages.is_empty() { "unknown".to_owned() } else { averages.join(" ") }
}
