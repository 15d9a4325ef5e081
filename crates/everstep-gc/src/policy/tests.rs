use std::time::Duration;

use super::*;

fn parse(text: &str) -> Result<Policy, String> {
    Policy::from_toml(text).map_err(|error| error.to_string())
}

#[track_caller]
fn refused(text: &str, expected: &[&str]) {
    let error = parse(text).unwrap_err();
    for part in expected {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
}

const EVERYTHING: &str = r#"
[[policy]]
runs = ["prod-*", "release"]
keep_last = 2
keep_every = 10000
keep_within = "7 days"
hourly = 24
daily = 7
weekly = 4
monthly = 12
keep_best = [{ metric = "loss", mode = "min", count = 3 }, { metric = "accuracy", mode = "max" }]
tagged = "release"
keep_superseded = "2 weeks"
at_least = 1
max_total_size = "2 TB"
sacrifice = ["keep_superseded", "keep_every"]

[[policy]]
runs = "*"
keep_all = true
"#;

#[test]
fn a_policy_says_all_that_it_can_and_survives_a_plan() {
    let policy = parse(EVERYTHING).unwrap();
    let first = &policy.tables[0];
    assert_eq!(first.keep_within.map(|time| time.0), Some(Duration::from_secs(7 * 24 * 3600)));
    assert_eq!(first.max_total_size.map(|size| size.0), Some(2_000_000_000_000));
    assert_eq!(first.keep_best[1].count.get(), 1);
    let json = serde_json::to_string(&policy).unwrap();
    assert_eq!(Policy::from_json(&json).unwrap(), policy);
}

#[test]
fn in_json_a_policy_is_checked_alike() {
    let refused = |text: &str| Policy::from_json(text).unwrap_err().to_string();
    assert!(refused(r#"{"policy": []}"#).contains("at least one"));
    assert!(refused(r#"{"policy": [{"runs": "*"}]}"#).contains("no rule keeps anything"));
    assert!(refused(r#"{"policy": [{"runs": "*", "keep_lats": 1}]}"#).contains("keep_lats"));
}

#[test]
fn the_first_table_that_matches_a_run_counts_and_pins_have_none() {
    let policy = parse(EVERYTHING).unwrap();
    let table = |run: &str| policy.table_of(&RunName::stored(run).unwrap()).map(|table| table.keep_all);
    assert_eq!(table("prod-7b"), Some(false));
    assert_eq!(table("other"), Some(true));
    assert_eq!(table("_pins"), None);
    let narrow = parse("[[policy]]\nruns = \"a*\"\nkeep_last = 1\n").unwrap();
    assert!(narrow.table_of(&RunName::new("b").unwrap()).is_none());
}

#[test]
fn mistakes_are_told_with_line_and_field() {
    refused("", &["policy"]);
    refused("policy = []\n", &["at least one"]);
    refused("[[policy]]\nkeep_last = 1\n", &["runs"]);
    refused("[[policy]]\nruns = \"*\"\n", &["line 1", "no rule keeps anything"]);
    refused("[[policy]]\nruns = []\nkeep_last = 1\n", &["names no run"]);
    refused("[[policy]]\nruns = \"*\"\nkeep_lats = 1\n", &["line 3", "keep_lats", "keep_last"]);
    refused("[[policy]]\nruns = \"*\"\nkeep_last = 0\n", &["line 3", "keep_last", "nonzero"]);
    refused("[[policy]]\nruns = \"*\"\nkeep_last = -1\n", &["line 3"]);
    refused("[[policy]]\nruns = \"[\"\nkeep_last = 1\n", &["line 2", "pattern"]);
    refused("[[policy]]\nruns = \"*\"\nkeep_within = \"soon\"\n", &["line 3", "7 days"]);
    refused("[[policy]]\nruns = \"*\"\nkeep_within = \"1 month\"\n", &["line 3", "count days"]);
    refused("[[policy]]\nruns = \"*\"\nkeep_within = \"-1 day\"\n", &["line 3", "negative"]);
    refused(
        "[[policy]]\nruns = \"*\"\nkeep_best = { metric = \"loss\", mode = \"least\" }\n",
        &["line 3", "least", "min"],
    );
    refused("[[policy]]\nruns = \"*\"\nkeep_last = 1\nmax_total_size = \"much\"\n", &["line 4", "500 GB"]);
    let size = "[[policy]]\nruns = \"*\"\nkeep_last = 1\n";
    refused(&format!("{size}sacrifice = [\"keep_last\"]\n"), &["without `max_total_size`"]);
    let size = format!("{size}max_total_size = \"1 GB\"\n");
    refused(&format!("{size}sacrifice = [\"newest\"]\n"), &["newest", "never given up"]);
    refused(&format!("{size}sacrifice = [\"daily\", \"daily\"]\n"), &["twice"]);
    refused(&format!("{size}sacrifice = [\"sooner\"]\n"), &["line 5", "sooner"]);
}
