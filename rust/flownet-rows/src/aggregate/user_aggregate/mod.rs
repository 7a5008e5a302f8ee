//! Aggregates of the user's: each of their functions takes the rows, or the states, of many groups at once.
//!
//! What is kept of a group are rows of a schema, as runs: states, where two of them can be made one, else the values
//! themselves until a result is wanted. Putting together what is kept of two is putting it side by side, without a call.
//! States become one where many of them have come to a group, of all such groups in one call, and where results are made.
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

/// One column of a result that functions of the user's make.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnAggregate {
    /// What the column is called.
    pub name: String,
    /// What users call what makes it.
    pub function: String,
    /// The values that it takes.
    pub columns: Vec<Column>,
    /// What it keeps of a group.
    pub state: Schema,
    /// Of what type the result is.
    pub returns: Schema,
    /// Whether two states can be made one; else values are kept until a result is wanted.
    pub merges: bool,
}

/// An aggregate of the user's, of rows of one schema.
#[derive(Debug)]
pub struct OwnAggregation {
    place: usize,
    field: Field,
    values: Vec<Bound>,
    values_schema: SchemaRef,
    state: SchemaRef,
    returns: SchemaRef,
    /// Of what is kept.
    layout: Arc<Layout>,
    merges: bool,
    /// As a user would write it.
    text: String,
}

impl OwnAggregation {
    /// The one in this place among those of an operator; checks names and types against the schema of the rows.
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
            // What expressions say of missing values holds for a batch; what is kept is of many.
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

    /// Which it is among those of the user's.
    pub fn place(&self) -> usize {
        self.place
    }

    /// As a user would write it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Of states: one row for each group.
    pub fn state(&self) -> &SchemaRef {
        &self.state
    }

    /// Of results: one column, of any name.
    pub fn returns(&self) -> &SchemaRef {
        &self.returns
    }

    /// What is kept of a group: the same for those of which checkpoints can be exchanged.
    pub(super) fn kept(&self) -> String {
        let what = if self.merges { "states" } else { "values" };
        format!("{what} {}", kept_columns(self.layout.schema()))
    }

    pub(super) fn field(&self) -> &Field {
        &self.field
    }

    /// The values of a batch.
    pub(super) fn values(&self, batch: &RecordBatch) -> Result<RecordBatch, EvalError> {
        let columns = self.values.iter().map(|value| value.evaluate(batch)).collect::<Result<Vec<ArrayRef>, _>>()?;
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&self.values_schema), columns, &options)
            .map_err(|error| EvalError::of_arrow(&self.text, &error))
    }
}

/// Of each row of a batch, which group it is of; there are `count`, from 0, and each has a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowGroups {
    /// Of each row.
    pub of_row: Vec<u32>,
    /// How many there are.
    pub count: usize,
}

/// The functions of the aggregates of one operator.
pub trait OwnFunctions: Send {
    /// Does work that calls them: what calls need of the thread is taken once.
    fn attached(&self, work: &mut dyn FnMut() -> Result<(), TaskError>) -> Result<(), TaskError>;

    /// A state for each group of these values.
    fn accumulate(
        &self,
        aggregation: &OwnAggregation,
        values: RecordBatch,
        groups: RowGroups,
    ) -> Result<RecordBatch, TaskError>;

    /// A state for each group of these states.
    fn merge(
        &self,
        aggregation: &OwnAggregation,
        states: RecordBatch,
        groups: RowGroups,
    ) -> Result<RecordBatch, TaskError>;

    /// What comes of each of these states.
    fn result(&self, aggregation: &OwnAggregation, states: RecordBatch) -> Result<ArrayRef, TaskError>;
}

/// So many states of a group are made one, where its operator has come to the end of a batch.
const MANY_STATES: u64 = 8;

#[cfg(test)]
mod tests;
