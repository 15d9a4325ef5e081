use std::collections::BTreeMap;

use serde_json::json;

use super::*;

/// A run in the making; a checkpoint is committed every hour.
#[derive(Default)]
struct Run {
    checkpoints: Vec<(u64, u64, String, Map<String, Value>)>,
    rollbacks: Vec<(Ordinal, Ordinal)>,
    pins: BTreeMap<u64, Vec<PinName>>,
}

const START: i64 = 1_767_225_600; // 2026-01-01T00:00:00Z

fn at_hour(hour: u64) -> Timestamp {
    Timestamp::from_second(START + 3600 * i64::try_from(hour).unwrap()).unwrap()
}

impl Run {
    fn with(mut self, ordinal: u64, step: u64, metadata: Value) -> Self {
        let Value::Object(metadata) = metadata else { panic!("an object") };
        self.checkpoints.push((ordinal, step, at_hour(ordinal).to_string(), metadata));
        self
    }

    /// Checkpoints 1 to `count`, at step 100 times that.
    fn plain(count: u64) -> Self {
        (1..=count).fold(Self::default(), |run, n| run.with(n, n * 100, json!({})))
    }

    fn losses(losses: &[Value]) -> Self {
        (1..).zip(losses).fold(Self::default(), |run, (n, loss)| run.with(n, n, json!({ "loss": loss })))
    }

    fn judge(&self, table: &str, hour: u64) -> (Vec<Judged>, Option<Fit>) {
        let policy = Policy::from_toml(&format!("[[policy]]\nruns = \"*\"\n{table}")).unwrap();
        let run = RunName::new("gpt").unwrap();
        let candidate =
            |(ordinal, step, created, metadata): &'_ (u64, u64, String, Map<String, Value>)| Candidate {
                ordinal: Ordinal(*ordinal),
                step: Step(*step),
                created: Box::leak(created.clone().into_boxed_str()),
                metadata: Box::leak(Box::new(metadata.clone())),
                pins: Box::leak(self.pins.get(ordinal).cloned().unwrap_or_default().into_boxed_slice()),
            };
        let checkpoints = self.checkpoints.iter().map(candidate).collect();
        let line = Line { run: &run, checkpoints, rollbacks: self.rollbacks.clone() };
        judge(&policy, &line, at_hour(hour))
    }

    /// Ordinals kept, as judged right after the last one.
    fn kept(&self, table: &str) -> Vec<u64> {
        let hour = self.checkpoints.last().map_or(0, |last| last.0);
        kept(&self.judge(table, hour).0)
    }
}

fn kept(judged: &[Judged]) -> Vec<u64> {
    judged.iter().filter(|j| j.verdict == Verdict::Keep).map(|j| j.ordinal.0).collect()
}

fn four() -> Run {
    Run::losses(&[json!(0.1), json!(0.5), json!(0.6), json!(0.7)])
}

const BEST: &str = "keep_best = { metric = \"loss\", mode = \"min\" }\n";

#[test]
fn c05_the_best_and_the_newest_stay_whatever_is_kept_beside_them() {
    let run = four();
    assert_eq!(run.kept(&format!("keep_last = 1\n{BEST}")), [1, 4]);
    assert_eq!(run.kept("keep_last = 1\n"), [4]);
    assert_eq!(run.kept(&format!("keep_last = 2\n{BEST}")), [1, 3, 4]);
    // Of one checkpoint nothing can go.
    assert_eq!(Run::plain(1).kept(BEST), [1]);
    assert_eq!(Run::default().kept(BEST), Vec::<u64>::new());
}

