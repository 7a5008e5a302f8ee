//! Functions of the bits of integers.

use std::sync::Arc;

use arrow_array::types::{
    ArrowPrimitiveType, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{ArrayRef, Int64Array, PrimitiveArray};
use arrow_schema::{ArrowError, DataType};

use super::arguments::{Arguments, Kernel};
use super::call::Call;
use super::parameters::{Kind, Parameter};
use super::{Function, Namespace, Returns};

const INTEGER: Parameter = Parameter::new("self", Kind::Bits);
const OTHER: Parameter = Parameter::new("other", Kind::Bits);
const BITS: Parameter = Parameter::new("bits", Kind::Integer);

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new(Namespace::Value, "bitwise_and", &[INTEGER, OTHER], Returns::First, |call| {
        kernel(call, Bitwise::And)
    })
    .summary("Combine the bits of two integers by and.")
    .example("fn.lit(12).bitwise_and(10)", "8"),
    Function::new(Namespace::Value, "bitwise_or", &[INTEGER, OTHER], Returns::First, |call| kernel(call, Bitwise::Or))
        .summary("Combine the bits of two integers by or.")
        .example("fn.lit(12).bitwise_or(10)", "14"),
    Function::new(Namespace::Value, "bitwise_xor", &[INTEGER, OTHER], Returns::First, |call| {
        kernel(call, Bitwise::Xor)
    })
    .summary("Combine the bits of two integers by exclusive or.")
    .example("fn.lit(12).bitwise_xor(10)", "6"),
    Function::new(Namespace::Value, "bitwise_not", &[INTEGER], Returns::First, |call| kernel(call, Bitwise::Not))
        .summary("Invert the bits of an integer.")
        .example("fn.lit(5).bitwise_not()", "-6"),
    Function::new(Namespace::Value, "bitwise_shift_left", &[INTEGER, BITS], Returns::First, |call| {
        kernel(call, Bitwise::Left)
    })
    .summary(
        "Multiply by 2 as often as `bits` says. A result that does not fit is an error, and so is a negative number \
         of bits.",
    )
    .example("fn.lit(3).bitwise_shift_left(4)", "48"),
    Function::new(Namespace::Value, "bitwise_shift_right", &[INTEGER, BITS], Returns::First, |call| {
        kernel(call, Bitwise::Right)
    })
    .summary("Divide by 2 as often as `bits` says. Results are rounded down; a negative number of bits is an error.")
    .example("fn.lit(-5).bitwise_shift_right(1)", "-3"),
    Function::new(Namespace::Value, "bitwise_count_ones", &[INTEGER], Returns::Int64, |call| {
        kernel(call, Bitwise::CountOnes)
    })
    .summary("Count the bits that are set. Negative integers are counted in two's complement.")
    .example("fn.lit(7).bitwise_count_ones()", "3"),
];

#[derive(Clone, Copy)]
enum Bitwise {
    And,
    Or,
    Xor,
    Not,
    Left,
    Right,
    CountOnes,
}

fn kernel(call: &Call<'_>, op: Bitwise) -> Result<Kernel, String> {
    Ok(match call.first_type() {
        DataType::Int8 => Kernel::new(move |arguments| op.run::<Int8Type>(arguments)),
        DataType::Int16 => Kernel::new(move |arguments| op.run::<Int16Type>(arguments)),
        DataType::Int32 => Kernel::new(move |arguments| op.run::<Int32Type>(arguments)),
        DataType::Int64 => Kernel::new(move |arguments| op.run::<Int64Type>(arguments)),
        DataType::UInt8 => Kernel::new(move |arguments| op.run::<UInt8Type>(arguments)),
        DataType::UInt16 => Kernel::new(move |arguments| op.run::<UInt16Type>(arguments)),
        DataType::UInt32 => Kernel::new(move |arguments| op.run::<UInt32Type>(arguments)),
        DataType::UInt64 => Kernel::new(move |arguments| op.run::<UInt64Type>(arguments)),
        other => return Err(format!("{other} has no bits")),
    })
}

impl Bitwise {
    fn run<T>(self, arguments: &Arguments<'_>) -> Result<ArrayRef, ArrowError>
    where
        T: ArrowPrimitiveType<Native: Into<i128> + TryFrom<i128>>,
    {
        let left = arguments.numbers::<T>(0);
        match self {
            Self::CountOnes => {
                // Sign bits beyond the width of the type are not counted.
                let mask = u128::MAX >> (128 - 8 * size_of::<T::Native>());
                let ones = |value: T::Native| i64::from((value.into().cast_unsigned() & mask).count_ones());
                Ok(Arc::new(arguments.each(|row| left.get(row).map(ones)).collect::<Int64Array>()))
            }
            Self::Not => {
                let is_unsigned = T::DATA_TYPE.is_unsigned_integer();
                let most = (1i128 << (8 * size_of::<T::Native>())) - 1;
                let not = |value: i128| if is_unsigned { value ^ most } else { !value };
                whole::<T>(arguments, |row| Ok(left.get(row).map(|value| not(value.into()))))
            }
            Self::And | Self::Or | Self::Xor => {
                let right = arguments.numbers::<T>(1);
                whole::<T>(arguments, |row| {
                    let Some((one, other)) = left.get(row).zip(right.get(row)) else { return Ok(None) };
                    let (one, other): (i128, i128) = (one.into(), other.into());
                    Ok(Some(match self {
                        Self::And => one & other,
                        Self::Or => one | other,
                        _ => one ^ other,
                    }))
                })
            }
            Self::Left | Self::Right => {
                let bits = arguments.numbers::<Int64Type>(1);
                whole::<T>(arguments, |row| {
                    let Some((value, bits)) = left.get(row).zip(bits.get(row)) else { return Ok(None) };
                    shifted(value.into(), bits, matches!(self, Self::Left)).map(Some)
                })
            }
        }
    }
}

fn shifted(value: i128, bits: i64, is_left: bool) -> Result<i128, ArrowError> {
    let bits =
        u32::try_from(bits).map_err(|_| ArrowError::ComputeError(format!("a shift is by 0 to {} bits", u32::MAX)))?;
    if !is_left {
        return Ok(value >> bits.min(127));
    }
    // A shift by 64 bits fits no type but for zero, and overflows 128 bits for the largest values.
    let too_large = || ArrowError::ArithmeticOverflow("it is more than 64 bits can hold".to_owned());
    value.checked_mul(1 << bits.min(64)).ok_or_else(too_large)
}

/// Computes an integer for each row, which fails if it does not fit.
fn whole<T>(
    arguments: &Arguments<'_>,
    value: impl Fn(usize) -> Result<Option<i128>, ArrowError>,
) -> Result<ArrayRef, ArrowError>
where
    T: ArrowPrimitiveType<Native: TryFrom<i128>>,
{
    let fitting = |value: i128| {
        let too_large = || ArrowError::ArithmeticOverflow(format!("{value} is more than {} can hold", T::DATA_TYPE));
        T::Native::try_from(value).map_err(|_| too_large())
    };
    let found = (0..arguments.rows()).map(|row| value(row)?.map(fitting).transpose());
    Ok(Arc::new(found.collect::<Result<PrimitiveArray<T>, ArrowError>>()?))
}
