//! Glob patterns over state names: `*` any characters (also none, also dots), `?` one character, `[a-z]` and `[!a-z]`
//! one character of a class, `\` takes the next character literally, within a class, too. A pattern matches whole names.

use crate::{FormatError, limits};

/// A parsed pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Any,
    One,
    Literal(char),
    Class { negated: bool, ranges: Vec<(char, char)> },
}

impl Pattern {
    /// Parses `text`.
    ///
    /// # Errors
    /// [`FormatError::Invalid`] for an unclosed or empty class, a reversed range or a lone `\` at the end;
    /// [`FormatError::TooLarge`] beyond [`limits::PATTERN_BYTES`].
    pub fn new(text: &str) -> Result<Self, FormatError> {
        FormatError::within("pattern", text.len() as u64, limits::PATTERN_BYTES)?;
        let mut parts = Vec::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            let part = match c {
                '*' => Part::Any,
                '?' => Part::One,
                '[' => class(&mut chars).ok_or_else(|| bad(text))?,
                '\\' => Part::Literal(chars.next().ok_or_else(|| bad(text))?),
                c => Part::Literal(c),
            };
            // Two stars say no more than one.
            if part != Part::Any || parts.last() != Some(&Part::Any) {
                parts.push(part);
            }
        }
        Ok(Self { parts })
    }

    /// Whether the whole of `name` matches. Time is at most length of the name times length of the pattern: only the
    /// latest star is ever tried again.
    pub fn matches(&self, name: &str) -> bool {
        let mut rest = name;
        let mut part = 0;
        let mut retry: Option<(usize, &str)> = None;
        loop {
            if part == self.parts.len() && rest.is_empty() {
                return true;
            }
            if self.parts.get(part) == Some(&Part::Any) {
                part += 1;
                retry = Some((part, rest));
                continue;
            }
            if let Some(after) = self.parts.get(part).and_then(|p| p.take_one(rest)) {
                part += 1;
                rest = after;
                continue;
            }
            let Some((star, from)) = retry else { return false };
            let Some(c) = from.chars().next() else { return false };
            rest = &from[c.len_utf8()..];
            part = star;
            retry = Some((star, rest));
        }
    }
}

impl Part {
    fn take_one<'a>(&self, text: &'a str) -> Option<&'a str> {
        let c = text.chars().next()?;
        let fits = match self {
            Self::Any => false,
            Self::One => true,
            Self::Literal(literal) => *literal == c,
            Self::Class { negated, ranges } => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated
            }
        };
        fits.then(|| &text[c.len_utf8()..])
    }
}

impl std::str::FromStr for Pattern {
    type Err = FormatError;
    fn from_str(text: &str) -> Result<Self, FormatError> {
        Self::new(text)
    }
}

fn bad(text: &str) -> FormatError {
    let shown: String = text.chars().take(200).collect();
    FormatError::invalid(
        "pattern",
        shown,
        "* ? [a-z] [!a-z] or characters, with \\ before one that is meant literally",
    )
}