#[test]
fn c05_nan_and_what_is_no_number_is_never_best_and_of_equals_the_older_is() {
    let run = Run::losses(&[json!("NaN"), json!(null), json!(0.5), json!(0.5), json!([0.0]), json!(0.9)]);
    assert_eq!(run.kept(BEST), [3, 6]);
    assert_eq!(run.kept("keep_best = { metric = \"loss\", mode = \"max\" }\n"), [6]);
    assert_eq!(run.kept("keep_best = { metric = \"loss\", mode = \"min\", count = 2 }\n"), [3, 4, 6]);
    assert_eq!(run.kept("keep_best = { metric = \"loss\", mode = \"min\", count = 99 }\n"), [3, 4, 6]);
    assert_eq!(run.kept("keep_best = { metric = \"other\", mode = \"min\" }\n"), [6]);
}

#[test]
fn steps_are_kept_where_a_span_of_them_begins() {
    assert_eq!(Run::plain(9).kept("keep_every = 300\n"), [1, 3, 6, 9]);
    let uneven = Run::default().with(1, 290, json!({})).with(2, 310, json!({})).with(3, 590, json!({}));
    assert_eq!(uneven.with(4, 610, json!({})).kept("keep_every = 300\n"), [1, 2, 4]);
}

#[test]
fn ages_and_periods_are_those_of_the_commit() {
    let run = Run::plain(60);
    assert_eq!(run.kept("keep_within = \"3h\"\n"), [57, 58, 59, 60]);
    assert_eq!(kept(&run.judge("keep_within = \"3h\"\n", 1000).0), [60], "the newest stays at any age");
    assert_eq!(run.kept("hourly = 3\n"), [58, 59, 60]);
    // 2026-01-01 has hours 1 to 23, the next day 24 to 47, the day after 48 to 60.
    assert_eq!(run.kept("daily = 2\n"), [47, 60]);
    assert_eq!(run.kept("daily = 9\n"), [23, 47, 60]);
    assert_eq!(run.kept("weekly = 2\n"), [60], "all of them are of the first week");
    assert_eq!(run.kept("monthly = 1\n"), [60]);
}

#[test]
fn a_checkpoint_whose_time_cannot_be_read_stays_and_one_of_the_future_is_young() {
    let mut run = Run::plain(3);
    run.checkpoints[0].2 = "yesterday".to_owned();
    run.checkpoints[1].2 = "2999-01-01T00:00:00Z".to_owned();
    let (judged, _) = run.judge("keep_last = 1\n", 3);
    assert_eq!(kept(&judged), [1, 3]);
    assert_eq!(judged[0].reasons[0].rule, Rule::NotUnderstood);
    assert_eq!(kept(&run.judge("keep_within = \"1h\"\n", 3).0), [1, 2, 3]);
}

#[test]
fn pins_and_tags_keep_what_no_other_rule_does() {
    let mut run = Run::plain(3).with(4, 400, json!({ "release": "v1" }));
    run = run.with(5, 500, json!({ "release": false })).with(6, 600, json!({}));
    run.pins.insert(2, vec![PinName::new("base").unwrap()]);
    let (judged, _) = run.judge("keep_last = 1\ntagged = \"release\"\n", 6);
    assert_eq!(kept(&judged), [2, 4, 6]);
    assert!(judged[1].reasons[0].why.contains("pin:base"), "{judged:?}");
}

#[test]
fn a_line_that_a_rollback_left_behind_is_shown_and_does_not_crowd_out_the_current_one() {
    // 1 2 3 4, back to 2 as 5, then 6.
    let mut run = Run::plain(6);
    run.rollbacks.push((Ordinal(5), Ordinal(2)));
    let (judged, _) = run.judge("keep_last = 3\n", 6);
    assert_eq!(kept(&judged), [2, 5, 6]);
    assert_eq!(judged[2].superseded_by, Some(Ordinal(5)));
    assert!(judged[3].reasons[0].why.contains("rollback 5"), "{judged:?}");
    assert_eq!(run.kept("keep_last = 1\nkeep_superseded = \"2h\"\n"), [4, 6]);
    // The best may lie there.
    let mut best = four();
    best.rollbacks.push((Ordinal(4), Ordinal(3)));
    best.rollbacks.push((Ordinal(3), Ordinal(0)));
    assert_eq!(best.kept(BEST), [1, 4]);
}

