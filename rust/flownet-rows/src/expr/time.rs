//! What expressions do with times.

use std::sync::Arc;

use arrow_arith::temporal::{DatePart, date_part};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{ArrayRef, PrimitiveArray};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType, TimeUnit};

use super::TimeOp;

/// A function of a time of one type.
#[derive(Debug)]
pub(super) struct TimeFunction {
    op: TimeOp,
    of: DataType,
}

impl TimeFunction {
    /// The error says what it takes.
    pub(super) fn new(op: TimeOp, of: &DataType) -> Result<Self, &'static str> {
        let is_clock = matches!(of, DataType::Timestamp(..) | DataType::Time32(_) | DataType::Time64(_));
        let takes = match op {
            TimeOp::Hour | TimeOp::Minute | TimeOp::Second | TimeOp::Millisecond if is_clock => Ok(()),
            TimeOp::Hour | TimeOp::Minute | TimeOp::Second | TimeOp::Millisecond => Err("timestamps and times"),
            TimeOp::EpochMs | TimeOp::TruncateMs(_) if matches!(of, DataType::Timestamp(..)) => Ok(()),
            TimeOp::EpochMs | TimeOp::TruncateMs(_) => Err("timestamps"),
            _ if matches!(of, DataType::Timestamp(..) | DataType::Date32) => Ok(()),
            _ => Err("timestamps and dates"),
        };
        takes.map(|()| Self { op, of: of.clone() })
    }

    pub(super) fn data_type(&self) -> DataType {
        match self.op {
            TimeOp::Date => DataType::Date32,
            TimeOp::EpochMs => DataType::Int64,
            TimeOp::TruncateMs(_) => self.of.clone(),
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
                // From 1, Monday.
                let from_0 = date_part(array, DatePart::DayOfWeekMonday0)?;
                return Ok(Arc::new(from_0.as_primitive::<Int32Type>().unary::<_, Int32Type>(|day| day + 1)));
            }
            TimeOp::Date => return cast(array, &DataType::Date32),
            TimeOp::EpochMs => {
                let DataType::Timestamp(_, zone) = &self.of else { return Ok(Arc::clone(array)) };
                let milliseconds = cast(array, &DataType::Timestamp(TimeUnit::Millisecond, zone.clone()))?;
                return cast(&milliseconds, &DataType::Int64);
            }
            TimeOp::TruncateMs(every_ms) => return self.truncated(array, every_ms),
        };
        date_part(array, part)
    }

    fn truncated(&self, array: &ArrayRef, every_ms: i64) -> Result<ArrayRef, ArrowError> {
        let DataType::Timestamp(unit, _) = &self.of else { return Ok(Arc::clone(array)) };
        let (times, by) = match unit {
            TimeUnit::Second => (1, 1000),
            TimeUnit::Millisecond => (1, 1),
            TimeUnit::Microsecond => (1000, 1),
            TimeUnit::Nanosecond => (1_000_000, 1),
        };
        // In seconds a part of one truncates nothing.
        let every = (every_ms.saturating_mul(times) / by).max(1);
        let numbers = cast(array, &DataType::Int64)?;
        let cut: PrimitiveArray<Int64Type> =
            numbers.as_primitive::<Int64Type>().unary(|value| value.saturating_sub(value.rem_euclid(every)));
        cast(&cut, &self.of)
    }
}
