//! Cells: the accumulators of aggregates, one per group and aggregate. A cell takes values and merges other cells.
//!
//! Cells are written upstream of an exchange, read downstream, and stored in state, so their bytes never change.

use std::cmp::Ordering;

use arrow_buffer::i256;
use flownet_runtime::time::ExactTime;
use flownet_runtime::varint::{put_varint, take_varint, unzigzag, zigzag};

use crate::event_time::{put_time, take_time};
use crate::floats::{self, Float};
use crate::physical_type::Scalar;

/// Accumulator of one group and aggregate.
pub(crate) trait Cell: Default + Send + Sync + 'static {
    /// Whether its memory grows with each value.
    const GROWS: bool = false;

    /// Merges the cell of later values into this one.
    fn merge(&mut self, later: Self);

    /// Appends the encoded cell.
    fn write(&self, out: &mut Vec<u8>);

    /// Takes a cell off the front. Returns none if the bytes are malformed.
    fn read(bytes: &mut &[u8]) -> Option<Self>;
}

/// Cell that computes its result without further parameters.
pub(crate) trait Finish: Cell {
    /// Passes the result to `give`.
    fn finish<R>(&self, give: impl FnOnce(Scalar<'_>) -> R) -> Result<R, NoResult>;
}

/// Cell that takes values of type `V`.
pub(crate) trait Accumulates<V>: Cell {
    /// Adds one value with its time.
    fn take(&mut self, value: V, at: ExactTime);
}

/// Reason why a cell has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoResult {
    /// The sum does not fit its type.
    Overflow(i256),
    /// The bytes are malformed.
    Malformed,
}

/// Number of values.
#[derive(Default)]
pub(crate) struct Count(u64);

impl Cell for Count {
    fn merge(&mut self, later: Self) {
        self.0 = self.0.saturating_add(later.0);
    }

    fn write(&self, out: &mut Vec<u8>) {
        put_varint(out, self.0);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        varint(bytes).map(Self)
    }
}

impl Finish for Count {
    fn finish<R>(&self, give: impl FnOnce(Scalar<'_>) -> R) -> Result<R, NoResult> {
        Ok(give(Scalar::Int(self.0.cast_signed())))
    }
}

impl<V> Accumulates<V> for Count {
    #[inline]
    fn take(&mut self, _: V, _: ExactTime) {
        self.0 += 1;
    }
}

/// Sum of integers. It is exact, so that overflow does not depend on the order of values.
#[derive(Default)]
pub(crate) struct SumInt<const SIGNED: bool>(i128);

impl<const SIGNED: bool> Cell for SumInt<SIGNED> {
    fn merge(&mut self, later: Self) {
        self.0 = self.0.saturating_add(later.0);
    }

