//! Hours, days, weeks and months, in UTC.

use std::num::NonZeroU64;

use jiff::Timestamp;
use jiff::tz::Offset;

use super::Rule;
use crate::policy::Raw;

/// A kind of period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Period {
    Hour,
    Day,
    Week,
    Month,
}

impl Period {
    /// The periods that `table` asks for, each with how many.
    pub(super) fn of(table: &Raw) -> Vec<(Self, NonZeroU64)> {
        let asked = [
            (Self::Hour, table.hourly),
            (Self::Day, table.daily),
            (Self::Week, table.weekly),
            (Self::Month, table.monthly),
        ];
        asked.into_iter().filter_map(|(period, count)| Some((period, count?))).collect()
    }

    pub(super) fn rule(self) -> Rule {
        match self {
            Self::Hour => Rule::Hourly,
            Self::Day => Rule::Daily,
            Self::Week => Rule::Weekly,
            Self::Month => Rule::Monthly,
        }
    }

    /// The period of `time`, for people.
    pub(super) fn name_of(self, time: Timestamp) -> String {
        let time = Offset::UTC.to_datetime(time);
        match self {
            Self::Hour => time.strftime("%Y-%m-%d %H:00").to_string(),
            Self::Day => time.strftime("%Y-%m-%d").to_string(),
            Self::Week => {
                let week = time.date().iso_week_date();
                format!("{}-W{:02}", week.year(), week.week())
            }
            Self::Month => time.strftime("%Y-%m").to_string(),
        }
    }
}
