//! User aggregates: each of their functions takes the rows, or the states, of many groups at once.
//!
//! The state of a group is rows of a schema, as row blocks. If two states can be merged, these are states; else they
//! are the values themselves, until a result is needed. Merging two groups appends their rows, without a call. States
//! are merged to one when a group has many of them, in one call for all such groups, and when results are made.
//!
//! ```text
//! kept = varint bytes | (varint bytes | run)*
//! ```

mod cells;
mod fold;
mod kept;

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Field, Schema, SchemaRef};
use flownet_runtime::TaskError;
use serde::{Deserialize, Serialize};

pub(super) use self::cells::{OwnCells, OwnFront};
pub(crate) use self::fold::UserAggregateFold;
use super::function::AggregationError;
use crate::calc::Column;
use crate::expr::{Bound, EvalError};
use crate::layout::{Layout, UnsupportedType};
use crate::names::twice;
use crate::type_names::kept_columns;

/// One result column that user functions compute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnAggregate {
    /// Name of the column.
    pub name: String,
    /// Name by which users call the aggregate.
    pub function: String,
    /// Values that it takes.
    pub columns: Vec<Column>,
    /// Schema of its state.
    pub state: Schema,
    /// Schema of its result.
    pub returns: Schema,
    /// Whether two states can be merged. Otherwise the values are stored until a result is needed.
    pub merges: bool,
}

/// User aggregate that was checked against the schema of the rows.
#[derive(Debug)]
pub struct OwnAggregation {
    place: usize,
    field: Field,
    values: Vec<Bound>,
    values_schema: SchemaRef,
    state: SchemaRef,
    returns: SchemaRef,
    /// Layout of the stored rows.
    layout: Arc<Layout>,
    merges: bool,
    /// The aggregate as a user would write it.
    text: String,
}

impl OwnAggregation {
    /// Creates the aggregate with index `place` among those of an operator. Checks names and types against `schema`.
    pub(super) fn new(aggregate: &OwnAggregate, place: usize, schema: &Schema) -> Result<Self, AggregationError> {
        let OwnAggregate { name, function, columns, state, returns, merges } = aggregate;
        let names = columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>();
        let text = format!("{name} = {function}({})", names.join(", "));
        if let Some(column) = twice(names.iter().copied()) {
            return Err(AggregationError::TwiceIn { aggregate: text, column: column.to_owned() });
        }
        let [returned] = &returns.fields()[..] else { return Err(AggregationError::NotOneResult { aggregate: text }) };
        let values = columns.iter().map(|column| column.value.bind(schema)).collect::<Result<Vec<_>, _>>()?;
        let fields = names.iter().zip(&values).map(|(name, value)| {
            // Nullability of an expression holds for one batch, but the stored rows are of many batches.
            Field::new(*name, value.data_type().clone(), true)
        });
        let values_schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let state = Arc::new(state.clone());
        let (field, returns) = (returned.as_ref().clone().with_name(name), Arc::new(returns.clone()));
        let refused = |error: UnsupportedType| AggregationError::OwnType { aggregate: text.clone(), error };
        Layout::new(Arc::clone(&returns)).map_err(refused)?;
        let kept = if *merges { &state } else { &values_schema };
        let layout = Arc::new(Layout::new(Arc::clone(kept)).map_err(refused)?);
        Ok(Self { place, field, values, values_schema, state, returns, layout, merges: *merges, text })
    }

    /// Index among the user aggregates of the operator.
    pub fn place(&self) -> usize {
        self.place
    }

    /// The aggregate as a user would write it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Schema of states: one row per group.
    pub fn state(&self) -> &SchemaRef {
        &self.state
    }

    /// Schema of results: one column, of any name.
    pub fn returns(&self) -> &SchemaRef {
        &self.returns
    }

    /// Describes the state of a group. Checkpoints are interchangeable between aggregates with the same description.
    pub(super) fn kept(&self) -> String {
        let what = if self.merges { "states" } else { "values" };
        format!("{what} {}", kept_columns(self.layout.schema()))
    }

    pub(super) fn field(&self) -> &Field {
        &self.field
    }

    /// Evaluates the input values for a batch.
    pub(super) fn values(&self, batch: &RecordBatch) -> Result<RecordBatch, EvalError> {
        let columns = self.values.iter().map(|value| value.evaluate(batch)).collect::<Result<Vec<ArrayRef>, _>>()?;
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&self.values_schema), columns, &options)
            .map_err(|error| EvalError::of_arrow(&self.text, &error))
    }
}

/// Group of each row of a batch. Groups are numbered from 0, and each has at least one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowGroups {
    /// Group of each row.
    pub of_row: Vec<u32>,
    /// Number of groups.
    pub count: usize,
}

/// User functions of the aggregates of one operator.
pub trait OwnFunctions: Send {
    /// Runs `work`, which calls the functions. Prepares the thread for these calls once.
    fn attached(&self, work: &mut dyn FnMut() -> Result<(), TaskError>) -> Result<(), TaskError>;

    /// Returns a state for each group of these values.
    fn accumulate(
        &self,
        aggregation: &OwnAggregation,
        values: RecordBatch,
        groups: RowGroups,
    ) -> Result<RecordBatch, TaskError>;

    /// Returns a state for each group of these states.
    fn merge(
        &self,
        aggregation: &OwnAggregation,
        states: RecordBatch,
        groups: RowGroups,
    ) -> Result<RecordBatch, TaskError>;

    /// Returns the result of each of these states.
    fn result(&self, aggregation: &OwnAggregation, states: RecordBatch) -> Result<ArrayRef, TaskError>;
}

/// Number of states at which those of a group are merged, at the end of a batch.
const MANY_STATES: u64 = 8;

#[cfg(test)]
mod tests;