/// The rest of a class after its `[`; a `]` that comes first is an ordinary character.
fn class(chars: &mut std::str::Chars<'_>) -> Option<Part> {
    let mut next = chars.next()?;
    let negated = next == '!' || next == '^';
    if negated {
        next = chars.next()?;
    }
    let mut ranges = Vec::new();
    loop {
        let low = if next == '\\' { chars.next()? } else { next };
        next = chars.next()?;
        if next == '-' && !chars.as_str().starts_with(']') {
            let high = chars.next()?;
            let high = if high == '\\' { chars.next()? } else { high };
            ranges.push((low <= high).then_some((low, high))?);
            next = chars.next()?;
        } else {
            ranges.push((low, low));
        }
        if next == ']' {
            return Some(Part::Class { negated, ranges });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(pattern: &str, name: &str) -> bool {
        Pattern::new(pattern).unwrap().matches(name)
    }

    #[test]
    fn stars_question_marks_and_literals_match_whole_names() {
        for (pattern, name, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "a.b/c", true),
            ("model.*", "model.", true),
            ("model.*", "optim.model.x", false),
            ("*.weight", "layer.0.weight", true),
            ("*.weight", "layer.0.weight.scale", false),
            ("layer.?.w", "layer.7.w", true),
            ("layer.?.w", "layer.17.w", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("?", "\u{e9}", true),
            ("x", "X", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern:?} on {name:?}");
        }
    }

    #[test]
    fn classes_and_escapes_match_what_they_list() {
        for (pattern, name, expected) in [
            ("l.[0-9].w", "l.7.w", true),
            ("l.[0-9].w", "l.x.w", false),
            ("[!a-c]", "d", true),
            ("[^a-c]", "b", false),
            ("[]x]", "]", true),
            ("[a-]", "-", true),
            ("[\\]]", "]", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("a\\[0]", "a[0]", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern:?} on {name:?}");
        }
    }

    #[test]
    fn within_a_class_a_backslash_takes_the_next_character_literally() {
        for (class, members, others) in [
            ("[\\]]", "]", "\\["),
            ("[a\\]b]", "a]b", "\\"),
            ("[!\\]]", "\\a", "]"),
            ("[\\!a]", "!a", "\\b"),
            ("[\\^a]", "^a", "\\b"),
            ("[a\\-z]", "a-z", "b\\"),
            ("[\\--0]", "-./0", "\\1"),
            ("[A-\\]]", "AZ[\\]", "^-a"),
            ("[\\\\-a]", "\\]^_`a", "-b["),
            ("[\\n]", "n", "\\\n"),
        ] {
            for (texts, expected) in [(members, true), (others, false)] {
                for c in texts.chars() {
                    assert_eq!(matches(class, &c.to_string()), expected, "{class} on {c:?}");
                }
            }
        }
    }

    #[test]
    fn brackets_and_hyphens_are_ordinary_where_a_class_can_have_no_other_use_of_them() {
        for (class, members, others) in [
            ("[]]", "]", "["),
            ("[!]]", "[a", "]"),
            ("[]-a]", "]^a", "-b"),
            ("[[]", "[", "]"),
            ("[-a]", "-a", "b"),
            ("[a-]", "a-", "b"),
            ("[--0]", "-./0", "1"),
            ("[a-b-d]", "ab-d", "c"),
            ("[!!]", "a", "!"),
            ("[a!^]", "a!^", "b"),
            ("[*?]", "*?", "a"),
        ] {
            for (texts, expected) in [(members, true), (others, false)] {
                for c in texts.chars() {
                    assert_eq!(matches(class, &c.to_string()), expected, "{class} on {c:?}");
                }
            }
        }
        assert!(matches("[a-]]", "-]") && !matches("[a-]]", "-"), "the first bracket ends the class");
    }

    #[test]
    fn broken_patterns_are_refused() {
        for pattern in [
            "[", "[a", "[]", "[!]", "[^]", "[z-a]", "a\\", "[\\", "[a\\]", "[a-", "[a-\\", "[a-\\]]", "[]-[]",
        ] {
            assert!(matches!(Pattern::new(pattern), Err(FormatError::Invalid { .. })), "{pattern:?}");
        }
        assert!(matches!(Pattern::new(&"a".repeat(5000)), Err(FormatError::TooLarge { .. })));
    }

    #[test]
    fn many_stars_do_not_blow_up() {
        let pattern = Pattern::new(&"*a".repeat(1000)).unwrap();
        assert!(!pattern.matches(&format!("{}b", "a".repeat(16_000))));
    }

    /// The definition, exponential and obvious.
    fn naive(pattern: &[char], name: &[char]) -> bool {
        match (pattern.first(), name.first()) {
            (None, None) => true,
            (Some('*'), _) => naive(&pattern[1..], name) || (!name.is_empty() && naive(pattern, &name[1..])),
            (Some('?'), Some(_)) => naive(&pattern[1..], &name[1..]),
            (Some(p), Some(n)) if p == n => naive(&pattern[1..], &name[1..]),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(pattern in "[ab*?]{0,8}", name in "[ab]{0,10}") {
            let p: Vec<char> = pattern.chars().collect();
            let n: Vec<char> = name.chars().collect();
            prop_assert_eq!(matches(&pattern, &name), naive(&p, &n));
        }
    }
}
