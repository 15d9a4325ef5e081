//! Times as S3 spells them.

use std::time::SystemTime;

use jiff::Timestamp;
use jiff::fmt::strtime;
use jiff::tz::TimeZone;

fn timestamp(time: SystemTime) -> Timestamp {
    Timestamp::try_from(time).unwrap_or_default()
}

/// `Mon, 30 Nov 2026 01:02:03 GMT`
pub(super) fn http_date(time: SystemTime) -> String {
    timestamp(time).strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// `2026-11-30T01:02:03Z`
pub(super) fn iso(time: SystemTime) -> String {
    timestamp(time).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Milliseconds since 1970.
pub(super) fn milliseconds(time: SystemTime) -> i64 {
    timestamp(time).as_millisecond()
}

/// Parses `20261130T010203Z`.
pub(super) fn signed_at(text: &str) -> Option<SystemTime> {
    let civil = strtime::parse("%Y%m%dT%H%M%SZ", text).ok()?.to_datetime().ok()?;
    SystemTime::try_from(TimeZone::UTC.to_timestamp(civil).ok()?).ok()
}
