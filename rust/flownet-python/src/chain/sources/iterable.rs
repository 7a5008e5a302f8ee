//! `from_iterable`: an iterator of the driver process, or one that each subtask makes, pulled as fast as downstream takes
//! its records.

use std::sync::Arc;
use std::time::{Duration, Instant};

use flownet_runtime::{SourceStatus, TaskContext, TaskError, TaskMetrics};
use pyo3::prelude::*;
use pyo3::types::PyIterator;

use super::POLL_RECORDS;
use crate::chain::failure::OperatorInfo;
use crate::chain::stage::{Flow, Meter, Source};
use crate::codec::Pickle;

/// Emits what an iterator yields.
pub(in crate::chain) struct Iterable {
    pulled: Pulled,
    info: OperatorInfo,
    metrics: Option<Arc<TaskMetrics>>,
    meter: Meter,
}

/// Where the iterator comes from.
pub(in crate::chain) enum Pulled {
    /// It is here.
    Iterator(Py<PyAny>),
    /// This function of a subtask's index and the number of subtasks returns what is to be iterated over.
    MadeBy(Py<PyAny>),
}

/// A poll of a slow iterator ends here, so that timers and mail are looked at.
const LONGEST_POLL: Duration = Duration::from_millis(5);

impl Iterable {
    pub(in crate::chain) fn new(pulled: Pulled, pickle: Pickle, info: OperatorInfo) -> Self {
        let meter = Meter::new(pickle, info.clone());
        Self { pulled, info, metrics: None, meter }
    }
}

impl Source for Iterable {
    fn open(&mut self, py: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.metrics = Some(Arc::clone(&cx.metrics));
        if let Pulled::MadeBy(function) = &self.pulled {
            let iterable = function.bind(py).call1((cx.subtask, cx.parallelism));
            let iterator = iterable.and_then(|iterable| iterable.try_iter());
            let iterator = iterator.map_err(|error| self.info.failed(py, &error, None))?;
            self.pulled = Pulled::Iterator(iterator.into_any().unbind());
        }
        Ok(())
    }

    /// Every record is on its way before the next is pulled: nobody knows how long the iterator takes for it.
    fn emit(&mut self, flow: &mut Flow<'_, '_>) -> Result<SourceStatus, TaskError> {
        let py = flow.py;
        let failed = |error: PyErr| self.info.failed(py, &error, None);
        let Pulled::Iterator(iterator) = &self.pulled else { return Ok(SourceStatus::Finished) };
        let mut iterator = iterator.bind(py).cast::<PyIterator>().map_err(|error| failed(error.into()))?.clone();
        let started = Instant::now();
        for pulled in 0..POLL_RECORDS {
            flow.cancel().check()?;
            let Some(record) = iterator.next() else { return Ok(SourceStatus::Finished) };
            let record = record.map_err(failed)?;
            if let Some(metrics) = &self.metrics {
                metrics.add_records_in(1);
            }
            let may_go_on = flow.emit_paced(record, &mut self.meter)?;
            flow.end_batch()?;
            if !may_go_on {
                break;
            }
            // The clock costs as much as a cheap record, so it is read now and then.
            if pulled % 16 == 15 && started.elapsed() > LONGEST_POLL {
                break;
            }
        }
        Ok(SourceStatus::More)
    }

    /// A generator that is not used up runs its `finally` blocks now, and not whenever it is collected.
    fn close(&mut self, py: Python<'_>) -> Result<(), TaskError> {
        let Pulled::Iterator(iterator) = &self.pulled else { return Ok(()) };
        let closed = match iterator.bind(py).getattr_opt("close") {
            Ok(Some(close)) => close.call0().map(drop),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        closed.map_err(|error| self.info.failed(py, &error, None))
    }
}
