//! Do targets and stored tensors agree? Judged before a single byte is read.

use std::collections::HashSet;

use everstep_format::row::{ElementType, Kind, Row};

use crate::entry::{by_name, rows_of};
use crate::error::{Difference, RestoreError};
use crate::{RestoreOptions, Target};

/// What wrappers put in front of, or between, the parts of a name.
const WRAPPERS: &[&str] = &["_orig_mod.", "module.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module."];

/// The outcome of a comparison.
#[derive(Debug)]
pub(crate) struct Match<'r> {
    /// Per target, its rows; `None` when it is not stored and that was allowed.
    pub(crate) rows: Vec<Option<&'r [Row]>>,
    /// Targets that are not stored, sorted.
    pub(crate) missing: Vec<String>,
    /// Stored tensors within scope that nobody asked for, sorted.
    pub(crate) unexpected: Vec<String>,
}

/// Compares `targets` with the sorted `rows` of a checkpoint.
pub(crate) fn compare<'r>(
    rows: &'r [Row],
    targets: &[Target<'_>],
    options: &RestoreOptions,
) -> Result<Match<'r>, RestoreError> {
    let mut found = Match { rows: Vec::with_capacity(targets.len()), missing: vec![], unexpected: vec![] };
    let mut differences = Vec::new();
    for target in targets {
        check_target(target)?;
        let stored = rows_of(rows, &target.name);
        if stored.is_empty() {
            found.missing.push(target.name.clone());
            found.rows.push(None);
            continue;
        }
        differences.extend(difference(target, &stored[0])?);
        found.rows.push(Some(stored));
    }
    found.missing.sort_unstable();
    found.missing.dedup();
    found.unexpected = unexpected(rows, targets, options);
    judge(rows, found, (differences, targets, options))
}

type Judged<'j> = (Vec<Difference>, &'j [Target<'j>], &'j RestoreOptions);

fn judge<'r>(rows: &[Row], found: Match<'r>, judged: Judged<'_>) -> Result<Match<'r>, RestoreError> {
    let (differences, targets, options) = judged;
    let nothing = !targets.is_empty() && found.rows.iter().all(Option::is_none);
    let strictly = options.strict && !(found.missing.is_empty() && found.unexpected.is_empty());
    if !nothing && !strictly && differences.is_empty() {
        return Ok(found);
    }
    let hint = hint(rows, &found.missing);
    let Match { missing, unexpected, .. } = found;
    Err(RestoreError::SchemaMismatch { missing, unexpected, differences, hint })
}

/// The target by itself: its box inside its shape, its memory exactly as long as the box.
fn check_target(target: &Target<'_>) -> Result<(), RestoreError> {
    let invalid = |problem: String| RestoreError::Invalid { name: target.name.clone(), problem };
    target.bounds.check_inside(&target.shape).map_err(|e| invalid(e.to_string()))?;
    let needed = target.bounds.elements().and_then(|n| target.dtype.byte_len(n));
    if needed == Some(target.into.len() as u64) {
        return Ok(());
    }
    let needed = needed.map_or("more than 2^64".to_owned(), |n| n.to_string());
    Err(invalid(format!(
        "{} of {} needs {needed} bytes of memory, {} are given",
        target.bounds,
        target.dtype,
        target.into.len()
    )))
}

fn difference(target: &Target<'_>, stored: &Row) -> Result<Option<Difference>, RestoreError> {
    let name = || target.name.clone();
    let dtype = match &stored.element {
        ElementType::Dtype(dtype) if stored.kind == Kind::Tensor => *dtype,
        ElementType::Unknown(dtype) if stored.kind == Kind::Tensor => {
            return Err(RestoreError::UnknownDtype { name: name(), dtype: dtype.to_string() });
        }
        _ => return Ok(Some(Difference::Object { name: name() })),
    };
    if let Some(rank) = stored.rank {
        return Err(RestoreError::World { name: name(), stored: vec![rank], asked: None });
    }
    if dtype != target.dtype {
        return Ok(Some(Difference::Dtype { name: name(), stored: dtype, wanted: target.dtype }));
    }
    if *stored.shape != *target.shape {
        let (stored, wanted) = (stored.shape.to_vec(), target.shape.clone());
        return Ok(Some(Difference::Shape { name: name(), stored, wanted }));
    }
    Ok(None)
}

fn unexpected(rows: &[Row], targets: &[Target<'_>], options: &RestoreOptions) -> Vec<String> {
    let asked: HashSet<&str> = targets.iter().map(|target| target.name.as_str()).collect();
    by_name(rows)
        .map(|rows| &rows[0])
        .filter(|row| row.kind == Kind::Tensor && !asked.contains(&*row.name))
        .filter(|row| options.scope.matches(&row.name))
        .map(|row| row.name.to_string())
        .collect()
}

/// What would make the first missing names match, when something would.
fn hint(rows: &[Row], missing: &[String]) -> Option<String> {
    let first = missing.first()?;
    let stored = |name: &str| !rows_of(rows, name).is_empty();
    for wrapper in WRAPPERS {
        if first.contains(wrapper) && missing.iter().any(|name| stored(&name.replace(wrapper, ""))) {
            return Some(format!("the names match once {wrapper:?} is removed from those asked for"));
        }
    }
    by_name(rows).find_map(|rows| prefix_hint(first, &rows[0].name))
}

fn prefix_hint(asked: &str, stored: &str) -> Option<String> {
    if let Some(prefix) = stored.strip_suffix(asked).filter(|prefix| prefix.ends_with('.')) {
        return Some(format!("the stored names begin with {prefix:?}, those asked for do not"));
    }
    let prefix = asked.strip_suffix(stored).filter(|prefix| prefix.ends_with('.'))?;
    Some(format!("the names asked for begin with {prefix:?}, the stored ones do not"))
}

#[cfg(test)]
mod tests;
