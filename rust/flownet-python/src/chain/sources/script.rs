//! `from_script`: emits records, watermarks and idleness in the order of a script.

use std::sync::Arc;
use std::time::Duration;

use flownet_runtime::operator::Source;
use flownet_runtime::snapshot::Snapshot;
use flownet_runtime::time::{END_OF_TIME_MS, NO_TIMESTAMP, TimeSignal};
use flownet_runtime::work::Work;
use flownet_runtime::{SourceStatus, TaskContext, TaskError, TaskMetrics};
use pyo3::prelude::*;
use pyo3::types::PyIterator;

use super::POLL_RECORDS;
use crate::chain::failure::OperatorInfo;
use crate::chain::meter::Meter;
use crate::chain::record_format::{Collector, PythonFormat};
use crate::chain::rows::rows;

/// Follows the script of its subtask.
pub(in crate::chain) struct Script {
    /// Called with the subtask and the number of subtasks; returns the steps.
    make: Py<PyAny>,
    steps: Option<Py<PyIterator>>,
    watermark_ms: i64,
    meter: Meter,
    info: OperatorInfo,
    metrics: Option<Arc<TaskMetrics>>,
}

/// A step of `flownet.testing`: kind, time and record.
type Step<'py> = (u8, Option<i64>, Bound<'py, PyAny>);

const RECORD: u8 = 0;
const WATERMARK: u8 = 1;
const IDLE: u8 = 2;

/// Interval between two polls of a script that has no step for now. In a harness each call polls it.
const ASK_AGAIN: Duration = Duration::from_millis(20);

impl Script {
    pub(in crate::chain) fn new(make: Py<PyAny>, meter: Meter, info: OperatorInfo) -> Self {
        Self { make, steps: None, watermark_ms: NO_TIMESTAMP, meter, info, metrics: None }
    }

    /// Carries out a step. Returns false if it was the last one for this poll.
    fn follow<'py>(
        &mut self,
        (what, timestamp_ms, record): Step<'py>,
        collector: &mut Collector<'_, 'py>,
    ) -> Result<bool, TaskError> {
        if what == RECORD {
            if let Some(metrics) = &self.metrics {
                metrics.add_records_in(1);
                if let Some(rows) = rows(&record) {
                    metrics.count_rows_in(rows);
                }
            }
            collector.timestamp_ms = timestamp_ms.unwrap_or(NO_TIMESTAMP);
            return self.meter.emit(record, collector);
        }
        if what != WATERMARK {
            collector.emit_time(TimeSignal::Idle(what == IDLE))?;
            return Ok(true);
        }
        // Time never goes back, and its end is the end of the script.
        let timestamp_ms = timestamp_ms.unwrap_or(NO_TIMESTAMP).min(END_OF_TIME_MS - 1);
        if timestamp_ms > self.watermark_ms {
            self.watermark_ms = timestamp_ms;
            collector.emit_time(TimeSignal::Watermark(timestamp_ms))?;
        }
        Ok(true)
    }
}

impl Source<PythonFormat> for Script {
    fn work(&self) -> Work {
        Work::Rust
    }

    fn open(&mut self, py: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.metrics = Some(Arc::clone(&cx.metrics));
        let steps = self.make.bind(py).call1((cx.subtask, cx.parallelism)).and_then(|steps| steps.try_iter());
        self.steps = Some(steps.map_err(|error| self.info.failed(py, &error, None))?.unbind());
        Ok(())
    }

    fn emit<'py>(&mut self, collector: &mut Collector<'_, 'py>) -> Result<SourceStatus, TaskError> {
        let py = collector.token;
        let Some(mut steps) = self.steps.as_ref().map(|steps| steps.bind(py).clone()) else {
            return Ok(SourceStatus::Finished);
        };
        for _ in 0..POLL_RECORDS {
            collector.cancel().check()?;
            let Some(step) = steps.next() else { return Ok(SourceStatus::Finished) };
            let step: Option<Step<'py>> =
                step.and_then(|step| step.extract()).map_err(|error| self.info.failed(py, &error, None))?;
            let Some(step) = step else { return Ok(SourceStatus::Idle { wake_after: ASK_AGAIN }) };
            if !self.follow(step, collector)? {
                break;
            }
        }
        Ok(SourceStatus::More)
    }

    /// Writes nothing: the source is not replayable.
    fn snapshot(&mut self, _: Python<'_>, _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }
}
