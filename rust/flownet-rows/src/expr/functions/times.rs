//! Functions of times. Parts of a timestamp with a zone are those that clocks of the zone show.

use std::sync::Arc;

use arrow_arith::temporal::{DatePart, date_part};
use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Int32Type, Int64Type};
use arrow_array::{ArrayRef, Int64Array};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType, TimeUnit};

use super::arguments::{Arguments, Kernel};
use super::call::Call;
use super::parameters::{Kind, Parameter};
use super::{Function, Namespace, Returns};
use crate::expr::truncation::Truncation;
use crate::time_units::milliseconds;

const DAY: Parameter = Parameter::new("self", Kind::Day);
const CLOCK: Parameter = Parameter::new("self", Kind::Clock);
const TIMESTAMP: Parameter = Parameter::new("self", Kind::Timestamp);
const EVERY: Parameter = Parameter::new("every", Kind::ConstantText);
const START: Parameter = Parameter::new("start", Kind::Day);
const UNIT: Parameter = Parameter::new("unit", Kind::ConstantText);

pub(super) const FUNCTIONS: &[Function] = &[
    of_day("year", |_| Ok(part(DatePart::Year)))
        .summary("Return the year.")
        .example("fn.lit(date(2026, 11, 27)).dt.year()", "2026"),
    of_day("iso_year", |_| Ok(part(DatePart::YearISO)))
        .summary("Return the year of the ISO week.")
        .example("fn.lit(date(2027, 1, 1)).dt.iso_year()", "2026"),
    of_day("quarter", |_| Ok(part(DatePart::Quarter)))
        .summary("Return the quarter, 1 to 4.")
        .example("fn.lit(date(2026, 11, 27)).dt.quarter()", "4"),
    of_day("month", |_| Ok(part(DatePart::Month)))
        .summary("Return the month, 1 to 12.")
        .example("fn.lit(date(2026, 11, 27)).dt.month()", "11"),
    of_day("week", |_| Ok(part(DatePart::WeekISO)))
        .summary("Return the ISO week, 1 to 53.")
        .example("fn.lit(date(2027, 1, 1)).dt.week()", "53"),
    of_day("day", |_| Ok(part(DatePart::Day)))
        .summary("Return the day of the month, from 1.")
        .example("fn.lit(date(2026, 11, 27)).dt.day()", "27"),
    of_day("weekday", |_| Ok(part(DatePart::DayOfWeekMonday1)))
        .summary("Return the day of the week, from 1 for Monday.")
        .example("fn.lit(date(2026, 11, 27)).dt.weekday()", "5"),
    of_day("ordinal_day", |_| Ok(part(DatePart::DayOfYear)))
        .summary("Return the day of the year, from 1.")
        .example("fn.lit(date(2026, 2, 1)).dt.ordinal_day()", "32"),
    of_clock("hour", |_| Ok(part(DatePart::Hour)))
        .summary("Return the hour, 0 to 23.")
        .example("fn.lit(datetime(2026, 11, 27, 9, 30)).dt.hour()", "9"),
    of_clock("minute", |_| Ok(part(DatePart::Minute)))
        .summary("Return the minute, 0 to 59.")
        .example("fn.lit(datetime(2026, 11, 27, 9, 30)).dt.minute()", "30"),
    of_clock("second", |_| Ok(part(DatePart::Second)))
        .summary("Return the second, 0 to 59.")
        .example("fn.lit(datetime(2026, 11, 27, 9, 30, 5)).dt.second()", "5"),
    of_clock("millisecond", |_| Ok(part(DatePart::Millisecond)))
        .summary("Return the milliseconds within the second.")
        .example("fn.lit(datetime(2026, 11, 27, 9, 30, 5, 1250)).dt.millisecond()", "1"),
    of_clock("microsecond", |_| Ok(part(DatePart::Microsecond)))
        .summary("Return the microseconds within the second.")
        .example("fn.lit(datetime(2026, 11, 27, 9, 30, 5, 1250)).dt.microsecond()", "1250"),
    of_clock("nanosecond", |_| Ok(part(DatePart::Nanosecond)))
        .summary("Return the nanoseconds within the second.")
        .example("fn.lit(datetime(2026, 11, 27, 9, 30, 5, 1250)).dt.nanosecond()", "1250000"),
    Function::new(Namespace::Time, "date", &[DAY], Returns::Date, |_| {
        Ok(Kernel::of_array(|array| cast(array, &DataType::Date32)))
    })
    .summary("Return the date.")
    .example("fn.lit(datetime(2026, 11, 27, 9, 30)).dt.date()", "datetime.date(2026, 11, 27)"),
    Function::new(Namespace::Time, "epoch", &[TIMESTAMP], Returns::Int64, |_| Ok(Kernel::of_array(milliseconds)))
        .summary("Return milliseconds since 1970-01-01 UTC, rounded down.")
        .example("fn.lit(datetime(1970, 1, 1, 0, 0, 2)).dt.epoch()", "2000"),
    Function::new(Namespace::Time, "truncate", &[TIMESTAMP, EVERY], Returns::First, |call| {
        let truncation = Truncation::new(&call.text(1))?;
        let data_type = call.first_type();
        Ok(Kernel::of_array(move |array| truncation.run(array, &data_type)))
    })
    .summary("Truncate to the beginning of a period of time.")
    .example("fn.lit(datetime(2026, 11, 27, 9, 30)).dt.truncate('1h')", "datetime.datetime(2026, 11, 27, 9, 0)")
    .by_hand(),
    Function::new(Namespace::Time, "date_diff", &[DAY, START, UNIT], Returns::Int64, date_diff)
        .summary(
            "Count the boundaries of a unit since a start. Units are `year`, `quarter`, `month`, `week` (from Monday) \
             and `day` of the column's zone, and `hour`, `minute`, `second` and `millisecond` of UTC.",
        )
        .example("fn.lit(date(2027, 1, 1)).dt.date_diff(date(2026, 12, 31), 'year')", "1"),
];

