//! `from_iterable`: reads an iterator of the driver process, or one that each subtask creates, as fast as
//! downstream accepts its records.

use std::sync::Arc;
use std::time::{Duration, Instant};

use flownet_runtime::operator::Source;
use flownet_runtime::snapshot::Snapshot;
use flownet_runtime::{SourceStatus, TaskContext, TaskError, TaskMetrics};
use pyo3::prelude::*;
use pyo3::types::PyIterator;

use super::POLL_RECORDS;
use super::split_mark::PySplitMark;
use super::waits::Waits;
use crate::chain::attach::TaskThreads;
use crate::chain::failure::OperatorInfo;
use crate::chain::meter::Meter;
use crate::chain::record_format::{Collector, PythonFormat};
use crate::chain::rows::rows;

/// Emits the items of an iterator.
pub(in crate::chain) struct Iterable {
    pulled: IteratorOrigin,
    /// True if there may be split marks among the records.
    tells_splits: bool,
    info: OperatorInfo,
    metrics: Option<Arc<TaskMetrics>>,
    meter: Meter,
    /// True if the iterator never waits, so that batches need not end with each record.
    is_prompt: bool,
    waits: Waits,
}

/// Origin of the iterator.
pub(in crate::chain) enum IteratorOrigin {
    /// The iterator itself.
    Iterator(Py<PyAny>),
    /// A function of a subtask's index and the number of subtasks, which returns the object to iterate over.
    MadeBy(Py<PyAny>),
}

/// Longest poll of a slow iterator. After it, timers and mail are checked.
const LONGEST_POLL: Duration = Duration::from_millis(5);

impl Iterable {
    pub(in crate::chain) fn new(pulled: IteratorOrigin, tells_splits: bool, meter: Meter, info: OperatorInfo) -> Self {
        Self { pulled, tells_splits, info, metrics: None, meter, is_prompt: false, waits: Waits::new() }
    }

    /// Emits the records of one poll, and counts the pulls.
    fn emit_pulled(&mut self, collector: &mut Collector<'_, '_>, pulls: &mut u32) -> Result<SourceStatus, TaskError> {
        let py = collector.token;
        let info = &self.info;
        let failed = |error: PyErr| info.failed(py, &error, None);
        let IteratorOrigin::Iterator(iterator) = &self.pulled else { return Ok(SourceStatus::Finished) };
        let mut iterator = iterator.bind(py).cast::<PyIterator>().map_err(|error| failed(error.into()))?.clone();
        let is_watched = !self.is_prompt && self.waits.is_watched();
        let started = Instant::now();
        while *pulls < POLL_RECORDS as u32 {
            collector.cancel().check()?;
            *pulls += 1;
            let next = if is_watched {
                collector.control().time.idle_unless_computing(|| iterator.next())
            } else {
                iterator.next()
            };
            let Some(record) = next else { return Ok(SourceStatus::Finished) };
            let record = record.map_err(failed)?;
            if self.tells_splits
                && let Ok(mark) = record.cast_exact::<PySplitMark>()
            {
                collector.tell_split(mark.get().signal())?;
                collector.end_batch()?;
                continue;
            }
            if let Some(metrics) = &self.metrics {
                metrics.add_records_in(1);
                if let Some(rows) = rows(&record) {
                    metrics.count_rows_in(rows);
                }
            }
            let may_go_on = self.meter.emit(record, collector)?;
            if !self.is_prompt {
                collector.end_batch()?;
            }
            if !may_go_on {
                break;
            }
            // Reading the clock costs as much as a cheap record, so it is read occasionally.
            if pulls.is_multiple_of(16) && started.elapsed() > LONGEST_POLL {
                break;
            }
        }
        Ok(SourceStatus::More)
    }
}

impl Source<PythonFormat> for Iterable {
    fn open(&mut self, py: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.metrics = Some(Arc::clone(&cx.metrics));
        if let IteratorOrigin::MadeBy(function) = &self.pulled {
            let iterable = function.bind(py).call1((cx.subtask, cx.parallelism));
            let iterator = iterable.and_then(|iterable| iterable.try_iter());
            let iterator = iterator.map_err(|error| self.info.failed(py, &error, None))?;
            self.pulled = IteratorOrigin::Iterator(iterator.into_any().unbind());
        }
        if let IteratorOrigin::Iterator(iterator) = &self.pulled {
            self.is_prompt = never_waits(iterator.bind(py));
        }
        Ok(())
    }

    /// Sends each record before it pulls the next, unless the iterator is known not to wait. Any other
    /// iterator may wait for its next record.
    fn emit<'py>(&mut self, collector: &mut Collector<'_, 'py>) -> Result<SourceStatus, TaskError> {
        let mut pulls = 0;
        if self.is_prompt {
            return self.emit_pulled(collector, &mut pulls);
        }
        let before = collector.control().time.spent();
        let status = self.emit_pulled(collector, &mut pulls);
        let spent = collector.control().time.spent().since(&before);
        let others = TaskThreads::of_all_jobs().count().saturating_sub(1);
        collector.control().time.set_idle(spent.idle, self.waits.poll_ended(&spent, pulls, others));
        status
    }

    /// Writes nothing: the source is not replayable.
    fn snapshot(&mut self, _: Python<'_>, _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }

    /// Runs the `finally` blocks of an unfinished generator now, and not at its garbage collection.
    fn close(&mut self, py: Python<'_>) -> Result<(), TaskError> {
        let IteratorOrigin::Iterator(iterator) = &self.pulled else { return Ok(()) };
        let closed = match iterator.bind(py).getattr_opt("close") {
            Ok(Some(close)) => close.call0().map(drop),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        closed.map_err(|error| self.info.failed(py, &error, None))
    }
}

/// Returns true for Python's own iterators over existing values.
fn never_waits(iterator: &Bound<'_, PyAny>) -> bool {
    let class = iterator.get_type();
    let name = class.fully_qualified_name();
    name.is_ok_and(|name| PROMPT.iter().any(|prompt| *prompt == name.to_string_lossy()))
}

const PROMPT: [&str; 11] = [
    "dict_itemiterator",
    "dict_keyiterator",
    "dict_valueiterator",
    "itertools.count",
    "itertools.repeat",
    "list_iterator",
    "longrange_iterator",
    "range_iterator",
    "set_iterator",
    "str_ascii_iterator",
    "tuple_iterator",
];
