//! Counts distinct values: exactly while they are few, by HyperLogLog when they are many.
//!
//! The state follows from the set of values alone, so results depend neither on the order of rows nor on where they
//! were merged. Registers are those of Flajolet and others, with hashes of 64 bits. The estimate is Ertl's, which needs
//! no tables of corrections ("New cardinality estimation algorithms for HyperLogLog sketches", 2017, algorithm 6).

use flownet_runtime::time::ExactTime;
use flownet_runtime::varint::put_varint;
use xxhash_rust::xxh3::xxh3_64;

use super::cell::{Accumulates, Cell, Finish, NoResult, varint};
use crate::physical_type::Scalar;

/// Bits of a hash that choose a register. The standard error is 1.04 over the root of their number, 1.6 percent.
const PRECISION: u32 = 12;
const REGISTERS: usize = 1 << PRECISION;
/// Limit of stored hashes. Below it, hashes need no more memory than registers.
const MOST_HASHES: usize = REGISTERS / size_of::<u64>();
/// Bits after those that choose a register. A register stores the position of the first set bit, or one more if none is
/// set.
const REST_BITS: u32 = u64::BITS - PRECISION;

/// Number of distinct values.
pub(crate) enum Distinct {
    /// The hashes, sorted and without duplicates.
    Few(Vec<u64>),
    /// The registers of HyperLogLog.
    Many(Box<[u8; REGISTERS]>),
}

impl Default for Distinct {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl Distinct {
    #[inline]
    fn add(&mut self, hash: u64) {
        match self {
            Self::Many(registers) => note(registers, hash),
            Self::Few(hashes) => {
                let Err(at) = hashes.binary_search(&hash) else { return };
                hashes.insert(at, hash);
                if hashes.len() > MOST_HASHES {
                    *self = Self::Many(registers(hashes));
                }
            }
        }
    }

    fn count(&self) -> u64 {
        match self {
            Self::Few(hashes) => hashes.len() as u64,
            Self::Many(registers) => estimate(registers),
        }
    }
}

fn registers(hashes: &[u64]) -> Box<[u8; REGISTERS]> {
    let mut registers = Box::new([0; REGISTERS]);
    hashes.iter().for_each(|hash| note(&mut registers, *hash));
    registers
}

#[inline]
fn note(registers: &mut [u8; REGISTERS], hash: u64) {
    let register = &mut registers[(hash >> REST_BITS) as usize];
    let place = ((hash << PRECISION).leading_zeros().min(REST_BITS) + 1) as u8;
    *register = place.max(*register);
}

fn estimate(registers: &[u8; REGISTERS]) -> u64 {
    let mut with_place = [0.0; REST_BITS as usize + 2];
    registers.iter().for_each(|place| with_place[usize::from(*place)] += 1.0);
    let all = REGISTERS as f64;
    let [untouched, places @ .., full] = with_place;
    let mut sum = all * tau(1.0 - full / all);
    for registers in places.iter().rev() {
        sum = 0.5 * (sum + registers);
    }
    sum += all * sigma(untouched / all);
    (all * all / (2.0 * std::f64::consts::LN_2 * sum)).round() as u64
}

/// x + the sum over k of x^(2^k) * 2^(k-1).
fn sigma(mut x: f64) -> f64 {
    let (mut factor, mut sum) = (1.0, x);
    loop {
        x *= x;
        let next = sum + x * factor;
        if next == sum {
            return sum;
        }
        (sum, factor) = (next, 2.0 * factor);
    }
}

/// A third of 1 - x - the sum over k of (1 - x^(2^-k))^2 * 2^-k.
fn tau(mut x: f64) -> f64 {
    let (mut factor, mut sum) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        factor *= 0.5;
        let next = sum - (1.0 - x) * (1.0 - x) * factor;
        if next == sum {
            return sum / 3.0;
        }
        sum = next;
    }
}

impl Cell for Distinct {
    const GROWS: bool = true;

