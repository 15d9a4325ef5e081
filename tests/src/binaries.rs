//! The tools of this workspace, as they were built beside the tests.

use std::path::PathBuf;

/// The path of a tool.
///
/// # Panics
/// When it is not built, saying how to.
pub fn binary_of(tool: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test is a file");
    let found = test.ancestors().nth(2).expect("target/debug/deps").join(tool);
    assert!(found.exists(), "{} is missing; run `cargo build --workspace --bins` first", found.display());
    found
}
