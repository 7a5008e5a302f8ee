//! Event times of rows, to the nanosecond: read from a column, carried beside rows, prefixed to rows and cell values.
//!
//! ```text
//! row by key   = 02 | nanoseconds, 3 bytes, big-endian | run         without nanoseconds only the run, which begins with 01
//! time in cell = 80 00 | varint nanoseconds | varint of zigzag(ms)   without nanoseconds only the last varint
//! ```
//!
//! # Invariants
//! - I1: a time of a whole millisecond has no nanoseconds in memory, in state or on the wire, so columns of
//!   milliseconds have no extra cost.
//! - I2: no varint that flownet writes begins with 80 00, and no row block of one row begins with 02.
//! - I3: rows of one rank and millisecond are ordered by their bytes, so nanoseconds are big-endian.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array};
use arrow_buffer::ScalarBuffer;
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType, TimeUnit};
use flownet_runtime::time::{ExactTime, NANOS_PER_MS};
use flownet_runtime::varint::{put_varint, take_varint, unzigzag, zigzag};

use crate::time_units::milliseconds;

/// Times of rows that are gathered one by one.
#[derive(Debug, Default)]
pub(crate) struct RowTimes {
    pub(crate) ms: Vec<i64>,
    /// Empty while all rows have whole milliseconds; after that, one entry per row.
    pub(crate) nanos: Vec<u32>,
}

impl RowTimes {
    /// Returns the times of a single row.
    pub(crate) fn of_one(at: ExactTime) -> Self {
        let mut times = Self::default();
        times.push(at);
        times
    }

    #[inline]
    pub(crate) fn push(&mut self, at: ExactTime) {
        // The first row with nanoseconds adds zeros for the rows before it.
        if at.nanos != 0 && self.nanos.is_empty() {
            self.nanos.resize(self.ms.len(), 0);
        }
        if at.nanos != 0 || !self.nanos.is_empty() {
            self.nanos.push(at.nanos);
        }
        self.ms.push(at.ms);
    }

    pub(crate) fn len(&self) -> usize {
        self.ms.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ms.is_empty()
    }

    /// Returns the milliseconds of the first row.
    pub(crate) fn first_ms(&self) -> Option<i64> {
        self.ms.first().copied()
    }
}

/// Nanoseconds within the millisecond, one per row.
pub(crate) type Nanos = ScalarBuffer<u32>;

/// Reads a column of times: milliseconds, rounded down before 1970 as after, and the nanoseconds beyond them if any row
/// has some. Null values stay null. Returns an error for a time that does not fit into milliseconds.
pub(crate) fn times_of(array: &ArrayRef) -> Result<(Int64Array, Option<Nanos>), ArrowError> {
    match array.data_type() {
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            Ok(split(cast(array, &DataType::Int64)?.as_primitive(), 1_000))
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            Ok(split(cast(array, &DataType::Int64)?.as_primitive(), NANOS_PER_MS))
        }
        _ => Ok((milliseconds_of(array)?, None)),
    }
}

/// Reads only the milliseconds of a column of times, as [`times_of`] does.
pub(crate) fn milliseconds_of(array: &ArrayRef) -> Result<Int64Array, ArrowError> {
    let times = match array.data_type() {
        DataType::Int64 => Arc::clone(array),
        _ => milliseconds(array)?,
    };
    Ok(times.as_primitive::<Int64Type>().clone())
}

/// Splits times of a unit that has `per_ms` per millisecond.
fn split(array: &Int64Array, per_ms: u32) -> (Int64Array, Option<Nanos>) {
    let (per_ms, nanos_each) = (i64::from(per_ms), NANOS_PER_MS / per_ms);
    let milliseconds: Int64Array = array.unary(|time| time.div_euclid(per_ms));
    // The remainder is below a million, so it fits.
    let within = |time: &i64| time.rem_euclid(per_ms) as u32 * nanos_each;
    // I1: whole milliseconds have no nanoseconds.
    let is_whole = array.values().iter().all(|time| time.rem_euclid(per_ms) == 0);
    (milliseconds, (!is_whole).then(|| array.values().iter().map(within).collect::<Vec<_>>().into()))
}

/// Appends the prefix with the nanoseconds of a row by key; nothing if they are zero.
#[inline]
pub(crate) fn put_nanos(nanos: u32, out: &mut Vec<u8>) {
    if nanos != 0 {
        let [_, high, middle, low] = nanos.to_be_bytes();
        out.extend_from_slice(&[HAS_NANOS, high, middle, low]);
    }
}

