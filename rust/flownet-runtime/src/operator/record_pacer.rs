//! Slows an operator to a rate, for demonstrations of back-pressure.

use std::time::{Duration, Instant};

use crate::error::TaskError;
use crate::outputs::Outputs;
use crate::source::Throttle;

/// Shorter waits are added up: a sleep costs tens of microseconds and may overshoot by as much.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// Limits an operator to a rate of records.
#[derive(Debug)]
pub struct RecordPacer {
    throttle: Throttle,
    started: Instant,
}

impl RecordPacer {
    /// Limits the operator to `rate` records per second.
    pub fn new(rate: f64) -> Result<Self, TaskError> {
        Ok(Self { throttle: Throttle::new(rate, 1.0)?, started: Instant::now() })
    }

    /// Takes the turn of one record and waits for it. Must not be called while attached.
    pub(super) fn pass(&mut self, out: &mut Outputs) -> Result<(), TaskError> {
        match self.take() {
            Some(wait) => out.control.pause(wait),
            None => Ok(()),
        }
    }

    /// Takes the turn of one record. Returns the time to wait for it.
    pub(super) fn take(&mut self) -> Option<Duration> {
        let wait = self.throttle.take(1, self.started.elapsed());
        (wait >= SHORTEST_WAIT).then_some(wait)
    }
}
