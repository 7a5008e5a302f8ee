//! Values under aggregation: plain numbers in Rust's types, all others as Python objects.
//!
//! Numbers follow Python's rules: `int + float` is a `float`, and `bool` counts as `int` in sums. An `int`
//! that exceeds 64 bits becomes a Python object.

use std::cmp::Ordering;

use flownet_runtime::window::SliceRole;
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt};

use super::aggregate::Aggregation;

/// A value under aggregation.
#[derive(Debug)]
pub(in crate::chain) enum Value {
    Int(i64),
    Float(f64),
    Object(Py<PyAny>),
}

impl Value {
    /// Converts an object to a plain number, if it is one.
    pub(super) fn of(object: &Bound<'_, PyAny>) -> Self {
        if object.is_exact_instance_of::<PyInt>()
            && let Ok(int) = object.extract()
        {
            return Self::Int(int);
        }
        if let Ok(float) = object.cast_exact::<PyFloat>() {
            return Self::Float(float.value());
        }
        Self::Object(object.clone().unbind())
    }

    /// The value as a Python object.
    pub(super) fn to_object<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        match self {
            Self::Int(int) => PyInt::new(py, *int).into_any(),
            Self::Float(float) => PyFloat::new(py, *float).into_any(),
            Self::Object(object) => object.bind(py).clone(),
        }
    }

    /// Another reference to the same value.
    pub(super) fn clone_ref(&self, py: Python<'_>) -> Self {
        match self {
            Self::Int(int) => Self::Int(*int),
            Self::Float(float) => Self::Float(*float),
            Self::Object(object) => Self::Object(object.clone_ref(py)),
        }
    }

    /// Folds `next` into the held value, if there is one.
    pub(super) fn fold(py: Python<'_>, fold: Aggregation, held: &mut Option<Self>, next: Self) -> PyResult<()> {
        match held {
            Some(so_far) => {
                if so_far.fold_native(fold, &next) {
                    Ok(())
                } else {
                    so_far.fold_python(py, fold, &next)
                }
            }
            None => {
                *held = Some(next);
                Ok(())
            }
        }
    }

    /// Role of the value in the windows that it is part of. Sums of floats depend on the order, and a NaN is
    /// neither less nor greater than any value.
    pub(super) fn part(&self, fold: Aggregation) -> SliceRole {
        match self {
            Self::Int(_) => SliceRole::Exact,
            Self::Float(float) if fold != Aggregation::Sum && !float.is_nan() => SliceRole::Exact,
            Self::Float(_) => SliceRole::Fixed,
            Self::Object(_) => SliceRole::Shared,
        }
    }

    /// Removes the earliest of the folded values. Returns false if that needs the other values, which the
    /// caller knows. All of them are [exact](SliceRole::Exact).
    pub(super) fn take_out(&mut self, fold: Aggregation, earliest: &Self) -> bool {
        match (fold, &*self, earliest) {
            (Aggregation::Sum, Self::Int(sum), Self::Int(earliest)) => {
                let Some(rest) = sum.checked_sub(*earliest) else { return false };
                *self = Self::Int(rest);
                true
            }
            (Aggregation::Sum, ..) => false,
            // A value beyond the earliest is another one, and beyond all others. So it remains the result.
            (Aggregation::Min, Self::Int(least), Self::Int(earliest)) => least < earliest,
            (Aggregation::Max, Self::Int(most), Self::Int(earliest)) => most > earliest,
            (Aggregation::Min, Self::Float(least), Self::Float(earliest)) => least < earliest,
            (Aggregation::Max, Self::Float(most), Self::Float(earliest)) => most > earliest,
            _ => false,
        }
    }

    /// Returns true if it replaces `other` as the least, or as the greatest.
    pub(super) fn is_beyond(&self, py: Python<'_>, fold: Aggregation, other: &Self) -> PyResult<bool> {
        let wanted = if fold == Aggregation::Min { Ordering::Less } else { Ordering::Greater };
        match (self, other) {
            (Self::Int(one), Self::Int(other)) => Ok(one.cmp(other) == wanted),
            (Self::Float(one), Self::Float(other)) => Ok(one.partial_cmp(other) == Some(wanted)),
            _ if fold == Aggregation::Min => self.to_object(py).lt(other.to_object(py)),
            _ => self.to_object(py).gt(other.to_object(py)),
        }
    }

    /// Folds in `next` if both are plain numbers and so is the result. Returns false if Python has to do it.
    #[inline]
    pub(super) fn fold_native(&mut self, fold: Aggregation, next: &Self) -> bool {
        match fold {
            Aggregation::Sum => self.add_native(next),
            Aggregation::Min => self.replace_native(next, Ordering::Less),
            Aggregation::Max => self.replace_native(next, Ordering::Greater),
        }
    }

    /// Folds in `next` with Python's operators.
    pub(super) fn fold_python(&mut self, py: Python<'_>, fold: Aggregation, next: &Self) -> PyResult<()> {
        let (so_far, next) = (self.to_object(py), next.to_object(py));
        let result = match fold {
            Aggregation::Sum => so_far.add(next)?,
            Aggregation::Min if next.lt(&so_far)? => next,
            Aggregation::Max if next.gt(&so_far)? => next,
            Aggregation::Min | Aggregation::Max => return Ok(()),
        };
        *self = Self::of(&result);
        Ok(())
    }

    fn add_native(&mut self, next: &Self) -> bool {
        let sum = match (&*self, next) {
            (Self::Int(a), Self::Int(b)) => a.checked_add(*b).map(Self::Int),
            (Self::Float(a), Self::Float(b)) => Some(Self::Float(a + b)),
            (Self::Int(a), Self::Float(b)) => Some(Self::Float(*a as f64 + b)),
            (Self::Float(a), Self::Int(b)) => Some(Self::Float(a + *b as f64)),
            _ => None,
        };
        let is_native = sum.is_some();
        if let Some(sum) = sum {
            *self = sum;
        }
        is_native
    }

    /// Returns false for mixed kinds, which Python compares exactly.
    fn replace_native(&mut self, next: &Self, wanted: Ordering) -> bool {
        let order = match (&*self, next) {
            (Self::Int(so_far), Self::Int(next)) => Some(next.cmp(so_far)),
            // A comparison with a NaN is false, in Python as here: the value so far stays.
            (Self::Float(so_far), Self::Float(next)) => next.partial_cmp(so_far),
            _ => return false,
        };
        if order == Some(wanted) {
            *self = match next {
                Self::Float(float) => Self::Float(*float),
                Self::Int(int) => Self::Int(*int),
                Self::Object(_) => return false,
            };
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(fold: Aggregation, values: [Value; 2]) -> Option<String> {
        let [mut so_far, next] = values;
        so_far.fold_native(fold, &next).then(|| format!("{so_far:?}"))
    }

    #[test]
    fn sums_follow_pythons_rules() {
        assert_eq!(folded(Aggregation::Sum, [Value::Int(1), Value::Int(2)]).unwrap(), "Int(3)");
        assert_eq!(folded(Aggregation::Sum, [Value::Int(1), Value::Float(0.5)]).unwrap(), "Float(1.5)");
        assert_eq!(folded(Aggregation::Sum, [Value::Int(i64::MAX), Value::Int(1)]), None, "Python has larger ints");
    }

    #[test]
    fn what_is_taken_out_leaves_what_the_others_give_or_the_matter_to_them() {
        let rest = |fold, mut value: Value, earliest| value.take_out(fold, &earliest).then(|| format!("{value:?}"));
        assert_eq!(rest(Aggregation::Sum, Value::Int(5), Value::Int(2)).unwrap(), "Int(3)");
        assert_eq!(rest(Aggregation::Sum, Value::Float(5.0), Value::Float(2.0)), None, "the order of floats matters");
        assert_eq!(rest(Aggregation::Sum, Value::Int(i64::MIN), Value::Int(1)), None);
        assert_eq!(rest(Aggregation::Min, Value::Int(1), Value::Int(2)).unwrap(), "Int(1)");
        assert_eq!(rest(Aggregation::Max, Value::Float(3.0), Value::Float(2.0)).unwrap(), "Float(3.0)");
        for equal in [Value::Int(2), Value::Float(2.0)] {
            assert_eq!(rest(Aggregation::Min, Value::Int(2), equal), None, "it may have been the least itself");
        }
        assert_eq!(Value::Float(f64::NAN).part(Aggregation::Min), SliceRole::Fixed);
    }

    #[test]
    fn extremes_keep_the_first_of_equals_and_ignore_nan() {
        assert_eq!(folded(Aggregation::Min, [Value::Int(2), Value::Int(1)]).unwrap(), "Int(1)");
        assert_eq!(folded(Aggregation::Max, [Value::Int(2), Value::Int(1)]).unwrap(), "Int(2)");
        assert_eq!(folded(Aggregation::Max, [Value::Float(1.0), Value::Float(f64::NAN)]).unwrap(), "Float(1.0)");
        assert_eq!(folded(Aggregation::Max, [Value::Int(1), Value::Float(2.0)]), None, "mixed kinds go to Python");
    }
}
