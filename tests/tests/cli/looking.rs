//! `cat`: elements, statistics, slices, objects, bytes.

use everstep::{
    Bounds, Content, Dtype, ObjectEntry, Options, Rank, Replicas, Repository, Shard, Source, State, Step,
    Value, WriterOptions,
};
use serde_json::{Value as Json, json};

use crate::tool::Tool;

struct Tensor {
    name: &'static str,
    dtype: Dtype,
    shape: Vec<u64>,
    bytes: Vec<u8>,
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn tensors() -> Vec<Tensor> {
    let tensor = |name, dtype, shape: &[u64], bytes| Tensor { name, dtype, shape: shape.to_vec(), bytes };
    let table: Vec<f32> = (0..6400u16).map(f32::from).collect();
    vec![
        tensor("table", Dtype::F32, &[100, 64], floats(&table)),
        tensor(
            "odd",
            Dtype::F32,
            &[2, 3],
            floats(&[1.5, f32::NAN, -0.0, f32::INFINITY, f32::NEG_INFINITY, 0.1]),
        ),
        tensor("brain", Dtype::Bf16, &[3], vec![0x80, 0x3f, 0xc0, 0x7f, 0x00, 0x80]),
        tensor("eight", Dtype::F8E4m3fn, &[4], vec![0x38, 0x7f, 0x80, 0x7e]),
        tensor("packed", Dtype::I4, &[3, 4], vec![0x10, 0x32, 0x54, 0x76, 0x98, 0xba]),
        tensor("truth", Dtype::Bool, &[2], vec![0, 1]),
        tensor("wave", Dtype::Complex64, &[1], floats(&[1.0, -2.0])),
        tensor("scalar", Dtype::I64, &[], (-7i64).to_le_bytes().to_vec()),
        tensor("none", Dtype::F32, &[0, 3], Vec::new()),
        tensor("esc\u{1b}[2J\nape", Dtype::U8, &[2], vec![1, 255]),
    ]
}

fn objects() -> Vec<ObjectEntry> {
    let object = |name: &str, rank: Option<u32>, content| ObjectEntry {
        name: name.to_owned(),
        owner: rank.map(Rank).into(),
        content,
    };
    let text = |text: &str| Value::Text(text.to_owned());
    let map = Value::Map(vec![
        (text("betas"), Value::Tuple(vec![Value::Float(0.9), Value::Int(2)])),
        (Value::Int(0), text("a\u{1b}b")),
        (text("nan"), Value::Float(f64::NAN)),
    ]);
    vec![
        object("config", None, Content::Value(map)),
        object("blob", None, Content::Opaque(vec![0, 1, b'a', 255].into())),
        object("rng", Some(0), Content::Value(Value::Int(10))),
        object("rng", Some(1), Content::Value(Value::Int(11))),
    ]
}

/// A repository with one checkpoint of these, in small blocks.
fn tool() -> Tool {
    let tool = Tool::new();
    tool.run(&["init", "repo", "--block-elements", "640"]).expect_code(0);
    let place = tool.path("repo").display().to_string();
    let repository = Repository::open(&place, &Options::default()).expect("opens");
    let tensors = tensors();
    let shards = tensors.iter().map(|tensor| Shard {
        name: tensor.name.to_owned(),
        dtype: tensor.dtype,
        shape: tensor.shape.clone(),
        bounds: Bounds::whole(&tensor.shape),
        alias_of: None,
        replicas: Replicas::None,
        source: Source::Memory(&tensor.bytes),
    });
    let state = State { shards: shards.collect(), objects: objects() };
    let mut writer = repository.run("gpt").expect("a run").writer(WriterOptions::default()).expect("opens");
    writer.save(Step(1), &state, Default::default()).expect("saved");
    writer.close().expect("closed");
    tool
}

fn cat(tool: &Tool, args: &[&str]) -> Json {
    tool.json(&[&["cat", "repo", "gpt"], args].concat())
}

#[test]
fn every_type_is_shown_exactly_with_statistics() {
    let tool = tool();
    let odd = cat(&tool, &["odd"]);
    assert_eq!(
        (&odd["schema"], &odd["dtype"], &odd["shape"]),
        (&"everstep.cat/1".into(), &"f32".into(), &json!([2, 3]))
    );
    let tenth = f64::from(0.1f32);
    assert_eq!(odd["values"], json!([[1.5, "NaN", -0.0], ["Infinity", "-Infinity", tenth]]));
    let statistics = &odd["statistics"];
    for (field, expected) in
        [("count", 6), ("zeros", 1), ("nan", 1), ("positive_infinity", 1), ("negative_infinity", 1)]
    {
        assert_eq!(statistics[field], expected, "{field}");
    }
    assert_eq!((&statistics["min"], &statistics["max"]), (&json!(-0.0), &json!(1.5)));
    assert_eq!(cat(&tool, &["brain"])["values"], json!([1.0, "NaN", -0.0]));
    assert_eq!(cat(&tool, &["eight"])["values"], json!([1.0, "NaN", -0.0, 448.0]));
    assert_eq!(cat(&tool, &["packed"])["values"], json!([[0, 1, 2, 3], [4, 5, 6, 7], [-8, -7, -6, -5]]));
    assert_eq!(cat(&tool, &["truth"])["values"], json!([false, true]));
    assert_eq!(cat(&tool, &["scalar"])["values"], json!(-7));
    assert_eq!(cat(&tool, &["none"])["values"], json!([]));
    let wave = cat(&tool, &["wave"]);
    assert_eq!(
        (&wave["values"], &wave["statistics"]["imaginary"]["mean"]),
        (&json!([[1.0, -2.0]]), &json!(-2.0))
    );
}

#[test]
fn text_is_laid_out_for_people() {
    let tool = tool();
    let shown = tool.run(&["cat", "repo", "gpt", "odd"]);
    assert!(
        shown.expect_code(0).stdout.contains("[[ 1.5  nan -0.0]\n [ inf -inf  0.1]]"),
        "{}",
        shown.stdout
    );
    let table = tool.run(&["cat", "repo", "gpt", "table"]).stdout;
    assert!(table.contains("[[   0.0    1.0    2.0 ...   61.0   62.0   63.0]\n"), "{table}");
    assert!(table.contains("\n ...\n") && table.contains("6399.0]]") && table.contains("3199.5"), "{table}");
    let name = "esc\u{1b}[2J\nape";
    let escaped = tool.run(&["cat", "repo", "gpt", name]);
    assert!(!escaped.expect_code(0).stdout.contains('\u{1b}') && escaped.stdout.contains("[  1 255]"));
}

#[test]
fn a_slice_reads_what_python_would_and_only_the_chunks_it_touches() {
    let tool = tool();
    let sliced = cat(&tool, &["table", "--slice", "-2:,1"]);
    assert_eq!((&sliced["values"], &sliced["sliced_shape"]), (&json!([6273.0, 6337.0]), &json!([2])));
    assert_eq!((&sliced["offset"], &sliced["extent"]), (&json!([98, 1]), &json!([2, 1])));
    assert_eq!(cat(&tool, &["table", "--slice", "...,-1"])["count"], 100);
    assert_eq!(cat(&tool, &["packed", "--slice", "1:3"])["values"], json!([[4, 5, 6, 7], [-8, -7, -6, -5]]));
    assert_eq!(cat(&tool, &["table", "--slice", "5:5"])["values"], json!([]));
    let cut = tool.run(&["cat", "repo", "gpt", "packed", "--slice", ":,1:3"]);
    assert!(cut.expect_code(2).stderr.contains("byte"), "{}", cut.stderr);
    for (bad, part) in [("100", "0 to 99"), ("0,0,0", "has 2"), ("::2", "step"), ("x", "no index")] {
        let refused = tool.run(&["cat", "repo", "gpt", "table", "--slice", bad]);
        assert!(refused.expect_code(2).stderr.contains(part), "{bad}: {}", refused.stderr);
    }
    // Rows 0 to 9 are the first of ten chunks; damage in another one is not met, and is met by reading all.
    for entry in walk(&tool.path("repo/packs")) {
        let mut bytes = std::fs::read(&entry).expect("there");
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        std::fs::write(&entry, bytes).expect("written");
    }
    assert_eq!(cat(&tool, &["table", "--slice", "0:2,0"])["values"], json!([0.0, 64.0]));
    let whole = cat_all(&tool);
    assert!(whole.contains(&1), "some chunk is damaged: {whole:?}");
}

/// The exit status of reading each tensor.
fn cat_all(tool: &Tool) -> Vec<i32> {
    tensors().iter().map(|tensor| tool.run(&["cat", "repo", "gpt", tensor.name]).code).collect()
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("there").map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() { files.extend(walk(&entry)) } else { files.push(entry) }
    }
    files
}

