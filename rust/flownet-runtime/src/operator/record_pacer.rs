//! Slows an operator to a rate, for demonstrations of back-pressure.

use std::time::{Duration, Instant};

use crate::error::TaskError;
use crate::outputs::Outputs;
use crate::source::Throttle;

/// Shorter waits are gathered: a sleep costs tens of microseconds and may overshoot as much.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// The turns of an operator's records.
#[derive(Debug)]
pub struct RecordPacer {
    throttle: Throttle,
    started: Instant,
}

impl RecordPacer {
    /// Lets `rate` records pass a second.
    pub fn new(rate: f64) -> Result<Self, TaskError> {
        Ok(Self { throttle: Throttle::new(rate, 1.0)?, started: Instant::now() })
    }

    /// Takes a record's turn, waiting for it; not to be called attached.
    pub(super) fn pass(&mut self, out: &mut Outputs) -> Result<(), TaskError> {
        match self.take() {
            Some(wait) => out.pause(wait),
            None => Ok(()),
        }
    }

    /// Takes a record's turn: how long it is to wait for it.
    pub(super) fn take(&mut self) -> Option<Duration> {
        let wait = self.throttle.take(1, self.started.elapsed());
        (wait >= SHORTEST_WAIT).then_some(wait)
    }
}
