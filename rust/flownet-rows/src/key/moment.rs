//! Encodes dates, times and durations as keys: the canonical bytes of the Python object that is equal to the value.
//!
//! Python's `datetime` counts microseconds and has the years 1 to 9999. A value without such an object has the bytes of
//! the equal time of numpy or pandas, or a name of its own.

use arrow_schema::{DataType, TimeUnit};
use chrono::{Datelike, NaiveDate};
use flownet_runtime::canonical::{self, CLASS_KEY, DATE, DATETIME, TIME, TIMEDELTA, ZONE_NONE, ZONE_UTC};
use flownet_runtime::varint::{put_varint, take_varint};

use super::number::take_wide_int;

/// Meaning of a number in a column of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Days since 1970.
    Date,
    /// Time since midnight.
    Time(TimeUnit),
    /// Time since 1970.
    Timestamp {
        unit: TimeUnit,
        /// Whether it is an instant, and not a local time.
        has_zone: bool,
    },
    Duration(TimeUnit),
}

/// Prefixes of numbers that no object of Python's `datetime` has.
mod names {
    pub(super) const DATE: &[u8] = b"arrow:date";
    pub(super) const TIME: &[u8] = b"arrow:time";
    pub(super) const LOCAL_NANOS: &[u8] = b"pandas:Timestamp";
    pub(super) const LOCAL: &[u8] = b"numpy:instant";
    pub(super) const INSTANT: &[u8] = b"pandas:Instant";
    pub(super) const DURATION: &[u8] = b"numpy:duration";
}

const NANOS: i64 = 1_000_000_000;
const DAY_SECONDS: i64 = 86_400;
/// Days of `timedelta.max`.
const MOST_DAYS: i64 = 999_999_999;
/// numpy's times without an equal `datetime` are encoded in attoseconds.
const ATTOS_A_NANO: i128 = 1_000_000_000;

impl Moment {
    pub(crate) fn of(data_type: &DataType) -> Option<Self> {
        Some(match data_type {
            DataType::Date32 => Self::Date,
            DataType::Time32(unit) | DataType::Time64(unit) => Self::Time(*unit),
            DataType::Timestamp(unit, zone) => Self::Timestamp { unit: *unit, has_zone: zone.is_some() },
            DataType::Duration(unit) => Self::Duration(*unit),
            _ => return None,
        })
    }

    /// Appends the canonical bytes of a value.
    pub(crate) fn put(self, value: i64, out: &mut Vec<u8>) {
        match self {
            Self::Date => match date_of(value) {
                Some(date) => {
                    out.push(DATE);
                    put_date(date, out);
                }
                None => put_named(names::DATE, value.into(), out),
            },
            Self::Time(unit) => {
                let (seconds, nanos) = parts(value, unit);
                if (0..DAY_SECONDS).contains(&seconds) && nanos % 1000 == 0 {
                    out.push(TIME);
                    put_time(seconds, nanos, out);
                    out.push(ZONE_NONE);
                } else {
                    put_named(names::TIME, all_nanos(value, unit), out);
                }
            }
            Self::Timestamp { unit, has_zone } => {
                let (seconds, nanos) = parts(value, unit);
                let date = date_of(seconds.div_euclid(DAY_SECONDS)).filter(|_| nanos % 1000 == 0);
                match (date, has_zone) {
                    (Some(date), _) => {
                        out.push(DATETIME);
                        put_date(date, out);
                        put_time(seconds.rem_euclid(DAY_SECONDS), nanos, out);
                        out.push(if has_zone { ZONE_UTC } else { ZONE_NONE });
                    }
                    (None, true) => put_named(names::INSTANT, all_nanos(value, unit), out),
                    // Times of pandas and of numpy are equal to it, but are two keys of a dict. It is encoded as that
                    // of pandas, which pyarrow converts it to.
                    (None, false) if nanos % 1000 != 0 => put_named(names::LOCAL_NANOS, all_nanos(value, unit), out),
                    (None, false) => put_named(names::LOCAL, all_nanos(value, unit) * ATTOS_A_NANO, out),
                }
            }
            Self::Duration(unit) => {
                let (seconds, nanos) = parts(value, unit);
                let days = seconds.div_euclid(DAY_SECONDS);
                if (-MOST_DAYS..=MOST_DAYS).contains(&days) && nanos % 1000 == 0 {
                    out.push(TIMEDELTA);
                    for part in [days, seconds.rem_euclid(DAY_SECONDS), nanos / 1000] {
                        out.extend_from_slice(&(part as i32).to_le_bytes());
                    }
                } else {
                    put_named(names::DURATION, all_nanos(value, unit) * ATTOS_A_NANO, out);
                }
            }
        }
    }

