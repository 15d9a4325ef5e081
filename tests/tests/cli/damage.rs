//! Damage exits with 1, names the object, the tensors and the checkpoints.

use std::path::{Path, PathBuf};

use crate::tool::Tool;

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("there").map(|e| e.expect("entry").path()) {
        if entry.is_dir() {
            files(&entry, found);
        } else {
            found.push(entry);
        }
    }
}

#[test]
fn a_flipped_bit_in_a_pack_is_found_named_and_exits_with_1() {
    let tool = Tool::with_repository();
    tool.import("gpt", 1, &[("a.weight", 1.5, 3000)]);
    let mut packs = Vec::new();
    files(&tool.path("repo/packs"), &mut packs);
    assert_eq!(packs.len(), 1);
    let mut bytes = std::fs::read(&packs[0]).expect("there");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&packs[0], bytes).expect("written");

    let deep = tool.run(&["verify", "repo", "--deep", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&deep.expect_code(1).stdout).expect("JSON");
    assert_eq!(report["sound"], false);
    let finding = &report["findings"][0];
    assert_eq!(finding["severity"], "damage");
    assert!(finding["object"].as_str().is_some_and(|object| object.contains("packs/")));
    assert_eq!(finding["tensors"], serde_json::json!(["a.weight"]));
    assert_eq!(finding["checkpoints"][0]["step"], 1);

    let export = tool.run(&["export", "repo", "gpt", "-o", "out", "--json"]);
    assert_eq!(export.expect_code(1).error()["kind"], "corrupt");
    assert!(!tool.path("out").exists(), "no partial file is left");
}

#[test]
fn a_missing_pack_is_damage_and_other_runs_are_sound() {
    let tool = Tool::with_repository();
    tool.import("good", 1, &[("w", 2.0, 3000)]);
    let mut before = Vec::new();
    files(&tool.path("repo/packs"), &mut before);
    tool.import("bad", 1, &[("w", 3.0, 3000)]);
    let mut after = Vec::new();
    files(&tool.path("repo/packs"), &mut after);
    let new = after.iter().find(|path| !before.contains(path)).expect("one new pack");
    std::fs::remove_file(new).expect("removed");

    let answer = tool.run(&["verify", "repo"]);
    assert!(answer.expect_code(1).stdout.contains("bad@ordinal="), "{}", answer.stdout);
    tool.run(&["verify", "repo", "good"]).expect_code(0);
    tool.run(&["verify", "repo", "bad"]).expect_code(1);
    tool.run(&["export", "repo", "good", "-o", "good.safetensors"]).expect_code(0);
}

/// Two checkpoints of `gpt`; what importing the first said, and its decision.
fn two_checkpoints() -> (Tool, serde_json::Value, std::path::PathBuf) {
    let tool = Tool::with_repository();
    let first = tool.import("gpt", 1, &[("w", 1.0, 4)]);
    tool.import("gpt", 2, &[("w", 2.0, 4)]);
    let ordinal = first["ordinal"].as_u64().expect("a number");
    let decision = tool.path(&format!("repo/runs/gpt/decisions/{ordinal:020}"));
    (tool, first, decision)
}

#[test]
fn a_damaged_decision_hides_no_other_checkpoint_from_ls() {
    let (tool, first, decision) = two_checkpoints();
    let text = std::fs::read_to_string(&decision).expect("there");
    std::fs::write(&decision, text.replacen("COMMIT", "COMMIt", 1)).expect("written");

    let list = tool.run(&["ls", "repo", "--json"]);
    let list: serde_json::Value = serde_json::from_str(&list.expect_code(1).stdout).expect("JSON");
    assert_eq!(list["checkpoints"][0]["step"], 2);
    assert_eq!(list["damaged"][0]["ordinal"], first["ordinal"]);
    tool.run(&["export", "repo", "gpt", "-o", "out"]).expect_code(0);
    tool.run(&["show", "repo", "gpt@step=1"]).expect_code(1);
}

#[test]
fn a_decision_of_a_newer_version_hides_no_other_checkpoint_from_ls() {
    let (tool, first, decision) = two_checkpoints();
    let text = std::fs::read_to_string(&decision).expect("there");
    let newer = text.replacen("\"version\":1", "\"version\":99", 1);
    let body = &newer[..newer.rfind(",\"blake3\"").expect("sealed")];
    let sealed = format!("{body},\"blake3\":\"{}\"}}\n", blake3::hash(body.as_bytes()));
    assert_ne!(text, sealed);
    std::fs::write(&decision, sealed).expect("written");

    let list = tool.run(&["ls", "repo", "--json"]);
    let list: serde_json::Value = serde_json::from_str(&list.expect_code(5).stdout).expect("JSON");
    assert_eq!(list["checkpoints"][0]["step"], 2);
    assert_eq!(list["newer"][0]["ordinal"], first["ordinal"]);
    assert_eq!(list["damaged"], serde_json::json!([]));
    let shown = tool.run(&["ls", "repo"]);
    assert!(shown.expect_code(5).stdout.contains("of a newer version"), "{}", shown.stdout);
    assert!(shown.stderr.contains("upgrade Everstep"), "{}", shown.stderr);
    tool.run(&["export", "repo", "gpt", "-o", "out"]).expect_code(0);
    for args in [["show", "repo", "gpt@step=1"], ["resolve", "repo", "gpt@ordinal=2"]] {
        tool.run(&args).expect_code(5);
    }
}

#[cfg(unix)]
#[test]
fn c26_a_link_in_the_place_of_the_folder_of_all_runs_is_damage() {
    let (tool, ..) = two_checkpoints();
    std::fs::rename(tool.path("repo/runs"), tool.path("elsewhere")).expect("moved");
    std::os::unix::fs::symlink(tool.path("elsewhere"), tool.path("repo/runs")).expect("linked");
    let report = tool.run(&["verify", "repo", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&report.expect_code(1).stdout).expect("JSON");
    let finding = &report["findings"][0];
    assert_eq!((&report["sound"], &finding["severity"]), (&false.into(), &"damage".into()));
    assert_eq!(finding["object"], "runs");
    tool.run(&["ls", "repo"]).expect_code(1);
    tool.gc(&["status", "repo"]).expect_code(1);
}
