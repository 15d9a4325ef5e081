//! Retention in the background of a trainer: it frees space, and never stops training.

use everstep::gc::{Policy, Settings};
use everstep::{
    Bounds, Dtype, ErrorKind, Options, Replicas, Repository, Saved, Shard, Source, State, Step, Writer,
    WriterOptions,
};

const BYTES: usize = 4096;

fn save(writer: &mut Writer, step: u8) {
    let bytes = vec![step; BYTES];
    let shape = vec![BYTES as u64];
    let (bounds, source) = (Bounds::whole(&shape), Source::Memory(&bytes));
    let (name, replicas) = ("w".to_owned(), Replicas::None);
    let shard = Shard { name, dtype: Dtype::U8, shape, bounds, alias_of: None, replicas, source };
    let state = State { shards: vec![shard], objects: vec![] };
    writer.save(Step(step.into()), &state, Saved::default()).expect("training goes on");
}

#[test]
fn a_trainer_retains_in_the_background_and_a_failure_is_told_and_no_more() {
    let folder = tempfile::tempdir().expect("a directory");
    let address = folder.path().to_str().expect("UTF-8");
    let repository = Repository::init(address, &Options::default(), Default::default()).expect("made");
    let run = repository.run("gpt").expect("a name");
    let mut writer = run.writer(WriterOptions::default()).expect("free");
    let policy = Policy::from_toml("[[policy]]\nruns = \"*\"\nkeep_last = 1\n").expect("a policy");
    (1..=3).for_each(|step| save(&mut writer, step));
    let retention = repository.retain(policy.clone(), Settings::default());
    save(&mut writer, 4);
    let done = retention.wait().expect("it ends").expect("nothing is in the way");
    assert!((2..=3).contains(&done.expired.len()) && done.packs.objects >= 2, "{done:?}");

    std::fs::write(folder.path().join("runs/gpt/decisions/00000000000000000002"), "x").expect("written");
    let again = Repository::open(address, &Options::default()).expect("opens");
    let error = again.retain(policy, Settings::default()).wait().expect("it ends").expect_err("damage");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    save(&mut writer, 5);
    let latest = run.latest().expect("readable").expect("there");
    assert_eq!(latest.read("w", None).expect("whole"), vec![5; BYTES]);
    writer.close().expect("closed");
}