    fn write(&self, out: &mut Vec<u8>) {
        put_wide(out, self.0);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        wide(bytes).map(Self)
    }
}

impl<const SIGNED: bool> Finish for SumInt<SIGNED> {
    fn finish<R>(&self, give: impl FnOnce(Scalar<'_>) -> R) -> Result<R, NoResult> {
        let overflow = NoResult::Overflow(i256::from_i128(self.0));
        if SIGNED {
            i64::try_from(self.0).map(|sum| give(Scalar::Int(sum))).map_err(|_| overflow)
        } else {
            u64::try_from(self.0).map(|sum| give(Scalar::Unsigned(sum))).map_err(|_| overflow)
        }
    }
}

impl<const SIGNED: bool> Accumulates<i64> for SumInt<SIGNED> {
    #[inline]
    fn take(&mut self, value: i64, _: ExactTime) {
        self.0 += i128::from(value);
    }
}

impl<const SIGNED: bool> Accumulates<u64> for SumInt<SIGNED> {
    #[inline]
    fn take(&mut self, value: u64, _: ExactTime) {
        self.0 += i128::from(value);
    }
}

/// Sum of decimals, in units of their last digit. Exact, whatever the intermediate sums are.
#[derive(Default)]
pub(crate) struct SumDecimal(i256);

impl Cell for SumDecimal {
    fn merge(&mut self, later: Self) {
        self.0 = self.0.wrapping_add(later.0);
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self.0.to_i128() {
            Some(sum) => put_wide(out, sum),
            None => {
                out.push(WIDER);
                out.extend_from_slice(&self.0.to_le_bytes());
            }
        }
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let Some((&WIDER, rest)) = bytes.split_first() else { return wide(bytes).map(i256::from_i128).map(Self) };
        let (taken, rest) = rest.split_first_chunk()?;
        *bytes = rest;
        Some(Self(i256::from_le_bytes(*taken)))
    }
}

impl Finish for SumDecimal {
    fn finish<R>(&self, give: impl FnOnce(Scalar<'_>) -> R) -> Result<R, NoResult> {
        let sum = self.0.to_i128().filter(|sum| sum.unsigned_abs() < MOST_DECIMAL);
        sum.map(|sum| give(Scalar::Decimal(sum))).ok_or(NoResult::Overflow(self.0))
    }
}

/// One more than the greatest value of 38 digits, the limit of a decimal.
const MOST_DECIMAL: u128 = 10u128.pow(38);

impl Accumulates<i128> for SumDecimal {
    #[inline]
    fn take(&mut self, value: i128, _: ExactTime) {
        self.0 = self.0.wrapping_add(i256::from_i128(value));
    }
}

/// Sum of floats with the sum of its rounding errors, accurate to more than a hundred bits. So results depend neither
/// on the order of rows nor on where they were merged, unless these bits do not suffice.
#[derive(Clone, Copy, Default)]
pub(crate) struct SumFloat {
    sum: f64,
    rest: f64,
}

impl SumFloat {
    #[inline]
    fn add(&mut self, value: f64) {
        let sum = self.sum + value;
        let back = sum - self.sum;
        self.rest += (self.sum - (sum - back)) + (value - back);
        self.sum = sum;
    }

    /// Infinities and NaN have no meaningful rounding error.
    fn value(self) -> f64 {
        if self.sum.is_finite() { self.sum + self.rest } else { self.sum }
    }
}

impl Cell for SumFloat {
    fn merge(&mut self, later: Self) {
        self.add(later.sum);
        self.rest += later.rest;
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.sum.to_le_bytes());
        out.extend_from_slice(&self.rest.to_le_bytes());
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self { sum: float(bytes)?, rest: float(bytes)? })
    }
}

impl Finish for SumFloat {
    fn finish<R>(&self, give: impl FnOnce(Scalar<'_>) -> R) -> Result<R, NoResult> {
        Ok(give(Scalar::Float(self.value())))
    }
}

impl Accumulates<f64> for SumFloat {
    #[inline]
    fn take(&mut self, value: f64, _: ExactTime) {
        self.add(value);
    }
}

/// Mean: a sum and the number of values.
#[derive(Default)]
pub(crate) struct Mean<S> {
    sum: S,
    count: u64,
}

/// Sum that a mean can use.
pub(crate) trait Sum: Cell {
    fn as_float(&self) -> f64;
}

impl Sum for SumInt<true> {
    fn as_float(&self) -> f64 {
        self.0 as f64
    }
}

impl Sum for SumDecimal {
    fn as_float(&self) -> f64 {
        let (low, high) = self.0.to_parts();
        self.0.to_i128().map_or_else(|| high as f64 * 2f64.powi(128) + low as f64, |sum| sum as f64)
    }
}

impl Sum for SumFloat {
    fn as_float(&self) -> f64 {
        self.value()
    }
}

impl<S: Sum> Cell for Mean<S> {
    fn merge(&mut self, later: Self) {
        self.sum.merge(later.sum);
        self.count = self.count.saturating_add(later.count);
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.sum.write(out);
        put_varint(out, self.count);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self { sum: S::read(bytes)?, count: varint(bytes)? })
    }
}

impl<S: Sum> Mean<S> {
    /// Returns the mean of values that are stored as multiples of `1 / unit`.
    pub(super) fn in_units(&self, unit: f64) -> Scalar<'static> {
        if self.count == 0 { Scalar::None } else { Scalar::Float(self.sum.as_float() / (self.count as f64 * unit)) }
    }
}

impl<S: Sum> Finish for Mean<S> {
    fn finish<R>(&self, give: impl FnOnce(Scalar<'_>) -> R) -> Result<R, NoResult> {
        Ok(give(self.in_units(1.0)))
    }
}

impl<V, S: Sum + Accumulates<V>> Accumulates<V> for Mean<S> {
    #[inline]
    fn take(&mut self, value: V, at: ExactTime) {
        self.sum.take(value, at);
        self.count += 1;
    }
}

/// Variance or standard deviation, by Welford's method. Cells are merged by the method of Chan and others.
#[derive(Default)]
pub(crate) struct Spread<const ROOT: bool> {
    count: u64,
    mean: f64,
    squares: f64,
}

impl<const ROOT: bool> Cell for Spread<ROOT> {
    fn merge(&mut self, later: Self) {
        if later.count == 0 {
            return;
        }
        let (one, other) = (self.count as f64, later.count as f64);
        let (apart, all) = (later.mean - self.mean, one + other);
        self.mean += apart * other / all;
        self.squares += later.squares + apart * apart * one * other / all;
        self.count = self.count.saturating_add(later.count);
    }

