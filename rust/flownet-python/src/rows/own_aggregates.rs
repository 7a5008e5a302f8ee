//! User aggregates: functions that process many groups at once.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use flownet_rows::{OwnAggregation, OwnFunctions, RowBatch, RowGroups};
use flownet_runtime::TaskError;
use flownet_runtime::work::{ThreadWork, Work};
use pyo3::prelude::*;

use super::arrow::{PyRowBatch, batches_of};
use super::conform::conform;
use crate::chain::OperatorInfo;

/// Calls them through the one object that an operator has for all of them.
pub(super) struct OwnAggregates {
    object: Py<PyAny>,
    info: OperatorInfo,
    work: ThreadWork,
}

impl OwnAggregates {
    pub(super) fn new(object: Py<PyAny>, info: OperatorInfo) -> Self {
        Self { object, info, work: ThreadWork::default() }
    }

    /// The batch that a function returned, converted to this schema. It must have this number of rows.
    fn call(
        &self,
        (aggregation, function): (&OwnAggregation, &str),
        (rows, groups): (RecordBatch, Option<RowGroups>),
        (schema, wanted): (&SchemaRef, usize),
    ) -> Result<RecordBatch, TaskError> {
        let given = rows.num_rows();
        let returned = Python::attach(|py| {
            let rows = PyRowBatch(RowBatch::new(rows));
            let object = self.object.bind(py);
            let called = match groups {
                Some(groups) => {
                    let groups_of = PyRowBatch(RowBatch::new(numbers(groups.of_row)));
                    object.call_method1(function, (aggregation.place(), rows, groups_of, groups.count))
                }
                None => object.call_method1(function, (aggregation.place(), rows)),
            };
            called.and_then(|returned| batches_of(&returned)).map_err(|error| {
                let mut failed = self.info.failed(py, &error, None);
                if let TaskError::Operator(failure) = &mut failed {
                    failure.message = format!("{}: {function}(): {}", aggregation.text(), failure.message);
                }
                failed
            })
        })?;
        let refused = |message: String| {
            let text = aggregation.text();
            let message = format!("{text}: {function}() was given {given} rows, and what it returned: {message}");
            self.info.refused("ValueError", message, None)
        };
        let fitting = returned.iter().map(|batch| conform(batch, schema)).collect::<Result<Vec<_>, _>>();
        let fitting = concat_batches(schema, &fitting.map_err(refused)?).map_err(|error| refused(error.to_string()))?;
        if fitting.num_rows() == wanted {
            return Ok(fitting);
        }
        Err(refused(format!("{} values, where there are {wanted} groups, each of which has one", fitting.num_rows())))
    }
}

/// A batch of group numbers, which is exported as such.
fn numbers(of_row: Vec<u32>) -> RecordBatch {
    let schema = Schema::new(vec![Field::new("group", DataType::Int64, false)]);
    let numbers = Int64Array::from_iter_values(of_row.into_iter().map(i64::from));
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(numbers)])
        .expect("one column, of the type that it is said to be")
}

impl OwnFunctions for OwnAggregates {
    fn attached(&self, work: &mut dyn FnMut() -> Result<(), TaskError>) -> Result<(), TaskError> {
        let _python = self.work.during(Work::Python);
        Python::attach(|_| work())
    }

    fn accumulate(
        &self,
        aggregation: &OwnAggregation,
        values: RecordBatch,
        groups: RowGroups,
    ) -> Result<RecordBatch, TaskError> {
        let wanted = (aggregation.state(), groups.count);
        self.call((aggregation, "accumulate"), (values, Some(groups)), wanted)
    }

    fn merge(
        &self,
        aggregation: &OwnAggregation,
        states: RecordBatch,
        groups: RowGroups,
    ) -> Result<RecordBatch, TaskError> {
        let wanted = (aggregation.state(), groups.count);
        self.call((aggregation, "merge"), (states, Some(groups)), wanted)
    }

    fn result(&self, aggregation: &OwnAggregation, states: RecordBatch) -> Result<ArrayRef, TaskError> {
        let wanted = (aggregation.returns(), states.num_rows());
        let results = self.call((aggregation, "result"), (states, None), wanted)?;
        Ok(Arc::clone(results.column(0)))
    }
}