const fn of_day(name: &'static str, make_kernel: super::MakeKernel) -> Function {
    Function::new(Namespace::Time, name, &[DAY], Returns::Int32, make_kernel)
}

const fn of_clock(name: &'static str, make_kernel: super::MakeKernel) -> Function {
    Function::new(Namespace::Time, name, &[CLOCK], Returns::Int32, make_kernel)
}

fn part(part: DatePart) -> Kernel {
    Kernel::of_array(move |array| date_part(array, part))
}

/// Unit whose boundaries are counted.
#[derive(Clone, Copy)]
enum Unit {
    Months(i64),
    Days { each: i64, since_monday: i64 },
    Milliseconds(i64),
}

impl Unit {
    fn named(name: &str) -> Result<Self, String> {
        Ok(match name {
            "year" => Self::Months(12),
            "quarter" => Self::Months(3),
            "month" => Self::Months(1),
            // 1970-01-01 was a Thursday.
            "week" => Self::Days { each: 7, since_monday: 3 },
            "day" => Self::Days { each: 1, since_monday: 0 },
            "hour" => Self::Milliseconds(3_600_000),
            "minute" => Self::Milliseconds(60_000),
            "second" => Self::Milliseconds(1000),
            "millisecond" => Self::Milliseconds(1),
            other => {
                return Err(format!(
                    "{other:?} is no unit: take year, quarter, month, week, day, hour, minute, second or millisecond"
                ));
            }
        })
    }

    /// Returns the number of boundaries from a fixed time up to each time.
    fn boundaries(self, array: &ArrayRef) -> Result<Int64Array, ArrowError> {
        Ok(match self {
            Self::Months(each) => {
                let (years, months) = (date_part(array, DatePart::Year)?, date_part(array, DatePart::Month)?);
                let (years, months) = (years.as_primitive::<Int32Type>(), months.as_primitive::<Int32Type>());
                arrow_arith::arity::binary(years, months, |year, month| {
                    (i64::from(year) * 12 + i64::from(month) - 1).div_euclid(each)
                })?
            }
            Self::Days { each, since_monday } => {
                let days = cast(array, &DataType::Date32)?;
                days.as_primitive::<Date32Type>()
                    .unary::<_, Int64Type>(|day| (i64::from(day) + since_monday).div_euclid(each))
            }
            Self::Milliseconds(each) => {
                let is_date = *array.data_type() == DataType::Date32;
                let times = if is_date {
                    cast(array, &DataType::Timestamp(TimeUnit::Millisecond, None))?
                } else {
                    Arc::clone(array)
                };
                milliseconds(&times)?.as_primitive::<Int64Type>().unary(|ms| ms.div_euclid(each))
            }
        })
    }
}

fn date_diff(call: &Call<'_>) -> Result<Kernel, String> {
    let unit = Unit::named(&call.text(2))?;
    let zones = call.types.iter().filter_map(|data_type| match data_type {
        DataType::Timestamp(_, zone) => Some(zone.is_some()),
        _ => None,
    });
    if zones.collect::<std::collections::HashSet<_>>().len() > 1 {
        return Err(
            "a time with a zone and one without never mix: give the other one a zone, or take it away".to_owned()
        );
    }
    Ok(Kernel::new(move |arguments| difference(arguments, unit)))
}

fn difference(arguments: &Arguments<'_>, unit: Unit) -> Result<ArrayRef, ArrowError> {
    let (end, start) = (unit.boundaries(&arguments.full_array(0)?)?, unit.boundaries(&arguments.full_array(1)?)?);
    let found: Int64Array = arrow_arith::arity::binary(&end, &start, |end, start| end.wrapping_sub(start))?;
    Ok(Arc::new(found))
}
