//! Functions of one number whose result has the same type.

use super::arguments::Kernel;
use super::parameters::{Constant, Kind, Parameter};
use super::{Function, Namespace, Returns};
use crate::expr::number::NumberFunction;

const NUMBER: Parameter = Parameter::new("self", Kind::Number);
const DECIMALS: Parameter = Parameter::new("decimals", Kind::ConstantInteger).default(Constant::Integer(0)).bounds(
    0,
    15,
    "a float has 0 to 15 decimals",
);

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new(Namespace::Value, "abs", &[NUMBER], Returns::First, |_| Ok(of_number(NumberFunction::Abs)))
        .summary("Return the absolute value. The least integer of a signed type has none, which is an error.")
        .example("fn.lit(-3).abs()", "3"),
    Function::new(Namespace::Value, "floor", &[NUMBER], Returns::First, |_| Ok(of_number(NumberFunction::Floor)))
        .summary("Round down to a whole number of the same type.")
        .example("fn.lit(-2.5).floor()", "-3.0"),
    Function::new(Namespace::Value, "ceil", &[NUMBER], Returns::First, |_| Ok(of_number(NumberFunction::Ceil)))
        .summary("Round up to a whole number of the same type.")
        .example("fn.lit(2.1).ceil()", "3.0"),
    Function::new(Namespace::Value, "trunc", &[NUMBER], Returns::First, |_| Ok(of_number(NumberFunction::Trunc)))
        .summary("Round towards zero to a whole number of the same type.")
        .example("fn.lit(-2.5).trunc()", "-2.0"),
    Function::new(Namespace::Value, "round", &[NUMBER, DECIMALS], Returns::First, |call| {
        let decimals = call.integer(1).unwrap_or_default();
        Ok(of_number(NumberFunction::Round(u8::try_from(decimals).unwrap_or(u8::MAX))))
    })
    .summary("Round to a number of decimals, 0 to 15. Halves are rounded to the even neighbour.")
    .example("fn.lit(2.5).round()", "2.0"),
    Function::new(Namespace::Value, "sign", &[NUMBER], Returns::First, |_| Ok(of_number(NumberFunction::Sign)))
        .summary("Return -1, 0 or 1, of the same type. NaN stays NaN, and -0.0 stays -0.0.")
        .example("fn.lit(-7).sign()", "-1"),
];

fn of_number(function: NumberFunction) -> Kernel {
    Kernel::of_array(move |array| function.run(array))
}