/// Splits a row by key into its nanoseconds and its row block.
#[inline]
pub(crate) fn split_nanos(row: &[u8]) -> (u32, &[u8]) {
    match row {
        [HAS_NANOS, high, middle, low, run @ ..] => (u32::from_be_bytes([0, *high, *middle, *low]), run),
        run => (0, run),
    }
}

/// First byte of a row by key with nanoseconds.
const HAS_NANOS: u8 = 2;

/// Appends a time to a cell.
#[inline]
pub(crate) fn put_time(at: ExactTime, out: &mut Vec<u8>) {
    if at.nanos != 0 {
        out.extend_from_slice(&ESCAPE);
        put_varint(out, at.nanos.into());
    }
    put_varint(out, zigzag(at.ms));
}

/// Takes a time off the front. Returns none if the bytes hold no time.
#[inline]
pub(crate) fn take_time(bytes: &mut &[u8]) -> Option<ExactTime> {
    let mut nanos = 0;
    if let Some(rest) = bytes.strip_prefix(&ESCAPE) {
        *bytes = rest;
        nanos = u32::try_from(varint(bytes)?).ok()?;
    }
    Some(ExactTime { ms: unzigzag(varint(bytes)?), nanos })
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let (value, rest) = take_varint(bytes).ok()?;
    *bytes = rest;
    Some(value)
}

/// Precedes the nanoseconds of a time in a cell: two bytes for a zero, for which a varint has one.
const ESCAPE: [u8; 2] = [0x80, 0];

#[cfg(test)]
mod tests {
    use arrow_array::{TimestampMicrosecondArray, TimestampNanosecondArray, TimestampSecondArray};
    use proptest::prelude::*;

    use super::*;

    fn time() -> impl Strategy<Value = ExactTime> {
        (any::<i64>(), prop_oneof![Just(0), 0..NANOS_PER_MS]).prop_map(|(ms, nanos)| ExactTime { ms, nanos })
    }

    proptest! {
        #[test]
        fn times_in_cells_and_in_front_of_rows_are_read_as_they_were_written(times in proptest::collection::vec(time(), 0..9)) {
            let mut out = Vec::new();
            times.iter().for_each(|at| put_time(*at, &mut out));
            let mut bytes = &out[..];
            for at in &times {
                prop_assert_eq!(take_time(&mut bytes), Some(*at));
                let mut row = Vec::new();
                put_nanos(at.nanos, &mut row);
                row.push(1);
                prop_assert_eq!(split_nanos(&row), (at.nanos, &[1][..]));
            }
            prop_assert!(bytes.is_empty());
        }

        #[test]
        fn any_bytes_are_a_time_or_none(bytes: Vec<u8>) {
            let _ = (take_time(&mut &bytes[..]), split_nanos(&bytes));
            let _ = take_time(&mut &[&ESCAPE[..], &bytes].concat()[..]);
        }

        #[test]
        fn columns_are_rounded_down_and_keep_the_rest(times in proptest::collection::vec(any::<i64>(), 0..9)) {
            let arrays: [(ArrayRef, i128); 2] = [
                (Arc::new(TimestampMicrosecondArray::from(times.clone())), 1_000),
                (Arc::new(TimestampNanosecondArray::from(times.clone())), 1),
            ];
            for (array, nanos_each) in arrays {
                let (ms, nanos) = times_of(&array).unwrap();
                for (row, time) in times.iter().enumerate() {
                    let within = nanos.as_ref().map_or(0, |nanos| nanos[row]);
                    prop_assert!(within < NANOS_PER_MS);
                    let exact = i128::from(ms.value(row)) * i128::from(NANOS_PER_MS) + i128::from(within);
                    prop_assert_eq!(exact, i128::from(*time) * nanos_each);
                }
            }
        }
    }

    #[test]
    fn whole_milliseconds_have_no_nanoseconds() {
        let array: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![Some(-2_000_000), None, Some(3_000_000)]));
        let (ms, nanos) = times_of(&array).unwrap();
        assert_eq!((ms.iter().collect::<Vec<_>>(), nanos), (vec![Some(-2), None, Some(3)], None));
        let array: ArrayRef = Arc::new(TimestampSecondArray::from(vec![-1, i64::MAX]));
        assert!(times_of(&array).is_err(), "milliseconds cannot hold it");
        let mut times = RowTimes::of_one(ExactTime::of_ms(5));
        assert!(times.nanos.is_empty());
        times.push(ExactTime { ms: 5, nanos: 7 });
        times.push(ExactTime::of_ms(6));
        assert_eq!((times.ms, times.nanos), (vec![5, 5, 6], vec![0, 7, 0]));
    }
}
