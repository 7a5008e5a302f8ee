//! Cuts event time into days, weeks and months of a time zone.
//!
//! [`AlignedWindows`](super::AlignedWindows) uses these spans as windows, and `flownet-rows` truncates times to them.
//! Spans follow each other without a gap. Their length depends on the clocks of the zone: the day on which clocks go
//! forward usually has 23 hours.
//!
//! # Invariants
//! - I1: a span begins at the first instant at which clocks of the zone show its beginning. If they skip it, the span
//!   begins at the first instant after the skip.
//! - I2: every instant is in exactly one span, and no span is empty.

use chrono::{DateTime, MappedLocalTime, NaiveDateTime, Offset, TimeZone};
use serde::{Deserialize, Serialize};

/// The unit of a calendar span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CalendarUnit {
    /// From midnight to midnight.
    Day,
    /// From Monday to Sunday.
    Week,
    /// From the first to the last day of a month.
    Month,
}

impl CalendarUnit {
    /// Its usual length; 30 days for a month.
    pub fn usual_ms(self) -> i64 {
        match self {
            Self::Day => DAY_MS,
            Self::Week => 7 * DAY_MS,
            Self::Month => 30 * DAY_MS,
        }
    }
}

/// Spans of some days, weeks or months in a time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calendar<Z> {
    zone: Z,
    unit: CalendarUnit,
    count: i64,
    offset_ms: i64,
}

impl<Z: TimeZone> Calendar<Z> {
    /// Spans of `count` units, at least one. A span begins when clocks show `offset_ms` after the beginning of the
    /// unit.
    pub fn new(zone: Z, (unit, count): (CalendarUnit, u32), offset_ms: i64) -> Self {
        Self { zone, unit, count: i64::from(count.max(1)), offset_ms }
    }

    /// Returns the start of the span of an instant, and the start of the next one.
    pub fn piece_of(&self, at_ms: i64) -> (i64, i64) {
        let mut index = self.index_of(shown_ms(&self.zone, at_ms).saturating_sub(self.offset_ms));
        let mut start_ms = self.start_of(index);
        while start_ms > at_ms && start_ms > i64::MIN {
            index -= 1;
            start_ms = self.start_of(index);
        }
        loop {
            index += 1;
            let next_ms = self.start_of(index);
            // Clocks that go back over midnight show a day a second time that is already over.
            if next_ms > at_ms || next_ms == i64::MAX {
                return (start_ms, next_ms);
            }
            start_ms = next_ms;
        }
    }

    /// Returns true if an instant is in the span that begins at `start_ms`.
    #[inline]
    pub fn is_in_piece(&self, at_ms: i64, start_ms: i64) -> bool {
        if at_ms < start_ms || start_ms == i64::MIN {
            return false;
        }
        at_ms.wrapping_sub(start_ms).cast_unsigned() < self.least_ms() || at_ms < self.piece_of(start_ms).1
    }

    /// A lower bound for the length of a span. Clocks of a zone have skipped a whole day, and otherwise a few hours.
    fn least_ms(&self) -> u64 {
        let days = match self.unit {
            CalendarUnit::Day => self.count,
            CalendarUnit::Week => 7 * self.count,
            CalendarUnit::Month => 28 * self.count,
        };
        let skipped_ms = if days == 1 && self.offset_ms == 0 { DAY_MS / 6 } else { DAY_MS + DAY_MS / 6 };
        (days * DAY_MS - skipped_ms).max(0).cast_unsigned()
    }

    /// The number of the span in which clocks show `shown_ms`.
    fn index_of(&self, shown_ms: i64) -> i64 {
        let day = shown_ms.div_euclid(DAY_MS);
        match self.unit {
            CalendarUnit::Day => day.div_euclid(self.count),
            CalendarUnit::Week => (day - FIRST_MONDAY).div_euclid(7 * self.count),
            CalendarUnit::Month => month_of(day).div_euclid(self.count),
        }
    }

    fn start_of(&self, index: i64) -> i64 {
        let day = match self.unit {
            CalendarUnit::Day => index * self.count,
            CalendarUnit::Week => index * self.count * 7 + FIRST_MONDAY,
            CalendarUnit::Month => first_day_of(index * self.count),
        };
        first_instant(&self.zone, day.saturating_mul(DAY_MS).saturating_add(self.offset_ms))
    }
}

/// Returns the local time of a zone at an instant, both in milliseconds since 1970.
pub fn shown_ms<Z: TimeZone>(zone: &Z, at_ms: i64) -> i64 {
    let offset = zone.offset_from_utc_datetime(&naive(at_ms)).fix();
    at_ms.saturating_add(i64::from(offset.local_minus_utc()) * 1000)
}

