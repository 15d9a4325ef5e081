//! A bar on stderr; none when that is no terminal, or when JSON is asked for.

use everstep::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar over bytes.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    /// A bar labelled `doing`; a hidden one when `quiet`.
    pub(crate) fn new(doing: &'static str, quiet: bool) -> Self {
        let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        let template =
            "{msg} [{bar:30}] {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta} left";
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style.progress_chars("=> "));
        bar.set_message(doing);
        Self(bar)
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

impl Progress for Bar {
    fn planned(&self, bytes: u64) {
        self.0.inc_length(bytes);
    }

    fn done(&self, bytes: u64) {
        self.0.inc(bytes);
    }
}
