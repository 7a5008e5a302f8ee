//! `map_batches`: applies a user's function to each batch.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{FieldRef, Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use flownet_rows::{Collector, RowBatch, RowRecord, RowsFormat};
use flownet_runtime::TaskError;
use flownet_runtime::operator::Operator;
use flownet_runtime::snapshot::Snapshot;
use flownet_runtime::work::Work;
use pyo3::prelude::*;

use super::arrow::{PyRowBatch, batches_of, schema_of};
use super::conform::conform;
use crate::chain::OperatorInfo;

/// Calls a function with each batch.
pub(super) struct MapBatches {
    function: Py<PyAny>,
    schema: SchemaRef,
    info: OperatorInfo,
}

impl MapBatches {
    pub(super) fn new(function: Py<PyAny>, schema: SchemaRef, info: OperatorInfo) -> Self {
        Self { function, schema, info }
    }

    fn call(&self, batch: RecordBatch) -> Result<RecordBatch, TaskError> {
        let (rows, schema) = (batch.num_rows(), batch.schema());
        let returned = Python::attach(|py| {
            let called = self
                .function
                .bind(py)
                .call1((PyRowBatch(RowBatch::new(batch)),))
                .and_then(|returned| batches_of(&returned));
            called.map_err(|error| self.info.failed(py, &error, None))
        })?;
        let refused = |message: String| {
            let names =
                schema.fields().iter().map(|field| format!("'{}'", field.name())).collect::<Vec<_>>().join(", ");
            self.info.refused(
                "ValueError",
                format!("it was given {rows} rows of {names}, and what it returned: {message}"),
                None,
            )
        };
        let fitting = returned.iter().map(|batch| conform(batch, &self.schema)).collect::<Result<Vec<_>, _>>();
        let fitting = fitting.map_err(refused)?;
        match &fitting[..] {
            [batch] => Ok(batch.clone()),
            _ => concat_batches(&self.schema, &fitting).map_err(|error| refused(error.to_string())),
        }
    }
}

impl Operator<RowsFormat> for MapBatches {
    fn work(&self) -> Work {
        Work::Python
    }

    fn process<'m>(&mut self, record: RowRecord, collector: &mut Collector<'_, 'm>) -> Result<(), TaskError> {
        let RowBatch { columns, times, nanos } = record.into_batch()?;
        let rows = columns.num_rows();
        let columns = self.call(columns)?;
        if columns.num_rows() == 0 {
            return Ok(());
        }
        // Output rows can be matched with input rows only if their number is the same.
        let is_one_to_one = columns.num_rows() == rows;
        let (times, nanos) = (times.filter(|_| is_one_to_one), nanos.filter(|_| is_one_to_one));
        collector.emit(RowRecord::Batch(RowBatch { columns, times, nanos }))
    }

    fn snapshot(&mut self, (): (), _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }
}

/// The schema that a function returns when it is called without rows.
pub(super) fn tried(function: &Bound<'_, PyAny>, input: &SchemaRef) -> PyResult<SchemaRef> {
    let empty = PyRowBatch(RowBatch::new(RecordBatch::new_empty(Arc::clone(input))));
    let returned = schema_of(&function.call1((empty,))?)?;
    // Columns of objects, which pandas and numpy use for strings, have no type if there are no values. A
    // column that has the name of an input column gets its type.
    let of_input = |field: &FieldRef| match input.field_with_name(field.name()) {
        Ok(given) if field.data_type().is_null() => Arc::new(given.clone()),
        _ => Arc::clone(field),
    };
    Ok(Arc::new(Schema::new(returned.fields().iter().map(of_input).collect::<Vec<_>>())))
}