#[test]
fn raw_bytes_are_the_bytes_and_nothing_else() {
    let tool = tool();
    let raw = |args: &[&str]| {
        let args = [&["cat", "repo", "gpt"], args, &["--raw"]].concat();
        let output = tool.command(&args).output().expect("starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    for tensor in tensors() {
        assert_eq!(raw(&[tensor.name]), tensor.bytes, "{:?}", tensor.name);
    }
    assert_eq!(raw(&["table", "--slice", "1,:2"]), floats(&[64.0, 65.0]));
    assert_eq!(raw(&["blob"]), [0, 1, b'a', 255]);
    assert_eq!(raw(&["rng", "--rank", "1"]), Value::Int(11).to_bytes().expect("encodes"));
    tool.run(&["cat", "repo", "gpt", "table", "--raw", "--json"]).expect_code(2);
}

#[test]
fn objects_are_readable_and_keep_their_types() {
    let tool = tool();
    let shown = tool.run(&["cat", "repo", "gpt", "config"]);
    let text = &shown.expect_code(0).stdout;
    assert!(text.contains("{\"betas\": (0.9, 2), 0: \"a\\u001bb\", \"nan\": nan}"), "{text}");
    let document = cat(&tool, &["config"]);
    let pairs = json!([["betas", { "$tuple": [0.9, 2] }], [0, "a\u{1b}b"], ["nan", { "$float": "NaN" }]]);
    assert_eq!(document["value"], json!({ "$map": pairs }));
    assert_eq!(cat(&tool, &["blob"])["hex"], "000161ff");
    assert!(tool.run(&["cat", "repo", "gpt", "blob"]).stdout.contains("00 01 61 ff"));
    assert_eq!(cat(&tool, &["rng", "--rank", "1"])["value"], 11);
    let ranks = tool.run(&["cat", "repo", "gpt", "rng"]);
    assert!(ranks.expect_code(2).stderr.contains("per rank"), "{}", ranks.stderr);
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let tool = tool();
    let missing = tool.run(&["cat", "repo", "gpt", "TABLE"]);
    assert!(missing.expect_code(4).stderr.contains("\"table\""), "{}", missing.stderr);
    tool.run(&["cat", "repo", "gpt", "config", "--slice", "0"]).expect_code(2);
    tool.run(&["cat", "repo", "gpt", "table", "--rank", "0"]).expect_code(2);
    tool.run(&["cat", "repo", "gpt"]).expect_code(2);
}