    /// Takes a value that [`put`](Self::put) appended off the front. Returns none if the bytes are not such a value.
    pub(crate) fn take(self, bytes: &[u8]) -> Option<(i64, &[u8])> {
        let (&tag, mut rest) = bytes.split_first()?;
        let value = match (self, tag) {
            (Self::Date, DATE) => take_date(&mut rest)?,
            (Self::Date, CLASS_KEY) => i64::try_from(take_named(names::DATE, &mut rest)?).ok()?,
            (Self::Time(unit), TIME) => {
                let nanos = take_time(&mut rest)?;
                take_byte(ZONE_NONE, &mut rest)?;
                in_unit(nanos.into(), unit)?
            }
            (Self::Time(unit), CLASS_KEY) => in_unit(take_named(names::TIME, &mut rest)?, unit)?,
            (Self::Timestamp { unit, has_zone }, DATETIME) => {
                let (days, nanos) = (take_date(&mut rest)?, take_time(&mut rest)?);
                take_byte(if has_zone { ZONE_UTC } else { ZONE_NONE }, &mut rest)?;
                in_unit(i128::from(days * DAY_SECONDS) * i128::from(NANOS) + i128::from(nanos), unit)?
            }
            (Self::Timestamp { unit, has_zone: true }, CLASS_KEY) => {
                in_unit(take_named(names::INSTANT, &mut rest)?, unit)?
            }
            (Self::Timestamp { unit: TimeUnit::Nanosecond, has_zone: false }, CLASS_KEY) => {
                i64::try_from(take_named(names::LOCAL_NANOS, &mut rest)?).ok()?
            }
            (Self::Timestamp { unit, has_zone: false }, CLASS_KEY) => {
                in_unit(take_named(names::LOCAL, &mut rest)? / ATTOS_A_NANO, unit)?
            }
            (Self::Duration(unit), TIMEDELTA) => {
                let mut part = || Some(i64::from(i32::from_le_bytes(take_bytes(&mut rest)?)));
                let (days, seconds, micros) = (part()?, part()?, part()?);
                let seconds = i128::from(days * DAY_SECONDS + seconds);
                in_unit(seconds * i128::from(NANOS) + i128::from(micros) * 1000, unit)?
            }
            (Self::Duration(unit), CLASS_KEY) => in_unit(take_named(names::DURATION, &mut rest)? / ATTOS_A_NANO, unit)?,
            _ => return None,
        };
        Some((value, rest))
    }
}

/// Returns the number of units per second.
fn a_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => NANOS,
    }
}

/// Returns whole seconds, and the remaining nanoseconds.
fn parts(value: i64, unit: TimeUnit) -> (i64, i64) {
    let a_second = a_second(unit);
    (value.div_euclid(a_second), value.rem_euclid(a_second) * (NANOS / a_second))
}

fn all_nanos(value: i64, unit: TimeUnit) -> i128 {
    i128::from(value) * i128::from(NANOS / a_second(unit))
}

/// Returns none if the value is not a multiple of the unit, or too large.
fn in_unit(nanos: i128, unit: TimeUnit) -> Option<i64> {
    let of_unit = i128::from(NANOS / a_second(unit));
    (nanos % of_unit == 0).then(|| i64::try_from(nanos / of_unit).ok()).flatten()
}

/// Days from the first day of year 1, which is day 1, to 1970-01-01.
const DAYS_TO_1970: i32 = 719_163;

/// Returns the date of a day since 1970, if Python can represent it.
fn date_of(day: i64) -> Option<NaiveDate> {
    let days = i32::try_from(day).ok()?.checked_add(DAYS_TO_1970)?;
    NaiveDate::from_num_days_from_ce_opt(days).filter(|date| (1..=9999).contains(&date.year()))
}

fn put_date(date: NaiveDate, out: &mut Vec<u8>) {
    let [low, high, ..] = date.year().to_le_bytes();
    out.extend_from_slice(&[low, high, date.month() as u8, date.day() as u8]);
}

fn take_date(bytes: &mut &[u8]) -> Option<i64> {
    let [low, high, month, day] = take_bytes(bytes)?;
    let date = NaiveDate::from_ymd_opt(u16::from_le_bytes([low, high]).into(), month.into(), day.into())?;
    Some(i64::from(date.num_days_from_ce() - DAYS_TO_1970))
}

/// Appends a time given in seconds since midnight.
fn put_time(seconds: i64, nanos: i64, out: &mut Vec<u8>) {
    let fold = 0;
    out.extend_from_slice(&[(seconds / 3600) as u8, (seconds / 60 % 60) as u8, (seconds % 60) as u8, fold]);
    out.extend_from_slice(&((nanos / 1000) as u32).to_le_bytes());
}

/// Takes a time off the front, in nanoseconds since midnight.
fn take_time(bytes: &mut &[u8]) -> Option<i64> {
    let [hour, minute, second, fold] = take_bytes::<4>(bytes)?.map(i64::from);
    let micros = u32::from_le_bytes(take_bytes(bytes)?);
    (fold == 0).then_some((hour * 3600 + minute * 60 + second) * NANOS + i64::from(micros) * 1000)
}

