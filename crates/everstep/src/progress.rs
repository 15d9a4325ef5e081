//! One way to watch saves, restores and checks.

/// Hears how far a call is. Called from its threads.
pub trait Progress: Send + Sync {
    /// So many bytes (more) are to be done.
    fn planned(&self, bytes: u64);

    /// So many bytes more are done.
    fn done(&self, bytes: u64);
}

impl Progress for () {
    fn planned(&self, _: u64) {}
    fn done(&self, _: u64) {}
}

/// Hands what each verb reports on to the caller's [`Progress`].
pub(crate) struct Watched<'a>(pub(crate) &'a dyn Progress);

impl everstep_save::Progress for Watched<'_> {
    fn planned(&self, bytes: u64) {
        self.0.planned(bytes);
    }

    fn processed(&self, bytes: u64) {
        self.0.done(bytes);
    }
}

impl everstep_restore::Progress for Watched<'_> {
    fn planned(&self, bytes: u64) {
        self.0.planned(bytes);
    }

    fn placed(&self, bytes: u64) {
        self.0.done(bytes);
    }
}

impl everstep_check::Progress for Watched<'_> {
    fn planned(&self, bytes: u64) {
        self.0.planned(bytes);
    }

    fn checked(&self, bytes: u64) {
        self.0.done(bytes);
    }
}