/// Returns the first instant at which clocks of a zone show a time. If they skip it, the first instant afterwards.
pub fn first_instant<Z: TimeZone>(zone: &Z, shown_ms: i64) -> i64 {
    let at = |offset: Z::Offset| shown_ms.saturating_sub(i64::from(offset.fix().local_minus_utc()) * 1000);
    match zone.offset_from_local_datetime(&naive(shown_ms)) {
        MappedLocalTime::Single(offset) => at(offset),
        MappedLocalTime::Ambiguous(one, other) => at(one).min(at(other)),
        MappedLocalTime::None => first_after_skipped(zone, shown_ms),
    }
}

/// Returns the last instant at which clocks of a zone show a time, if they show it twice.
pub fn second_instant<Z: TimeZone>(zone: &Z, shown_ms: i64) -> Option<i64> {
    let at = |offset: Z::Offset| shown_ms.saturating_sub(i64::from(offset.fix().local_minus_utc()) * 1000);
    match zone.offset_from_local_datetime(&naive(shown_ms)) {
        MappedLocalTime::Ambiguous(one, other) => Some(at(one).max(at(other))),
        MappedLocalTime::Single(_) | MappedLocalTime::None => None,
    }
}

/// Returns the instant after a skipped time: the first within a day or two at which clocks show that time or a later
/// one.
fn first_after_skipped<Z: TimeZone>(zone: &Z, shown: i64) -> i64 {
    let (mut before_ms, mut after_ms) = (shown.saturating_sub(2 * DAY_MS), shown.saturating_add(2 * DAY_MS));
    while after_ms - before_ms > 1 {
        let middle_ms = before_ms + (after_ms - before_ms) / 2;
        if shown_ms(zone, middle_ms) >= shown {
            after_ms = middle_ms;
        } else {
            before_ms = middle_ms;
        }
    }
    after_ms
}

/// Rules of time zones are known for some hundred thousand years. After that, the last rule applies.
fn naive(ms: i64) -> NaiveDateTime {
    DateTime::from_timestamp_millis(ms.clamp(-FURTHEST_MS, FURTHEST_MS)).unwrap_or_default().naive_utc()
}

/// The number of the month of a day, counted from January of year 0. Days count from 1970-01-01.
fn month_of(day: i64) -> i64 {
    // Years begin in March here, so that the leap day is their last day.
    let from_year_0 = day + DAYS_TO_1970;
    let (era, of_era) = (from_year_0.div_euclid(DAYS_OF_400_YEARS), from_year_0.rem_euclid(DAYS_OF_400_YEARS));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    (era * 400 + year) * 12 + month + 2
}

/// The first day of the month with this number.
fn first_day_of(month: i64) -> i64 {
    let from_march = month - 2;
    let (years, month) = (from_march.div_euclid(12), from_march.rem_euclid(12));
    let (era, year) = (years.div_euclid(400), years.rem_euclid(400));
    let of_year = (153 * month + 2) / 5;
    era * DAYS_OF_400_YEARS + 365 * year + year / 4 - year / 100 + of_year - DAYS_TO_1970
}

const DAY_MS: i64 = 86_400_000;
/// 1970-01-05, in days since 1970-01-01.
const FIRST_MONDAY: i64 = 4;
/// Days from March 1 of year 0 to 1970-01-01.
const DAYS_TO_1970: i64 = 719_468;
const DAYS_OF_400_YEARS: i64 = 146_097;
/// About 200,000 years.
const FURTHEST_MS: i64 = 6_000_000_000_000_000;

#[cfg(test)]
mod tests {
    use chrono::{Datelike, NaiveDate, TimeDelta};
    use chrono_tz::Tz;
    use proptest::prelude::*;

    use super::*;

    fn days(zone: &str, unit: CalendarUnit) -> Calendar<Tz> {
        Calendar::new(zone.parse().unwrap(), (unit, 1), 0)
    }

    fn utc(text: &str) -> i64 {
        DateTime::parse_from_rfc3339(text).unwrap().timestamp_millis()
    }

    fn hours(zone: &str, at: &str) -> f64 {
        let (start_ms, end_ms) = days(zone, CalendarUnit::Day).piece_of(utc(at));
        (end_ms - start_ms) as f64 / 3_600_000.0
    }

    #[test]
    fn days_are_as_long_as_clocks_of_the_zone_make_them() {
        assert_eq!(hours("America/New_York", "2026-03-08T12:00:00Z"), 23.0);
        assert_eq!(hours("America/New_York", "2026-11-01T12:00:00Z"), 25.0);
        assert_eq!(hours("America/New_York", "2026-11-02T12:00:00Z"), 24.0);
        assert_eq!(hours("Australia/Lord_Howe", "2026-04-05T00:00:00Z"), 24.5);
        assert_eq!(hours("Australia/Lord_Howe", "2026-10-04T00:00:00Z"), 23.5);
        assert_eq!(hours("UTC", "1931-05-04T23:59:59Z"), 24.0);
    }

