//! Estimates quantiles of numbers from a histogram.
//!
//! Values are counted in buckets: each power of two is cut into 128. The first bits of the float give the bucket, so it
//! is the same on all machines. The middle of a bucket differs from a value by at most 1/256 of the value. This is
//! `DDSketch` (Masson, Rim, Lee, 2019) with a mapping that is linear between powers of two. Counts follow from the
//! values alone, so results depend neither on the order of rows nor on where they were merged.

use flownet_runtime::time::ExactTime;
use flownet_runtime::varint::{put_varint, unzigzag, zigzag};

use super::cell::{Accumulates, Cell, varint};

/// Bits of the mantissa that select the bucket.
const STEP_BITS: u32 = 7;
/// Remaining bits of the mantissa.
const REST_BITS: u32 = f64::MANTISSA_DIGITS - 1 - STEP_BITS;
/// Bucket of infinity. NaN is counted above it, as the greatest value.
const INFINITE: i32 = (f64::INFINITY.to_bits() >> REST_BITS) as i32;

/// Number of values per bucket.
#[derive(Default)]
pub(crate) struct Buckets {
    /// Buckets with values, in the order of the values. Negative numbers have negative bucket numbers.
    counts: Vec<(i32, u64)>,
}

impl Buckets {
    /// Returns the value at quantile `q`, between 0 and 1, by the nearest rank. Returns none if there are no values.
    pub(super) fn quantile(&self, q: f64) -> Option<f64> {
        let all: u64 = self.counts.iter().map(|(_, count)| *count).fold(0, u64::saturating_add);
        let rank = (q * all.checked_sub(1)? as f64).round() as u64;
        let mut below = 0u64;
        let bucket = self.counts.iter().find(|(_, count)| {
            below = below.saturating_add(*count);
            below > rank
        });
        bucket.or(self.counts.last()).map(|(bucket, _)| middle_of(*bucket))
    }

    fn add(&mut self, bucket: i32, more: u64) {
        match self.counts.binary_search_by_key(&bucket, |(bucket, _)| *bucket) {
            Ok(at) => self.counts[at].1 = self.counts[at].1.saturating_add(more),
            Err(at) => self.counts.insert(at, (bucket, more)),
        }
    }
}

#[inline]
fn bucket_of(value: f64) -> i32 {
    let magnitude = (value.abs().to_bits() >> REST_BITS) as i32;
    if value.is_sign_negative() && !value.is_nan() { -magnitude } else { magnitude }
}

fn middle_of(bucket: i32) -> f64 {
    let magnitude = match bucket.abs() {
        // Zero, and values that are nearly zero.
        0 => 0.0,
        INFINITE => f64::INFINITY,
        bucket if bucket > INFINITE => f64::NAN,
        bucket => f64::from_bits((u64::from(bucket.unsigned_abs()) << REST_BITS) + (1 << (REST_BITS - 1))),
    };
    if bucket < 0 { -magnitude } else { magnitude }
}

impl Cell for Buckets {
    const GROWS: bool = true;

    fn merge(&mut self, later: Self) {
        later.counts.into_iter().for_each(|(bucket, count)| self.add(bucket, count));
    }

    fn write(&self, out: &mut Vec<u8>) {
        put_varint(out, self.counts.len() as u64);
        let mut before = 0;
        for (bucket, count) in &self.counts {
            put_varint(out, zigzag(i64::from(*bucket) - before));
            put_varint(out, *count);
            before = i64::from(*bucket);
        }
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let mut counts: Vec<(i32, u64)> = Vec::new();
        let mut before = 0i64;
        for _ in 0..varint(bytes)? {
            before = before.checked_add(unzigzag(varint(bytes)?))?;
            let bucket = i32::try_from(before).ok()?;
            // Buckets are sorted and unique, or the bytes are malformed.
            if counts.last().is_some_and(|(last, _)| *last >= bucket) {
                return None;
            }
            counts.push((bucket, varint(bytes)?));
        }
        Some(Self { counts })
    }
}

impl Accumulates<f64> for Buckets {
    #[inline]
    fn take(&mut self, value: f64, _: ExactTime) {
        self.add(bucket_of(value), 1);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[f64]) -> Buckets {
        let mut buckets = Buckets::default();
        values.iter().for_each(|value| buckets.take(*value, ExactTime::of_ms(0)));
        buckets
    }

    fn bytes(buckets: &Buckets) -> Vec<u8> {
        let mut out = Vec::new();
        buckets.write(&mut out);
        out
    }

    fn values() -> impl Strategy<Value = Vec<f64>> {
        let value = prop_oneof![any::<f64>(), -1e3..1e3, Just(0.0), Just(-0.0), Just(f64::NAN), Just(f64::INFINITY)];
        proptest::collection::vec(value, 1..200)
    }

    proptest! {
        #[test]
        fn a_quantile_is_near_the_value_of_its_rank(mut values in values(), q in 0.0..=1.0) {
            let found = of(&values).quantile(q).unwrap();
            values.iter_mut().filter(|value| value.is_nan()).for_each(|value| *value = f64::NAN);
            values.sort_by(f64::total_cmp);
            let expected = values[(q * (values.len() - 1) as f64).round() as usize];
            let is_near = found == expected || (found - expected).abs() <= expected.abs() / 256.0;
            // Subnormal numbers have fewer significant bits.
            let is_tiny = found.abs() < f64::MIN_POSITIVE && expected.abs() < f64::MIN_POSITIVE;
            prop_assert!(is_near || is_tiny || found.is_nan() && expected.is_nan(), "{found} for {expected}");
        }

        #[test]
        fn it_does_not_matter_how_values_were_put_together(one in values(), other in values()) {
            let mut merged = Buckets::read(&mut &bytes(&of(&one))[..]).unwrap();
            merged.merge(Buckets::read(&mut &bytes(&of(&other))[..]).unwrap());
            let all: Vec<f64> = other.iter().chain(&one).copied().collect();
            prop_assert_eq!(bytes(&merged), bytes(&of(&all)));
        }
    }
}
