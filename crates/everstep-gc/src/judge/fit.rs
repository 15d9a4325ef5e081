//! Getting below a size: which checkpoints are given up, in which order.

use std::cmp::Reverse;

use super::{Bench, Judged, Reason, Rule, Verdict};
use crate::policy::{HumanSize, Raw};

/// What must be measured: the size of the first so many of `order` together, shared packs counted once.
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

    /// Gives up what does not fit. `sizes` has the bytes of the first, the first two, ... of `order`; it may end once they
    /// are beyond the limit.
    pub fn apply(&self, judged: &mut [Judged], sizes: &[u64]) {
        let fitting = sizes.iter().take_while(|size| **size <= self.limit).count();
        let kept = fitting.max(self.untouchable).min(self.order.len());
        let limit = HumanSize(self.limit);
        for at in &self.order[kept..] {
            let because: Vec<&str> = judged[*at].reasons.iter().map(|reason| reason.rule.name()).collect();
            let why = format!("the run would be larger than {limit}; {} was given up", because.join(", "));
            judged[*at].verdict = Verdict::Expire;
            judged[*at].reasons = vec![Reason { rule: Rule::MaxTotalSize, why }];
        }
    }
}
