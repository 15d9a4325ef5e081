//! Text for people: sizes, counts, tables; and one JSON document for scripts.

use std::io::{ErrorKind, Write};

use humansize::{DECIMAL, format_size};
use serde_json::Value;

/// Prints one line to stdout.
macro_rules! say {
    ($($text:tt)*) => { $crate::output::line(&format!($($text)*)) };
}
pub(crate) use say;

/// Prints one line. A reader that has gone away (`| head`) ends the process quietly; any other failure to print is told.
pub(crate) fn line(text: &str) {
    if let Err(error) = writeln!(std::io::stdout(), "{text}") {
        if error.kind() != ErrorKind::BrokenPipe {
            eprintln!("error: cannot print: {error}");
        }
        std::process::exit(if error.kind() == ErrorKind::BrokenPipe { 0 } else { 3 });
    }
}

/// `12.3 MB`
pub(crate) fn size(bytes: u64) -> String {
    format_size(bytes, DECIMAL)
}

/// `1 object`, `3 objects`
pub(crate) fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// The text with control characters escaped: what was stored must not be able to move the cursor.
pub(crate) fn printable(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

/// Prints rows under a heading, columns aligned; columns whose heading starts with `>` to the right.
pub(crate) fn table(heading: &[&str], rows: &[Vec<String>]) {
    let titles: Vec<&str> = heading.iter().map(|h| h.trim_start_matches('>')).collect();
    let mut widths: Vec<usize> = titles.iter().map(|t| t.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &[&str]| {
        let padded = cells.iter().zip(&widths).zip(heading).map(|((cell, width), heading)| {
            if heading.starts_with('>') { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    say!("{}", line(&titles));
    for row in rows {
        say!("{}", line(&row.iter().map(String::as_str).collect::<Vec<_>>()));
    }
}

/// Prints one JSON document.
pub(crate) fn json(document: &Value) {
    say!("{document:#}");
}