    fn write(&self, out: &mut Vec<u8>) {
        put_varint(out, self.count);
        out.extend_from_slice(&self.mean.to_le_bytes());
        out.extend_from_slice(&self.squares.to_le_bytes());
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self { count: varint(bytes)?, mean: float(bytes)?, squares: float(bytes)? })
    }
}

impl<const ROOT: bool> Finish for Spread<ROOT> {
    /// Computes the sample variance, which one value does not have.
    fn finish<R>(&self, give: impl FnOnce(Scalar<'_>) -> R) -> Result<R, NoResult> {
        let variance = self.squares / (self.count as f64 - 1.0);
        let value = if ROOT { variance.sqrt() } else { variance };
        Ok(give(if self.count < 2 { Scalar::None } else { Scalar::Float(value) }))
    }
}

impl<const ROOT: bool> Accumulates<f64> for Spread<ROOT> {
    #[inline]
    fn take(&mut self, value: f64, _: ExactTime) {
        self.count += 1;
        let apart = value - self.mean;
        self.mean += apart / self.count as f64;
        self.squares += apart * (value - self.mean);
    }
}

/// Value that a cell stores.
pub(crate) trait CellValue: Send + Sync + Sized + 'static {
    /// Returns true if the value precedes `other`: less, or greater if `greatest`. NaN is neither; all numbers precede
    /// it.
    #[inline]
    fn is_before(&self, other: &Self, greatest: bool) -> bool {
        if greatest { self.order(other).is_gt() } else { self.order(other).is_lt() }
    }

    /// Total order of all values.
    fn order(&self, other: &Self) -> Ordering;
    fn write(&self, out: &mut Vec<u8>);
    fn read(bytes: &mut &[u8]) -> Option<Self>;
    fn scalar(&self) -> Scalar<'_>;

    /// Returns the value as the result of a minimum or maximum. Equal values return the same representative.
    fn extreme(&self) -> Scalar<'_> {
        self.scalar()
    }
}

impl CellValue for i64 {
    #[inline]
    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }

    fn write(&self, out: &mut Vec<u8>) {
        put_varint(out, zigzag(*self));
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        varint(bytes).map(unzigzag)
    }

    fn scalar(&self) -> Scalar<'_> {
        Scalar::Int(*self)
    }
}

impl CellValue for u64 {
    #[inline]
    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }

    fn write(&self, out: &mut Vec<u8>) {
        put_varint(out, *self);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        varint(bytes)
    }

    fn scalar(&self) -> Scalar<'_> {
        Scalar::Unsigned(*self)
    }
}

