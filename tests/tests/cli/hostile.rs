//! Files and repositories that somebody made up, met on the command line.

use std::os::unix::fs::symlink;
use std::path::Path;

use crate::tool::{Answer, Tool, write_model};

const IMPORT: [&str; 6] = ["import", "repo", "--run", "gpt", "--step", "1"];

fn import(tool: &Tool, bytes: &[u8]) -> Answer {
    std::fs::write(tool.path("x.safetensors"), bytes).expect("written");
    tool.run(&[&IMPORT[..], &["x.safetensors", "--json"]].concat())
}

fn file(header: &str, data: usize) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; data]].concat()
}

/// Refused as a mistake in a local file, in a message that a person can read.
#[track_caller]
fn expect_refused(answer: &Answer) {
    answer.expect_code(2);
    assert!(answer.stderr.len() < 4000 && !answer.stderr.contains("panicked"), "{}", answer.stderr);
}

#[test]
fn c25_a_safetensors_header_that_lies_is_refused() {
    let tool = Tool::with_repository();
    let one = |dtype: &str, shape: &str, offsets: &str| {
        file(&format!(r#"{{"w":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#), 32)
    };
    let two = |a: &str, b: &str| {
        let tensor = |offsets: &str| format!(r#"{{"dtype":"U8","shape":[16],"data_offsets":{offsets}}}"#);
        file(&format!(r#"{{"a":{},"b":{}}}"#, tensor(a), tensor(b)), 32)
    };
    let lies = [
        [&u64::MAX.to_le_bytes()[..], b"{}"].concat(),
        one("F32", "[4611686018427387904,4]", "[0,32]"),
        one("F32", "[4294967296,4294967296]", "[0,0]"),
        one("F32", "[8]", "[32,0]"),
        one("F32", "[8]", "[-32,0]"),
        one("F32", "[8]", "[0,18446744073709551615]"),
        one("U8", "[18446744073709551615]", "[0,18446744073709551615]"),
        one("F32", "[7]", "[0,32]"),
        one("F32", "[8]", "[0,64]"),
        one("F6_E9M9", "[8]", "[0,32]"),
        two("[0,16]", "[8,24]"),
        two("[0,16]", "[0,16]"),
        two("[16,32]", "[16,32]"),
        file(&"[".repeat(100_000), 0),
        file(&format!(r#"{{"x":{}"#, "{\"a\":".repeat(100_000)), 0),
    ];
    for bytes in &lies {
        expect_refused(&import(&tool, bytes));
    }
}

#[test]
fn c25_every_prefix_of_a_small_model_is_refused() {
    let tool = Tool::with_repository();
    write_model(&tool.path("m.safetensors"), &[("layer.weight", 1.0, 20), ("layer.bias", 2.0, 9)]);
    let whole = std::fs::read(tool.path("m.safetensors")).expect("written");
    assert!((200..=350).contains(&whole.len()), "{}", whole.len());
    for len in 0..whole.len() {
        expect_refused(&import(&tool, &whole[..len]));
    }
    import(&tool, &whole).expect_code(0);
}

#[test]
fn c25_a_tensor_with_a_name_of_10_mb_is_refused_in_a_short_message() {
    let tool = Tool::with_repository();
    let name = "n".repeat(10_000_000);
    expect_refused(&import(
        &tool,
        &file(&format!(r#"{{"{name}":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}}}"#), 1),
    ));
}

/// What a library panicked at is told as damage, not as a crash.
#[test]
fn c25_an_index_at_which_its_decoder_panics_is_damaged_and_no_panic_is_printed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("in the workspace");
    let fixture = root.join("fixtures/hostile/dictionary-of-no-values/repository");
    let fixture = fixture.to_str().expect("UTF-8");
    let tool = Tool::new();
    let verified = tool.run(&["verify", fixture, "--json"]);
    assert!(verified.expect_code(1).stdout.contains("bytes that its decoder gave up on"), "it still panics");
    let exported = tool.run(&["export", fixture, "bad@ordinal=2", "-o", "out.safetensors"]);
    exported.expect_code(1);
    for answer in [verified, exported] {
        assert!(!answer.stderr.contains("panicked"), "{}", answer.stderr);
    }
}

#[test]
fn c26_a_pickle_is_refused_by_name_and_never_run() {
    let tool = Tool::with_repository();
    let marker = tool.path("marker");
    let code = format!("cposix\nsystem\n(S'touch {}'\ntR.", marker.display());
    for bytes in [
        [b"\x80\x02", code.as_bytes()].concat(),
        [b"PK\x03\x04\x14\x00\x08\x08\x08\x08", code.as_bytes()].concat(),
    ] {
        let answer = import(&tool, &bytes);
        expect_refused(&answer);
        assert!(answer.stderr.contains("pickle"), "{}", answer.stderr);
    }
    assert!(!marker.exists());
}

/// Whoever looked for the newest checkpoint past a decision that is a link would take an older one for it.
#[test]
fn c26_a_link_in_the_place_of_a_record_is_damage_and_hides_no_newer_checkpoint() {
    let outside = Tool::new();
    for name in
        ["everstep.json", "runs/gpt/decisions/00000000000000000004", "runs/gpt/intents/00000000000000000004"]
    {
        let tool = Tool::with_repository();
        tool.import("gpt", 1, &[("w", 1.5, 3)]);
        tool.import("gpt", 2, &[("w", 2.5, 3)]);
        let (place, moved) = (tool.path("repo").join(name), outside.path(&name.replace('/', "-")));
        std::fs::rename(&place, &moved).expect("moved");
        symlink(&moved, &place).expect("linked");
        let verified = tool.run(&["verify", "repo", "--json"]);
        verified.expect_code(1);
        assert!(format!("{}{}", verified.stdout, verified.stderr).contains("no link is followed"), "{name}");
        let exported = tool.run(&["export", "repo", "gpt", "-o", "out.safetensors"]);
        exported.expect_code(if name.contains("intents") { 0 } else { 1 });
    }
}

#[test]
fn c26_links_out_of_a_repository_are_never_opened() {
    let outside = Tool::with_repository();
    outside.import("gpt", 1, &[("w", 1.5, 3000)]);
    for part in ["runs", "index", "packs"] {
        let tool = Tool::with_repository();
        tool.import("gpt", 1, &[("w", 1.5, 3000)]);
        std::fs::remove_dir_all(tool.path("repo").join(part)).expect("removed");
        symlink(outside.path("repo").join(part), tool.path("repo").join(part)).expect("linked");
        let exported = tool.run(&["export", "repo", "gpt", "-o", "out.safetensors"]);
        assert_ne!(exported.code, 0, "{part}: {}", exported.stdout);
        assert!(!tool.path("out.safetensors").exists(), "{part}");
    }
}
