//! Files and tensors beyond 4 GiB.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use everstep_store::SystemWorld;
use everstep_tests::large::{VAST, VAST_ELEMENTS, commit_vast};
use serde_json::{Value, json};

use crate::tool::Tool;

/// Elements of the two tensors of the file: 2 GiB and 4 bytes, 4 GiB and 1 byte.
const FLOATS: u64 = (1 << 29) + 1;
const BYTES: u64 = (1 << 32) + 1;

fn cat(tool: &Tool, name: &str, slice: &str) -> Value {
    tool.json(&["cat", "repo", "gpt", name, &format!("--slice={slice}")])["values"].clone()
}

#[test]
fn c24_a_tensor_of_a_tebibyte_is_shown_and_looked_at_by_slices() {
    let tool = Tool::with_repository();
    let place = tool.path("repo").display().to_string();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let world = Arc::new(SystemWorld::new());
        let store = everstep_store::open(&place, &Default::default(), world.clone()).await.expect("opens");
        let repository = everstep_repo::Repository::open(store, world).await.expect("opens");
        commit_vast(&repository, "gpt").await;
    });
    let tensors = tool.json(&["tensors", "repo", "gpt"]);
    let told = &tensors["tensors"][0];
    assert_eq!((&told["raw_bytes"], &told["shape"]), (&json!(VAST_ELEMENTS), &json!([VAST_ELEMENTS])));
    let shown = tool.run(&["show", "repo", "gpt"]);
    assert!(shown.expect_code(0).stdout.contains("1.10 TB"), "{}", shown.stdout);
    for slice in ["-3:", "4294967294:4294967297", "2147483647:2147483650"] {
        assert_eq!(cat(&tool, VAST, slice), json!([0, 0, 0]), "{slice}");
    }
    assert_eq!(cat(&tool, VAST, "-1"), json!(0));
    let beyond = tool.run(&["cat", "repo", "gpt", VAST, "--slice=1099511627776"]);
    beyond.expect_code(2);
    tool.run(&["verify", "repo"]).expect_code(0);
}

/// A file with holes: of each tensor the first and last five elements are 100 to 104, and every 64 MiB say where they are.
fn write_holes(path: &Path) {
    let end = FLOATS * 4 + BYTES;
    let mut header = format!(
        r#"{{"floats":{{"dtype":"F32","shape":[{FLOATS}],"data_offsets":[0,{}]}},"bytes":{{"dtype":"U8","shape":[{BYTES}],"data_offsets":[{},{end}]}}}}"#,
        FLOATS * 4,
        FLOATS * 4
    )
    .into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    let file = File::create_new(path).expect("made");
    let data = 8 + header.len() as u64;
    let write = |at: u64, bytes: &[u8]| file.write_all_at(bytes, at).expect("written");
    write(0, &(header.len() as u64).to_le_bytes());
    write(8, &header);
    file.set_len(data + end).expect("as long as that");
    for label in (4096..end).step_by(64 << 20) {
        write(data + label, &label.to_le_bytes());
    }
    let marks: [u8; 5] = [100, 101, 102, 103, 104];
    let floats: Vec<u8> = marks.iter().flat_map(|mark| f32::from(*mark).to_le_bytes()).collect();
    for at in [0, (FLOATS - 5) * 4] {
        write(data + at, &floats);
    }
    for at in [0, BYTES - 5] {
        write(data + FLOATS * 4 + at, &marks);
    }
}

/// Byte by byte, a piece at a time.
fn assert_same(one: &Path, other: &Path) {
    let [mut one, mut other] = [one, other].map(|path| File::open(path).expect("there"));
    let mut buffers = [vec![0; 8 << 20], vec![0; 8 << 20]];
    let mut at = 0;
    loop {
        let [first, second] = &mut buffers;
        let len = one.read(first).expect("read");
        other.read_exact(&mut second[..len]).expect("as long as the other");
        assert!(first[..len] == second[..len], "they differ within {len} bytes from {at}");
        if len == 0 {
            assert_eq!(other.read(second).expect("read"), 0, "longer than the other");
            return;
        }
        at += len;
    }
}

#[test]
#[ignore = "long: imports and exports a file of 6 GiB, run by make test-long"]
fn c24_a_file_beyond_4_gibibytes_is_imported_looked_at_and_exported_as_it_was() {
    let tool = Tool::with_repository();
    write_holes(&tool.path("in.safetensors"));
    let import = tool.json(&["import", "repo", "--run", "gpt", "--step", "1", "in.safetensors"]);
    assert_eq!(import["raw_bytes"], FLOATS * 4 + BYTES);
    assert_eq!(tool.json(&["show", "repo", "gpt"])["manifest"]["totals"]["raw_bytes"], FLOATS * 4 + BYTES);
    let marks = json!([100, 101, 102, 103, 104]);
    let floats = json!([100.0, 101.0, 102.0, 103.0, 104.0]);
    for (name, expected) in [("bytes", marks), ("floats", floats)] {
        assert_eq!(cat(&tool, name, ":5"), expected, "{name}");
        assert_eq!(cat(&tool, name, "-5:"), expected, "{name}");
    }
    assert_eq!(cat(&tool, "bytes", "4294967296"), json!(104));
    tool.json(&["export", "repo", "gpt", "-o", "out.safetensors"]);
    assert_same(&tool.path("in.safetensors"), &tool.path("out.safetensors"));
}
