//! Laying elements out as numpy does: nested brackets, aligned columns, the edges alone when there are many.

/// So many elements are shown whole.
const WHOLE: u64 = 1000;
/// Of each dimension, so many at either end are shown otherwise.
const EDGE: u64 = 3;
/// Beyond so many, even the edges are too many.
const MOST: u64 = 20_000;
/// Columns of a line.
const LINE: usize = 100;

/// Which elements of a shape are shown.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    shape: Vec<u64>,
    /// Indices at either end of a dimension; all, when `None`.
    edge: Option<u64>,
}

/// One place along a dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    At(u64),
    Gap,
}

impl Layout {
    /// The layout of `shape`; `None` when even its edges are too many to show.
    pub(crate) fn of(shape: &[u64]) -> Option<Self> {
        let count = shape.iter().fold(1u64, |n, &extent| n.saturating_mul(extent));
        if count <= WHOLE || shape.contains(&0) {
            return Some(Self { shape: shape.to_vec(), edge: None });
        }
        let layouts = (1..=EDGE).rev().map(|edge| Self { shape: shape.to_vec(), edge: Some(edge) });
        layouts.into_iter().find(|layout| layout.shown() <= MOST)
    }

    /// Whether every element is shown.
    pub(crate) fn is_whole(&self) -> bool {
        self.edge.is_none()
    }

    fn slots(&self, d: usize) -> Vec<Slot> {
        let n = self.shape[d];
        match self.edge {
            Some(edge) if n > 2 * edge => {
                let head = (0..edge).map(Slot::At);
                head.chain([Slot::Gap]).chain((n - edge..n).map(Slot::At)).collect()
            }
            _ => (0..n).map(Slot::At).collect(),
        }
    }

    fn shown(&self) -> u64 {
        let along = |n: u64| self.edge.map_or(n, |edge| n.min(2 * edge));
        self.shape.iter().fold(1u64, |product, &n| product.saturating_mul(along(n)))
    }

    /// Row-major indices of the elements shown, ascending.
    pub(crate) fn indices(&self) -> Vec<u64> {
        if self.shape.contains(&0) {
            return Vec::new();
        }
        let mut found = vec![0];
        for (d, n) in self.shape.iter().enumerate() {
            let slots = self.slots(d);
            let at = |before: u64| {
                slots.iter().filter_map(move |slot| match slot {
                    Slot::At(at) => Some(before * n + at),
                    Slot::Gap => None,
                })
            };
            found = found.into_iter().flat_map(at).collect();
        }
        found
    }

    /// The lines; `texts` are those of [`Layout::indices`].
    pub(crate) fn lines(&self, texts: &[String]) -> Vec<String> {
        let width = texts.iter().map(String::len).max().unwrap_or(0);
        self.block(0, &mut texts.iter().map(|text| format!("{text:>width$}")))
    }

    fn block(&self, depth: usize, texts: &mut dyn Iterator<Item = String>) -> Vec<String> {
        let Some(inner) = self.shape.len().checked_sub(depth + 1) else {
            return texts.next().into_iter().collect();
        };
        if self.shape[depth..].contains(&0) {
            return vec![format!("{}{}", "[".repeat(inner + 1), "]".repeat(inner + 1))];
        }
        if inner == 0 {
            return self.row(depth, texts);
        }
        let mut lines: Vec<String> = Vec::new();
        for (number, slot) in self.slots(depth).into_iter().enumerate() {
            if number > 0 && inner > 1 {
                lines.push(String::new());
            }
            let block = if slot == Slot::Gap { vec!["...".to_owned()] } else { self.block(depth + 1, texts) };
            let indent = |line: String| if line.is_empty() { line } else { format!(" {line}") };
            lines.extend(block.into_iter().map(indent));
        }
        bracket(lines)
    }

    /// The innermost dimension, on as many lines as it needs.
    fn row(&self, depth: usize, texts: &mut dyn Iterator<Item = String>) -> Vec<String> {
        let room = LINE.saturating_sub(depth + 2).max(1);
        let mut lines = vec![String::from(" ")];
        for slot in self.slots(depth) {
            let text = if slot == Slot::Gap { "...".to_owned() } else { texts.next().unwrap_or_default() };
            let line = lines.last_mut().filter(|line| line.len() == 1 || line.len() + 1 + text.len() <= room);
            match line {
                Some(line) if line.len() == 1 => line.push_str(&text),
                Some(line) => {
                    line.push(' ');
                    line.push_str(&text);
                }
                None => lines.push(format!(" {text}")),
            }
        }
        bracket(lines)
    }
}

/// Lines that are indented by one, in brackets.
fn bracket(mut lines: Vec<String>) -> Vec<String> {
    if let Some(first) = lines.first_mut() {
        first.replace_range(0..1, "[");
    }
    if let Some(last) = lines.last_mut() {
        last.push(']');
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(shape: &[u64]) -> String {
        let layout = Layout::of(shape).unwrap();
        let texts: Vec<String> = layout.indices().iter().map(u64::to_string).collect();
        layout.lines(&texts).join("\n")
    }

    #[test]
    fn small_ones_are_shown_whole() {
        assert_eq!(shown(&[]), "0");
        assert_eq!(shown(&[3]), "[0 1 2]");
        assert_eq!(shown(&[2, 6]), "[[ 0  1  2  3  4  5]\n [ 6  7  8  9 10 11]]");
        assert_eq!(shown(&[2, 2, 1]), "[[[0]\n  [1]]\n\n [[2]\n  [3]]]");
        assert_eq!(shown(&[0]), "[]");
        assert_eq!(shown(&[2, 0]), "[[]]");
    }

    #[test]
    fn of_large_ones_the_edges_are_shown() {
        assert_eq!(shown(&[2000]), "[   0    1    2 ... 1997 1998 1999]");
        let lines = shown(&[500, 1000]);
        assert_eq!(lines.lines().count(), 7);
        assert!(lines.starts_with("[[     0      1      2 ...    997    998    999]\n [  1000"), "{lines}");
        assert!(lines.contains("\n ...\n") && lines.ends_with("499998 499999]]"), "{lines}");
    }

    #[test]
    fn long_rows_are_broken_and_short_dimensions_are_not_cut() {
        let lines = shown(&[200]);
        assert!(lines.lines().count() > 5 && lines.lines().all(|line| line.len() <= LINE), "{lines}");
        assert!(lines.lines().skip(1).all(|line| line.starts_with(' ')));
        let edges = Layout::of(&[4, 1000]).unwrap().indices();
        assert_eq!(edges.len(), 4 * 6);
    }

    #[test]
    fn too_many_dimensions_show_less_and_in_the_end_nothing() {
        assert_eq!(Layout::of(&[10; 6]).unwrap().indices().len(), 4usize.pow(6));
        assert!(Layout::of(&[10; 15]).is_none());
        assert!(Layout::of(&[1 << 31, 1 << 31]).unwrap().indices().len() == 36);
    }
}
