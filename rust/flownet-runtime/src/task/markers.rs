//! What a task does for markers of latency: a source emits them, every other task notes how long each took and hands it on.
//!
//! A marker takes no credit and no room, so a source emits it when it is due, whether or not there is room for a record: it
//! stands in line where the next record will, and takes as long as that. It says nothing of what a record waits for its
//! buffer to fill, as it ends that buffer. Its line of channels is one of many: of each output it takes one, so that a task
//! gets as many markers as sources emit, however many channels lead there.

use std::time::Duration;

use flownet_core::Event;

use super::Task;
use crate::chain::Chain;
use crate::error::TaskError;
use crate::spec::TaskSpec;
use crate::time::wall_clock_ns;

/// When a source emits markers.
#[derive(Debug)]
pub(crate) struct Markers {
    interval: Duration,
    /// Since the task was started.
    due: Duration,
    task: u32,
    subtask: u32,
}

impl Markers {
    /// Of a source that is to emit some.
    pub(crate) fn of(spec: &TaskSpec) -> Option<Self> {
        let interval = Duration::from_micros(spec.latency_interval_us.filter(|_| spec.is_source())?);
        Some(Self { interval, due: interval, task: spec.vertex, subtask: spec.subtask })
    }
}

impl<C: Chain + ?Sized> Task<C> {
    /// Emits the marker that is due, if one is; says when to come back.
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
        // One that is late, because the source was at work or waited in a call, is followed by none to make up for it.
        markers.due = now + markers.interval;
        let Markers { interval, task, subtask, .. } = *markers;
        self.outputs.send_marker(&Event::LatencyMarker { timestamp_ns: wall_clock_ns(), task, subtask })?;
        Ok(Some(interval))
    }

    /// A marker came, behind all records before it.
    pub(super) fn pass_marker(&mut self, marker: &Event) -> Result<(), TaskError> {
        let Event::LatencyMarker { timestamp_ns, task, .. } = marker else { return Ok(()) };
        let latency = Duration::from_nanos(wall_clock_ns().saturating_sub(*timestamp_ns));
        self.cx.metrics.latencies().note(*task, latency);
        if self.ended.is_some() {
            // Its readers were told that nothing follows.
            return Ok(());
        }
        self.outputs.send_marker(marker)
    }
}
