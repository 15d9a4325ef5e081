//! C30: a tensor's name is never part of a path and never reaches the terminal raw.

use crate::tool::Tool;

#[test]
fn c30_each_name_gives_its_own_value_and_none_is_a_path() {
    let names = everstep_tests::names::awkward();
    let tool = Tool::with_repository();
    let tensors: Vec<(&str, f32, usize)> =
        names.iter().enumerate().map(|(i, n)| (n.as_str(), i as f32, 3)).collect();
    tool.import("gpt", 1, &tensors);
    for (index, name) in names.iter().enumerate() {
        let literal: String =
            name.chars().flat_map(|c| if "*?[]\\".contains(c) { vec!['\\', c] } else { vec![c] }).collect();
        if name.contains('\0') {
            continue; // a command line cannot carry it; the library's tests do
        }
        let out = format!("{index}.safetensors");
        tool.run(&["export", "repo", "gpt", "-o", &out, "--select", &literal]).expect_code(0);
        let bytes = std::fs::read(tool.path(&out)).expect("there");
        let expected = [(index as f32).to_le_bytes(); 3].concat();
        assert_eq!(bytes[bytes.len() - 12..], expected[..], "{name:?}");
        let header = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
        assert_eq!(bytes.len() as u64, 8 + header + 12, "{name:?} alone");
    }
    let mut open = vec![tool.path("repo")];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).expect("there").map(|e| e.expect("entry")) {
            let name = entry.file_name().into_string().expect("UTF-8");
            assert!(
                name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || b"._-".contains(&c)),
                "{name}"
            );
            if entry.path().is_dir() {
                open.push(entry.path());
            }
        }
    }
    let listed = tool.run(&["tensors", "repo", "gpt"]);
    assert!(!listed.expect_code(0).stdout.contains('\u{1b}') && listed.stdout.contains("n\\nl"));
}
