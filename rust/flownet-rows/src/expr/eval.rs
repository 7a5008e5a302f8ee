//! Evaluates bound expressions.

use std::sync::Arc;

use arrow_arith::boolean::{and_kleene, is_not_null, is_null, not, or_kleene};
use arrow_arith::numeric;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, Datum, RecordBatch, new_null_array};
use arrow_cast::CastOptions;
use arrow_schema::{ArrowError, DataType};
use arrow_select::filter::filter_record_batch;
use arrow_select::interleave::interleave;
use arrow_select::nullif::nullif;
use arrow_select::zip::zip;

use super::compare::Comparison;
use super::functions::{Arguments, Kernel};
use super::number::NumberOp;
use super::values::{Values, shown};
use crate::time_units::cast_floored;

/// An expression has no value for a row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{expression}{place}: {message}")]
pub struct EvalError {
    /// The expression as a user would write it.
    pub expression: String,
    /// Row of the batch and its operands. Empty if they are not known.
    pub place: String,
    /// Cause.
    pub message: String,
}

impl EvalError {
    pub(crate) fn of_arrow(expression: &str, error: &ArrowError) -> Self {
        let message = match error {
            ArrowError::ArithmeticOverflow(message)
            | ArrowError::ComputeError(message)
            | ArrowError::CastError(message)
            | ArrowError::InvalidArgumentError(message) => message.clone(),
            ArrowError::DivideByZero => "division by zero".to_owned(),
            error => error.to_string(),
        };
        Self { expression: expression.to_owned(), place: String::new(), message }
    }
}

/// Node of a bound expression.
#[derive(Debug)]
pub(super) enum Node {
    Column(usize),
    One(Values),
    /// Arithmetic on numbers and times of one type.
    Number {
        op: NumberOp,
        left: Box<Self>,
        right: Box<Self>,
        text: Box<str>,
    },
    Compare {
        op: Comparison,
        left: Box<Self>,
        right: Box<Self>,
        text: Box<str>,
    },
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
    Not(Box<Self>),
    IsNull(Box<Self>, bool),
    Negative {
        of: Box<Self>,
        text: Box<str>,
    },
    Cast {
        of: Box<Self>,
        to: DataType,
        strict: bool,
        text: Box<str>,
    },
    When {
        branches: Vec<(Self, Self)>,
        otherwise: Option<Box<Self>>,
        data_type: DataType,
        text: Box<str>,
    },
    IsIn {
        of: Box<Self>,
        values: Vec<Values>,
        text: Box<str>,
    },
    Coalesce {
        of: Vec<Self>,
        text: Box<str>,
    },
    Call {
        kernel: Kernel,
        of: Vec<Self>,
        text: Box<str>,
    },
}

impl Node {
    /// Evaluates the node for the rows of a batch.
    pub(super) fn evaluate(&self, batch: &RecordBatch) -> Result<Values, EvalError> {
        match self {
            Self::Column(at) => Ok(Values::Column(Arc::clone(batch.column(*at)))),
            Self::One(value) => Ok(value.clone()),
            Self::Number { op, left, right, text } => {
                let (left, right) = (left.evaluate(batch)?, right.evaluate(batch)?);
                two(text, &left, &right, |left, right| op.run(left, right))
            }
            Self::Compare { op, left, right, text } => {
                let (left, right) = (left.evaluate(batch)?, right.evaluate(batch)?);
                two(text, &left, &right, |left, right| Ok(Arc::new(op.run(left, right)?)))
            }
            Self::And(left, right) => logic(batch, left, right, and_kleene),
            Self::Or(left, right) => logic(batch, left, right, or_kleene),
            Self::Not(of) => {
                let of = of.evaluate(batch)?;
                let not = not(of.array().as_boolean()).map_err(|error| EvalError::of_arrow("~", &error))?;
                Ok(of.with(Arc::new(not)))
            }
            Self::IsNull(of, wanted) => {
                let of = of.evaluate(batch)?;
                let array = of.array();
                let found = if *wanted { is_null(&array) } else { is_not_null(&array) };
                Ok(of.with(Arc::new(found.map_err(|error| EvalError::of_arrow("is_null", &error))?)))
            }
            Self::Negative { of, text } => one(text, &of.evaluate(batch)?, |array| numeric::neg(array)),
            Self::Cast { of, to, strict, text } => {
                let options = CastOptions { safe: !strict, ..CastOptions::default() };
                one(text, &of.evaluate(batch)?, |array| cast_floored(array, to, &options))
            }
            Self::When { branches, otherwise, data_type, text } => {
                when(batch, branches, otherwise.as_deref(), data_type)
                    .map_err(|error| error.unwrap_or_else(|error| EvalError::of_arrow(text, &error)))
            }
            Self::IsIn { of, values, text } => {
                let of = of.evaluate(batch)?;
                is_in(&of, values).map_err(|error| EvalError::of_arrow(text, &error))
            }
            Self::Coalesce { of, text } => coalesce(batch, of, text),
            Self::Call { kernel, of, text } => {
                let of = of.iter().map(|of| of.evaluate(batch)).collect::<Result<Vec<_>, _>>()?;
                call(text, kernel, &of, batch.num_rows())
            }
        }
    }
}

