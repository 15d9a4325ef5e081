//! Each exit status, with an error that says what to do.

use crate::tool::Tool;

#[test]
fn usage_errors_exit_with_2() {
    let tool = Tool::with_repository();
    tool.model("m.safetensors", &[("w", 1.0, 4)]);
    tool.run(&["no-such-verb"]).expect_code(2);
    tool.run(&["ls"]).expect_code(2);
    tool.run(&["show", "repo"]).expect_code(2);
    let bad_run = tool.run(&["import", "repo", "--run", "No Such", "--step", "1", "m.safetensors", "--json"]);
    assert_eq!(bad_run.expect_code(2).error()["kind"], "invalid-argument");
    let bad_ref = tool.run(&["show", "repo", "gpt@newest", "--json"]);
    assert!(bad_ref.expect_code(2).error()["message"].as_str().is_some_and(|m| m.contains("@step=N")));
    let http = tool.run(&["ls", "s3://bucket/x", "--endpoint-url", "http://127.0.0.1:9"]);
    assert!(http.expect_code(2).stderr.contains("--allow-http"), "{}", http.stderr);
}

#[test]
fn with_json_even_a_mistyped_command_line_is_answered_in_json() {
    let tool = Tool::new();
    assert_eq!(tool.run(&["ls", "--no-such-option", "--json"]).expect_code(2).error()["kind"], "usage");
}

#[test]
fn what_is_not_there_exits_with_4() {
    let tool = Tool::with_repository();
    tool.import("gpt", 1, &[("w", 1.0, 4)]);
    assert_eq!(tool.run(&["ls", "nowhere", "--json"]).expect_code(4).error()["kind"], "not-found");
    tool.run(&["show", "repo", "other"]).expect_code(4);
    tool.run(&["show", "repo", "gpt@step=99"]).expect_code(4);
    tool.run(&["show", "repo", "gpt@ordinal=99"]).expect_code(4);
    tool.run(&["import", "repo", "--run", "gpt", "--step", "1", "no-such.safetensors"]).expect_code(4);
    let nothing = tool.path("nowhere");
    assert!(!nothing.exists(), "looking does not create");
}

#[test]
fn an_unreachable_store_exits_with_3() {
    let tool = Tool::new();
    let mut command = tool.command(&[
        "ls",
        "s3://bucket/x",
        "--endpoint-url",
        "http://127.0.0.1:1",
        "--allow-http",
        "--json",
    ]);
    command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "very-secret");
    let output = command.output().expect("starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("unreachable") && !stderr.contains("very-secret"), "{stderr}");
}

/// Gives `everstep.json` another version, sealed anew.
fn change_version(tool: &Tool, version: u64) {
    let path = tool.path("repo/everstep.json");
    let text = std::fs::read_to_string(&path).expect("there");
    let other = text.replacen("\"version\":1", &format!("\"version\":{version}"), 1);
    assert_ne!(text, other);
    let body = &other[..other.rfind(",\"blake3\"").expect("sealed")];
    std::fs::write(&path, format!("{body},\"blake3\":\"{}\"}}\n", blake3::hash(body.as_bytes())))
        .expect("written");
}

#[test]
fn a_second_init_and_a_newer_format_exit_with_5() {
    let tool = Tool::with_repository();
    assert_eq!(tool.run(&["init", "repo", "--json"]).expect_code(5).error()["kind"], "conflict");
    change_version(&tool, 99);
    let answer = tool.run(&["ls", "repo", "--json"]);
    assert_eq!(answer.expect_code(5).error()["kind"], "unsupported-version");
    assert!(answer.stderr.contains("upgrade Everstep"), "{}", answer.stderr);
}

#[test]
fn a_repository_of_a_draft_exits_with_5_and_says_what_can_be_done() {
    let tool = Tool::with_repository();
    tool.import("gpt", 1, &[("w", 1.0, 4)]);
    change_version(&tool, 0);
    for args in [
        &["ls", "repo", "--json"][..],
        &["verify", "repo", "--json"],
        &["export", "repo", "gpt", "-o", "x", "--json"],
    ] {
        let answer = tool.run(args);
        assert_eq!(answer.expect_code(5).error()["kind"], "unsupported-version");
        for said in ["before the format was released", "export it with the program that wrote it"] {
            assert!(answer.stderr.contains(said), "{}", answer.stderr);
        }
    }
}

#[test]
fn an_export_never_replaces_a_file_unasked() {
    let tool = Tool::with_repository();
    tool.import("gpt", 1, &[("w", 1.0, 4)]);
    std::fs::write(tool.path("out"), "precious").expect("written");
    tool.run(&["export", "repo", "gpt", "-o", "out"]).expect_code(2);
    assert_eq!(std::fs::read(tool.path("out")).expect("there"), b"precious");
    tool.run(&["export", "repo", "gpt", "-o", "out", "--force"]).expect_code(0);
    let left: Vec<_> = std::fs::read_dir(tool.folder.path())
        .expect("there")
        .map(|e| e.expect("entry").file_name())
        .collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with(".tmp")), "{left:?}");
}

#[test]
fn c26_an_index_that_leads_outside_its_folder_is_refused() {
    let tool = Tool::with_repository();
    tool.model("m.safetensors", &[("w", 1.0, 4)]);
    for file in ["../m.safetensors", "/etc/passwd", "a/../m.safetensors", "C:\\x", "a\0b", "..", ""] {
        let index = serde_json::json!({ "weight_map": { "w": file } });
        std::fs::write(tool.path("x.index.json"), index.to_string()).expect("written");
        let answer = tool.run(&["import", "repo", "--run", "gpt", "--step", "1", "x.index.json"]);
        assert!(answer.expect_code(2).stderr.contains("bare name"), "{}", answer.stderr);
    }
    assert!(!tool.path("repo/runs").exists(), "the run was not touched");
}

#[test]
fn a_file_that_is_cut_short_or_no_model_is_refused_before_the_run_is_touched() {
    let tool = Tool::with_repository();
    let path = tool.model("m.safetensors", &[("w", 1.0, 400)]);
    let whole = std::fs::read(&path).expect("there");
    for length in [0, 7, 8, 20, whole.len() - 1] {
        std::fs::write(&path, &whole[..length]).expect("written");
        tool.run(&["import", "repo", "--run", "gpt", "--step", "1", "m.safetensors"]).expect_code(2);
    }
    assert!(!tool.path("repo/runs").exists());
}
