//! Panics of libraries that are caught and become an error. Nobody need read of them twice.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
}

/// The answer of `run`; `None` when it panicked. Whatever it leaves behind half done must not be used then.
pub fn caught<T>(run: impl FnOnce() -> T) -> Option<T> {
    let outer = CATCHING.replace(true);
    let answer = catch_unwind(AssertUnwindSafe(run));
    CATCHING.set(outer);
    answer.ok()
}

/// Keeps this process from printing panics on their way to [`caught`]; every other one is reported as before. For the
/// `main` of a program: a library must not decide it.
pub fn silence_caught() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !CATCHING.get() {
            report(panic);
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_no_answer_and_ends_being_caught() {
        assert_eq!(caught(|| 7), Some(7));
        assert!(!CATCHING.get());
        let inner = || {
            assert_eq!(caught(|| 8), Some(8));
            assert!(CATCHING.get(), "the outer one still catches");
            let nothing: [u8; 0] = [];
            nothing[std::hint::black_box(0)]
        };
        assert_eq!(caught(inner), None);
        assert!(!CATCHING.get());
    }
}