    fn merge(&mut self, later: Self) {
        match (&mut *self, later) {
            (Self::Many(registers), Self::Many(others)) => {
                registers.iter_mut().zip(others.iter()).for_each(|(one, other)| *one = (*one).max(*other));
            }
            (Self::Few(hashes), Self::Many(mut registers)) => {
                hashes.iter().for_each(|hash| note(&mut registers, *hash));
                *self = Self::Many(registers);
            }
            (_, Self::Few(hashes)) => hashes.into_iter().for_each(|hash| self.add(hash)),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Few(hashes) => {
                put_varint(out, hashes.len() as u64);
                hashes.iter().for_each(|hash| out.extend_from_slice(&hash.to_le_bytes()));
            }
            Self::Many(registers) => {
                put_varint(out, MANY);
                out.extend_from_slice(&**registers);
            }
        }
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let count = varint(bytes)?;
        if count == MANY {
            let (registers, rest) = bytes.split_first_chunk::<REGISTERS>()?;
            *bytes = rest;
            let are_places = registers.iter().all(|place| u32::from(*place) <= REST_BITS + 1);
            return are_places.then(|| Self::Many(Box::new(*registers)));
        }
        let count = usize::try_from(count).ok()?;
        let (taken, rest) = bytes.split_at_checked(count.checked_mul(size_of::<u64>())?)?;
        *bytes = rest;
        let hashes: Vec<_> = taken.as_chunks().0.iter().map(|hash| u64::from_le_bytes(*hash)).collect();
        hashes.is_sorted_by(|one, other| one < other).then_some(Self::Few(hashes))
    }
}

impl Finish for Distinct {
    fn finish<R>(&self, give: impl FnOnce(Scalar<'_>) -> R) -> Result<R, NoResult> {
        Ok(give(Scalar::Int(self.count().cast_signed())))
    }
}

/// Written instead of a number of hashes.
const MANY: u64 = MOST_HASHES as u64 + 1;

impl Accumulates<i64> for Distinct {
    #[inline]
    fn take(&mut self, value: i64, _: ExactTime) {
        self.add(xxh3_64(&value.to_le_bytes()));
    }
}

impl Accumulates<u64> for Distinct {
    #[inline]
    fn take(&mut self, value: u64, _: ExactTime) {
        self.add(xxh3_64(&value.to_le_bytes()));
    }
}

impl Accumulates<i128> for Distinct {
    #[inline]
    fn take(&mut self, value: i128, _: ExactTime) {
        self.add(xxh3_64(&value.to_le_bytes()));
    }
}

impl Accumulates<f64> for Distinct {
    /// Both zeros count as one value, and so do all NaN.
    #[inline]
    fn take(&mut self, value: f64, _: ExactTime) {
        let value = if value.is_nan() { f64::NAN } else { value + 0.0 };
        self.add(xxh3_64(&value.to_le_bytes()));
    }
}

impl Accumulates<&[u8]> for Distinct {
    #[inline]
    fn take(&mut self, value: &[u8], _: ExactTime) {
        self.add(xxh3_64(value));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: impl IntoIterator<Item = i64>) -> Distinct {
        let mut distinct = Distinct::default();
        values.into_iter().for_each(|value| distinct.take(value, ExactTime::of_ms(0)));
        distinct
    }

    fn bytes(distinct: &Distinct) -> Vec<u8> {
        let mut out = Vec::new();
        distinct.write(&mut out);
        out
    }

    #[test]
    fn few_are_counted_and_many_estimated_to_some_percent() {
        assert_eq!(of((0..2_000).map(|value| value % 512)).count(), 512);
        for count in [513, 1_000, 3_000, 10_000, 100_000, 1_000_000] {
            let found = of((0..count).chain(0..count / 2)).count();
            let off = found.abs_diff(count as u64) as f64 / count as f64;
            // Three standard errors.
            assert!(off < 0.049, "{count}: {found}");
        }
    }

    #[test]
    fn floats_that_are_equal_are_one() {
        let mut distinct = Distinct::default();
        [0.0, -0.0, f64::NAN, -f64::NAN, 1.0, 1.0]
            .into_iter()
            .for_each(|value| distinct.take(value, ExactTime::of_ms(0)));
        assert_eq!(distinct.count(), 3);
    }

    proptest! {
        #[test]
        fn it_does_not_matter_how_values_were_put_together(counts in proptest::collection::vec(0i64..900, 1..6)) {
            let all: i64 = counts.iter().sum();
            let mut start = 0;
            let mut merged = Distinct::default();
            for count in counts {
                // Some values occur twice.
                let part = of((start - count / 3).max(0)..start + count);
                let read = Distinct::read(&mut &bytes(&part)[..]).unwrap();
                merged.merge(read);
                start += count;
            }
            prop_assert_eq!(bytes(&merged), bytes(&of((0..all).rev())));
        }
    }
}
