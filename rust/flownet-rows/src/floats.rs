//! Compares floats by one rule: -0.0 equals 0.0, and all NaN are equal and above every number, as in polars.
//!
//! Comparisons of expressions and `is_in` call [`is_equal`] and [`is_at_least`], `top_n` sorts [`canonical_column`], and
//! `collect` sorts by [`order`]. Keys follow the same rule in [`flownet_runtime::canonical::put_float_key`].

use std::cmp::Ordering;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;

/// Floats of 32 and 64 bits.
pub(crate) trait Float: Copy + PartialOrd {
    /// Returns the representative of all equal values: 0.0 for both zeros, one NaN for all.
    fn canonical(self) -> Self;
}

impl Float for f32 {
    #[inline]
    fn canonical(self) -> Self {
        if self.is_nan() { Self::NAN } else { self + 0.0 }
    }
}

impl Float for f64 {
    #[inline]
    fn canonical(self) -> Self {
        if self.is_nan() { Self::NAN } else { self + 0.0 }
    }
}

#[inline]
#[expect(clippy::eq_op, reason = "only NaN differs from itself, and this compiles to one instruction of a vector")]
fn is_nan<F: Float>(value: F) -> bool {
    value != value
}

/// Returns true if the values are equal.
#[inline]
pub(crate) fn is_equal<F: Float>(left: F, right: F) -> bool {
    (left == right) | (is_nan(left) & is_nan(right))
}

/// Returns true if `left` is equal to `right` or above it.
#[inline]
pub(crate) fn is_at_least<F: Float>(left: F, right: F) -> bool {
    (left >= right) | is_nan(left)
}

/// Orders values by the rule, and equal ones by their bits, so that the order depends only on the values.
pub(crate) fn order(left: f64, right: f64) -> Ordering {
    left.is_nan().cmp(&right.is_nan()).then_with(|| left.total_cmp(&right))
}

/// Returns the column with each float in its canonical form. Returns columns of other types unchanged.
pub(crate) fn canonical_column(array: &ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Float32 => Arc::new(array.as_primitive::<Float32Type>().unary::<_, Float32Type>(Float::canonical)),
        DataType::Float64 => Arc::new(array.as_primitive::<Float64Type>().unary::<_, Float64Type>(Float::canonical)),
        _ => Arc::clone(array),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUES: [f64; 9] =
        [f64::NEG_INFINITY, -1.0, -f64::MIN_POSITIVE, -0.0, 0.0, 5e-324, 1.0, f64::INFINITY, f64::NAN];

    /// The index of a value among the distinct values.
    fn rank(value: f64) -> usize {
        match VALUES.iter().position(|one| one.to_bits() == value.to_bits()) {
            Some(place) if place >= 4 => place - 1,
            Some(place) => place,
            None => VALUES.len() - 2,
        }
    }

    #[test]
    fn zeros_are_equal_and_every_nan_is_one_value_above_infinity() {
        let payload = f64::from_bits(f64::NAN.to_bits() | 1);
        let values: Vec<_> = VALUES.into_iter().chain([-f64::NAN, payload, -payload]).collect();
        for one in &values {
            for other in &values {
                let expected = rank(*one).cmp(&rank(*other));
                assert_eq!(is_equal(*one, *other), expected.is_eq(), "{one} {other}");
                assert_eq!(is_at_least(*one, *other), expected.is_ge(), "{one} {other}");
                assert_eq!(is_at_least(*one as f32, *other as f32), *one as f32 == *other as f32 || expected.is_ge());
                assert!(order(*one, *other) == expected || expected.is_eq(), "{one} {other}");
                assert_eq!(order(*one, *other).is_eq(), one.to_bits() == other.to_bits());
                assert_eq!(one.canonical().to_bits() == other.canonical().to_bits(), expected.is_eq());
            }
        }
    }
}
