//! Mathematical functions. They take numbers of any type as 64-bit floats, and return 64-bit floats by IEEE 754.
//!
//! A value outside the domain of a function gives NaN, as in polars and DuckDB. So `ln` of a negative number is
//! NaN, and `ln` of zero is minus infinity.

use super::arguments::Kernel;
use super::parameters::{Kind, Parameter};
use super::{Function, Namespace, Returns};

const NUMBER: Parameter = Parameter::new("self", Kind::Float);
const BASE: Parameter = Parameter::new("base", Kind::Float);
const X: Parameter = Parameter::new("x", Kind::Float);

pub(super) const FUNCTIONS: &[Function] = &[
    of_one("sqrt", |_| Ok(Kernel::of_float(f64::sqrt)))
        .summary("Return the square root. It is NaN for negative numbers.")
        .example("fn.lit(2.25).sqrt()", "1.5"),
    of_one("cbrt", |_| Ok(Kernel::of_float(f64::cbrt)))
        .summary("Return the cube root.")
        .example("fn.lit(-8).cbrt()", "-2.0"),
    of_one("exp", |_| Ok(Kernel::of_float(f64::exp)))
        .summary("Return e to the power of the number.")
        .example("fn.lit(0).exp()", "1.0"),
    of_one("ln", |_| Ok(Kernel::of_float(f64::ln)))
        .summary("Return the natural logarithm. It is -inf for zero, and NaN for negative numbers.")
        .example("fn.lit(1).ln()", "0.0"),
    Function::new(Namespace::Value, "log", &[NUMBER, BASE], Returns::Float64, |_| {
        Ok(Kernel::of_floats(|value, base| value.ln() / base.ln()))
    })
    .summary("Return the logarithm to a base. It is a quotient of two natural logarithms, rounded like one.")
    .example("fn.lit(9).log(3)", "2.0"),
    of_one("log2", |_| Ok(Kernel::of_float(f64::log2)))
        .summary("Return the logarithm to base 2. It is -inf for zero, and NaN for negative numbers.")
        .example("fn.lit(8).log2()", "3.0"),
    of_one("log10", |_| Ok(Kernel::of_float(f64::log10)))
        .summary("Return the logarithm to base 10. It is -inf for zero, and NaN for negative numbers.")
        .example("fn.lit(1000).log10()", "3.0"),
    of_one("log1p", |_| Ok(Kernel::of_float(f64::ln_1p)))
        .summary("Return the natural logarithm of one plus the number. It is exact for small numbers.")
        .example("fn.lit(0).log1p()", "0.0"),
    of_one("sin", |_| Ok(Kernel::of_float(f64::sin)))
        .summary("Return the sine of an angle in radians.")
        .example("fn.lit(0).sin()", "0.0"),
    of_one("cos", |_| Ok(Kernel::of_float(f64::cos)))
        .summary("Return the cosine of an angle in radians.")
        .example("fn.lit(0).cos()", "1.0"),
    of_one("tan", |_| Ok(Kernel::of_float(f64::tan)))
        .summary("Return the tangent of an angle in radians.")
        .example("fn.lit(0).tan()", "0.0"),
    of_one("asin", |_| Ok(Kernel::of_float(f64::asin)))
        .summary("Return the arc sine in radians. It is NaN outside -1 to 1.")
        .example("fn.lit(0).asin()", "0.0"),
    of_one("acos", |_| Ok(Kernel::of_float(f64::acos)))
        .summary("Return the arc cosine in radians. It is NaN outside -1 to 1.")
        .example("fn.lit(1).acos()", "0.0"),
    of_one("atan", |_| Ok(Kernel::of_float(f64::atan)))
        .summary("Return the arc tangent in radians.")
        .example("fn.lit(0).atan()", "0.0"),
    Function::new(Namespace::Value, "atan2", &[NUMBER, X], Returns::Float64, |_| Ok(Kernel::of_floats(f64::atan2)))
        .summary("Return the angle of the point (x, y) in radians. The column is y.")
        .example("fn.lit(0).atan2(1)", "0.0"),
    of_one("sinh", |_| Ok(Kernel::of_float(f64::sinh)))
        .summary("Return the hyperbolic sine.")
        .example("fn.lit(0).sinh()", "0.0"),
    of_one("cosh", |_| Ok(Kernel::of_float(f64::cosh)))
        .summary("Return the hyperbolic cosine.")
        .example("fn.lit(0).cosh()", "1.0"),
    of_one("tanh", |_| Ok(Kernel::of_float(f64::tanh)))
        .summary("Return the hyperbolic tangent.")
        .example("fn.lit(0).tanh()", "0.0"),
    of_one("degrees", |_| Ok(Kernel::of_float(f64::to_degrees)))
        .summary("Convert radians to degrees.")
        .example("fn.lit(0).degrees()", "0.0"),
    of_one("radians", |_| Ok(Kernel::of_float(f64::to_radians)))
        .summary("Convert degrees to radians.")
        .example("fn.lit(180).radians()", "3.141592653589793"),
];

const fn of_one(name: &'static str, make_kernel: super::MakeKernel) -> Function {
    Function::new(Namespace::Value, name, &[NUMBER], Returns::Float64, make_kernel)
}