/// Runs a kernel on two columns. If it fails, runs it row by row to find the failing row.
fn two(
    text: &str,
    left: &Values,
    right: &Values,
    kernel: impl Fn(&dyn Datum, &dyn Datum) -> Result<ArrayRef, ArrowError>,
) -> Result<Values, EvalError> {
    let found = kernel(left.datum(), right.datum()).map_err(|error| {
        let rows = left.array().len().max(right.array().len());
        let failing = (0..rows).find_map(|row| {
            let (left, right) = (left.slice(row, 1), right.slice(row, 1));
            let error = kernel(left.datum(), right.datum()).err()?;
            let values = format!("{} and {}", shown(&left.array(), 0), shown(&right.array(), 0));
            Some((error, format!(" in row {row} of a batch, of {values}")))
        });
        at_row(text, failing, error)
    })?;
    let is_one = matches!((left, right), (Values::One(_), Values::One(_)));
    Ok(if is_one { Values::one(found) } else { Values::Column(found) })
}

/// Runs a kernel on one column. If it fails, runs it row by row to find the failing row.
fn one(
    text: &str,
    of: &Values,
    kernel: impl Fn(&ArrayRef) -> Result<ArrayRef, ArrowError>,
) -> Result<Values, EvalError> {
    let array = of.array();
    let found = kernel(&array).map_err(|error| {
        let failing = (0..array.len()).find_map(|row| {
            let error = kernel(&array.slice(row, 1)).err()?;
            Some((error, format!(" in row {row} of a batch, of {}", shown(&array, row))))
        });
        at_row(text, failing, error)
    })?;
    Ok(of.with(found))
}

/// Runs the kernel of a function. If it fails, runs it row by row to find the failing row.
fn call(text: &str, kernel: &Kernel, of: &[Values], rows: usize) -> Result<Values, EvalError> {
    let is_one = of.iter().all(|values| matches!(values, Values::One(_)));
    let rows = if is_one { 1 } else { rows };
    let found = kernel.run(&Arguments::new(of, rows)).map_err(|error| {
        let failing = (0..rows).find_map(|row| {
            let of: Vec<_> = of.iter().map(|values| values.slice(row, 1)).collect();
            let error = kernel.run(&Arguments::new(&of, 1)).err()?;
            let shown: Vec<_> = of.iter().map(|values| shown(&values.array(), 0)).collect();
            Some((error, format!(" in row {row} of a batch, of {}", shown.join(" and "))))
        });
        at_row(text, failing, error)
    })?;
    Ok(if is_one { Values::one(found) } else { Values::Column(found) })
}

#[cold]
fn at_row(text: &str, failing: Option<(ArrowError, String)>, error: ArrowError) -> EvalError {
    let (error, place) = failing.unwrap_or((error, String::new()));
    EvalError { place, ..EvalError::of_arrow(text, &error) }
}

