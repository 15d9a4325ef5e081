//! `ckpt-gc` as people and schedulers use it.

use std::collections::BTreeSet;
use std::path::Path;

use everstep_sim::s3_stub::{Action, Rule, S3Stub, StubSettings};
use http::Method;
use serde_json::Value;

use crate::tool::{Answer, Tool};

const ONE: &str = "[[policy]]\nruns = \"*\"\nkeep_last = 1\n";
const BEST: &str =
    "[[policy]]\nruns = \"*\"\nkeep_last = 1\nkeep_best = { metric = \"loss\", mode = \"min\" }\n";

/// A repository with one checkpoint for each loss, in a file `policy.toml` a policy.
fn tool(policy: &str, losses: &[&str]) -> Tool {
    let tool = Tool::with_repository();
    write_policy(&tool, policy);
    for (step, loss) in (1..).zip(losses) {
        import(&tool, step, loss);
    }
    tool
}

fn import(tool: &Tool, step: u16, loss: &str) {
    tool.model("m.safetensors", &[("w", f32::from(step), 20_000), ("same", 1.0, 20_000)]);
    let (step, loss) = (step.to_string(), format!("loss={loss}"));
    let args = ["import", "repo", "--run", "gpt", "--step", &step, "m.safetensors", "--metadata", &loss];
    tool.json(&args);
}

fn write_policy(tool: &Tool, policy: &str) {
    std::fs::write(tool.path("policy.toml"), policy).expect("written");
}

/// Steps of the checkpoints that are there.
fn steps(tool: &Tool) -> Vec<u64> {
    let list = tool.json(&["ls", "repo"]);
    let checkpoints = list["checkpoints"].as_array().expect("an array");
    checkpoints.iter().map(|checkpoint| checkpoint["step"].as_u64().expect("a step")).collect()
}

fn files(below: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![below.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else {
                let key = path.strip_prefix(below).expect("below").to_str().expect("UTF-8");
                found.insert(key.to_owned());
            }
        }
    }
    found
}

#[test]
fn c05_the_best_and_the_newest_stay_and_an_unfinished_save_changes_nothing() {
    for (policy, left) in [(BEST, vec![1, 4]), (ONE, vec![4])] {
        let tool = tool(policy, &["0.1", "0.5", "0.6", "0.7"]);
        tool.gc(&["run", "repo", "--policy", "policy.toml"]).expect_code(0);
        assert_eq!(steps(&tool), left);
        // A fifth save that never ends.
        import(&tool, 5, "0.05");
        std::fs::remove_file(tool.path("repo/runs/gpt/decisions/00000000000000000010")).expect("there");
        tool.gc(&["run", "repo", "--policy", "policy.toml"]).expect_code(0);
        assert_eq!(steps(&tool), left);
        tool.run(&["show", "repo", "gpt@min=loss"]).expect_code(0);
        tool.run(&["verify", "repo", "--deep"]).expect_code(0);
    }
}

#[test]
fn c07_a_plan_changes_nothing_and_lists_exactly_what_a_run_deletes() {
    let tool = tool(ONE, &["0.1", "0.5", "0.6"]);
    let before = files(&tool.path("repo"));
    let listed = tool.gc(&["plan", "repo", "--policy", "policy.toml", "--list"]);
    let listed: BTreeSet<String> = listed.expect_code(0).stdout.lines().map(str::to_owned).collect();
    let plan = tool.gc_json(&["plan", "repo", "--policy", "policy.toml"]);
    assert_eq!(files(&tool.path("repo")), before, "nothing was changed");
    assert_eq!(plan["frees"]["objects"], listed.len());
    let each = plan["checkpoints"].as_array().expect("an array").iter().map(|c| &c["frees"]["bytes"]);
    let each: u64 = each.map(|bytes| bytes.as_u64().expect("a number")).sum();
    assert_eq!(plan["frees"]["bytes"], each, "all of it goes with a checkpoint");

    let run = tool.gc_json(&["run", "repo", "--policy", "policy.toml"]);
    let after = files(&tool.path("repo"));
    let gone: BTreeSet<String> = before.difference(&after).cloned().collect();
    assert_eq!(gone, listed);
    assert_eq!((&run["freed"], &run["schema"]), (&plan["frees"], &"everstep.gc-run/1".into()));
    assert_eq!((&run["kept"], run["expired"].as_array().map(Vec::len)), (&1.into(), Some(2)));
    // The chunks that the last shares with the first are still where the first stored them.
    assert_eq!(run["shared"], plan["shared"]);
    assert!(run["shared"]["objects"].as_u64() > Some(0), "{run}");
    tool.run(&["verify", "repo", "--deep"]).expect_code(0);

    let again = tool.gc_json(&["run", "repo", "--policy", "policy.toml"]);
    assert_eq!((&again["freed"]["objects"], again["expired"].as_array().map(Vec::len)), (&0.into(), Some(0)));
}

