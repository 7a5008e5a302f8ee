//! Decimals: numbers of up to 38 digits with a fixed point. Their arithmetic is exact or fails.
//!
//! Result types are those of SQL. A sum has the larger number of fraction digits of both operands, and one more integer
//! digit. A product has as many digits as both together. Types are limited to 38 digits; a value with more is an error.
//! A quotient is a float, as that of integers is.

use std::sync::Arc;

use arrow_arith::arity;
use arrow_array::cast::AsArray;
use arrow_array::types::Decimal128Type;
use arrow_array::{Array, ArrayRef, Decimal128Array};
use arrow_schema::{ArrowError, DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType};

use super::number::{NumberFunction, NumberOp};

/// Total number of digits, and number of fraction digits.
type Digits = (u8, i8);

/// Returns the value of a decimal literal, with as many digits as it has.
pub(super) fn written(high: i64, low: u64, scale: u8) -> ArrayRef {
    let value = (i128::from(high) << 64) | i128::from(low);
    let scale = scale.min(DECIMAL128_MAX_PRECISION);
    let precision = digits_of(value).max(scale).min(DECIMAL128_MAX_PRECISION);
    let array = Decimal128Array::from(vec![value]);
    Arc::new(array.clone().with_precision_and_scale(precision, scale as i8).unwrap_or(array))
}

/// Returns the number of decimal digits of an integer.
pub(super) fn digits_of(value: i128) -> u8 {
    value.unsigned_abs().checked_ilog10().map_or(1, |power| power as u8 + 1)
}

/// Returns the decimal that holds all values of a type. None for types other than integers and decimals.
pub(super) fn holding(data_type: &DataType) -> Option<Digits> {
    Some(match data_type {
        DataType::Decimal128(precision, scale) => (*precision, *scale),
        DataType::Int8 | DataType::UInt8 => (3, 0),
        DataType::Int16 | DataType::UInt16 => (5, 0),
        DataType::Int32 | DataType::UInt32 => (10, 0),
        DataType::Int64 => (19, 0),
        DataType::UInt64 => (20, 0),
        _ => return None,
    })
}

/// Returns the type for values of both: with all fraction digits, and at most 38 digits. The cast to it fails for a
/// value with more digits, as sums do.
pub(super) fn common(one: Digits, other: Digits) -> Option<DataType> {
    let (precision, scale) = digits_of_both(one, other);
    let precision = u8::try_from(precision.min(i16::from(DECIMAL128_MAX_PRECISION))).ok()?;
    Some(DataType::Decimal128(precision, scale))
}

/// Returns the type in which all values of both are exact, for comparisons. It has 76 digits if 38 are too few.
pub(super) fn wide(one: Digits, other: Digits) -> Option<DataType> {
    let (precision, scale) = digits_of_both(one, other);
    let precision = u8::try_from(precision).ok().filter(|precision| *precision <= DECIMAL256_MAX_PRECISION)?;
    let is_narrow = precision <= DECIMAL128_MAX_PRECISION;
    Some(if is_narrow { DataType::Decimal128(precision, scale) } else { DataType::Decimal256(precision, scale) })
}

fn digits_of_both(one: Digits, other: Digits) -> (i16, i8) {
    let scale = one.1.max(other.1);
    (whole(one).max(whole(other)) + i16::from(scale), scale)
}

/// Returns the result type of an operation, or the reason why there is none. Quotients and powers use floats instead.
pub(super) fn result(op: NumberOp, one: Digits, other: Digits) -> Result<DataType, String> {
    let most = i16::from(DECIMAL128_MAX_PRECISION);
    let (precision, scale) = match op {
        NumberOp::Mul => {
            let scale = i16::from(one.1) + i16::from(other.1);
            if scale > most {
                let why = format!("it has {scale} digits behind the point, and a decimal {most} at most: round before");
                return Err(why);
            }
            (i16::from(one.0) + i16::from(other.0) + 1, scale)
        }
        // Division by the smallest divisor keeps the number of digits of the dividend.
        NumberOp::FloorDiv => (i16::from(one.0), 0),
        NumberOp::Mod => (i16::from(one.0), i16::from(one.1)),
        _ => {
            let scale = i16::from(one.1.max(other.1));
            (whole(one).max(whole(other)) + scale + 1, scale)
        }
    };
    let narrow = |digits: i16| i8::try_from(digits).map_err(|_| "it has no place for its digits".to_owned());
    Ok(DataType::Decimal128(narrow(precision.min(most))?.unsigned_abs(), narrow(scale)?))
}

