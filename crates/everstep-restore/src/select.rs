//! Which names: globs that select, globs that exclude, or a list.

use std::collections::HashSet;

use everstep_format::pattern::Pattern;

/// Names that match some pattern of `select` (all, when it is empty) and none of `exclude`, and are among `names`.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Wanted; empty means every name.
    pub select: Vec<Pattern>,
    /// Not wanted, whatever `select` says.
    pub exclude: Vec<Pattern>,
    /// No others, whatever the patterns say; `None` is no such limit.
    pub names: Option<HashSet<String>>,
}

impl Selection {
    /// Every name.
    pub fn all() -> Self {
        Self::default()
    }

    /// Whether `name` is selected.
    pub fn matches(&self, name: &str) -> bool {
        let wanted = self.select.is_empty() || self.select.iter().any(|pattern| pattern.matches(name));
        let listed = self.names.as_ref().is_none_or(|names| names.contains(name));
        listed && wanted && !self.exclude.iter().any(|pattern| pattern.matches(name))
    }

    /// Whether every name is selected.
    pub fn is_all(&self) -> bool {
        self.select.is_empty() && self.exclude.is_empty() && self.names.is_none()
    }
}
