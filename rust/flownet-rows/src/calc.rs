//! Projects and filters rows: a pipeline of `filter`, `select`, `with_columns` and `explode` steps.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, ListArray, RecordBatch, UInt32Array};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use arrow_select::take::take;
use flownet_runtime::TaskError;
use flownet_runtime::operator::{Collector, Operator};
use flownet_runtime::snapshot::Snapshot;
use flownet_runtime::work::Work;
use serde::{Deserialize, Serialize};

use crate::batch::RowBatch;
use crate::expr::{Bound, EvalError, Expr, ExprError};
use crate::layout::{Layout, UnsupportedType};
use crate::record_format::{CarriesRows, OperatorInfo};
use crate::type_names::type_name;

/// One step, as users write it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Step {
    /// Keeps the rows for which the expression is true.
    Filter(Expr),
    /// Replaces all columns with these.
    Select(Vec<Column>),
    /// Adds these columns, or replaces those of the same name.
    WithColumns(Vec<Column>),
    /// Emits one row per item of the list in this column, and none for an empty or null list.
    Explode(String),
}

/// Column and the expression that computes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// Name of the column.
    pub name: String,
    /// Expression of its values.
    pub value: Expr,
}

/// Reasons why a step does not fit the rows.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StepError {
    /// An expression does not fit the schema.
    #[error("{step}: {error}")]
    Expression {
        /// Name of the step.
        step: &'static str,
        /// Cause.
        error: ExprError,
    },
    /// The predicate of a filter is not of type bool.
    #[error(
        "filter: {expression} is of type {}, and a filter wants bool: compare it, as in {expression} > 0",
        type_name(.data_type)
    )]
    NoBool {
        /// The expression.
        expression: String,
        /// Its type.
        data_type: DataType,
    },
    /// Two columns have the same name.
    #[error("{step}: two columns are called '{column}': give one another name, as in {column}2=fn.col(\"{column}\")")]
    Twice {
        /// Name of the step.
        step: &'static str,
        /// Name of both columns.
        column: String,
    },
    /// The column to explode holds no lists.
    #[error("explode: column '{column}' is of type {data_type}, and no list")]
    NoList {
        /// Name of the column.
        column: String,
        /// Its type.
        data_type: String,
    },
    /// The step leaves no columns.
    #[error("{step}: rows need at least one column")]
    Empty {
        /// Name of the step.
        step: &'static str,
    },
    /// A column has a type that rows cannot have.
    #[error("{step}: {error}")]
    Type {
        /// Name of the step.
        step: &'static str,
        /// Cause.
        error: UnsupportedType,
    },
}

/// Steps that were checked against the schema of their input.
#[derive(Debug)]
pub struct BoundSteps {
    steps: Vec<BoundStep>,
    schema: SchemaRef,
}

#[derive(Debug)]
enum BoundStep {
    Filter(Bound),
    Make { columns: Vec<StepOutput>, schema: SchemaRef },
    Explode { column: usize, schema: SchemaRef },
}

#[derive(Debug)]
enum StepOutput {
    /// The input column with this index, unchanged.
    Kept(usize),
    From(Bound),
}

impl BoundSteps {
    /// Checks names and types of all steps against the schema of the rows.
    pub fn new(steps: &[Step], input: SchemaRef) -> Result<Self, StepError> {
        let mut schema = input;
        let mut bound = Vec::with_capacity(steps.len());
        for step in steps {
            bound.push(match step {
                Step::Filter(expression) => BoundStep::Filter(filter(expression, &schema)?),
                Step::Explode(column) => explode(column, &schema)?,
                Step::Select(columns) => make("select", columns, Vec::new(), &schema)?,
                Step::WithColumns(columns) => {
                    let kept = schema.fields().iter().enumerate();
                    let kept = kept.map(|(at, field)| (field.as_ref().clone(), StepOutput::Kept(at))).collect();
                    make("with_columns", columns, kept, &schema)?
                }
            });
            if let Some(BoundStep::Make { schema: made, .. } | BoundStep::Explode { schema: made, .. }) = bound.last() {
                schema = Arc::clone(made);
            }
        }
        Ok(Self { steps: bound, schema })
    }

    /// Returns the schema after the last step.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Applies all steps to a batch.
    pub fn run(&self, mut batch: RowBatch) -> Result<RowBatch, EvalError> {
        for step in &self.steps {
            let taken = match step {
                BoundStep::Filter(predicate) => {
                    let keep = predicate.evaluate(&batch.columns)?;
                    batch.filter(&without_nulls(&keep))
                }
                BoundStep::Make { columns, schema } => {
                    let made = columns.iter().map(|made| match made {
                        StepOutput::Kept(at) => Ok(Arc::clone(batch.columns.column(*at))),
                        StepOutput::From(expression) => expression.evaluate(&batch.columns),
                    });
                    let made: Vec<ArrayRef> = made.collect::<Result<_, _>>()?;
                    batch.with_columns(Arc::clone(schema), made)
                }
                BoundStep::Explode { column, schema } => exploded(&batch, *column, schema),
            };
            batch = taken.map_err(|error| EvalError::of_arrow("a step", &error))?;
        }
        Ok(batch)
    }
}

/// Treats null as false: `filter` drops rows whose predicate is null.
fn without_nulls(keep: &ArrayRef) -> BooleanArray {
    let keep = keep.as_boolean();
    match keep.nulls() {
        None => keep.clone(),
        Some(nulls) => BooleanArray::new(keep.values() & nulls.inner(), None),
    }
}