fn put_named(name: &[u8], number: i128, out: &mut Vec<u8>) {
    out.push(CLASS_KEY);
    put_varint(out, name.len() as u64);
    out.extend_from_slice(name);
    canonical::put_wide_int(out, number);
}

fn take_named(name: &[u8], bytes: &mut &[u8]) -> Option<i128> {
    let (len, rest) = take_varint(bytes).ok()?;
    let (found, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
    let (number, rest) = take_wide_int(rest)?;
    *bytes = rest;
    (found == name).then_some(number)
}

fn take_byte(wanted: u8, bytes: &mut &[u8]) -> Option<()> {
    (take_bytes(bytes)? == [wanted]).then_some(())
}

fn take_bytes<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UNITS: [TimeUnit; 4] = [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond];

    fn kinds() -> impl Strategy<Value = Moment> {
        let unit = || proptest::sample::select(&UNITS[..]);
        prop_oneof![
            Just(Moment::Date),
            unit().prop_map(Moment::Time),
            (unit(), any::<bool>()).prop_map(|(unit, has_zone)| Moment::Timestamp { unit, has_zone }),
            unit().prop_map(Moment::Duration),
        ]
    }

    /// Numbers close to now, and of any size.
    fn numbers() -> impl Strategy<Value = i64> {
        (any::<i64>(), 0u32..64).prop_map(|(number, shift)| number >> shift)
    }

    fn bytes(moment: Moment, value: i64) -> Vec<u8> {
        let mut bytes = Vec::new();
        moment.put(value, &mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn each_comes_back_and_leaves_what_is_behind_it(moment in kinds(), value in numbers(), behind: u8) {
            let mut key = bytes(moment, value);
            key.push(behind);
            prop_assert_eq!(moment.take(&key), Some((value, &[behind][..])));
        }

        #[test]
        fn the_same_time_is_the_same_key_in_any_unit(seconds in numbers(), has_zone: bool) {
            let seconds = seconds % 9_000_000_000;
            let keys = |kind: fn(TimeUnit, bool) -> Moment| {
                UNITS.map(|unit| bytes(kind(unit, has_zone), seconds * a_second(unit)))
            };
            for keys in [
                keys(|unit, has_zone| Moment::Timestamp { unit, has_zone }),
                keys(|unit, _| Moment::Duration(unit)),
                keys(|unit, _| Moment::Time(unit)),
            ] {
                prop_assert!(keys.iter().all(|key| *key == keys[0]), "{:?}", keys);
            }
        }

        #[test]
        fn other_bytes_never_panic(moment in kinds(), bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = moment.take(&bytes);
            let named = [names::DATE, names::TIME, names::LOCAL_NANOS, names::LOCAL, names::INSTANT, names::DURATION];
            let named = named.map(|name| [&[CLASS_KEY, name.len() as u8][..], name].concat());
            for head in [DATE, TIME, DATETIME, TIMEDELTA, CLASS_KEY].map(|tag| vec![tag]).into_iter().chain(named) {
                if let Some((value, _)) = moment.take(&[&head, &bytes[..]].concat()) {
                    prop_assert!(moment.take(&self::bytes(moment, value)).is_some());
                }
            }
        }
    }

    #[test]
    fn they_are_the_bytes_of_the_codec_for_objects() {
        let day = 20_783;
        assert_eq!(bytes(Moment::Date, day), [0x20, 0xea, 0x07, 11, 26]);
        let (noon, unit) = (day * DAY_SECONDS + 43_200, TimeUnit::Second);
        let time = [0xea, 0x07, 11, 26, 12, 0, 0, 0, 0, 0, 0, 0];
        for (has_zone, zone) in [(false, 0), (true, 1)] {
            let key = bytes(Moment::Timestamp { unit, has_zone }, noon);
            assert_eq!(key, [&[0x22][..], &time, &[zone]].concat());
        }
        assert_eq!(bytes(Moment::Time(unit), 43_200), [0x21, 12, 0, 0, 0, 0, 0, 0, 0, 0]);
        let delta = [&[0x23][..], &(-1i32).to_le_bytes(), &86_399i32.to_le_bytes(), &500_000i32.to_le_bytes()].concat();
        assert_eq!(bytes(Moment::Duration(TimeUnit::Millisecond), -500), delta);
    }

    #[test]
    fn one_of_another_kind_is_none() {
        let local = Moment::Timestamp { unit: TimeUnit::Nanosecond, has_zone: false };
        let instant = Moment::Timestamp { unit: TimeUnit::Nanosecond, has_zone: true };
        for value in [0, 1] {
            assert_eq!(instant.take(&bytes(local, value)), None);
            assert_eq!(local.take(&bytes(instant, value)), None);
            assert_eq!(Moment::Date.take(&bytes(local, value)), None);
        }
        let seconds = Moment::Timestamp { unit: TimeUnit::Second, has_zone: false };
        assert_eq!(seconds.take(&bytes(local, 1)), None, "a nanosecond is no second");
    }
}