#[test]
fn at_least_so_many_stay_the_newest_of_the_current_line_first() {
    assert_eq!(Run::plain(5).kept("at_least = 3\n"), [3, 4, 5]);
    assert_eq!(four().kept(&format!("{BEST}at_least = 3\n")), [1, 3, 4]);
    assert_eq!(Run::plain(2).kept("at_least = 9\n"), [1, 2]);
    let mut run = Run::plain(5);
    run.rollbacks.push((Ordinal(5), Ordinal(2)));
    assert_eq!(run.kept("at_least = 3\n"), [1, 2, 5]);
}

#[test]
fn every_verdict_has_a_reason() {
    let (judged, _) = Run::plain(30).judge("keep_last = 2\nkeep_every = 500\ndaily = 1\n", 30);
    assert!(judged.iter().all(|judged| !judged.reasons.is_empty()));
    assert!(judged.iter().any(|judged| judged.reasons.len() > 1));
}

#[test]
fn a_run_that_is_too_large_gives_up_the_weakest_rules_and_of_these_the_oldest_first() {
    let table = "keep_last = 2\nkeep_every = 200\nmax_total_size = \"40 B\"\n";
    let (mut judged, fit) = Run::plain(8).judge(table, 8);
    let fit = fit.unwrap();
    // Kept: 1 2 4 6 as the first of a span, 7 and 8 as the last, 8 as the newest and the first of a span.
    assert_eq!(fit.order.iter().map(|at| at + 1).collect::<Vec<_>>(), [8, 7, 6, 4, 2, 1]);
    assert_eq!(fit.untouchable, 1);
    fill(&fit, &mut judged, &[10; 6]);
    assert_eq!(kept(&judged), [4, 6, 7, 8]);
    assert_eq!(judged[1].reasons[0].rule, Rule::MaxTotalSize);
    assert!(judged[1].reasons[0].why.contains("keep_every"), "{judged:?}");
}

/// Applies `fit` where the checkpoints in its order have so many bytes that none before them has.
fn fill(fit: &Fit, judged: &mut [Judged], bytes: &[u64]) {
    let mut filling = Filling::new(fit);
    let stays: Vec<bool> = bytes.iter().map(|bytes| filling.admit(*bytes)).collect();
    fit.apply(judged, &stays);
}

#[test]
fn a_checkpoint_that_costs_nothing_is_not_given_up() {
    let (mut judged, fit) = Run::plain(4).judge("keep_last = 4\nmax_total_size = \"25 B\"\n", 4);
    // The third takes it beyond the limit; the first uses what the newer ones keep anyway.
    fill(&fit.unwrap(), &mut judged, &[10, 10, 10, 0]);
    assert_eq!(kept(&judged), [1, 3, 4]);
}

#[test]
fn neither_the_newest_nor_a_tag_nor_the_least_number_is_given_up_for_size() {
    let run = Run::default().with(1, 100, json!({ "tag": 1 })).with(2, 200, json!({}));
    let run = run.with(3, 300, json!({})).with(4, 400, json!({}));
    let table = "keep_last = 4\ntagged = \"tag\"\nmax_total_size = \"1 B\"\n";
    let (mut judged, fit) = run.judge(table, 4);
    fill(&fit.unwrap(), &mut judged, &[10; 4]);
    assert_eq!(kept(&judged), [1, 4]);
    let (mut judged, fit) = run.judge(&format!("{table}at_least = 3\n"), 4);
    fill(&fit.unwrap(), &mut judged, &[10; 4]);
    assert_eq!(kept(&judged), [1, 3, 4]);
    let given = format!("{table}sacrifice = [\"tagged\", \"keep_last\"]\n");
    let (mut judged, fit) = run.judge(&given, 4);
    fill(&fit.unwrap(), &mut judged, &[10; 4]);
    assert_eq!(kept(&judged), [4]);
}
