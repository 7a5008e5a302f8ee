//! Truncation of timestamps to the beginning of a period of time.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::timezone::Tz;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, PrimitiveArray};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType};
use chrono::Utc;
use flownet_runtime::window::{Calendar, CalendarUnit, first_instant, second_instant, shown_ms};

use crate::time_units::units_a_second;

/// Period to whose beginning timestamps are truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Truncation {
    /// Multiple of this many milliseconds, counted from 1970-01-01 in the column's zone.
    Milliseconds(i64),
    /// Multiple of this many days, weeks or months in the column's zone.
    Calendar(CalendarUnit, u32),
}

impl Truncation {
    /// Reads a period such as `900000ms`, `1d`, `2w` or `1mo`.
    pub(super) fn new(every: &str) -> Result<Self, String> {
        let fault =
            || format!("{every:?} is no period of time: write one such as \"900000ms\", \"1d\", \"1w\" or \"1mo\"");
        let digits = every.trim_end_matches(|char: char| char.is_ascii_alphabetic());
        let count = digits.parse::<u32>().ok().filter(|count| *count > 0);
        let unit = match &every[digits.len()..] {
            "d" => CalendarUnit::Day,
            "w" => CalendarUnit::Week,
            "mo" => CalendarUnit::Month,
            "ms" => {
                let every_ms = digits.parse().ok().filter(|every_ms| *every_ms > 0);
                return every_ms.map(Self::Milliseconds).ok_or_else(fault);
            }
            _ => return Err(fault()),
        };
        count.map(|count| Self::Calendar(unit, count)).ok_or_else(fault)
    }

    /// Truncates timestamps of a type.
    pub(super) fn run(self, array: &ArrayRef, data_type: &DataType) -> Result<ArrayRef, ArrowError> {
        let DataType::Timestamp(unit, zone) = data_type else { return Ok(Arc::clone(array)) };
        // UTC is computed like a time without a zone.
        let zone = zone.as_deref().filter(|zone| *zone != "UTC").map(str::parse::<Tz>).transpose()?;
        let a_second = units_a_second(*unit);
        let numbers = cast(array, &DataType::Int64)?;
        let numbers = numbers.as_primitive::<Int64Type>();
        let cut: PrimitiveArray<Int64Type> = match (self, zone) {
            (Self::Calendar(unit, count), Some(zone)) => {
                let calendar = Calendar::new(zone, (unit, count), 0);
                numbers.try_unary(|value| in_ms(value, a_second, |at_ms| calendar.piece_of(at_ms).0))
            }
            (Self::Calendar(unit, count), None) => {
                let calendar = Calendar::new(Utc, (unit, count), 0);
                numbers.try_unary(|value| in_ms(value, a_second, |at_ms| calendar.piece_of(at_ms).0))
            }
            (Self::Milliseconds(every_ms), Some(zone)) => {
                numbers.try_unary(|value| in_ms(value, a_second, |at_ms| truncated_ms(&zone, at_ms, every_ms)))
            }
            (Self::Milliseconds(every_ms), None) => {
                // A fraction of a second truncates nothing in a column of seconds.
                let every =
                    i64::try_from(i128::from(every_ms) * i128::from(a_second) / 1000).unwrap_or(i64::MAX).max(1);
                Ok(numbers.unary(|value| value.saturating_sub(value.rem_euclid(every))))
            }
        }?;
        cast(&cut, data_type)
    }
}

/// Applies `cut` to the milliseconds of a time that counts `a_second` units per second.
fn in_ms(value: i64, a_second: i64, cut: impl Fn(i64) -> i64) -> Result<i64, ArrowError> {
    let beyond = || ArrowError::ComputeError("the beginning of that piece of time is beyond the type".to_owned());
    let at_ms = i128::from(value) * 1000;
    let at_ms = i64::try_from(at_ms.div_euclid(i128::from(a_second))).map_err(|_| beyond())?;
    let cut = i128::from(cut(at_ms)) * i128::from(a_second);
    i64::try_from(cut.div_euclid(1000)).map_err(|_| beyond())
}

/// Returns the time at which clocks of a zone showed the last multiple of `every_ms`, counted from their 1970-01-01. If
/// they show it twice, the second time applies to times that are the second ones themselves, and the first time to all
/// others.
fn truncated_ms(zone: &Tz, at_ms: i64, every_ms: i64) -> i64 {
    let shown = shown_ms(zone, at_ms);
    let cut = shown.saturating_sub(shown.rem_euclid(every_ms.max(1)));
    if cut == shown {
        return at_ms;
    }
    let is_second = second_instant(zone, shown) == Some(at_ms);
    is_second.then(|| second_instant(zone, cut)).flatten().unwrap_or_else(|| first_instant(zone, cut))
}
