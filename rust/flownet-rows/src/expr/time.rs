//! Operations of expressions on times.

use std::sync::Arc;

use arrow_arith::temporal::{DatePart, date_part};
use arrow_array::cast::AsArray;
use arrow_array::timezone::Tz;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{ArrayRef, PrimitiveArray};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType};
use chrono::Utc;
use flownet_runtime::window::{Calendar, first_instant, second_instant, shown_ms};

use super::TimeOp;
use crate::time_units::{milliseconds, units_a_second};

/// Operation on times of one type.
#[derive(Debug)]
pub(super) struct TimeFunction {
    op: TimeOp,
    of: DataType,
}

impl TimeFunction {
    /// Creates the operation. The error lists the types that it takes.
    pub(super) fn new(op: TimeOp, of: &DataType) -> Result<Self, &'static str> {
        let is_clock = matches!(of, DataType::Timestamp(..) | DataType::Time32(_) | DataType::Time64(_));
        let takes = match op {
            TimeOp::Hour | TimeOp::Minute | TimeOp::Second | TimeOp::Millisecond if is_clock => Ok(()),
            TimeOp::Hour | TimeOp::Minute | TimeOp::Second | TimeOp::Millisecond => Err("timestamps and times"),
            TimeOp::EpochMs | TimeOp::TruncateMs(_) | TimeOp::TruncateTo(..) => {
                if matches!(of, DataType::Timestamp(..)) { Ok(()) } else { Err("timestamps") }
            }
            _ if matches!(of, DataType::Timestamp(..) | DataType::Date32) => Ok(()),
            _ => Err("timestamps and dates"),
        };
        takes.map(|()| Self { op, of: of.clone() })
    }

    pub(super) fn data_type(&self) -> DataType {
        match self.op {
            TimeOp::Date => DataType::Date32,
            TimeOp::EpochMs => DataType::Int64,
            TimeOp::TruncateMs(_) | TimeOp::TruncateTo(..) => self.of.clone(),
            _ => DataType::Int32,
        }
    }

    pub(super) fn run(&self, array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        let part = match self.op {
            TimeOp::Year => DatePart::Year,
            TimeOp::Month => DatePart::Month,
            TimeOp::Day => DatePart::Day,
            TimeOp::Hour => DatePart::Hour,
            TimeOp::Minute => DatePart::Minute,
            TimeOp::Second => DatePart::Second,
            TimeOp::Millisecond => DatePart::Millisecond,
            TimeOp::OrdinalDay => DatePart::DayOfYear,
            TimeOp::Weekday => {
                // Monday is 1.
                let from_0 = date_part(array, DatePart::DayOfWeekMonday0)?;
                return Ok(Arc::new(from_0.as_primitive::<Int32Type>().unary::<_, Int32Type>(|day| day + 1)));
            }
            TimeOp::Date => return cast(array, &DataType::Date32),
            TimeOp::EpochMs => return milliseconds(array),
            TimeOp::TruncateMs(_) | TimeOp::TruncateTo(..) => return self.truncated(array),
        };
        date_part(array, part)
    }

    fn truncated(&self, array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        let DataType::Timestamp(unit, zone) = &self.of else { return Ok(Arc::clone(array)) };
        // UTC is computed like a time without a zone.
        let zone = zone.as_deref().filter(|zone| *zone != "UTC").map(str::parse::<Tz>).transpose()?;
        let a_second = units_a_second(*unit);
        let numbers = cast(array, &DataType::Int64)?;
        let numbers = numbers.as_primitive::<Int64Type>();
        let cut: PrimitiveArray<Int64Type> = match (self.op, zone) {
            (TimeOp::TruncateTo(unit, count), Some(zone)) => {
                let calendar = Calendar::new(zone, (unit, count), 0);
                numbers.try_unary(|value| in_ms(value, a_second, |at_ms| calendar.piece_of(at_ms).0))
            }
            (TimeOp::TruncateTo(unit, count), None) => {
                let calendar = Calendar::new(Utc, (unit, count), 0);
                numbers.try_unary(|value| in_ms(value, a_second, |at_ms| calendar.piece_of(at_ms).0))
            }
            (TimeOp::TruncateMs(every_ms), Some(zone)) => {
                numbers.try_unary(|value| in_ms(value, a_second, |at_ms| truncated_ms(&zone, at_ms, every_ms)))
            }
            (TimeOp::TruncateMs(every_ms), None) => {
                // A fraction of a second truncates nothing in a column of seconds.
                let every =
                    i64::try_from(i128::from(every_ms) * i128::from(a_second) / 1000).unwrap_or(i64::MAX).max(1);
                Ok(numbers.unary(|value| value.saturating_sub(value.rem_euclid(every))))
            }
            _ => Ok(numbers.clone()),
        }?;
        cast(&cut, &self.of)
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
