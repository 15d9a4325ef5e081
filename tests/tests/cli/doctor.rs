//! `doctor`: what it finds is its answer; the worst of it is its exit status.

use std::process::Stdio;

use serde_json::Value;

use crate::tool::Tool;

fn health<'a>(document: &'a Value, name: &str) -> &'a str {
    let checks = document["checks"].as_array().expect("an array");
    let check = checks.iter().find(|check| check["name"] == name).expect("a check of that name");
    check["health"].as_str().expect("a word")
}

#[test]
fn a_sound_place_is_told_so_with_and_without_a_repository_and_left_alone() {
    let tool = Tool::new();
    let document = tool.json(&["doctor", "new"]);
    assert_eq!((&document["schema"], &document["exit"]), (&"everstep.doctor/1".into(), &0.into()));
    for name in ["file-system", "list", "read", "write", "delete", "create", "clock", "repository"] {
        assert_eq!(health(&document, name), "ok", "{name}");
    }
    tool.run(&["init", "repo"]).expect_code(0);
    let text = tool.run(&["doctor", "repo"]).expect_code(0).stdout.clone();
    assert!(text.contains("put-if-absent is atomic") && text.contains("format"), "{text}");
    assert!(!tool.path("repo/probe").exists());
}

#[test]
fn what_is_refused_exits_with_5_and_what_cannot_be_reached_with_3() {
    let tool = Tool::with_repository();
    std::fs::write(tool.path("repo/everstep.json"), "{}").expect("written");
    let answer = tool.run(&["doctor", "repo", "--json"]);
    let document: Value = serde_json::from_str(&answer.expect_code(5).stdout).expect("JSON");
    assert_eq!(health(&document, "repository"), "refused");
    let args = ["doctor", "s3://bucket/x", "--endpoint-url", "http://127.0.0.1:1", "--allow-http", "--json"];
    let mut command = tool.command(&args);
    command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "very-secret");
    let output = command.output().expect("starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{text}");
    let document: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((health(&document, "reachable"), health(&document, "credentials")), ("failed", "ok"));
    assert!(text.contains("from environment") && !text.contains("very-secret"), "{text}");
    tool.run(&["doctor", "s3://bucket/x", "--endpoint-url", "http://127.0.0.1:1"]).expect_code(2);
}

#[test]
fn without_credentials_every_source_is_named() {
    let tool = Tool::new();
    let args = ["doctor", "s3://bucket/x", "--endpoint-url", "http://127.0.0.1:1", "--allow-http", "--json"];
    let answer = tool.run(&args);
    let document: Value = serde_json::from_str(&answer.expect_code(3).stdout).expect("JSON");
    let found = document["checks"][0]["found"].as_str().expect("a text");
    for source in ["environment", "profile", "web identity", "container", "instance metadata"] {
        assert!(found.contains(source), "{found}");
    }
}

#[test]
fn two_processes_see_each_others_objects_at_once() {
    let tool = Tool::new();
    let mut listen = tool.command(&["doctor", "shared", "--listen", "a", "--json"]);
    let listen = listen.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let echo = tool.json(&["doctor", "shared", "--echo", "a"]);
    let listened = listen.wait_with_output().expect("ends");
    assert_eq!((health(&echo, "two-hosts"), listened.status.code()), ("ok", Some(0)));
    let alone = tool.run(&["doctor", "shared", "--echo", "b", "--patience", "0", "--json"]);
    assert_eq!(alone.expect_code(3).error()["kind"], "unreachable");
}
