//! Durations and sizes as people write them.

use std::fmt;
use std::time::Duration;

use bytesize::ByteSize;
use jiff::{SignedDuration, Span, SpanRelativeTo};
use serde::{Deserialize, Serialize};

/// A duration such as `36h`, `7 days`, `2 weeks 3 days`; a day has 24 hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HumanTime(pub Duration);

impl TryFrom<String> for HumanTime {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bad = |why: String| format!("{text:?} is no duration: write it as \"36h\" or \"7 days\" ({why})");
        let span: Span = text.parse().map_err(|error: jiff::Error| bad(error.to_string()))?;
        let time = span
            .to_duration(SpanRelativeTo::days_are_24_hours())
            .map_err(|_| bad("months and years differ in length: count days or weeks".to_owned()))?;
        let time = Duration::try_from(time).map_err(|_| bad("it is negative".to_owned()))?;
        if time.is_zero() { Err(bad("it is zero".to_owned())) } else { Ok(Self(time)) }
    }
}

impl From<HumanTime> for String {
    fn from(time: HumanTime) -> Self {
        time.to_string()
    }
}

impl fmt::Display for HumanTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match SignedDuration::try_from(self.0) {
            Ok(time) => write!(f, "{time:#}"),
            Err(_) => write!(f, "{}s", self.0.as_secs()),
        }
    }
}

/// A size such as `500 GB` or `2 TiB`, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HumanSize(pub u64);

impl TryFrom<String> for HumanSize {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let size: ByteSize = text
            .parse()
            .map_err(|why| format!("{text:?} is no size: write it as \"500 GB\" or \"2 TiB\" ({why})"))?;
        if size.0 == 0 { Err("a size of zero would keep nothing".to_owned()) } else { Ok(Self(size.0)) }
    }
}

impl From<HumanSize> for String {
    fn from(size: HumanSize) -> Self {
        format!("{} B", size.0)
    }
}

impl fmt::Display for HumanSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", ByteSize(self.0).display().si())
    }
}
