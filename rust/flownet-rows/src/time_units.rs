//! Converts times between units. A conversion to a coarser unit rounds down: half a millisecond before 1970 belongs to
//! the millisecond before it, as in polars and DuckDB. Arrow's own cast rounds toward 1970.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, PrimitiveArray};
use arrow_cast::{CastOptions, cast, cast_with_options};
use arrow_schema::{ArrowError, DataType, TimeUnit};

/// Casts as Arrow does, but rounds times and durations down if the unit gets coarser.
pub(crate) fn cast_floored(array: &ArrayRef, to: &DataType, options: &CastOptions<'_>) -> Result<ArrayRef, ArrowError> {
    let Some((of, finer_by)) = coarser(array.data_type(), to) else { return cast_with_options(array, to, options) };
    let numbers = cast(array, &DataType::Int64)?;
    let floored: PrimitiveArray<Int64Type> =
        numbers.as_primitive::<Int64Type>().unary(|value| value.div_euclid(finer_by));
    cast_with_options(&cast(&floored, &of)?, to, options)
}

/// Converts a column of times or dates to milliseconds since 1970-01-01 UTC.
pub(crate) fn milliseconds(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let zone = if let DataType::Timestamp(_, zone) = array.data_type() { zone.clone() } else { None };
    let times = cast_floored(
        array,
        &DataType::Timestamp(TimeUnit::Millisecond, zone),
        &CastOptions { safe: false, ..CastOptions::default() },
    )?;
    cast(&times, &DataType::Int64)
}

/// Returns the number of units per second.
pub(crate) fn units_a_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

/// Returns the intermediate type, in the unit of `to`, and the number of `from` units per unit of `to`. None if the
/// unit gets no coarser.
fn coarser(from: &DataType, to: &DataType) -> Option<(DataType, i64)> {
    let (of, from, to) = match (from, to) {
        (DataType::Timestamp(from, zone), DataType::Timestamp(to, _)) => {
            (DataType::Timestamp(*to, zone.clone()), from, to)
        }
        (DataType::Duration(from), DataType::Duration(to)) => (DataType::Duration(*to), from, to),
        _ => return None,
    };
    let finer_by = units_a_second(*from) / units_a_second(*to);
    (finer_by > 1).then_some((of, finer_by))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::Int64Array;
    use proptest::prelude::*;

    use super::*;

    fn units() -> impl Strategy<Value = TimeUnit> {
        use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
        prop_oneof![Just(Second), Just(Millisecond), Just(Microsecond), Just(Nanosecond)]
    }

    proptest! {
        #[test]
        fn times_and_spans_that_get_a_coarser_unit_are_floored(
            values in proptest::collection::vec(proptest::option::of(-5_000_000_000i64..5_000_000_000), 1..20),
            from in units(), to in units(), zoned: bool, is_span: bool,
        ) {
            let zone = zoned.then(|| "Europe/Berlin".into());
            let of = |unit| if is_span { DataType::Duration(unit) } else { DataType::Timestamp(unit, zone.clone()) };
            let numbers: ArrayRef = Arc::new(Int64Array::from(values.clone()));
            let times = cast(&numbers, &of(from)).unwrap();
            let found = cast_floored(&times, &of(to), &CastOptions::default()).unwrap();
            prop_assert_eq!(found.data_type(), &of(to));
            let (from, to) = (i128::from(units_a_second(from)), i128::from(units_a_second(to)));
            let found = cast(&found, &DataType::Int64).unwrap();
            for (found, value) in found.as_primitive::<Int64Type>().iter().zip(values) {
                prop_assert_eq!(found.map(i128::from), value.map(|value| (i128::from(value) * to).div_euclid(from)));
            }
        }
    }
}
