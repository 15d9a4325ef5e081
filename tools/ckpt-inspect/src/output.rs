//! Text for people: sizes, times, tables; and one JSON document for scripts.

use std::io::{ErrorKind, Write};

use everstep::format::row::ElementType;
use humansize::{BINARY, DECIMAL, format_size};
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

/// `8 MiB`
pub(crate) fn binary_size(bytes: u64) -> String {
    format_size(bytes, BINARY)
}

/// `2026-11-30 09:15:02 UTC (3 minutes ago)`; a time that cannot be read is shown as it is.
pub(crate) fn time(rfc3339: &str) -> String {
    let Ok(then) = rfc3339.parse::<jiff::Timestamp>() else { return printable(rfc3339) };
    let age = jiff::Timestamp::now().duration_since(then).as_secs();
    format!("{} ({})", then.strftime("%Y-%m-%d %H:%M:%S UTC"), ago(age))
}

fn ago(seconds: i64) -> String {
    let (count, unit) = match seconds {
        i64::MIN..0 => return "in the future".to_owned(),
        0 => return "just now".to_owned(),
        1..60 => (seconds, "second"),
        60..3_600 => (seconds / 60, "minute"),
        3_600..86_400 => (seconds / 3_600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    format!("{count} {unit}{} ago", if count == 1 { "" } else { "s" })
}

/// `[768, 3072]`, `[]` for a scalar.
pub(crate) fn shape(shape: &[u64]) -> String {
    let dims: Vec<String> = shape.iter().map(u64::to_string).collect();
    format!("[{}]", dims.join(", "))
}

/// `1 tensor`, `3 tensors`
pub(crate) fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// The text with control characters escaped: a name must not be able to move the cursor.
pub(crate) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c) || ('\u{2066}'..='\u{2069}').contains(&c)
        {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// The stored name of an element type.
pub(crate) fn element(element: &ElementType) -> String {
    printable(element.name())
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

/// Prints `label: text` lines, aligned.
pub(crate) fn fields(fields: &[(&str, String)]) {
    let width = fields.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
    for (label, text) in fields {
        say!("{label:<width$}  {text}");
    }
}

/// Prints one JSON document.
pub(crate) fn json(document: &Value) {
    say!("{document:#}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_never_reach_the_terminal() {
        assert_eq!(printable("a\nb\u{1b}[2Jc\u{202e}d"), "a\\nb\\u{1b}[2Jc\\u{202e}d");
        assert_eq!(printable("模型.weight"), "模型.weight");
    }

    #[test]
    fn ages_read_well() {
        assert_eq!(ago(1), "1 second ago");
        assert_eq!(ago(7_200), "2 hours ago");
        assert_eq!(ago(-5), "in the future");
    }
}
