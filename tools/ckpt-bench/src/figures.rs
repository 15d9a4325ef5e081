//! Medians with their extremes.

/// Measurements of one thing over several rounds.
#[derive(Debug, Default, Clone)]
pub(crate) struct Figures(Vec<f64>);

impl Figures {
    /// Adds one.
    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// The middle one.
    pub(crate) fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// `0.42 (0.40-0.47)`
    pub(crate) fn text(&self) -> String {
        let least = self.0.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.0.iter().copied().fold(0.0, f64::max);
        format!("{:.2} ({least:.2}-{most:.2})", self.median())
    }

    /// Each measurement as a ratio to the one of the same round in `reference`.
    pub(crate) fn per(&self, reference: &Self) -> Self {
        Self(self.0.iter().zip(&reference.0).map(|(mine, theirs)| mine / theirs).collect())
    }
}
