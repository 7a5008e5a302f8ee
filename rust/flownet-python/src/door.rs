//! The single place in which Python waits for Rust.

use std::process;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::errors;

/// Interval between checks for pending signals: the longest delay of Ctrl-C.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// The process that created a handle. Threads do not survive a fork, so a child that inherits a handle would
/// wait for ever.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin(u32);

impl Origin {
    /// This process.
    pub(crate) fn here() -> Self {
        Self(process::id())
    }

    /// Returns true if this is still the process that created it.
    pub(crate) fn is_here(self) -> bool {
        self.0 == process::id()
    }

    fn check(self, py: Python<'_>) -> PyResult<()> {
        if self.is_here() {
            return Ok(());
        }
        let text =
            "this job was started before a fork and lives on in the parent process only; start jobs after forking";
        Err(errors::flownet(py, text))
    }
}

/// Runs `work` detached. Fails after a fork.
pub(crate) fn enter<R: Send>(py: Python<'_>, origin: Origin, work: impl FnOnce() -> R + Send) -> PyResult<R> {
    origin.check(py)?;
    Ok(py.detach(work))
}

/// Calls `poll` repeatedly, detached, until it returns a value or the time is over. The argument of `poll` is
/// the time that it may take. Between two polls Python may handle signals: a `KeyboardInterrupt` ends the
/// wait.
pub(crate) fn enter_until<R: Send>(
    py: Python<'_>,
    origin: Origin,
    timeout: Duration,
    poll: impl Fn(Duration) -> Option<R> + Sync,
) -> PyResult<Option<R>> {
    origin.check(py)?;
    let started = Instant::now();
    loop {
        let left = timeout.saturating_sub(started.elapsed());
        if let Some(answer) = py.detach(|| poll(left.min(SIGNAL_INTERVAL))) {
            return Ok(Some(answer));
        }
        py.check_signals()?;
        if started.elapsed() >= timeout {
            return Ok(None);
        }
    }
}
