use std::collections::BTreeSet;

use super::*;

fn run(name: &str) -> RunName {
    RunName::new(name).unwrap()
}

fn every_kind() -> Vec<StoredKind> {
    let (attempt, hash) = (AttemptId([0xab; 16]), ContentHash([0x01; 32]));
    let address = PackAddress { attempt, rank: Rank(4_294_967_295), pack: PackId([0xfe; 32]) };
    vec![
        StoredKind::Repository,
        StoredKind::Intent(run("a-1"), Ordinal::FIRST),
        StoredKind::Decision(run("a-1"), Ordinal(900_000)),
        StoredKind::Expired(run(&"z".repeat(128)), Ordinal::LAST),
        StoredKind::Index(attempt, hash),
        StoredKind::Refs(attempt, hash),
        StoredKind::Part(attempt, Rank(0), hash),
        StoredKind::Pack(address),
        StoredKind::Session(SessionId([9; 16])),
        StoredKind::Alive(attempt),
        StoredKind::Failed(attempt, Rank(12)),
        StoredKind::Card(SessionId([9; 16]), 3),
        StoredKind::Outcome(SessionId([9; 16]), u64::MAX),
        StoredKind::Lease(attempt),
        StoredKind::LeaseEnd(attempt),
        StoredKind::Swept(RunName::pins(), Ordinal(3)),
    ]
}

#[test]
fn every_key_says_what_it_stands_for() {
    for kind in every_kind() {
        let key = kind.key();
        assert_eq!(key.kind(), Some(kind));
        assert_eq!(Key::listed(key.as_str()), Some(key.clone()), "{key} keeps to the alphabet");
    }
}

#[test]
fn keys_are_spelled_as_in_the_specification() {
    let id = "ab".repeat(16);
    let key = |i: usize| every_kind()[i].key().to_string();
    assert_eq!(key(1), "runs/a-1/intents/00000000000000000001");
    assert_eq!(key(4), format!("index/{id}/{}.parquet", "01".repeat(32)));
    assert_eq!(key(5), format!("index/{id}/{}.refs", "01".repeat(32)));
    assert_eq!(key(6), format!("index/{id}/part-0-{}.parquet", "01".repeat(32)));
    let shard = blake3::hash(&[&[0xab; 16][..], &[15]].concat()).as_bytes()[0];
    assert_eq!(key(7), format!("packs/{shard:02x}/{id}/4294967295-{}", "fe".repeat(32)));
    assert_eq!(key(8), format!("sessions/{}", "09".repeat(16)));
    assert_eq!(key(10), format!("index/{id}/failed-12.json"));
    assert_eq!(key(11), format!("cards/{}/3.card", "09".repeat(16)));
    assert_eq!(key(12), format!("cards/{}/18446744073709551615.outcome", "09".repeat(16)));
    assert_eq!(key(13), format!("leases/{id}"));
    assert_eq!(key(14), format!("leases/{id}.end"));
}

/// C27: entries that are not ours, or not in our one spelling, are strays and nothing else.
#[test]
fn c27_strays_stand_for_nothing() {
    let id = "ab".repeat(16);
    let pack =
        Key::pack(&PackAddress { attempt: AttemptId([0xab; 16]), rank: Rank(1), pack: PackId([1; 32]) });
    let mut wrong_shard = pack.to_string();
    let other = if wrong_shard.as_bytes()[6] == b'0' { "1" } else { "0" };
    wrong_shard.replace_range(6..7, other);
    let strays = [
        "readme".to_owned(),
        "tmp123/x".to_owned(),
        "checkpoint-476000-1".to_owned(),
        "runs/a/readme".to_owned(),
        "runs/a/intents/7".to_owned(),
        "runs/a/intents/0000000000000000007".to_owned(),
        "runs/a/intents/00000000000000000000".to_owned(),
        "runs/a/intents/18446744073709551615".to_owned(),
        "runs/a/intents/00000000000000000001/x".to_owned(),
        "runs/a/intents/00000000000000000001-1".to_owned(),
        "runs/_other/intents/00000000000000000001".to_owned(),
        "runs/a/intents/000000000000000000+1".to_owned(),
        format!("index/{id}/part-0.parquet"),
        format!("index/{id}/part-01-{}.parquet", "01".repeat(32)),
        format!("index/{id}/part-4294967296-{}.parquet", "01".repeat(32)),
        format!("index/{id}/failed-01.json"),
        format!("cards/{id}/03.card"),
        format!("cards/{id}/3"),
        format!("leases/{id}.end.end"),
        format!("index/{id}/x.parquet"),
        format!("index/{id}"),
        format!("sessions/{id}0"),
        wrong_shard,
        format!("{pack}.tmp"),
    ];
    for stray in strays {
        let kind = Key::listed(&stray).and_then(|key| key.kind());
        assert_eq!(kind, None, "{stray}");
    }
    assert!(pack.kind().is_some());
}

#[test]
fn listed_keys_outside_of_our_alphabet_or_with_odd_segments_are_none() {
    for text in [
        "",
        "/",
        "a//b",
        "/a",
        "a/",
        ".",
        "..",
        "a/../b",
        "a/./b",
        ".DS_Store",
        "A",
        "a b",
        "a\0",
        "\u{e9}",
        "a\\b",
    ] {
        assert_eq!(Key::listed(text), None, "{text:?}");
    }
}

/// C27: text order of keys is number order.
#[test]
fn c27_ordinals_sort_as_numbers() {
    let mut ordinals = [10_000, 999, 900_000, 9000, 1000, 1, 1_000_000_000_000_000_000].map(Ordinal);
    let mut keys = ordinals.map(|n| Key::decision(&run("a"), n));
    keys.sort();
    ordinals.sort();
    assert_eq!(keys, ordinals.map(|n| Key::decision(&run("a"), n)));
}

#[test]
fn the_packs_of_an_attempt_lie_under_at_most_16_prefixes() {
    let attempt = AttemptId([7; 16]);
    let prefixes: BTreeSet<String> =
        (0..5000).map(|rank| Prefix::packs_of(attempt, Rank(rank)).to_string()).collect();
    assert!((2..=16).contains(&prefixes.len()), "{}", prefixes.len());
    let pack = PackId([1; 32]);
    for rank in [0, 15, 16, 4097].map(Rank) {
        let key = Key::pack(&PackAddress { attempt, rank, pack });
        assert!(key.as_str().starts_with(Prefix::packs_of(attempt, rank).as_str()), "{key}");
    }
    assert_eq!(Prefix::packs_of(attempt, Rank(3)), Prefix::packs_of(attempt, Rank(19)));
}

#[test]
fn attempts_spread_over_many_prefixes() {
    let prefixes: BTreeSet<String> =
        (0..=255u8).map(|n| Prefix::packs_of(AttemptId([n; 16]), Rank(0)).as_str()[..9].to_owned()).collect();
    assert!(prefixes.len() > 128, "{}", prefixes.len());
}

#[test]
fn a_prefix_never_matches_a_longer_name() {
    assert!(!Key::intent(&run("run10"), Ordinal(1)).as_str().starts_with(Prefix::run(&run("run1")).as_str()));
    let all = [
        Prefix::runs(),
        Prefix::run(&run("a")),
        Prefix::intents(&run("a")),
        Prefix::decisions(&run("a")),
        Prefix::expired(&run("a")),
        Prefix::sessions(),
        Prefix::packs(),
        Prefix::index_of(AttemptId([0; 16])),
    ];
    assert!(all.iter().all(|prefix| prefix.as_str().ends_with('/')));
    assert_eq!(Prefix::everything().as_str(), "");
}
