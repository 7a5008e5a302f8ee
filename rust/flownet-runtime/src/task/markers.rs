//! Latency markers of a task: a source emits them, and every other task records their travel times and forwards them.
//!
//! A marker takes no credit and no buffer space, so a source emits it when it is due, whether or not there is room for
//! a record. It queues where the next record will, and so takes as long. It does not measure the time that a record
//! waits for its buffer to fill, because it ends that buffer. It travels on one channel of each output. So a task gets
//! as many markers as sources emit, however many channels lead to it.

use std::time::Duration;

use flownet_core::Event;

use super::Task;
use crate::error::TaskError;
use crate::operator::RecordFormat;
use crate::spec::TaskSpec;
use crate::time::wall_clock_ns;

/// The interval at which a source emits markers.
#[derive(Debug)]
pub(crate) struct Markers {
    interval: Duration,
    /// Time since the start of the task.
    due: Duration,
    task: u32,
    subtask: u32,
}

impl Markers {
    /// Returns the markers of a source that emits some.
    pub(crate) fn of(spec: &TaskSpec) -> Option<Self> {
        let interval = Duration::from_micros(spec.latency_interval_us.filter(|_| spec.is_source())?);
        Some(Self { interval, due: interval, task: spec.vertex, subtask: spec.subtask })
    }
}

impl<M: RecordFormat> Task<M> {
    /// Emits a marker if one is due. Returns the time until the next one.
    #[inline]
    pub(super) fn emit_marker(&mut self) -> Result<Option<Duration>, TaskError> {
        if self.markers.is_none() { Ok(None) } else { self.emit_due_marker() }
    }

    fn emit_due_marker(&mut self) -> Result<Option<Duration>, TaskError> {
        let has_ended = self.ended.or(self.source_end).is_some();
        let Some(markers) = self.markers.as_mut().filter(|_| !has_ended) else { return Ok(None) };
        let now = self.started.elapsed();
        let left = markers.due.saturating_sub(now);
        if !left.is_zero() {
            return Ok(Some(left));
        }
        // A marker may be late because the source was busy or blocked. Extra markers do not make up for it.
        markers.due = now + markers.interval;
        let Markers { interval, task, subtask, .. } = *markers;
        self.outputs.send_marker(&Event::LatencyMarker { timestamp_ns: wall_clock_ns(), task, subtask })?;
        Ok(Some(interval))
    }

    /// Handles a marker that arrived after all records before it.
    pub(super) fn pass_marker(&mut self, marker: &Event) -> Result<(), TaskError> {
        let Event::LatencyMarker { timestamp_ns, task, .. } = marker else { return Ok(()) };
        let latency = Duration::from_nanos(wall_clock_ns().saturating_sub(*timestamp_ns));
        self.cx.metrics.latencies().note(*task, latency);
        if self.ended.is_some() {
            // Its readers already have the end of data.
            return Ok(());
        }
        self.outputs.send_marker(marker)
    }
}