impl CellValue for i128 {
    #[inline]
    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }

    fn write(&self, out: &mut Vec<u8>) {
        put_wide(out, *self);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        wide(bytes)
    }

    fn scalar(&self) -> Scalar<'_> {
        Scalar::Decimal(*self)
    }
}

impl CellValue for f64 {
    #[inline]
    fn is_before(&self, other: &Self, greatest: bool) -> bool {
        if other.is_nan() {
            return !self.is_nan();
        }
        if greatest { self > other } else { self < other }
    }

    fn order(&self, other: &Self) -> Ordering {
        floats::order(*self, *other)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        float(bytes)
    }

    fn scalar(&self) -> Scalar<'_> {
        Scalar::Float(*self)
    }

    fn extreme(&self) -> Scalar<'_> {
        Scalar::Float(self.canonical())
    }
}

impl CellValue for Box<[u8]> {
    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }

    fn write(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        out.extend_from_slice(self);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let len = usize::try_from(varint(bytes)?).ok()?;
        let (taken, rest) = bytes.split_at_checked(len)?;
        *bytes = rest;
        Some(taken.into())
    }

    fn scalar(&self) -> Scalar<'_> {
        Scalar::Bytes(self)
    }
}

/// Minimum or maximum.
pub(crate) struct Extreme<K, const GREATEST: bool>(Option<K>);

impl<K, const GREATEST: bool> Default for Extreme<K, GREATEST> {
    fn default() -> Self {
        Self(None)
    }
}

