//! Comparisons: the types that can be compared, and kernels where Arrow compares differently.
//!
//! Floats follow the rule of [`crate::floats`]. Times of different units are compared exactly, without a cast that
//! could overflow. Decimals without a common type of 38 digits are compared as decimals of 76.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int64Type};
use arrow_array::{Array, ArrowPrimitiveType, BooleanArray, Datum, PrimitiveArray};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow_ord::cmp;
use arrow_schema::{ArrowError, DataType, TimeUnit};

use super::decimal;
use crate::floats::{Float, is_at_least, is_equal};
use crate::time_units::units_a_second;

/// Comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Comparison {
    /// Compares columns of one type, or times of two units.
    pub(super) fn run(self, left: &dyn Datum, right: &dyn Datum) -> Result<BooleanArray, ArrowError> {
        let (one, other) = (left.get().0.data_type(), right.get().0.data_type());
        match (one, other) {
            (DataType::Float32, DataType::Float32) => Ok(self.floats::<Float32Type>(left, right)),
            (DataType::Float64, DataType::Float64) => Ok(self.floats::<Float64Type>(left, right)),
            _ => match (unit_of(one), unit_of(other)) {
                (Some(one), Some(other)) if one != other => Ok(self.times((left, one), (right, other))),
                _ => self.others(left, right),
            },
        }
    }

    fn others(self, left: &dyn Datum, right: &dyn Datum) -> Result<BooleanArray, ArrowError> {
        match self {
            Self::Eq => cmp::eq(left, right),
            Self::Ne => cmp::neq(left, right),
            Self::Lt => cmp::lt(left, right),
            Self::Le => cmp::lt_eq(left, right),
            Self::Gt => cmp::gt(left, right),
            Self::Ge => cmp::gt_eq(left, right),
        }
    }

    fn floats<T: ArrowPrimitiveType<Native: Float>>(self, left: &dyn Datum, right: &dyn Datum) -> BooleanArray {
        let (left, right) = (Side::<T>::of(left), Side::of(right));
        match self {
            Self::Eq => left.compared(&right, is_equal),
            Self::Ne => left.compared(&right, |one, other| !is_equal(one, other)),
            Self::Lt => left.compared(&right, |one, other| !is_at_least(one, other)),
            Self::Le => left.compared(&right, |one, other| is_at_least(other, one)),
            Self::Gt => left.compared(&right, |one, other| !is_at_least(other, one)),
            Self::Ge => left.compared(&right, is_at_least),
        }
    }

    /// Compares times or durations of two units as multiples of the finer unit. 128 bits hold all of them.
    fn times(self, left: (&dyn Datum, TimeUnit), right: (&dyn Datum, TimeUnit)) -> BooleanArray {
        let (one_factor, other_factor) = factors(left.1, right.1);
        let ticks = |value: i64, factor: i64| i128::from(value) * i128::from(factor);
        let (left, right) = (Side::<Int64Type>::of_ticks(left.0), Side::<Int64Type>::of_ticks(right.0));
        left.compared(&right, |one, other| {
            let order = ticks(one, one_factor).cmp(&ticks(other, other_factor));
            match self {
                Self::Eq => order.is_eq(),
                Self::Ne => order.is_ne(),
                Self::Lt => order.is_lt(),
                Self::Le => order.is_le(),
                Self::Gt => order.is_gt(),
                Self::Ge => order.is_ge(),
            }
        })
    }
}

/// One operand of a comparison: a value per row, or one for all rows.
struct Side<T: ArrowPrimitiveType> {
    array: PrimitiveArray<T>,
    is_one: bool,
}

impl<T: ArrowPrimitiveType> Side<T> {
    fn of(datum: &dyn Datum) -> Self {
        let (array, is_one) = datum.get();
        Self { array: array.as_primitive::<T>().clone(), is_one }
    }

