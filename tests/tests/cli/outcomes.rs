//! Exit status 6, and `resolve`: what became of an attempt whose commit got no answer.

use everstep_sim::s3_stub::{Action, Rule, S3Stub};
use http::Method;
use serde_json::Value;

use crate::tool::{Answer, Tool};

const REPOSITORY: &str = "s3://bucket/repo";

/// Runs against the stub, with `--json`.
fn run(tool: &Tool, stub: &S3Stub, args: &[&str]) -> Answer {
    let url = stub.url();
    let args = [args, &["--json", "--allow-http", "--endpoint-url", &url]].concat();
    let mut command = tool.command(&args);
    command
        .env("AWS_ACCESS_KEY_ID", "AKIDSTUB")
        .env("AWS_SECRET_ACCESS_KEY", "hidden")
        .env("AWS_REGION", "us-east-1");
    Answer::of(command.output().expect("the binary starts"), &args)
}

fn document(answer: &Answer) -> Value {
    serde_json::from_str(&answer.stdout).expect("one JSON document")
}

#[test]
fn c14_a_commit_without_an_answer_exits_with_6_and_resolve_finds_the_truth() {
    let (tool, stub) = (Tool::new(), S3Stub::start());
    run(&tool, &stub, &["init", REPOSITORY]).expect_code(0);
    tool.model("m.safetensors", &[("w", 1.0, 100)]);
    let decision = "runs/gpt/decisions/00000000000000000002";
    stub.rule(Rule::on(Method::PUT, Action::DoThenDrop).at(decision).times(1));
    stub.rule(Rule::on(Method::GET, Action::Refuse(403, "AccessDenied")).at(decision));
    let import = ["import", REPOSITORY, "--run", "gpt", "--step", "7", "m.safetensors"];
    let error = run(&tool, &stub, &import).expect_code(6).error();
    assert_eq!(error["kind"], "outcome-unknown");
    let message = error["message"].as_str().unwrap_or_default();
    assert!(message.contains("ckpt-inspect resolve gpt@ordinal=2"), "{message}");

    let resolve = ["resolve", REPOSITORY, "gpt@ordinal=2"];
    let unreadable = run(&tool, &stub, &resolve).expect_code(6).error();
    assert_eq!(unreadable["kind"], "outcome-unknown");
    let abort = [&resolve[..], &["--abort", "--yes"]].concat();
    run(&tool, &stub, &abort).expect_code(6);
    assert!(stub.seen().iter().all(|request| request.method != Method::DELETE), "unknown never deletes");

    stub.clear_rules();
    let found = run(&tool, &stub, &resolve);
    let found = document(found.expect_code(0));
    assert_eq!((&found["schema"], &found["outcome"]), (&"everstep.resolve/1".into(), &"commit".into()));
    assert_eq!((&found["step"], &found["expired"]), (&7.into(), &false.into()));
    // A COMMIT stands, whatever is asked for.
    let kept = document(run(&tool, &stub, &abort).expect_code(0));
    assert_eq!((&kept["outcome"], &kept["settled_now"]), (&"commit".into(), &false.into()));
    run(&tool, &stub, &["verify", REPOSITORY, "--deep"]).expect_code(0);
}

#[test]
fn an_undecided_attempt_is_settled_only_when_somebody_agrees() {
    let tool = Tool::with_repository();
    tool.import("gpt", 1, &[("w", 1.0, 100)]);
    tool.import("gpt", 2, &[("w", 2.0, 100)]);
    let decision = tool.path("repo/runs/gpt/decisions/00000000000000000004");
    std::fs::remove_file(&decision).expect("there");
    let resolve = ["resolve", "repo", "gpt@ordinal=4"];
    let told = tool.run(&resolve);
    assert!(told.expect_code(6).stdout.contains("undecided (step 2)"), "{}", told.stdout);
    let json = tool.run(&[&resolve[..], &["--json"]].concat());
    assert_eq!(document(json.expect_code(6))["outcome"], "undecided");
    let unasked = tool.run(&[&resolve[..], &["--abort"]].concat());
    assert!(
        unasked.expect_code(2).stderr.contains("--yes") && unasked.stdout.contains("never be a checkpoint")
    );
    assert!(!decision.exists(), "nothing was changed");
    let settled = tool.json(&[&resolve[..], &["--abort", "--yes"]].concat());
    assert_eq!((&settled["outcome"], &settled["settled_now"]), (&"abort".into(), &true.into()));
    assert_eq!(settled["reason"], "operator");
    let again = tool.json(&resolve);
    assert_eq!((&again["outcome"], &again["settled_now"]), (&"abort".into(), &false.into()));
    tool.import("gpt", 3, &[("w", 3.0, 100)]);
    tool.run(&["verify", "repo", "--deep"]).expect_code(0);
}

#[test]
fn other_attempts_are_told_as_what_they_are() {
    let tool = Tool::with_repository();
    tool.import("gpt", 1, &[("w", 1.0, 100)]);
    assert!(tool.run(&["resolve", "repo", "gpt@ordinal=1"]).expect_code(0).stdout.contains("fence"));
    tool.run(&["resolve", "repo", "gpt@ordinal=9"]).expect_code(4);
    tool.run(&["resolve", "repo", "gpt@step=1"]).expect_code(2);
    tool.run(&["resolve", "repo", "gpt@ordinal=2", "--yes"]).expect_code(2);
    std::fs::write(tool.path("repo/runs/gpt/decisions/00000000000000000002"), "x").expect("written");
    assert!(tool.run(&["resolve", "repo", "gpt@ordinal=2"]).expect_code(1).stdout.contains("DAMAGED"));
}