#[test]
fn a_run_that_is_too_large_gives_up_the_oldest_that_frees_something() {
    let tool = tool("", &["0.4", "0.3", "0.2", "0.1"]);
    let packs: u64 = files(&tool.path("repo/packs"))
        .iter()
        .map(|pack| std::fs::metadata(tool.path("repo/packs").join(pack)).expect("there").len())
        .sum();
    let limited =
        |bytes: u64| format!("[[policy]]\nruns = \"*\"\nkeep_last = 9\nmax_total_size = \"{bytes} B\"\n");
    let expired = |bytes: u64| {
        write_policy(&tool, &limited(bytes));
        let plan = tool.gc_json(&["plan", "repo", "--policy", "policy.toml"]);
        let checkpoints = plan["checkpoints"].as_array().expect("an array");
        let gone = checkpoints.iter().filter(|checkpoint| checkpoint["verdict"] == "expire");
        gone.map(|checkpoint| checkpoint["step"].as_u64().expect("a step")).collect::<Vec<_>>()
    };
    assert_eq!(expired(packs), [0_u64; 0], "all four take what their packs take");
    // What the first stored is in use as long as there is any: its expiry would free nothing.
    assert_eq!(expired(packs - 1), [2]);
    assert_eq!(expired(1), [2, 3], "the newest stays, however large it is");
    write_policy(&tool, &limited(packs - 1));
    tool.gc(&["run", "repo", "--policy", "policy.toml"]).expect_code(0);
    assert_eq!(steps(&tool), [1, 3, 4]);
}

#[test]
fn a_plan_says_why_and_is_judged_again_before_it_is_carried_out() {
    let tool = tool(ONE, &["0.1", "0.5", "0.6"]);
    let shown = tool.gc(&["plan", "repo", "--policy", "policy.toml", "-o", "plan.json"]);
    let text = &shown.expect_code(0).stdout;
    assert!(text.contains("EXPIRE") && text.contains("the newest checkpoint of its run"), "{text}");
    tool.run(&["pin", "repo", "gpt@step=1", "release"]).expect_code(0);
    let run = tool.gc_json(&["run", "repo", "--plan", "plan.json"]);
    assert_eq!(run["expired"].as_array().map(Vec::len), Some(1));
    assert!(run["skipped"][0]["why"].as_str().is_some_and(|why| why.contains("pin:release")), "{run}");
    assert_eq!(steps(&tool), [1, 3]);
    tool.gc(&["run", "repo", "--plan", "plan.json"]).expect_code(0);
    // Given up, it goes with the next run; that of the plan may go now.
    tool.run(&["unpin", "repo", "release", "--yes"]).expect_code(0);
    tool.gc_json(&["run", "repo", "--plan", "plan.json"]);
    assert_eq!(steps(&tool), [3]);
    tool.run(&["verify", "repo", "--deep"]).expect_code(0);

    let other = Tool::with_repository();
    std::fs::copy(tool.path("plan.json"), other.path("plan.json")).expect("copied");
    let refused = other.gc(&["run", "repo", "--plan", "plan.json"]);
    assert!(refused.expect_code(2).stderr.contains("is for repository"), "{}", refused.stderr);
}

