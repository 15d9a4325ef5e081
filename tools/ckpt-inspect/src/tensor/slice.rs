//! Slices as people write them: `0:8,:`, `-1`, `...,3`.

use super::Bounds;

/// Part of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slice {
    /// The box, in the coordinates of the tensor.
    pub(crate) bounds: Bounds,
    /// Its shape; dimensions with a single index are gone.
    pub(crate) shape: Vec<u64>,
}

/// Which indices of one dimension.
enum Wanted {
    One(u64),
    Run { start: u64, len: u64 },
}

impl Slice {
    /// All of a tensor of `shape`.
    pub(crate) fn whole(shape: &[u64]) -> Self {
        Self { bounds: Bounds::whole(shape), shape: shape.to_vec() }
    }

    /// Reads `text` for a tensor of `shape`.
    ///
    /// # Errors
    /// Says which part of `text` is wrong.
    pub(crate) fn parse(text: &str, shape: &[u64]) -> Result<Self, String> {
        let parts = spread(text, shape)?;
        let mut slice = Self::whole(&[]);
        for (d, part) in parts.iter().enumerate() {
            let wanted = wanted(part, shape[d]).map_err(|why| format!("{part:?} (dimension {d}): {why}"))?;
            let (start, len) = match wanted {
                Wanted::One(index) => (index, 1),
                Wanted::Run { start, len } => (start, len),
            };
            slice.bounds.offset.push(start);
            slice.bounds.extent.push(len);
            if let Wanted::Run { len, .. } = wanted {
                slice.shape.push(len);
            }
        }
        Ok(slice)
    }
}

/// One part for each dimension: `...` stands for as many `:` as are missing, and so does the end.
fn spread<'t>(text: &'t str, shape: &[u64]) -> Result<Vec<&'t str>, String> {
    let given: Vec<&str> =
        if text.trim().is_empty() { Vec::new() } else { text.split(',').map(str::trim).collect() };
    let dots = given.iter().filter(|part| **part == "...").count();
    if dots > 1 {
        return Err("`...` may stand once".to_owned());
    }
    let named = given.len() - dots;
    let missing = shape
        .len()
        .checked_sub(named)
        .ok_or_else(|| format!("{named} dimensions are given, the tensor has {}: {shape:?}", shape.len()))?;
    let at = given.iter().position(|part| *part == "...").unwrap_or(given.len());
    let (before, after) = (&given[..at], given.get(at + 1..).unwrap_or(&[]));
    Ok([before, &vec![":"; missing], after].concat())
}

fn wanted(part: &str, n: u64) -> Result<Wanted, String> {
    match part.split(':').collect::<Vec<_>>().as_slice() {
        [one] => {
            let index = number(one)?;
            let found = from_end(index, n).filter(|found| *found < n);
            let beyond = || format!("the dimension has {n} indices, {}", allowed(n));
            Ok(Wanted::One(found.ok_or_else(beyond)?))
        }
        [start, end] => {
            let start = edge(start, n, 0)?;
            let end = edge(end, n, n)?;
            Ok(Wanted::Run { start, len: end.saturating_sub(start) })
        }
        [_, _, "" | "1"] => Err("leave the step out".to_owned()),
        [_, _, _] => {
            Err("only a step of 1 can be read; take the range and leave elements out yourself".to_owned())
        }
        _ => Err("expected a single index, A:B, A:, :B or :".to_owned()),
    }
}

fn allowed(n: u64) -> String {
    match n.checked_sub(1) {
        None => "so there is none to choose".to_owned(),
        Some(last) => format!("0 to {last}, or -{n} to -1 from its end"),
    }
}

/// A bound of a run; like Python's, it is cut to the dimension.
fn edge(text: &str, n: u64, absent: u64) -> Result<u64, String> {
    if text.trim().is_empty() {
        return Ok(absent);
    }
    let index = number(text)?;
    Ok(from_end(index, n).map_or(0, |found| found.min(n)))
}

/// `None` before the first index.
fn from_end(index: i128, n: u64) -> Option<u64> {
    let found = if index < 0 { index + i128::from(n) } else { index };
    if found < 0 { None } else { Some(u64::try_from(found).unwrap_or(u64::MAX)) }
}

fn number(text: &str) -> Result<i128, String> {
    let digits = text.trim().strip_prefix('-').unwrap_or(text.trim());
    let plain = !digits.is_empty() && digits.len() <= 20 && digits.bytes().all(|c| c.is_ascii_digit());
    plain.then(|| text.trim().parse().ok()).flatten().ok_or_else(|| format!("{text:?} is no index"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(text: &str, shape: &[u64]) -> (Vec<u64>, Vec<u64>, Vec<u64>) {
        let Slice { bounds, shape } = Slice::parse(text, shape).unwrap();
        (bounds.offset.to_vec(), bounds.extent.to_vec(), shape)
    }

    #[test]
    fn slices_mean_what_python_means() {
        assert_eq!(slice("", &[4, 6]), (vec![0, 0], vec![4, 6], vec![4, 6]));
        assert_eq!(slice("0:2,:", &[4, 6]), (vec![0, 0], vec![2, 6], vec![2, 6]));
        assert_eq!(slice("1", &[4, 6]), (vec![1, 0], vec![1, 6], vec![6]));
        assert_eq!(slice("-1,-2", &[4, 6]), (vec![3, 4], vec![1, 1], vec![]));
        assert_eq!(slice("...,3", &[4, 6]), (vec![0, 3], vec![4, 1], vec![4]));
        assert_eq!(slice("2:, :3", &[4, 6]), (vec![2, 0], vec![2, 3], vec![2, 3]));
        assert_eq!(slice("0,...,-2:", &[4, 5, 6]), (vec![0, 0, 4], vec![1, 5, 2], vec![5, 2]));
        assert_eq!(slice("...", &[]), (vec![], vec![], vec![]));
        assert_eq!(slice("-3:-1", &[4]), (vec![1], vec![2], vec![2]));
    }

    #[test]
    fn runs_are_cut_to_the_dimension_and_may_be_empty() {
        assert_eq!(slice("0:100", &[4]), (vec![0], vec![4], vec![4]));
        assert_eq!(slice("-100:2", &[4]), (vec![0], vec![2], vec![2]));
        assert_eq!(slice("3:1", &[4]), (vec![3], vec![0], vec![0]));
        assert_eq!(slice("9:", &[4]), (vec![4], vec![0], vec![0]));
        assert_eq!(slice(":", &[0]), (vec![0], vec![0], vec![0]));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, shape, part) in [
            ("4", &[4][..], "0 to 3"),
            ("-5", &[4], "-4 to -1"),
            ("0", &[0], "none to choose"),
            ("0,0,0", &[4, 6], "the tensor has 2"),
            ("0:4:2", &[4], "step"),
            ("::", &[4], "step"),
            ("a:b", &[4], "\"a\" is no index"),
            ("1,,2", &[4, 4, 4], "no index"),
            ("...,...", &[4, 4], "once"),
            ("+1", &[4], "no index"),
            ("1:2:3:4", &[4], "expected"),
            ("999999999999999999999999", &[4], "no index"),
            ("0", &[], "the tensor has 0"),
        ] {
            let error = Slice::parse(text, shape).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
