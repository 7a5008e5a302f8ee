//! Functions that choose one of several values of one type.

use arrow_arith::boolean::{and, is_not_null, is_null, or};
use arrow_array::{Array, ArrayRef, BooleanArray, Datum};
use arrow_schema::ArrowError;
use arrow_select::nullif::nullif;
use arrow_select::zip::zip;

use super::arguments::{Arguments, Kernel};
use super::parameters::{Kind, Parameter};
use super::{Function, Namespace, Nulls, Returns};
use crate::expr::compare::Comparison;
use crate::expr::values::Values;

const VALUE: Parameter = Parameter::new("self", Kind::Alike);
const OTHER: Parameter = Parameter::new("other", Kind::Alike);
const FIRST: Parameter = Parameter::new("first", Kind::Alike);
const OTHERS: Parameter = Parameter::new("others", Kind::Alike).repeated();

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new(Namespace::Value, "nullif", &[VALUE, OTHER], Returns::First, |_| Ok(Kernel::new(null_if_equal)))
        .summary("Return null if the value equals another one.")
        .example("fn.lit(0).nullif(0)", "None")
        .nulls(Nulls::Own),
    Function::new(Namespace::Module, "greatest", &[FIRST, OTHERS], Returns::First, |_| {
        Ok(Kernel::new(|arguments| extreme(arguments, Comparison::Gt)))
    })
    .summary("Return the largest of several columns. Nulls are skipped, and NaN is above every number.")
    .example("fn.greatest(fn.lit(1), 3, 2)", "3")
    .nulls(Nulls::OfAll),
    Function::new(Namespace::Module, "least", &[FIRST, OTHERS], Returns::First, |_| {
        Ok(Kernel::new(|arguments| extreme(arguments, Comparison::Lt)))
    })
    .summary("Return the smallest of several columns. Nulls are skipped, and NaN is above every number.")
    .example("fn.least(fn.lit(3), 1, 2)", "1")
    .nulls(Nulls::OfAll),
];

fn null_if_equal(arguments: &Arguments<'_>) -> Result<ArrayRef, ArrowError> {
    let array = arguments.full_array(0)?;
    nullif(&array, &Comparison::Eq.run(&array, arguments.values(1).datum())?)
}

/// Returns the value for which `is_better` holds against all others.
fn extreme(arguments: &Arguments<'_>, is_better: Comparison) -> Result<ArrayRef, ArrowError> {
    let mut best = arguments.full_array(0)?;
    for index in 1..arguments.len() {
        let next = arguments.values(index);
        let replaces = replaces(&best, next, is_better)?;
        best = zip(&replaces, next.datum(), &best)?;
    }
    Ok(best)
}

/// Returns true for rows whose next value is better, or the only one so far.
fn replaces(best: &ArrayRef, next: &Values, is_better: Comparison) -> Result<BooleanArray, ArrowError> {
    let is_next_better = is_better.run(next.datum(), best as &dyn Datum)?;
    let is_better = and(&known(&is_next_better), &is_not_null(best)?)?;
    or(&is_better, &is_null(best)?)
}

/// Returns false in place of null.
fn known(truths: &BooleanArray) -> BooleanArray {
    let Some(nulls) = truths.nulls() else { return truths.clone() };
    BooleanArray::new(truths.values() & nulls.inner(), None)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::Float64Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::Float64Type;

    use super::*;

    #[test]
    fn nan_is_the_largest_number_and_null_none() {
        let columns = [vec![Some(1.0), None, Some(f64::NAN), None], vec![Some(f64::NAN), Some(2.0), None, None]];
        let values = columns.map(|column| Values::Column(Arc::new(Float64Array::from(column))));
        let of = |is_better| extreme(&Arguments::new(&values, 4), is_better).unwrap();
        let (largest, smallest) = (of(Comparison::Gt), of(Comparison::Lt));
        let shown = |array: &ArrayRef| format!("{:?}", array.as_primitive::<Float64Type>().iter().collect::<Vec<_>>());
        assert_eq!(shown(&largest), "[Some(NaN), Some(2.0), Some(NaN), None]");
        assert_eq!(shown(&smallest), "[Some(1.0), Some(2.0), Some(NaN), None]");
    }
}
