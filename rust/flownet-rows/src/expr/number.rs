//! Operations of expressions on numbers, after their operands were cast to one type.

use std::sync::Arc;

use arrow_arith::{arity, numeric};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, ArrowNativeTypeOp, Datum, PrimitiveArray, downcast_integer_array};
use arrow_schema::{ArrowError, DataType};

use super::decimal;

/// Arithmetic operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberOp {
    Add,
    Sub,
    Mul,
    /// Of floats only.
    Div,
    /// Rounds towards minus infinity.
    FloorDiv,
    /// Remainder with the sign of the divisor.
    Mod,
    /// Of floats only.
    Pow,
}

impl NumberOp {
    pub(super) fn run(self, left: &dyn Datum, right: &dyn Datum) -> Result<ArrayRef, ArrowError> {
        match self {
            Self::Add => numeric::add(left, right).and_then(decimal::checked),
            Self::Sub => numeric::sub(left, right).and_then(decimal::checked),
            Self::Mul => numeric::mul(left, right).and_then(decimal::checked),
            Self::Div => numeric::div(left, right),
            Self::FloorDiv | Self::Mod | Self::Pow => {
                let (left, right) = same_length(left, right)?;
                self.by_type(&left, &right)
            }
        }
    }

    fn by_type(self, left: &ArrayRef, right: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        match left.data_type() {
            DataType::Int8 => self.integers::<Int8Type>(left, right),
            DataType::Int16 => self.integers::<Int16Type>(left, right),
            DataType::Int32 => self.integers::<Int32Type>(left, right),
            DataType::Int64 => self.integers::<Int64Type>(left, right),
            DataType::UInt8 => self.integers::<UInt8Type>(left, right),
            DataType::UInt16 => self.integers::<UInt16Type>(left, right),
            DataType::UInt32 => self.integers::<UInt32Type>(left, right),
            DataType::UInt64 => self.integers::<UInt64Type>(left, right),
            DataType::Decimal128(..) => decimal::divided(self, left, right),
            DataType::Float32 => self.floats::<Float32Type>(left, right),
            _ => self.floats::<Float64Type>(left, right),
        }
    }

    fn integers<T>(self, left: &ArrayRef, right: &ArrayRef) -> Result<ArrayRef, ArrowError>
    where
        T: ArrowPrimitiveType<Native: Into<i128> + TryFrom<i128> + Copy>,
    {
        let found: PrimitiveArray<T> =
            arity::try_binary(left.as_primitive::<T>(), right.as_primitive::<T>(), |one, other| {
                let (one, other): (i128, i128) = (one.into(), other.into());
                if other == 0 {
                    return Err(ArrowError::DivideByZero);
                }
                // Values have 64 bits, so nothing overflows in 128.
                let rest = one % other;
                let is_below = rest != 0 && (rest < 0) != (other < 0);
                let value = match self {
                    Self::FloorDiv => one / other - i128::from(is_below),
                    _ => rest + if is_below { other } else { 0 },
                };
                T::Native::try_from(value).map_err(|_| {
                    ArrowError::ArithmeticOverflow(format!("{value} is more than {} can hold", T::DATA_TYPE))
                })
            })?;
        Ok(Arc::new(found))
    }

    fn floats<T>(self, left: &ArrayRef, right: &ArrayRef) -> Result<ArrayRef, ArrowError>
    where
        T: ArrowPrimitiveType<Native: Into<f64> + FromFloat + Copy>,
    {
        let found: PrimitiveArray<T> =
            arity::binary(left.as_primitive::<T>(), right.as_primitive::<T>(), |one, other| {
                let (one, other): (f64, f64) = (one.into(), other.into());
                T::Native::from_float(match self {
                    Self::FloorDiv => (one / other).floor(),
                    Self::Pow => one.powf(other),
                    _ => one - other * (one / other).floor(),
                })
            })?;
        Ok(Arc::new(found))
    }
}

