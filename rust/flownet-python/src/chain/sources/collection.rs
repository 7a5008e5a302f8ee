//! `from_collection`: emits values that existed when the dataflow was written.

use std::sync::Arc;

use flownet_runtime::operator::Source;
use flownet_runtime::snapshot::{RestoredState, Snapshot};
use flownet_runtime::state_stats::StateStats;
use flownet_runtime::varint::put_varint;
use flownet_runtime::work::Work;
use flownet_runtime::{SourceStatus, TaskContext, TaskError, TaskMetrics};
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::POLL_RECORDS;
use crate::chain::failure::OperatorInfo;
use crate::chain::isolate::take_item;
use crate::chain::meter::Meter;
use crate::chain::record_format::{Collector, PythonFormat};
use crate::chain::rows::rows;
use crate::codec::{self, ClassTable, CodecError, KnownClasses, Pickle};

/// Emits the items of an encoded list.
pub(in crate::chain) struct Collection {
    encoded: Vec<u8>,
    pickle: Pickle,
    info: OperatorInfo,
    items: Option<Py<PyList>>,
    count: usize,
    position: usize,
    metrics: Option<Arc<TaskMetrics>>,
    meter: Meter,
}

impl Collection {
    pub(in crate::chain) fn new(encoded: Vec<u8>, pickle: Pickle, meter: Meter, info: OperatorInfo) -> Self {
        Self { encoded, pickle, info, items: None, count: 0, position: 0, metrics: None, meter }
    }
}

/// Decodes the records, which follow the definitions of their classes.
fn decoded<'py>(py: Python<'py>, encoded: &[u8], pickle: Pickle) -> Result<Bound<'py, PyList>, CodecError> {
    let table = Arc::new(ClassTable::default());
    let classes = KnownClasses::new(Arc::clone(&table), pickle);
    let parts = codec::decode(py, encoded, &classes)?;
    let (definitions, records): (Vec<Vec<u8>>, Vec<u8>) = parts.extract()?;
    definitions.iter().try_for_each(|definition| table.add(py, definition))?;
    Ok(codec::decode(py, &records, &classes)?.cast_into::<PyList>().map_err(PyErr::from)?)
}

impl Source<PythonFormat> for Collection {
    fn work(&self) -> Work {
        Work::Rust
    }

    fn open(&mut self, py: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        let encoded = std::mem::take(&mut self.encoded);
        let items = decoded(py, &encoded, self.pickle).map_err(|error| self.info.codec_failed(py, error, None))?;
        self.count = items.len();
        self.items = Some(items.unbind());
        self.metrics = Some(Arc::clone(&cx.metrics));
        Ok(())
    }

    fn emit<'py>(&mut self, collector: &mut Collector<'_, 'py>) -> Result<SourceStatus, TaskError> {
        let (Some(items), Some(metrics)) = (&self.items, &self.metrics) else { return Ok(SourceStatus::Finished) };
        let items = items.bind(collector.token);
        let end = items.len().min(self.position + POLL_RECORDS);
        while self.position < end {
            let item =
                take_item(items, self.position).map_err(|error| self.info.failed(collector.token, &error, None))?;
            self.position += 1;
            metrics.add_records_in(1);
            if let Some(rows) = rows(&item) {
                metrics.count_rows_in(rows);
            }
            if !self.meter.emit(item, collector)? {
                break;
            }
        }
        Ok(if self.position == items.len() { SourceStatus::Finished } else { SourceStatus::More })
    }

    fn tally(&self, tally: &mut StateStats) {
        tally.add_records_left(self.count - self.position);
    }

    fn snapshot(&mut self, _: Python<'_>, to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        let mut position = Vec::new();
        put_varint(&mut position, self.position as u64);
        to.add_items(POSITION, [position]);
        Ok(())
    }

    fn restore(&mut self, py: Python<'_>, from: &RestoredState<'_>) -> Result<(), TaskError> {
        let items = self.items.as_ref().map_or(0, |items| items.bind(py).len());
        for (subtask, mut position) in from.items(POSITION)? {
            let at = usize::try_from(position.varint()?).unwrap_or(usize::MAX);
            if at > items {
                return Err(position.broken(format_args!("record {at} of a collection that has {items} now")));
            }
            if subtask == self.info.subtask {
                self.position = at;
            }
        }
        Ok(())
    }
}

/// Name of its state.
const POSITION: &str = "position";