#[test]
fn mistakes_exit_with_2_and_say_where() {
    let tool = tool("[[policy]]\nruns = \"*\"\nkeep_lats = 1\n", &[]);
    let answer = tool.gc(&["run", "repo", "--policy", "policy.toml"]);
    assert!(answer.expect_code(2).stderr.contains("policy.toml") && answer.stderr.contains("line 3"));
    write_policy(&tool, ONE);
    let policy = ["--policy", "policy.toml"];
    for bad in [
        &["run", "repo"][..],
        &["run", "repo", "--policy", "policy.toml", "--sweep-only"],
        &["plan", "repo"],
        &["run", "repo", "--sweep-only", "--shard", "2/2"],
        &["run", "repo", "--sweep-only", "--idle-after", "soon"],
        &["run", "repo", "--sweep-only", "--deletes-per-second", "0"],
    ] {
        tool.gc(bad).expect_code(2);
    }
    tool.gc(&[&["run", "elsewhere"], &policy[..]].concat()).expect_code(4);
    tool.gc(&["run", "repo", "--plan", "none.json"]).expect_code(4);
    let help = tool.gc(&["--help"]);
    assert!(help.expect_code(0).stdout.contains("Exit status"));
    for verb in ["plan", "run", "status"] {
        assert!(tool.gc(&[verb, "--help"]).expect_code(0).stdout.contains("Usage"));
    }
}

#[test]
fn damage_stops_a_run_before_it_deletes_and_the_metrics_say_so() {
    let tool = tool(ONE, &["0.1", "0.5", "0.6"]);
    std::fs::write(tool.path("repo/runs/gpt/decisions/00000000000000000004"), "x").expect("written");
    let before = files(&tool.path("repo"));
    let args = ["run", "repo", "--policy", "policy.toml", "--metrics", "gc.prom", "--json"];
    let error = tool.gc(&args).expect_code(1).error();
    assert_eq!(error["kind"], "corrupt");
    let metrics = std::fs::read_to_string(tool.path("gc.prom")).expect("written");
    assert!(metrics.contains("everstep_gc_last_run_success{") && metrics.contains("} 0\n"), "{metrics}");
    assert_eq!(files(&tool.path("repo")), before);
}

#[test]
fn what_a_later_version_wrote_stops_a_run_with_5() {
    let tool = tool(ONE, &["0.1", "0.5"]);
    std::fs::create_dir_all(tool.path("repo/runs/_future/intents")).expect("made");
    std::fs::write(tool.path("repo/runs/_future/intents/00000000000000000001"), "{}").expect("written");
    let refused = tool.gc(&["run", "repo", "--policy", "policy.toml"]);
    assert!(refused.expect_code(5).stderr.contains("_future"), "{}", refused.stderr);
    assert_eq!(steps(&tool), [1, 2]);
}

#[test]
fn shards_share_the_work_and_figures_are_written_for_a_scheduler() {
    let tool = tool(ONE, &["0.1", "0.2", "0.3", "0.4", "0.5", "0.6"]);
    let mut expired = 0;
    for shard in ["0/2", "1/2"] {
        let args = ["run", "repo", "--policy", "policy.toml", "--shard", shard, "--metrics", "gc.prom"];
        let run = tool.gc_json(&args);
        expired += run["expired"].as_array().map_or(0, Vec::len);
        let metrics = std::fs::read_to_string(tool.path("gc.prom")).expect("written");
        assert!(metrics.contains("# TYPE everstep_gc_freed_bytes gauge"), "{metrics}");
        assert!(metrics.contains("everstep_gc_last_run_success{repository=\""), "{metrics}");
    }
    assert_eq!(expired, 5);
    assert_eq!(steps(&tool), [6]);
    tool.run(&["verify", "repo", "--deep"]).expect_code(0);
    let status = tool.gc_json(&["status", "repo"]);
    assert_eq!((&status["schema"], &status["checkpoints"]), (&"everstep.gc-status/1".into(), &1.into()));
    assert_eq!((&status["expired"], &status["undecided"]), (&5.into(), &0.into()));
}