/// Float type that a 64-bit float converts to.
trait FromFloat {
    fn from_float(value: f64) -> Self;
}

impl FromFloat for f32 {
    fn from_float(value: f64) -> Self {
        value as Self
    }
}

impl FromFloat for f64 {
    fn from_float(value: f64) -> Self {
        value
    }
}

/// Returns both operands as columns. Repeats a single value for all rows.
fn same_length(left: &dyn Datum, right: &dyn Datum) -> Result<(ArrayRef, ArrayRef), ArrowError> {
    let ((one, is_one), (other, is_other)) = (left.get(), right.get());
    let repeat = |array: &dyn Array, rows: usize| {
        arrow_select::take::take(array, &arrow_array::UInt32Array::from(vec![0; rows]), None)
    };
    Ok(match (is_one, is_other) {
        (true, false) => (repeat(one, other.len())?, other.slice(0, other.len())),
        (false, true) => (one.slice(0, one.len()), repeat(other, one.len())?),
        _ => (one.slice(0, one.len()), other.slice(0, other.len())),
    })
}

/// Function of one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberFunction {
    Abs,
    Floor,
    Ceil,
    Trunc,
    Round(u8),
    Sign,
}

impl NumberFunction {
    pub(super) fn run(self, array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        match (self, array.data_type()) {
            (_, DataType::Decimal128(..)) => decimal::of_one(self, array),
            (Self::Abs, DataType::Int8) => abs::<Int8Type>(array, i8::checked_abs),
            (Self::Abs, DataType::Int16) => abs::<Int16Type>(array, i16::checked_abs),
            (Self::Abs, DataType::Int32) => abs::<Int32Type>(array, i32::checked_abs),
            (Self::Abs, DataType::Int64) => abs::<Int64Type>(array, i64::checked_abs),
            (_, DataType::Float32) => Ok(Arc::new(
                array.as_primitive::<Float32Type>().unary::<_, Float32Type>(|value| self.of(value.into()) as f32),
            )),
            (_, DataType::Float64) => {
                Ok(Arc::new(array.as_primitive::<Float64Type>().unary::<_, Float64Type>(|value| self.of(value))))
            }
            (Self::Sign, _) => {
                let array: &dyn Array = array;
                downcast_integer_array!(array => Ok(signs(array)), _ => Ok(array.slice(0, array.len())))
            }
            // Integers need no rounding, and unsigned integers are never negative.
            _ => Ok(Arc::clone(array)),
        }
    }

    fn of(self, value: f64) -> f64 {
        match self {
            Self::Abs => value.abs(),
            Self::Floor => value.floor(),
            Self::Ceil => value.ceil(),
            Self::Trunc => value.trunc(),
            Self::Sign if value == 0.0 || value.is_nan() => value,
            Self::Sign => value.signum(),
            Self::Round(0) => value.round_ties_even(),
            Self::Round(decimals) => {
                let scale = 10f64.powi(i32::from(decimals));
                let scaled = value * scale;
                if scaled.is_finite() { scaled.round_ties_even() / scale } else { value }
            }
        }
    }
}

fn signs<T: ArrowPrimitiveType>(array: &PrimitiveArray<T>) -> ArrayRef {
    Arc::new(array.unary::<_, T>(|value| {
        if value.is_zero() {
            T::Native::ZERO
        } else if value.is_lt(T::Native::ZERO) {
            T::Native::ZERO.sub_wrapping(T::Native::ONE)
        } else {
            T::Native::ONE
        }
    }))
}

fn abs<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    abs: fn(T::Native) -> Option<T::Native>,
) -> Result<ArrayRef, ArrowError> {
    let found: PrimitiveArray<T> = arity::try_unary(array.as_primitive::<T>(), |value| {
        abs(value).ok_or_else(|| ArrowError::ArithmeticOverflow(format!("it is more than {} can hold", T::DATA_TYPE)))
    })?;
    Ok(Arc::new(found))
}