fn explode(column: &str, schema: &Schema) -> Result<BoundStep, StepError> {
    let bound = Expr::Column(column.to_owned()).bind(schema);
    bound.map_err(|error| StepError::Expression { step: "explode", error })?;
    let mut fields: Vec<_> = schema.fields().iter().cloned().collect();
    let at = fields.iter().position(|field| field.name() == column).unwrap_or_default();
    let DataType::List(item) = fields[at].data_type() else {
        return Err(StepError::NoList { column: column.to_owned(), data_type: type_name(fields[at].data_type()) });
    };
    fields[at] = Arc::new(Field::new(column, item.data_type().clone(), item.is_nullable()));
    Ok(BoundStep::Explode { column: at, schema: Arc::new(Schema::new(fields)) })
}

/// Returns the items of all lists that are not null. They are contiguous, except that a null list may have items, too.
fn items_of(lists: &ListArray) -> Result<ArrayRef, ArrowError> {
    let offsets = lists.value_offsets();
    let (start, end) = (offsets[0], offsets[lists.len()]);
    if lists.null_count() == 0 {
        return Ok(lists.values().slice(start as usize, (end - start) as usize));
    }
    let there = (0..lists.len()).filter(|row| lists.is_valid(*row));
    let items: Vec<u32> = there.flat_map(|row| offsets[row] as u32..offsets[row + 1] as u32).collect();
    take(lists.values(), &UInt32Array::from(items), None)
}

/// Returns one row per item of the lists in a column, with the other values of the row repeated.
fn exploded(batch: &RowBatch, column: usize, schema: &SchemaRef) -> Result<RowBatch, ArrowError> {
    let lists = batch.columns.column(column).as_list::<i32>();
    if batch.columns.num_columns() == 1 && batch.times.is_none() {
        // There are no other values to repeat, so the items alone are the result.
        return Ok(RowBatch::new(RecordBatch::try_new(Arc::clone(schema), vec![items_of(lists)?])?));
    }
    let offsets = lists.value_offsets();
    let mut rows = Vec::with_capacity((offsets[lists.len()] - offsets[0]) as usize);
    for row in (0..lists.len()).filter(|row| lists.is_valid(*row)) {
        rows.extend(std::iter::repeat_n(row as u32, (offsets[row + 1] - offsets[row]) as usize));
    }
    let times = batch.times.as_ref().map(|times| rows.iter().map(|row| times[*row as usize]).collect());
    let nanos = batch.nanos.as_ref().map(|nanos| rows.iter().map(|row| nanos[*row as usize]).collect());
    let (rows, items) = (UInt32Array::from(rows), items_of(lists)?);
    let columns = batch
        .columns
        .columns()
        .iter()
        .enumerate()
        .map(|(at, array)| if at == column { Ok(Arc::clone(&items)) } else { take(array, &rows, None) });
    let columns = RecordBatch::try_new(Arc::clone(schema), columns.collect::<Result<_, _>>()?)?;
    Ok(RowBatch { columns, times, nanos })
}

fn filter(expression: &Expr, schema: &Schema) -> Result<Bound, StepError> {
    let bound = expression.bind(schema).map_err(|error| StepError::Expression { step: "filter", error })?;
    if *bound.data_type() != DataType::Boolean {
        let (expression, data_type) = (expression.to_string(), bound.data_type().clone());
        return Err(StepError::NoBool { expression, data_type });
    }
    Ok(bound)
}

fn make(
    step: &'static str,
    columns: &[Column],
    mut made: Vec<(Field, StepOutput)>,
    schema: &Schema,
) -> Result<BoundStep, StepError> {
    let mut named: Vec<&str> = Vec::new();
    for Column { name, value } in columns {
        if named.contains(&name.as_str()) {
            return Err(StepError::Twice { step, column: name.clone() });
        }
        named.push(name);
        let bound = value.bind(schema).map_err(|error| StepError::Expression { step, error })?;
        let field = Field::new(name, bound.data_type().clone(), bound.nullable());
        match made.iter_mut().find(|(other, _)| other.name() == name) {
            Some(place) => *place = (field, StepOutput::From(bound)),
            None => made.push((field, StepOutput::From(bound))),
        }
    }
    if made.is_empty() {
        return Err(StepError::Empty { step });
    }
    let (fields, columns): (Vec<_>, Vec<_>) = made.into_iter().unzip();
    let schema = Arc::new(Schema::new(fields));
    Layout::new(Arc::clone(&schema)).map_err(|error| StepError::Type { step, error })?;
    Ok(BoundStep::Make { columns, schema })
}

/// Operator that applies the steps to each batch.
pub(crate) struct Calc {
    steps: BoundSteps,
    info: OperatorInfo,
}

impl Calc {
    /// Creates the operator of these steps.
    pub(crate) fn new(steps: BoundSteps, info: OperatorInfo) -> Self {
        Self { steps, info }
    }
}

impl<M: CarriesRows> Operator<M> for Calc {
    fn work(&self) -> Work {
        Work::Rust
    }

    fn process<'m>(&mut self, record: M::Record<'m>, collector: &mut Collector<'_, 'm, M>) -> Result<(), TaskError> {
        let batch = self.steps.run(M::into_batch(record)?).map_err(|error| self.info.evaluation_failed(&error))?;
        if batch.is_empty() { Ok(()) } else { collector.emit(M::from_batch(collector.token, batch)?) }
    }

    fn snapshot(&mut self, _: M::Token<'_>, _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }
}
