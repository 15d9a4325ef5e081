//! The contract that scripts rely on: verbs, arguments, JSON fields.

use crate::tool::Tool;

const MODEL: &[(&str, f32, usize)] = &[("a.weight", 1.5, 1000), ("b.bias", -2.0, 10), ("c", 0.25, 1)];

#[test]
fn the_whole_path_gives_back_the_file_that_was_imported() {
    let tool = Tool::with_repository();
    tool.model("in.safetensors", MODEL);
    let import = tool.json(&["import", "repo", "--run", "gpt", "--step", "7", "in.safetensors"]);
    assert_eq!(import["schema"], "everstep.import/1");
    assert_eq!((import["run"].as_str(), import["step"].as_u64()), (Some("gpt"), Some(7)));
    assert_eq!(import["raw_bytes"], 4044);
    assert!(import["ordinal"].as_u64() > Some(0) && import["bytes_uploaded"].as_u64() > Some(0));
    assert!(import["chunks_uploaded"].as_u64() > Some(0));
    assert_eq!(import["chunks_reused"], 0);

    let list = tool.json(&["ls", "repo"]);
    assert_eq!(list["schema"], "everstep.ls/1");
    let checkpoints = list["checkpoints"].as_array().expect("an array");
    assert_eq!(checkpoints.len(), 1);
    assert_eq!(checkpoints[0]["step"], 7);
    assert_eq!(list["unfinished"].as_array().map(Vec::len), Some(0));

    let shown = tool.json(&["show", "repo", "gpt"]);
    assert_eq!((&shown["schema"], &shown["manifest"]["step"]), (&"everstep.show/1".into(), &7.into()));
    let tensors = tool.json(&["tensors", "repo", "gpt@step=7"]);
    assert_eq!(tensors["schema"], "everstep.tensors/1");
    assert_eq!(tensors["tensors"].as_array().map(Vec::len), Some(3));
    let verified = tool.json(&["verify", "repo", "--deep"]);
    assert_eq!((&verified["schema"], &verified["sound"]), (&"everstep.verify/1".into(), &true.into()));

    let exported = tool.json(&["export", "repo", "gpt@ordinal=2", "-o", "out.safetensors"]);
    assert_eq!(exported["schema"], "everstep.export/1");
    let [one, other] =
        ["in.safetensors", "out.safetensors"].map(|name| std::fs::read(tool.path(name)).expect("there"));
    assert!(one == other, "the export differs from what was imported");
}

#[test]
fn an_unchanged_model_uploads_nothing_the_second_time() {
    let tool = Tool::with_repository();
    tool.import("gpt", 1, MODEL);
    let second = tool.import("gpt", 2, MODEL);
    assert_eq!((&second["chunks_uploaded"], &second["bytes_uploaded"]), (&0.into(), &0.into()));
    assert!(second["chunks_reused"].as_u64() > Some(0));
}