#[test]
fn an_idle_save_is_aborted_and_its_remains_go() {
    let tool = tool(ONE, &["0.1", "0.2"]);
    std::fs::remove_file(tool.path("repo/runs/gpt/decisions/00000000000000000004")).expect("there");
    let kept = tool.gc_json(&["run", "repo", "--sweep-only"]);
    assert_eq!((kept["aborted"].as_array().map(Vec::len), &kept["freed"]["objects"]), (Some(0), &0.into()));
    let plan = tool.gc_json(&["plan", "repo", "--policy", "policy.toml", "--idle-after", "1ns"]);
    assert_eq!(plan["abort"][0]["ordinal"], 4);
    let run = tool.gc_json(&["run", "repo", "--sweep-only", "--idle-after", "1ns"]);
    assert_eq!(run["aborted"][0]["ordinal"], 4);
    assert_eq!(run["freed"], plan["frees"]);
    assert_eq!(steps(&tool), [1]);
}

/// Runs a tool against the stub.
fn on_stub(tool: &Tool, stub: &S3Stub, (gc, args): (bool, &[&str])) -> Answer {
    let url = stub.url();
    let args = [args, &["--json", "--allow-http", "--endpoint-url", &url]].concat();
    let mut command = if gc { tool.gc_command(&args) } else { tool.command(&args) };
    command
        .env("AWS_ACCESS_KEY_ID", "AKIDSTUB")
        .env("AWS_SECRET_ACCESS_KEY", "hidden")
        .env("AWS_REGION", "us-east-1");
    Answer::of(command.output().expect("the binary starts"), &args)
}

const BUCKET: &str = "s3://bucket/repo";

fn stub(settings: StubSettings) -> (Tool, S3Stub) {
    let (tool, stub) = (Tool::new(), S3Stub::with(settings));
    write_policy(&tool, ONE);
    on_stub(&tool, &stub, (false, &["init", BUCKET])).expect_code(0);
    for step in ["1", "2"] {
        tool.model("m.safetensors", &[("w", step.parse().expect("a number"), 20_000)]);
        let args = ["import", BUCKET, "--run", "gpt", "--step", step, "m.safetensors"];
        on_stub(&tool, &stub, (false, &args)).expect_code(0);
    }
    (tool, stub)
}

#[test]
fn c32_deletes_that_did_not_happen_are_counted_named_and_tried_again() {
    let undeletable = Some(".refs".to_owned());
    let (tool, stub) = stub(StubSettings { undeletable, ..StubSettings::default() });
    stub.store("bucket", "repository-of-others/upload", "young");
    for expired in [1, 0] {
        let answer = on_stub(&tool, &stub, (true, &["run", BUCKET, "--policy", "policy.toml"]));
        let run: Value = serde_json::from_str(&answer.expect_code(7).stdout).expect("one JSON document");
        assert_eq!(run["expired"].as_array().map(Vec::len), Some(expired));
        assert_eq!(run["failed"]["objects"], 1, "{run}");
        let key = run["failed_keys"][0]["key"].as_str().expect("a key");
        assert!(key.ends_with(".refs"), "{key}");
        let why = run["failed_keys"][0]["error"].as_str().expect("a text");
        assert!(why.contains("AccessDenied"), "{why}");
        // A pack and an index.
        assert_eq!(run["freed"]["objects"], 2 * expired);
    }
    assert!(stub.objects("bucket").iter().any(|(key, _)| key == "repository-of-others/upload"));
}

#[test]
fn c32_a_bucket_that_keeps_old_versions_or_locks_is_told_of() {
    let (tool, stub) = stub(StubSettings::default());
    let enabled = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    stub.rule(Rule::on(Method::GET, Action::Answer(200, enabled.to_owned())).at("versioning"));
    let answer = on_stub(&tool, &stub, (true, &["run", BUCKET, "--policy", "policy.toml"]));
    let run: Value = serde_json::from_str(&answer.expect_code(0).stdout).expect("one JSON document");
    let held = run["held_back"].as_array().expect("an array");
    assert!(held.iter().any(|check| check["name"] == "versions"), "{run}");
    let advice = held[0]["advice"].as_str().expect("a text");
    assert!(advice.contains("frees no space"), "{advice}");
}