    #[test]
    fn a_day_without_midnight_begins_where_clocks_go_on() {
        let sao_paulo = days("America/Sao_Paulo", CalendarUnit::Day);
        let (start_ms, end_ms) = sao_paulo.piece_of(utc("2018-11-04T12:00:00Z"));
        assert_eq!((start_ms, end_ms), (utc("2018-11-04T03:00:00Z"), utc("2018-11-05T02:00:00Z")));
        assert_eq!(sao_paulo.piece_of(start_ms - 1).1, start_ms);
    }

    #[test]
    fn a_day_that_clocks_skip_has_no_piece() {
        let apia = days("Pacific/Apia", CalendarUnit::Day);
        let (start_ms, end_ms) = apia.piece_of(utc("2011-12-30T00:00:00Z"));
        assert_eq!((start_ms, end_ms), (utc("2011-12-29T10:00:00Z"), utc("2011-12-30T10:00:00Z")));
        assert_eq!(apia.piece_of(end_ms), (end_ms, utc("2011-12-31T10:00:00Z")));
    }

    #[test]
    fn months_and_weeks_begin_with_their_first_day() {
        let months = days("America/New_York", CalendarUnit::Month);
        assert_eq!(
            months.piece_of(utc("2024-02-29T12:00:00Z")),
            (utc("2024-02-01T05:00:00Z"), utc("2024-03-01T05:00:00Z"))
        );
        let weeks = days("America/New_York", CalendarUnit::Week);
        assert_eq!(
            weeks.piece_of(utc("2026-03-08T12:00:00Z")),
            (utc("2026-03-02T05:00:00Z"), utc("2026-03-09T04:00:00Z"))
        );
        assert_eq!(weeks.piece_of(utc("1969-12-31T12:00:00Z")).0, utc("1969-12-29T05:00:00Z"));
    }

    fn zones() -> impl Strategy<Value = Tz> {
        (0..chrono_tz::TZ_VARIANTS.len()).prop_map(|at| chrono_tz::TZ_VARIANTS[at])
    }

    fn units() -> impl Strategy<Value = CalendarUnit> {
        prop_oneof![Just(CalendarUnit::Day), Just(CalendarUnit::Week), Just(CalendarUnit::Month)]
    }

    proptest! {
        #[test]
        fn numbers_of_months_are_those_of_the_calendar(day in -800_000i64..800_000) {
            let date = NaiveDate::from_ymd_opt(1970, 1, 1).unwrap() + TimeDelta::days(day);
            let month = i64::from(date.year()) * 12 + i64::from(date.month0());
            prop_assert_eq!(month_of(day), month);
            prop_assert_eq!(first_day_of(month), day - i64::from(date.day0()));
        }

        /// About every second instant is within a day and a minute of a clock change.
        #[test]
        fn pieces_follow_each_other_and_have_their_times(
            zone in zones(), unit in units(), count in 1u32..4, offset_ms in prop_oneof![Just(0i64), 0..DAY_MS],
            at_ms in -3_000_000_000_000i64..4_000_000_000_000,
        ) {
            let calendar = Calendar::new(zone, (unit, count), offset_ms);
            let (start_ms, end_ms) = calendar.piece_of(at_ms);
            prop_assert!(start_ms <= at_ms && at_ms < end_ms);
            for inside_ms in [start_ms, end_ms - 1] {
                prop_assert_eq!(calendar.piece_of(inside_ms), (start_ms, end_ms));
                prop_assert!(calendar.is_in_piece(inside_ms, start_ms));
            }
            prop_assert_eq!(calendar.piece_of(start_ms - 1).1, start_ms);
            prop_assert_eq!(calendar.piece_of(end_ms).0, end_ms);
            prop_assert!(!calendar.is_in_piece(end_ms, start_ms) && !calendar.is_in_piece(start_ms - 1, start_ms));
            prop_assert!((end_ms - start_ms).cast_unsigned() >= calendar.least_ms());
        }

        #[test]
        fn no_time_is_beyond_the_calendar(at_ms in any::<i64>(), zone in zones(), unit in units()) {
            let (start_ms, end_ms) = Calendar::new(zone, (unit, 1), 0).piece_of(at_ms);
            prop_assert!(start_ms <= at_ms && (at_ms < end_ms || end_ms == i64::MAX));
        }
    }
}