/// Returns the number of integer digits.
fn whole((precision, scale): Digits) -> i16 {
    i16::from(precision) - i16::from(scale)
}

/// Fails if a value of a sum or product has more than 38 digits.
pub(super) fn checked(array: ArrayRef) -> Result<ArrayRef, ArrowError> {
    if let DataType::Decimal128(DECIMAL128_MAX_PRECISION, _) = array.data_type() {
        array.as_primitive::<Decimal128Type>().validate_decimal_precision(DECIMAL128_MAX_PRECISION)?;
    }
    Ok(array)
}

/// Computes the integer quotient or the remainder of two columns of one type.
pub(super) fn divided(op: NumberOp, left: &ArrayRef, right: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let (left, right) = (left.as_primitive::<Decimal128Type>(), right.as_primitive::<Decimal128Type>());
    let digits = (left.precision(), left.scale());
    let found: Decimal128Array = arity::try_binary(left, right, |one: i128, other: i128| {
        if other == 0 {
            return Err(ArrowError::DivideByZero);
        }
        // Both have at most 38 digits, so nothing overflows here.
        let rest = one % other;
        let is_below = rest != 0 && (rest < 0) != (other < 0);
        Ok(match op {
            NumberOp::FloorDiv => one / other - i128::from(is_below),
            _ => rest + if is_below { other } else { 0 },
        })
    })?;
    let DataType::Decimal128(precision, scale) = result(op, digits, digits).map_err(ArrowError::SchemaError)? else {
        return Err(ArrowError::SchemaError("it is no decimal".into()));
    };
    Ok(Arc::new(found.with_precision_and_scale(precision, scale)?))
}

/// Applies a function to one column. The result has the same type.
pub(super) fn of_one(function: NumberFunction, array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let values = array.as_primitive::<Decimal128Type>();
    let (precision, scale) = (values.precision(), values.scale());
    // One unit of the last remaining digit. Smaller digits are rounded away.
    let unit = |kept: u8| 10i128.pow(u32::from(u8::try_from(scale).unwrap_or(0).saturating_sub(kept)));
    let found: Decimal128Array = arity::try_unary(values, |value: i128| {
        let made = match function {
            NumberFunction::Abs => value.abs(),
            NumberFunction::Floor => value - value.rem_euclid(unit(0)),
            NumberFunction::Ceil => value + (-value).rem_euclid(unit(0)),
            NumberFunction::Round(decimals) => rounded(value, unit(decimals)),
            NumberFunction::Trunc => value - value % unit(0),
            NumberFunction::Sign => value.signum() * unit(0),
        };
        if digits_of(made) <= precision {
            return Ok(made);
        }
        Err(ArrowError::ArithmeticOverflow(format!("it has more than {precision} digits: cast it to more before")))
    })?;
    Ok(Arc::new(found.with_precision_and_scale(precision, scale)?))
}

/// Rounds to a multiple of `unit`; halves go to the even multiple.
fn rounded(value: i128, unit: i128) -> i128 {
    let below = value - value.rem_euclid(unit);
    let rest = value - below;
    let is_even = (below / unit) % 2 == 0;
    if rest * 2 > unit || (rest * 2 == unit && !is_even) { below + unit } else { below }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_go_to_the_even_one_on_either_side_of_zero() {
        let to_tens = |value| rounded(value, 10);
        assert_eq!([5, 15, 25, 26, 14].map(to_tens), [0, 20, 20, 30, 10]);
        assert_eq!([-5, -15, -25, -26, -14].map(to_tens), [0, -20, -20, -30, -10]);
        assert_eq!(rounded(i128::from(i64::MAX), 1), i128::from(i64::MAX));
    }

    #[test]
    fn what_is_written_has_as_many_digits_as_it_needs() {
        let data_type = |high, low, scale| written(high, low, scale).data_type().clone();
        assert_eq!(data_type(0, 908, 3), DataType::Decimal128(3, 3));
        assert_eq!(data_type(0, 0, 0), DataType::Decimal128(1, 0));
        assert_eq!(data_type(0, 5, 4), DataType::Decimal128(4, 4));
        assert_eq!(data_type(-1, u64::MAX, 0), DataType::Decimal128(1, 0));
        assert_eq!(written(-1, u64::MAX, 0).as_primitive::<Decimal128Type>().value(0), -1);
        assert_eq!(data_type(i64::MAX, 0, 200), DataType::Decimal128(38, 38), "a plan of a stranger");
    }
}