impl<K: CellValue, const GREATEST: bool> Cell for Extreme<K, GREATEST> {
    fn merge(&mut self, later: Self) {
        if let Some(value) = later.0 {
            self.take(value, ExactTime::of_ms(0));
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        put_option(out, self.0.as_ref());
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        option(bytes).map(Self)
    }
}

impl<K: CellValue, const GREATEST: bool> Finish for Extreme<K, GREATEST> {
    fn finish<R>(&self, give: impl FnOnce(Scalar<'_>) -> R) -> Result<R, NoResult> {
        Ok(give(self.0.as_ref().map_or(Scalar::None, CellValue::extreme)))
    }
}

impl<K: CellValue, const GREATEST: bool> Accumulates<K> for Extreme<K, GREATEST> {
    #[inline]
    fn take(&mut self, value: K, _: ExactTime) {
        if self.0.as_ref().is_none_or(|kept| value.is_before(kept, GREATEST)) {
            self.0 = Some(value);
        }
    }
}

impl<const GREATEST: bool> Accumulates<&[u8]> for Extreme<Box<[u8]>, GREATEST> {
    #[inline]
    fn take(&mut self, value: &[u8], _: ExactTime) {
        let is_next = match &self.0 {
            None => true,
            Some(kept) if GREATEST => value > &**kept,
            Some(kept) => value < &**kept,
        };
        if is_next {
            self.0 = Some(value.into());
        }
    }
}

/// First or last value by time. Among values of one time, arrival order decides.
pub(crate) struct Edge<K, const LAST: bool>(Option<(ExactTime, K)>);

impl<K, const LAST: bool> Default for Edge<K, LAST> {
    fn default() -> Self {
        Self(None)
    }
}

impl<K, const LAST: bool> Edge<K, LAST> {
    #[inline]
    fn is_beyond(&self, at: ExactTime) -> bool {
        self.0.as_ref().is_none_or(|(kept_at, _)| if LAST { at >= *kept_at } else { at < *kept_at })
    }
}

impl<K: CellValue, const LAST: bool> Cell for Edge<K, LAST> {
    fn merge(&mut self, later: Self) {
        if let Some((at, value)) = later.0
            && self.is_beyond(at)
        {
            self.0 = Some((at, value));
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        put_option(out, self.0.as_ref().map(|(_, value)| value));
        if let Some((at, _)) = &self.0 {
            put_time(*at, out);
        }
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let Some(value) = option(bytes)? else { return Some(Self(None)) };
        Some(Self(Some((take_time(bytes)?, value))))
    }
}

impl<K: CellValue, const LAST: bool> Finish for Edge<K, LAST> {
    fn finish<R>(&self, give: impl FnOnce(Scalar<'_>) -> R) -> Result<R, NoResult> {
        Ok(give(self.0.as_ref().map_or(Scalar::None, |(_, value)| value.scalar())))
    }
}

impl<K: CellValue + Copy, const LAST: bool> Accumulates<K> for Edge<K, LAST> {
    #[inline]
    fn take(&mut self, value: K, at: ExactTime) {
        if self.is_beyond(at) {
            self.0 = Some((at, value));
        }
    }
}

impl<const LAST: bool> Accumulates<&[u8]> for Edge<Box<[u8]>, LAST> {
    #[inline]
    fn take(&mut self, value: &[u8], at: ExactTime) {
        if self.is_beyond(at) {
            self.0 = Some((at, value.into()));
        }
    }
}

/// Appends the number of rows of a value. It is an odd number, so no value begins like a key in another form.
pub(crate) fn put_rows(out: &mut Vec<u8>, rows: u64) {
    put_varint(out, (rows << 1) | 1);
}

/// Takes a number of rows off the front.
pub(crate) fn take_rows(bytes: &mut &[u8]) -> Option<u64> {
    varint(bytes).map(|rows| rows >> 1)
}

/// Takes a varint off the front.
pub(super) fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let (value, rest) = take_varint(bytes).ok()?;
    *bytes = rest;
    Some(value)
}

fn float(bytes: &mut &[u8]) -> Option<f64> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(f64::from_le_bytes(*taken))
}

/// Appends a sum. Nearly all sums fit into 64 bits, and most into far fewer.
fn put_wide(out: &mut Vec<u8>, value: i128) {
    match i64::try_from(value) {
        Ok(value) => {
            out.push(NARROW);
            put_varint(out, zigzag(value));
        }
        Err(_) => {
            out.push(WIDE);
            out.extend_from_slice(&value.to_le_bytes());
        }
    }
}

fn wide(bytes: &mut &[u8]) -> Option<i128> {
    let (&kind, rest) = bytes.split_first()?;
    *bytes = rest;
    if kind == NARROW {
        return varint(bytes).map(|value| unzigzag(value).into());
    }
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(i128::from_le_bytes(*taken))
}

/// First byte of an encoded sum: its width.
const NARROW: u8 = 0;
const WIDE: u8 = 1;
const WIDER: u8 = 2;

fn put_option<K: CellValue>(out: &mut Vec<u8>, value: Option<&K>) {
    out.push(value.is_some().into());
    if let Some(value) = value {
        value.write(out);
    }
}

#[expect(clippy::option_option, reason = "bytes that are none, or a value that is not there")]
fn option<K: CellValue>(bytes: &mut &[u8]) -> Option<Option<K>> {
    let (&is_there, rest) = bytes.split_first()?;
    *bytes = rest;
    if is_there == 0 { Some(None) } else { K::read(bytes).map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_of_decimals_fits_by_itself_whatever_there_was_on_the_way() {
        let most = MOST_DECIMAL as i128 - 1;
        let mut sum = SumDecimal::default();
        for value in [most, most, most, -most, -most, -most, most] {
            sum.take(value, ExactTime::of_ms(0));
            let mut out = Vec::new();
            sum.write(&mut out);
            let mut bytes = &out[..];
            sum = SumDecimal::read(&mut bytes).unwrap();
            assert!(bytes.is_empty());
        }
        assert_eq!(sum.finish(|value| assert_eq!(value, Scalar::Decimal(most))), Ok(()));
        sum.take(1, ExactTime::of_ms(0));
        assert_eq!(sum.finish(|_| ()), Err(NoResult::Overflow(i256::from_i128(most + 1))));
    }
}
