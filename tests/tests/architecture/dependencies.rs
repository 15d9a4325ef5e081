//! Which crate may know which: the picture in ARCHITECTURE.md, as a test on `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, PackageId};

/// Crate, and the workspace crates that it may depend on.
const ALLOWED: &[(&str, &[&str])] = &[
    ("everstep-format", &[]),
    ("everstep-store", &["everstep-format"]),
    ("everstep-repo", &["everstep-format", "everstep-store"]),
    ("everstep-save", &["everstep-format", "everstep-store", "everstep-repo"]),
    ("everstep-restore", &["everstep-format", "everstep-store", "everstep-repo"]),
    ("everstep-gc", &["everstep-format", "everstep-store", "everstep-repo"]),
    ("everstep-check", &["everstep-format", "everstep-store", "everstep-repo"]),
    (
        "everstep",
        &[
            "everstep-format",
            "everstep-store",
            "everstep-repo",
            "everstep-save",
            "everstep-restore",
            "everstep-check",
            "everstep-gc",
        ],
    ),
    ("everstep-python", &["everstep"]),
    ("ckpt-bench", &["everstep"]),
    ("ckpt-gc", &["everstep"]),
    ("ckpt-inspect", &["everstep"]),
];

/// Crates of the test world: they may know everything, and nothing that is shipped may know them.
const TEST_WORLD: &[&str] = &["everstep-model", "everstep-sim", "everstep-tests"];

/// What the format must not pull, directly or through others: no async runtime, no store, no randomness.
const NOT_IN_FORMAT: &[&str] =
    &["tokio", "async-std", "smol", "futures-executor", "object_store", "rand", "rand_core"];

fn metadata() -> Metadata {
    MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"))
        .other_options(vec!["--offline".to_owned(), "--locked".to_owned()])
        .exec()
        .expect("cargo metadata answers")
}

#[test]
fn dependencies_between_our_crates_point_one_way() {
    let metadata = metadata();
    let members: BTreeSet<&str> = metadata.workspace_packages().iter().map(|p| p.name.as_str()).collect();
    let known: BTreeSet<&str> =
        ALLOWED.iter().map(|(name, _)| *name).chain(TEST_WORLD.iter().copied()).collect();
    assert_eq!(
        members, known,
        "every crate of the workspace has its line in this test, and the other way round"
    );

    let mut wrong = Vec::new();
    for package in metadata.workspace_packages() {
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == package.name.as_str()) else {
            continue;
        };
        for dependency in package.dependencies.iter().filter(|d| members.contains(d.name.as_str())) {
            if !allowed.contains(&dependency.name.as_str()) {
                wrong.push(format!("{} -> {} ({:?})", package.name, dependency.name, dependency.kind));
            }
        }
    }
    assert!(wrong.is_empty(), "edges that the architecture does not have: {wrong:#?}");
}

#[test]
fn the_format_pulls_no_runtime_no_store_and_no_randomness() {
    let metadata = metadata();
    let resolve = metadata.resolve.as_ref().expect("resolved");
    let names: BTreeMap<&PackageId, &str> =
        metadata.packages.iter().map(|p| (&p.id, p.name.as_str())).collect();
    let mut open: Vec<&PackageId> =
        metadata.packages.iter().filter(|p| p.name.as_str() == "everstep-format").map(|p| &p.id).collect();
    assert_eq!(open.len(), 1);
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !seen.insert(id) {
            continue;
        }
        let node = resolve.nodes.iter().find(|node| node.id == *id).expect("every package is resolved");
        let shipped =
            node.deps.iter().filter(|d| d.dep_kinds.iter().any(|k| k.kind == DependencyKind::Normal));
        open.extend(shipped.map(|d| &d.pkg));
    }
    let pulled: BTreeSet<&str> = seen.iter().map(|id| names[*id]).collect();
    let forbidden: Vec<_> = NOT_IN_FORMAT.iter().filter(|name| pulled.contains(**name)).collect();
    assert!(forbidden.is_empty(), "everstep-format pulls {forbidden:?}");
}
