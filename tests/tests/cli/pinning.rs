//! `pin`, `pins`, `unpin`: checkpoints kept by name.

use crate::tool::Tool;

const MODEL: &[(&str, f32, usize)] = &[("w", 1.5, 1000), ("b", -2.0, 10)];

fn with_three() -> Tool {
    let tool = Tool::with_repository();
    for step in 1..=3 {
        tool.import("gpt", step, &[("w", step as f32, 1000)]);
    }
    tool
}

/// Expires a checkpoint as retention would.
fn expire(tool: &Tool, run: &str, ordinal: u64) {
    let place = tool.path("repo").display().to_string();
    let repository = everstep::Repository::open(&place, &everstep::Options::default()).expect("opens");
    repository.run(run).expect("a run").expire(everstep::Ordinal(ordinal), "test").expect("expired");
}

#[test]
fn a_pin_is_named_exported_verified_and_a_parent_and_survives_the_original() {
    let tool = with_three();
    let pinned = tool.json(&["pin", "repo", "gpt@step=1", "release-1"]);
    assert_eq!((&pinned["schema"], &pinned["name"]), (&"everstep.pin/1".into(), &"release-1".into()));
    assert_eq!((&pinned["of"]["run"], &pinned["of"]["ordinal"]), (&"gpt".into(), &2.into()));
    assert_eq!((&pinned["pin"]["run"], &pinned["step"]), (&"_pins".into(), &1.into()));
    tool.run(&["export", "repo", "gpt@step=1", "-o", "one.safetensors"]).expect_code(0);
    expire(&tool, "gpt", 2);
    tool.run(&["show", "repo", "gpt@step=1"]).expect_code(4);

    tool.run(&["export", "repo", "pin:release-1", "-o", "two.safetensors"]).expect_code(0);
    let [one, two] =
        ["one", "two"].map(|name| std::fs::read(tool.path(&format!("{name}.safetensors"))).expect("there"));
    assert!(one == two, "the pin holds what was pinned");
    assert!(
        tool.run(&["show", "repo", "pin:release-1"])
            .stdout
            .contains("pin:release-1, which keeps gpt@ordinal=2")
    );
    tool.run(&["verify", "repo", "--deep"]).expect_code(0);
    tool.run(&["verify", "repo", "pin:release-1"]).expect_code(0);

    let tuned = tool.json(&[
        "import",
        "repo",
        "--run",
        "tuned",
        "--step",
        "1",
        "--parent",
        "pin:release-1",
        "one.safetensors",
    ]);
    assert_eq!(tuned["chunks_uploaded"], 0);
    let list = tool.json(&["pins", "repo"]);
    assert_eq!((&list["schema"], &list["pins"][0]["origin"]), (&"everstep.pins/1".into(), &"expired".into()));
    assert!(!tool.run(&["ls", "repo", "--all"]).stdout.contains("_pins"), "it is no run of training");
}

#[test]
fn a_name_that_is_taken_or_cannot_be_is_refused_with_what_to_do() {
    let tool = with_three();
    tool.run(&["pin", "repo", "gpt@step=1", "best"]).expect_code(0);
    let taken = tool.run(&["pin", "repo", "gpt@step=2", "best", "--json"]);
    let error = taken.expect_code(5).error();
    assert!(
        error["message"].as_str().is_some_and(|m| m.contains("gpt@ordinal=2") && m.contains("unpin")),
        "{error}"
    );
    tool.run(&["pin", "repo", "gpt@step=1", "best"]).expect_code(0);
    for bad in ["Best", "_x", "a/b", ""] {
        tool.run(&["pin", "repo", "gpt", bad]).expect_code(2);
    }
    tool.run(&["pin", "repo", "gpt@step=9", "x"]).expect_code(4);
    tool.run(&["pin", "repo", "gpt"]).expect_code(2);
    tool.model("m.safetensors", MODEL);
    let reserved = tool.run(&["import", "repo", "--run", "_pins", "--step", "1", "m.safetensors"]);
    reserved.expect_code(2);
}

#[test]
fn unpinning_shows_what_goes_and_asks_somebody() {
    let tool = with_three();
    tool.run(&["pin", "repo", "gpt@step=1", "old"]).expect_code(0);
    expire(&tool, "gpt", 2);
    let unasked = tool.run(&["unpin", "repo", "old"]);
    assert!(unasked.expect_code(2).stderr.contains("--yes"), "{}", unasked.stderr);
    assert!(unasked.stdout.contains("EXPIRED"), "{}", unasked.stdout);
    assert_eq!(tool.run(&["unpin", "repo", "old", "--json"]).expect_code(2).error()["kind"], "usage");
    tool.run(&["show", "repo", "pin:old"]).expect_code(0);
    let gone = tool.json(&["unpin", "repo", "old", "--yes"]);
    assert_eq!((&gone["schema"], &gone["origin"]), (&"everstep.unpin/1".into(), &"expired".into()));
    tool.run(&["show", "repo", "pin:old"]).expect_code(4);
    tool.run(&["unpin", "repo", "old", "--yes"]).expect_code(4);
    assert_eq!(tool.json(&["pins", "repo"])["pins"], serde_json::json!([]));
    // The name is free again.
    tool.run(&["pin", "repo", "gpt@step=2", "old"]).expect_code(0);
}

#[test]
fn operators_who_pin_at_once_all_succeed() {
    let tool = with_three();
    let children: Vec<_> = (0..4)
        .map(|n| tool.command(&["pin", "repo", "gpt@step=1", &format!("p{n}")]).spawn().expect("starts"))
        .collect();
    for child in children {
        assert!(child.wait_with_output().expect("ends").status.success());
    }
    assert_eq!(tool.json(&["pins", "repo"])["pins"].as_array().map(Vec::len), Some(4));
    tool.run(&["verify", "repo"]).expect_code(0);
}

#[test]
fn a_damaged_pin_hides_no_other_and_exits_with_1() {
    let tool = with_three();
    tool.run(&["pin", "repo", "gpt@step=1", "a"]).expect_code(0);
    let other = tool.json(&["pin", "repo", "gpt@step=2", "b"]);
    let ordinal = other["pin"]["ordinal"].as_u64().expect("a number");
    std::fs::write(tool.path(&format!("repo/runs/_pins/decisions/{ordinal:020}")), "damaged")
        .expect("written");
    let list = tool.run(&["pins", "repo", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&list.expect_code(1).stdout).expect("a document");
    assert_eq!(document["pins"].as_array().map(Vec::len), Some(1));
    assert_eq!(document["damaged"].as_array().map(Vec::len), Some(1));
    tool.run(&["show", "repo", "pin:a"]).expect_code(0);
    tool.run(&["show", "repo", "pin:b"]).expect_code(1);
    tool.run(&["verify", "repo"]).expect_code(1);
}