fn logic(
    batch: &RecordBatch,
    left: &Node,
    right: &Node,
    kernel: fn(&BooleanArray, &BooleanArray) -> Result<BooleanArray, ArrowError>,
) -> Result<Values, EvalError> {
    let rows = batch.num_rows();
    let (left, right) = (left.evaluate(batch)?.into_array(rows)?, right.evaluate(batch)?.into_array(rows)?);
    let found = kernel(left.as_boolean(), right.as_boolean());
    Ok(Values::Column(Arc::new(found.map_err(|error| EvalError::of_arrow("& or |", &error))?)))
}

/// Evaluates each branch only for the rows that take it, because it may fail for other rows.
fn when(
    batch: &RecordBatch,
    branches: &[(Node, Node)],
    otherwise: Option<&Node>,
    data_type: &DataType,
) -> Result<Values, Result<EvalError, ArrowError>> {
    const NOBODY: (usize, usize) = (0, 0);
    let rows = batch.num_rows();
    // The first array holds a single null, for rows that no branch takes.
    let mut taken: Vec<ArrayRef> = vec![new_null_array(data_type, 1)];
    let mut places = vec![NOBODY; rows];
    let mut is_left = vec![true; rows];
    let mut take = |mask: Vec<bool>, value: &Node| {
        let mask = BooleanArray::from(mask);
        let of_branch = filter_record_batch(batch, &mask).map_err(Err)?;
        let count = of_branch.num_rows();
        if count == 0 {
            return Ok(());
        }
        let values = value.evaluate(&of_branch).and_then(|values| values.into_array(count)).map_err(Ok)?;
        let (at, mut next) = (taken.len(), 0);
        for (place, is_of_branch) in places.iter_mut().zip(mask.values()) {
            if is_of_branch {
                *place = (at, next);
                next += 1;
            }
        }
        taken.push(values);
        Ok(())
    };
    for (condition, value) in branches {
        let condition = condition.evaluate(batch).and_then(|values| values.into_array(rows)).map_err(Ok)?;
        let condition = condition.as_boolean();
        let mask: Vec<bool> =
            (0..rows).map(|row| is_left[row] && condition.is_valid(row) && condition.value(row)).collect();
        is_left.iter_mut().zip(&mask).for_each(|(is_left, is_taken)| *is_left &= !is_taken);
        take(mask, value)?;
    }
    if let Some(otherwise) = otherwise {
        take(is_left, otherwise)?;
    }
    let taken: Vec<&dyn Array> = taken.iter().map(AsRef::as_ref).collect();
    interleave(&taken, &places).map(Values::Column).map_err(Err)
}

/// Returns null for null values.
fn is_in(of: &Values, values: &[Values]) -> Result<Values, ArrowError> {
    let array = of.array();
    let mut found = BooleanArray::from(vec![false; array.len()]);
    for value in values {
        found = or_kleene(&found, &Comparison::Eq.run(&array, value.datum())?)?;
    }
    Ok(of.with(nullif(&found, &is_null(&array)?)?))
}

fn coalesce(batch: &RecordBatch, of: &[Node], text: &str) -> Result<Values, EvalError> {
    let rows = batch.num_rows();
    let mut found: Option<ArrayRef> = None;
    for node in of {
        let Some(so_far) = &found else {
            found = Some(node.evaluate(batch)?.into_array(rows)?);
            continue;
        };
        if so_far.null_count() == 0 {
            break;
        }
        let next = node.evaluate(batch)?.into_array(rows)?;
        let filled = is_not_null(so_far).and_then(|is_there| zip(&is_there, so_far, &next));
        found = Some(filled.map_err(|error| EvalError::of_arrow(text, &error))?);
    }
    found.map(Values::Column).ok_or_else(|| EvalError {
        expression: text.to_owned(),
        place: String::new(),
        message: "there is nothing to take".to_owned(),
    })
}