    /// Returns whether the comparison holds, row by row. The result is null if either value is null.
    fn compared(&self, other: &Self, holds: impl Fn(T::Native, T::Native) -> bool) -> BooleanArray {
        let (left, right) = (self.array.values(), other.array.values());
        let (rows, bits) = match (self.is_one, other.is_one) {
            (true, false) => {
                (right.len(), bits(right.chunks(WORD), |chunk| word(chunk, |value| holds(left[0], value))))
            }
            (false, true) => (left.len(), bits(left.chunks(WORD), |chunk| word(chunk, |value| holds(value, right[0])))),
            _ => {
                let chunks = left.chunks(WORD).zip(right.chunks(WORD));
                (left.len(), bits(chunks, |(left, right)| word_of_two(left, right, &holds)))
            }
        };
        let nulls = match (self.is_one, other.is_one) {
            (true, false) => other.nulls_beside(self, rows),
            (false, true) => self.nulls_beside(other, rows),
            _ => NullBuffer::union(self.array.nulls(), other.array.nulls()),
        };
        BooleanArray::new(BooleanBuffer::new(Buffer::from_vec(bits), 0, rows), nulls)
    }

    /// Returns the nulls of the result of comparing a column with one value.
    fn nulls_beside(&self, one: &Self, rows: usize) -> Option<NullBuffer> {
        if one.array.is_null(0) { Some(NullBuffer::new_null(rows)) } else { self.array.nulls().cloned() }
    }
}

impl Side<Int64Type> {
    /// Returns the numbers that represent times.
    fn of_ticks(datum: &dyn Datum) -> Self {
        let (array, is_one) = datum.get();
        let data = array.to_data();
        let values = ScalarBuffer::new(data.buffers()[0].clone(), data.offset(), data.len());
        Self { array: PrimitiveArray::new(values, array.nulls().cloned()), is_one }
    }
}

/// Number of rows whose bits fit one word.
const WORD: usize = 64;

fn bits<C>(chunks: impl Iterator<Item = C>, word: impl Fn(C) -> u64) -> Vec<u64> {
    chunks.map(|chunk| word(chunk).to_le()).collect()
}

#[inline]
fn word<T: Copy>(values: &[T], holds: impl Fn(T) -> bool) -> u64 {
    values.iter().enumerate().fold(0, |word, (row, value)| word | u64::from(holds(*value)) << row)
}

#[inline]
fn word_of_two<T: Copy>(left: &[T], right: &[T], holds: impl Fn(T, T) -> bool) -> u64 {
    let pairs = left.iter().zip(right).enumerate();
    pairs.fold(0, |word, (row, (left, right))| word | u64::from(holds(*left, *right)) << row)
}

/// Returns the unit of times and durations.
pub(super) fn unit_of(data_type: &DataType) -> Option<TimeUnit> {
    match data_type {
        DataType::Timestamp(unit, _) | DataType::Duration(unit) => Some(*unit),
        _ => None,
    }
}

/// Returns the number of ticks of the finer unit per tick of each unit.
fn factors(one: TimeUnit, other: TimeUnit) -> (i64, i64) {
    let finer = units_a_second(one.max(other));
    (finer / units_a_second(one), finer / units_a_second(other))
}

