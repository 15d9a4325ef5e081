//! Taste that can be measured: short functions, files with one subject, no rooms for leftovers, public documentation.

use std::fs;
use std::path::{Path, PathBuf};

const FUNCTION_LINES: usize = 70;
const FILE_CODE_LINES: usize = 600;
const NO_SUCH_ROOMS: &[&str] =
    &["util", "utils", "common", "helper", "helpers", "misc", "v2", "legacy", "old"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the workspace is there")
}

fn files_below(folder: &Path, suffix: &str, found: &mut Vec<PathBuf>) {
    let skipped = ["target", ".git", ".venv", ".cache", "__pycache__"];
    for entry in fs::read_dir(folder).expect("readable").map(|e| e.expect("readable").path()) {
        let name = entry.file_name().and_then(|n| n.to_str()).expect("UTF-8").to_owned();
        if entry.is_dir() && !skipped.contains(&name.as_str()) {
            files_below(&entry, suffix, found);
        } else if name.ends_with(suffix) {
            found.push(entry);
        }
    }
}

fn rust_files() -> Vec<PathBuf> {
    let mut found = Vec::new();
    files_below(&root(), ".rs", &mut found);
    assert!(found.len() > 30, "the walk finds the sources");
    found
}

/// Lines before the first test begins.
fn code_of(text: &str) -> Vec<&str> {
    let begins = ["#[cfg(test)]", "mod tests", "#[test]", "#[tokio::test"];
    text.lines().take_while(|line| !begins.iter().any(|begin| line.starts_with(begin))).collect()
}

/// Name, first line number and length of every function, told by rustfmt's indentation: a function ends at the first
/// closing brace that is indented like its head.
fn functions(lines: &[&str]) -> Vec<(String, usize, usize)> {
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let trimmed = line.trim_start();
        let Some(at) = trimmed.find("fn ") else { continue };
        let head = &trimmed[..at];
        let is_head = head.split_whitespace().all(|word| {
            word.starts_with("pub") || ["const", "async", "unsafe", "extern", "in", "crate)"].contains(&word)
        });
        if !is_head || trimmed.ends_with(';') || trimmed.ends_with('}') {
            continue;
        }
        let close = format!("{}}}", &line[..line.len() - trimmed.len()]);
        let length = lines[start..].iter().position(|l| *l == close).map_or(0, |n| n + 1);
        found.push((trimmed.to_owned(), start + 1, length));
    }
    found
}

#[test]
fn functions_are_at_most_70_lines() {
    let mut long = Vec::new();
    for file in rust_files() {
        let text = fs::read_to_string(&file).expect("readable");
        for (head, line, length) in functions(&text.lines().collect::<Vec<_>>()) {
            if length > FUNCTION_LINES {
                long.push(format!("{}:{line}: {length} lines: {head}", file.display()));
            }
        }
    }
    assert!(long.is_empty(), "split these: {long:#?}");
}

#[test]
fn the_measure_of_functions_sees_a_long_one() {
    let body = "    let x = 1;\n".repeat(FUNCTION_LINES);
    let text = format!("pub(crate) async fn long(\n    a: u8,\n) {{\n{body}}}\n");
    let found = functions(&text.lines().collect::<Vec<_>>());
    assert_eq!(found.len(), 1);
    assert!(found[0].2 > FUNCTION_LINES);
}

#[test]
fn files_have_at_most_600_lines_of_code() {
    let mut long = Vec::new();
    for file in rust_files() {
        let text = fs::read_to_string(&file).expect("readable");
        let lines = code_of(&text)
            .iter()
            .filter(|line| !line.trim().is_empty() && !line.trim().starts_with("//"))
            .count();
        if lines > FILE_CODE_LINES {
            long.push(format!("{}: {lines} lines", file.display()));
        }
    }
    assert!(long.is_empty(), "these have more than one subject: {long:#?}");
}

#[test]
fn no_room_is_named_after_leftovers() {
    let root = root();
    let mut bad = Vec::new();
    for file in rust_files() {
        let relative = file.strip_prefix(&root).expect("below the root").with_extension("");
        let names = relative.components().map(|c| c.as_os_str().to_string_lossy().into_owned());
        bad.extend(names.filter(|name| NO_SUCH_ROOMS.contains(&name.as_str())).map(|_| relative.clone()));
    }
    assert!(bad.is_empty(), "{bad:?}");
}

#[test]
fn nothing_is_left_unfinished() {
    let marks = ["todo!(", "unimplemented!(", concat!("FIX", "ME")].map(str::to_owned);
    let mut left = Vec::new();
    for file in rust_files().into_iter().filter(|f| !f.ends_with("tidy.rs")) {
        let text = fs::read_to_string(&file).expect("readable");
        for (number, line) in text.lines().enumerate() {
            if marks.iter().any(|mark| line.contains(mark.as_str())) {
                left.push(format!("{}:{}: {}", file.display(), number + 1, line.trim()));
            }
        }
    }
    assert!(left.is_empty(), "{left:#?}");
}

#[test]
fn only_the_key_module_spells_object_keys() {
    let mut bad = Vec::new();
    let roots = ["\"packs/", "\"runs/", "\"index/", "\"sessions/", "\"alive/"];
    for file in rust_files() {
        let path = file.to_string_lossy().into_owned();
        let is_test =
            path.contains("/tests") || path.contains("/everstep-sim/") || path.contains("/examples/");
        if is_test || path.ends_with("everstep-format/src/key.rs") {
            continue;
        }
        let text = fs::read_to_string(&file).expect("readable");
        let spelled = code_of(&text)
            .iter()
            .any(|line| !line.trim_start().starts_with("//") && roots.iter().any(|root| line.contains(root)));
        if spelled {
            bad.push(path);
        }
    }
    assert!(bad.is_empty(), "object keys are spelled in everstep-format/src/key.rs alone, not in {bad:#?}");
}
