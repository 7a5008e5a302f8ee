//! Detects integers that are given as event time but are plainly not milliseconds.

use std::fmt::{self, Display, Formatter};

use chrono::DateTime;

/// Integers that give an implausible date as milliseconds, and one of this century in another unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MistakenUnit {
    value: i64,
    unit: &'static str,
    /// Unit as it appears in names of types.
    short: &'static str,
    per_second: i64,
}

/// Returns the unit that all times between `least` and `latest` plainly have, if it is not milliseconds.
pub fn mistaken_unit(least: i64, latest: i64) -> Option<MistakenUnit> {
    let units = [("seconds", "s", 1), ("microseconds", "us", 1_000_000), ("nanoseconds", "ns", 1_000_000_000)];
    units.into_iter().find_map(|(unit, short, per_second)| {
        let plain = FIRST_SECOND * per_second..LAST_SECOND * per_second;
        let is_plain = plain.contains(&least) && plain.contains(&latest);
        is_plain.then_some(MistakenUnit { value: least, unit, short, per_second })
    })
}

/// 2001-09-09. As milliseconds: 1970-01-12.
const FIRST_SECOND: i64 = 1_000_000_000;
/// 2065-01-24. As milliseconds: 1970-02-04.
const LAST_SECOND: i64 = 3_000_000_000;

impl MistakenUnit {
    /// Returns the unit as it appears in names of types, such as `us`.
    pub fn short(&self) -> &'static str {
        self.short
    }

    /// Returns the expression that converts such an integer to milliseconds.
    pub fn conversion(&self) -> &'static str {
        match self.short {
            "s" => "* 1_000",
            "us" => "// 1_000",
            _ => "// 1_000_000",
        }
    }
}

impl Display for MistakenUnit {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { value, unit, per_second, .. } = self;
        write!(
            f,
            "{value} milliseconds since 1970 are {}, and {unit} are {}",
            date(*value, 1_000),
            date(*value, *per_second)
        )
    }
}

fn date(value: i64, per_second: i64) -> String {
    let second = value.div_euclid(per_second);
    match DateTime::from_timestamp(second, 0) {
        Some(time) => time.format("%Y-%m-%d %H:%M:%S UTC").to_string(),
        None => "no date at all".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(least: i64, latest: i64) -> Option<String> {
        mistaken_unit(least, latest).map(|unit| unit.to_string())
    }

    #[test]
    fn plain_seconds_microseconds_and_nanoseconds_are_told_with_both_dates() {
        let second = 1_700_000_000;
        assert_eq!(
            text(second, second + 9).as_deref(),
            Some(
                "1700000000 milliseconds since 1970 are 1970-01-20 16:13:20 UTC, and seconds are 2023-11-14 22:13:20 UTC"
            )
        );
        let micros = text(second * 1_000_000, second * 1_000_001).expect("plain");
        assert!(
            micros.contains("are +55840-11-08") && micros.ends_with("microseconds are 2023-11-14 22:13:20 UTC"),
            "{micros}"
        );
        let nanos = text(second * 1_000_000_000, second * 1_000_000_000).expect("plain");
        assert!(
            nanos.contains("no date at all") && nanos.ends_with("nanoseconds are 2023-11-14 22:13:20 UTC"),
            "{nanos}"
        );
    }

    #[test]
    fn milliseconds_of_any_year_in_use_and_small_numbers_are_not_questioned() {
        for (least, latest) in [(0, 5), (-5, 3_000_000_000), (1_000_000_000_000, 3_000_000_000_000), (0, 1_700_000_000)]
        {
            assert_eq!(text(least, latest), None);
        }
    }
}