/// Returns the type in which two decimals, or a decimal and integers, are compared. None if neither type is a decimal.
pub(super) fn decimal_type(one: &DataType, other: &DataType) -> Option<DataType> {
    let is_decimal = |data_type: &DataType| matches!(data_type, DataType::Decimal128(..));
    if !is_decimal(one) && !is_decimal(other) {
        return None;
    }
    let (one, other) = (decimal::holding(one)?, decimal::holding(other)?);
    decimal::wide(one, other)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{
        ArrayRef, Float32Array, Float64Array, Scalar, TimestampMillisecondArray, TimestampNanosecondArray,
    };
    use proptest::prelude::*;

    use super::*;

    const ALL: [Comparison; 6] =
        [Comparison::Eq, Comparison::Ne, Comparison::Lt, Comparison::Le, Comparison::Gt, Comparison::Ge];

    fn expected<T: PartialOrd>(comparison: Comparison, left: Option<T>, right: Option<T>) -> Option<bool> {
        let (left, right) = (left?, right?);
        Some(match comparison {
            Comparison::Eq => left == right,
            Comparison::Ne => left != right,
            Comparison::Lt => left < right,
            Comparison::Le => left <= right,
            Comparison::Gt => left > right,
            Comparison::Ge => left >= right,
        })
    }

    /// Compares two columns, and each of them with the first value of the other.
    fn check<T: PartialOrd + Copy>(columns: [&ArrayRef; 2], values: [&[Option<T>]; 2]) {
        for comparison in ALL {
            let found = comparison.run(columns[0], columns[1]).unwrap();
            let pairs = values[0].iter().zip(values[1]);
            assert!(found.iter().eq(pairs.map(|(left, right)| expected(comparison, *left, *right))));
            let Some((first_left, first_right)) = values[0].first().zip(values[1].first()) else { continue };
            let [one_left, one_right] = columns.map(|column| Scalar::new(column.slice(0, 1)));
            let found = comparison.run(&one_left, columns[1]).unwrap();
            assert!(found.iter().eq(values[1].iter().map(|right| expected(comparison, *first_left, *right))));
            let found = comparison.run(columns[0], &one_right).unwrap();
            assert!(found.iter().eq(values[0].iter().map(|left| expected(comparison, *left, *first_right))));
            let found = comparison.run(&one_left, &one_right).unwrap();
            assert!(found.iter().eq([expected(comparison, *first_left, *first_right)]));
        }
    }

    fn float() -> impl Strategy<Value = Option<f64>> {
        let edges = [-0.0, 0.0, f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.0];
        proptest::option::of(prop_oneof![proptest::sample::select(edges.to_vec()), any::<f64>()])
    }

    fn moment() -> impl Strategy<Value = Option<i64>> {
        proptest::option::of(prop_oneof![any::<i64>(), -9_000_000_000_000i64..9_000_000_000_000])
    }

    /// Returns a pair whose order is that of the rule.
    fn ranked(value: Option<f64>) -> Option<(bool, f64)> {
        value.map(|value| if value.is_nan() { (true, 0.0) } else { (false, value) })
    }

    proptest! {
        #[test]
        fn floats_are_compared_by_the_rule(pairs in proptest::collection::vec((float(), float()), 0..200)) {
            let (left, right): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
            let ranks = [&left, &right].map(|values| values.iter().map(|value| ranked(*value)).collect::<Vec<_>>());
            let wide = [&left, &right].map(|values| Arc::new(Float64Array::from(values.clone())) as ArrayRef);
            check(wide.each_ref(), [&ranks[0], &ranks[1]]);
            let narrow = |values: &[Option<f64>]| values.iter().map(|value| value.map(|value| value as f32)).collect::<Vec<_>>();
            let [left, right] = [narrow(&left), narrow(&right)];
            let ranks = [&left, &right].map(|values| values.iter().map(|value| ranked(value.map(f64::from))).collect::<Vec<_>>());
            let columns = [left, right].map(|values| Arc::new(Float32Array::from(values)) as ArrayRef);
            check(columns.each_ref(), [&ranks[0], &ranks[1]]);
        }

        #[test]
        fn times_of_two_units_are_compared_however_far_they_are(
            pairs in proptest::collection::vec((moment(), moment(), proptest::option::of(-1i64..=1)), 0..100),
        ) {
            let millis: Vec<_> = pairs.iter().map(|pair| pair.0).collect();
            // Some times are within the same millisecond.
            let beside = |ms: i64, apart_ns: i64| ms.saturating_mul(1_000_000).saturating_add(apart_ns);
            let near = |ms: Option<i64>, apart_ns: Option<i64>| Some(beside(ms?, apart_ns?));
            let nanos: Vec<_> = pairs.iter().map(|(ms, ns, apart_ns)| near(*ms, *apart_ns).or(*ns)).collect();
            let columns: [ArrayRef; 2] = [
                Arc::new(TimestampMillisecondArray::from(millis.clone())),
                Arc::new(TimestampNanosecondArray::from(nanos.clone())),
            ];
            let millis: Vec<_> = millis.into_iter().map(|ms| ms.map(|ms| i128::from(ms) * 1_000_000)).collect();
            let nanos: Vec<_> = nanos.into_iter().map(|ns| ns.map(i128::from)).collect();
            check([&columns[0], &columns[1]], [&millis, &nanos]);
            check([&columns[1], &columns[0]], [&nanos, &millis]);
        }
    }
}
