//! C06: whatever happens to a stored object, no restore hands out wrong bytes, `check` names the object, and checkpoints
//! that do not need it still load.

mod inflict;
mod repository;
mod walk;

use std::collections::BTreeSet;

use everstep_check::{Finding, Severity};
use everstep_format::key::{Key, StoredKind};
use everstep_repo::RepoError;
use everstep_restore::RestoreError;

use crate::inflict::{Damage, Kind};
use crate::repository::{Image, Loaded, Point};

/// Everything that a damage must show, whichever object it hits.
fn judge(image: &Image, damage: &Damage) {
    let damaged = image.with(damage);
    let told = format!("{:?} of {}", damage.kind, damage.keys().join(" and "));
    let Some(world) = damaged.open() else {
        assert_eq!(damage.keys(), ["everstep.json"], "{told}: only without it nothing opens");
        return;
    };
    for point in &image.points {
        judge_load(image, damage, (point, world.load(point)), &told);
    }
    judge_check(image, damage, &world.check(true), &told);
}

fn judge_load(image: &Image, damage: &Damage, (point, loaded): (&Point, Loaded), told: &str) {
    match loaded {
        Ok(bytes) => {
            assert_eq!(bytes, point.expected, "{told}: wrong bytes were handed out");
            let fatal = damage.now.iter().any(|(key, now)| image.needs(point, key, now.as_ref()));
            assert!(!fatal, "{told}: {} was restored without noticing", point.describe());
        }
        Err(error) => {
            let needed = damage.keys().iter().any(|key| image.uses(point, key));
            assert!(needed, "{told}: {} does not need it, yet: {error}", point.describe());
            judge_error(image, damage, (point, error), told);
        }
    }
}

/// Corrupt or not found, naming the object and every tensor that it spoils.
fn judge_error(image: &Image, damage: &Damage, (point, error): (&Point, RestoreError), told: &str) {
    let names_it = damage.keys().iter().any(|key| error.to_string().contains(key));
    match &error {
        RestoreError::Corrupt { key, tensors, .. } => {
            assert!(names_it, "{told}: {error}");
            let users = image.names_in(point, key);
            let tensors: BTreeSet<String> = tensors.iter().cloned().collect();
            assert!(!tensors.is_empty() && tensors.is_subset(&users), "{told}: {tensors:?} of {users:?}");
            if damage.kind == Kind::Delete {
                assert_eq!(tensors, users, "{told}: a lost pack spoils all that is in it");
            }
        }
        RestoreError::Repo(RepoError::Object { .. } | RepoError::Missing { .. }) => {
            assert!(names_it, "{told}: {error}");
        }
        // Without its decision an attempt is no checkpoint.
        RestoreError::Repo(RepoError::Incomplete { .. } | RepoError::NotFound(_)) => {
            assert_eq!(damage.kind, Kind::Delete, "{told}: {error}");
        }
        other => panic!("{told}: {other}"),
    }
}

fn judge_check(image: &Image, damage: &Damage, findings: &[Finding], told: &str) {
    for (key, now) in &damage.now {
        if damage.kind == Kind::Delete && image.may_vanish(key) {
            continue;
        }
        // A session's sign of life is advisory: it is named, and nothing is lost.
        let is_advisory = matches!(Key::listed(key).unwrap().kind(), Some(StoredKind::Session(_)));
        let severity = if is_advisory { Severity::Warning } else { Severity::Damage };
        let about = |finding: &&Finding| finding.object == *key && finding.severity == severity;
        let Some(finding) = findings.iter().find(about) else {
            panic!("{told}: not found among {findings:#?}")
        };
        for text in [&finding.what, &finding.advice] {
            assert!(!text.is_empty(), "{told}: {finding:?}");
        }
        let hurt: Vec<String> = finding.hurts.iter().map(ToString::to_string).collect();
        let fatal = |point: &&Point| image.needs(point, key, now.as_ref());
        for point in image.points.iter().filter(fatal) {
            assert!(hurt.contains(&point.describe()), "{told}: {finding:?} hurts {}", point.describe());
            let is_pack = matches!(Key::listed(key).unwrap().kind(), Some(StoredKind::Pack(_)));
            assert_eq!(is_pack, !finding.tensors.is_empty(), "{told}: {finding:?}");
        }
    }
    // Nothing that is sound is accused.
    let keys = damage.keys();
    for finding in findings.iter().filter(|finding| finding.severity == Severity::Damage) {
        assert!(keys.contains(&finding.object), "{told}: {finding:?}");
    }
}

fn for_every_object(kind: Kind) {
    let image = Image::sound();
    for key in image.keys() {
        if let Some(damage) = Damage::of(image, kind, &key) {
            judge(image, &damage);
        }
    }
}

#[test]
fn c06_an_undamaged_repository_has_no_findings_and_loads() {
    let image = Image::sound();
    let world = image.open().unwrap();
    for point in &image.points {
        assert_eq!(world.load(point).unwrap(), point.expected);
    }
    for deep in [false, true] {
        assert_eq!(world.check(deep), Vec::<Finding>::new());
    }
}

#[test]
fn c06_a_flipped_first_byte_is_noticed() {
    for_every_object(Kind::FlipFirst);
}

#[test]
fn c06_a_flipped_middle_byte_is_noticed() {
    for_every_object(Kind::FlipMiddle);
}

#[test]
fn c06_a_flipped_last_byte_is_noticed() {
    for_every_object(Kind::FlipLast);
}

#[test]
fn c06_an_object_cut_to_half_is_noticed() {
    for_every_object(Kind::CutToHalf);
}

#[test]
fn c06_an_object_cut_to_nothing_is_noticed() {
    for_every_object(Kind::CutToNothing);
}

#[test]
fn c06_a_deleted_object_is_noticed() {
    for_every_object(Kind::Delete);
}

#[test]
fn c06_two_swapped_packs_are_noticed() {
    let image = Image::sound();
    let packs = image.packs();
    assert!(packs.len() > 3, "{packs:?}");
    for pair in packs.windows(2) {
        judge(image, &Damage::swap(image, &pair[0], &pair[1]));
    }
}

#[test]
fn c06_a_missing_checksum_is_a_failure_and_not_a_skip() {
    let image = Image::sound();
    for point in &image.points {
        for kind in [Kind::StripSeal, Kind::StripIndexHash] {
            let damage = Damage::of(image, kind, point.decision.as_str()).unwrap();
            judge(image, &damage);
        }
    }
}

#[test]
fn what_is_missing_cut_or_swapped_is_found_without_reading_payloads() {
    let image = Image::sound();
    let packs = image.packs();
    let mut damages = vec![Damage::swap(image, &packs[0], &packs[1])];
    for kind in [Kind::Delete, Kind::CutToHalf, Kind::CutToNothing, Kind::FlipFirst] {
        damages.extend(packs.iter().filter_map(|key| Damage::of(image, kind, key)));
    }
    for damage in damages {
        let findings = image.with(&damage).open().unwrap().check(false);
        for key in damage.keys() {
            let found = findings.iter().any(|f| f.object == key && f.severity == Severity::Damage);
            assert!(found, "{:?} of {key}: {findings:#?}", damage.kind);
        }
    }
}