#[test]
fn the_repository_may_come_from_the_environment() {
    let tool = Tool::with_repository();
    tool.import("gpt", 1, MODEL);
    for args in [&["ls"][..], &["show", "gpt"], &["tensors", "gpt"], &["verify"], &["verify", "gpt"]] {
        let output = tool.command(args).env("EVERSTEP_REPOSITORY", "repo").output().expect("starts");
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn globs_choose_tensors_everywhere() {
    let tool = Tool::with_repository();
    tool.import("gpt", 1, MODEL);
    let chosen = tool.json(&[
        "tensors",
        "repo",
        "gpt",
        "--select",
        "*.weight",
        "--select",
        "*.bias",
        "--exclude",
        "b*",
    ]);
    let names: Vec<_> =
        chosen["tensors"].as_array().expect("an array").iter().map(|t| t["name"].clone()).collect();
    assert_eq!(names, ["a.weight"]);
    tool.run(&["export", "repo", "gpt", "-o", "part.safetensors", "--exclude", "*.weight"]).expect_code(0);
    tool.json(&["import", "repo", "--run", "part", "--step", "1", "part.safetensors"]);
    let part = tool.json(&["tensors", "repo", "part"]);
    assert_eq!(part["tensors"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_reference_can_name_a_step_an_ordinal_or_the_best_metric() {
    let tool = Tool::with_repository();
    for (step, loss) in [(1, "0.5"), (2, "0.1"), (3, "0.3")] {
        tool.model("m.safetensors", &[("w", step as f32, 4)]);
        let loss = format!("loss={loss}");
        let step = step.to_string();
        tool.json(&["import", "repo", "--run", "gpt", "--step", &step, "m.safetensors", "--metadata", &loss]);
    }
    let step_of = |reference: &str| tool.json(&["show", "repo", reference])["manifest"]["step"].clone();
    assert_eq!(step_of("gpt"), 3);
    assert_eq!(step_of("gpt@latest"), 3);
    assert_eq!(step_of("gpt@step=1"), 1);
    assert_eq!(step_of("gpt@min=loss"), 2);
    assert_eq!(step_of("gpt@max=loss"), 1);
}

#[test]
fn text_for_people_has_no_bars_and_no_escapes_when_it_is_no_terminal() {
    let tool = Tool::with_repository();
    tool.import("gpt", 1, MODEL);
    for args in
        [&["ls", "repo"][..], &["show", "repo", "gpt"], &["tensors", "repo", "gpt"], &["verify", "repo"]]
    {
        let answer = tool.run(args);
        answer.expect_code(0);
        assert!(
            !answer.stdout.contains('\u{1b}') && answer.stderr.is_empty(),
            "{}{}",
            answer.stdout,
            answer.stderr
        );
    }
}

#[test]
fn every_verb_explains_itself() {
    let tool = Tool::new();
    let help = tool.run(&["--help"]);
    help.expect_code(0);
    for verb in [
        "init", "import", "ls", "show", "tensors", "verify", "export", "cat", "pin", "unpin", "pins",
        "resolve", "doctor",
    ] {
        assert!(help.stdout.contains(verb));
        assert!(tool.run(&[verb, "--help"]).expect_code(0).stdout.contains("Usage"));
    }
    assert!(help.stdout.contains("Exit status"));
}

#[test]
fn a_sharded_model_is_imported_by_its_index() {
    let tool = Tool::with_repository();
    tool.model("model-1.safetensors", &[("a", 1.0, 8), ("left.out", 9.0, 8)]);
    tool.model("model-2.safetensors", &[("b", 2.0, 8)]);
    let index =
        serde_json::json!({ "weight_map": { "a": "model-1.safetensors", "b": "model-2.safetensors" } });
    std::fs::write(tool.path("model.safetensors.index.json"), index.to_string()).expect("written");
    let import =
        tool.json(&["import", "repo", "--run", "gpt", "--step", "1", "model.safetensors.index.json"]);
    assert_eq!((&import["tensors"], &import["raw_bytes"]), (&2.into(), &64.into()));
}

#[test]
fn c28_another_run_shares_the_chunks_of_a_parent_and_neither_needs_the_other() {
    let tool = Tool::with_repository();
    tool.import("base", 1, MODEL);
    let alone = tool.import("alone", 1, MODEL);
    assert!(alone["chunks_uploaded"].as_u64() > Some(0), "runs share nothing unless told to");
    tool.model("m.safetensors", MODEL);
    let tuned =
        tool.json(&["import", "repo", "--run", "tuned", "--step", "1", "--parent", "base", "m.safetensors"]);
    assert_eq!(tuned["chunks_uploaded"], 0);
    let parents = tool.json(&["show", "repo", "tuned"])["manifest"]["parents"].clone();
    assert_eq!(parents[0]["run"], "base");
    tool.run(&["verify", "repo", "--deep"]).expect_code(0);
}
