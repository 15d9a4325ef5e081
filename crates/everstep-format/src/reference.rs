//! References that people write: `run`, `run@latest`, `run@step=N`, `run@ordinal=K`, `run@min=loss`, `run@max=acc`,
//! `pin:NAME`.

use std::fmt;
use std::str::FromStr;

use crate::FormatError;
use crate::name::{Ordinal, PinName, RunName, Step};

/// A checkpoint as a person names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckpointRef {
    /// A checkpoint of a run; also of the reserved run of pins, which can be read by anybody.
    Of(RunName, Which),
    /// The newest pin of this name that has not been unpinned.
    Pin(PinName),
}

/// Which checkpoint of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// The newest.
    Latest,
    /// The newest with this step.
    Step(Step),
    /// Exactly this one.
    Ordinal(Ordinal),
    /// The one with the smallest metric of this name in its metadata; NaN never counts, ties go to the newest.
    Min(String),
    /// The one with the largest.
    Max(String),
}

impl FromStr for CheckpointRef {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        let bad = || {
            let rule = "expected RUN, RUN@latest, RUN@step=N, RUN@ordinal=K, RUN@min=METRIC, RUN@max=METRIC or pin:NAME";
            FormatError::invalid("reference", text, rule)
        };
        if let Some(name) = text.strip_prefix("pin:") {
            return Ok(Self::Pin(PinName::new(name)?));
        }
        let Some((run, which)) = text.split_once('@') else {
            return Ok(Self::Of(RunName::stored(text)?, Which::Latest));
        };
        // A number has one spelling: parsing would also take a plus sign.
        let number = |n: &str| n.parse::<u64>().ok().filter(|_| n.starts_with(|c: char| c.is_ascii_digit()));
        let which = match which.split_once('=') {
            None if which == "latest" => Which::Latest,
            Some(("step", n)) => Which::Step(Step(number(n).ok_or_else(bad)?)),
            Some(("ordinal", n)) => Which::Ordinal(Ordinal(number(n).ok_or_else(bad)?)),
            Some(("min", metric)) if !metric.is_empty() => Which::Min(metric.to_owned()),
            Some(("max", metric)) if !metric.is_empty() => Which::Max(metric.to_owned()),
            _ => return Err(bad()),
        };
        Ok(Self::Of(RunName::stored(run)?, which))
    }
}

impl fmt::Display for CheckpointRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Of(run, Which::Latest) => write!(f, "{run}@latest"),
            Self::Of(run, Which::Step(step)) => write!(f, "{run}@step={step}"),
            Self::Of(run, Which::Ordinal(ordinal)) => write!(f, "{run}@ordinal={ordinal}"),
            Self::Of(run, Which::Min(metric)) => write!(f, "{run}@min={metric}"),
            Self::Of(run, Which::Max(metric)) => write!(f, "{run}@max={metric}"),
            Self::Pin(name) => write!(f, "pin:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_is_read_and_printed_in_one_form() {
        for (text, printed) in [
            ("llama", "llama@latest"),
            ("llama@latest", "llama@latest"),
            ("llama@step=1000", "llama@step=1000"),
            ("llama@ordinal=7", "llama@ordinal=7"),
            ("llama@min=eval/loss", "llama@min=eval/loss"),
            ("llama@max=a=b@c", "llama@max=a=b@c"),
            ("pin:release-1", "pin:release-1"),
            ("_pins@ordinal=3", "_pins@ordinal=3"),
        ] {
            let reference: CheckpointRef = text.parse().unwrap();
            assert_eq!(reference.to_string(), printed);
            assert_eq!(printed.parse::<CheckpointRef>().unwrap(), reference);
        }
    }

    #[test]
    fn other_references_are_refused() {
        let bad = [
            "",
            "@latest",
            "a@",
            "a@b",
            "a@step=",
            "a@step=-1",
            "a@step=x",
            "a@step=+1",
            "a@min=",
            "pin:",
            "pin:A",
            "pin:_x",
            "_other@ordinal=1",
            "A",
        ];
        for bad in
            bad.into_iter().chain(["a@ordinal=99999999999999999999", "a@Latest", "a@step", "a/b@latest"])
        {
            assert!(matches!(bad.parse::<CheckpointRef>(), Err(FormatError::Invalid { .. })), "{bad:?}");
        }
    }
}
