//! Getting below a size: which checkpoints are given up, in which order.

use std::cmp::Reverse;

use super::{Bench, Judged, Reason, Rule, Verdict};
use crate::policy::{HumanSize, Raw};

/// What must be measured: what each of `order` has that none before it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fit {
    /// Bytes that the run may take.
    pub limit: u64,
    /// Positions of checkpoints, the last to be given up first.
    pub order: Vec<usize>,
    /// So many of these are never given up.
    pub untouchable: usize,
}

impl Fit {
    pub(super) fn of(bench: &Bench<'_>, table: &Raw, limit: u64) -> Self {
        let rules = table.order_of_sacrifice();
        let strength = |reason: &Reason| {
            // A rule of the size itself, such as `at_least`, is judged by counting below.
            let position = rules.iter().position(|rule| *rule == reason.rule);
            if reason.rule == Rule::AtLeast {
                0
            } else {
                position.map_or(usize::MAX, |position| position + 1)
            }
        };
        let strengths: Vec<Option<usize>> =
            bench.reasons.iter().map(|reasons| reasons.iter().map(strength).max()).collect();
        let mut order: Vec<usize> = (0..strengths.len()).filter(|at| strengths[*at].is_some()).collect();
        order.sort_by_key(|at| Reverse((strengths[*at], *at)));
        let firm = order.iter().filter(|at| strengths[**at] == Some(usize::MAX)).count();
        let at_least = table.at_least.map_or(0, |count| usize::try_from(count.get()).unwrap_or(usize::MAX));
        Self { limit, untouchable: firm.max(at_least).min(order.len()), order }
    }

    /// Gives up what does not fit; `stays` has an answer of [`Filling::admit`] for each of `order`.
    pub fn apply(&self, judged: &mut [Judged], stays: &[bool]) {
        let limit = HumanSize(self.limit);
        for (at, _) in self.order.iter().zip(stays).filter(|(_, stays)| !**stays) {
            let because: Vec<&str> = judged[*at].reasons.iter().map(|reason| reason.rule.name()).collect();
            let why = format!("the run would be larger than {limit}; {} was given up", because.join(", "));
            judged[*at].verdict = Verdict::Expire;
            judged[*at].reasons = vec![Reason { rule: Rule::MaxTotalSize, why }];
        }
    }
}

/// A run that is filled up with its checkpoints, in the order of a [`Fit`].
#[derive(Debug)]
pub struct Filling<'f> {
    fit: &'f Fit,
    place: usize,
    total: u64,
    full: bool,
}

impl<'f> Filling<'f> {
    /// Nothing yet.
    pub fn new(fit: &'f Fit) -> Self {
        Self { fit, place: 0, total: 0, full: false }
    }

    /// Whether the next checkpoint stays, which has packs of so many bytes that none before it has. Once one does not fit,
    /// only such stay as cost nothing, because others keep all that they use.
    pub fn admit(&mut self, bytes: u64) -> bool {
        let total = self.total.saturating_add(bytes);
        let firm = self.place < self.fit.untouchable;
        let stays = firm || bytes == 0 || (!self.full && total <= self.fit.limit);
        self.place += 1;
        self.full |= !stays;
        if stays {
            self.total = total;
        }
        stays
    }
}
