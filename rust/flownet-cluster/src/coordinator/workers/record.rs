//! Record of one worker: its process, its connection, and the expected end of both.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use tokio::task::AbortHandle;

use super::super::link::WorkerLink;
use crate::{
    error::{WorkerExit, WorkerIdentity},
    launcher::LaunchedWorker,
    machine::Input,
};

/// Record of one worker.
pub(super) struct WorkerRecord {
    identity: WorkerIdentity,
    /// Launched worker, while it exists.
    process: Option<LaunchedWorker>,
    link: Option<WorkerLink>,
    /// Task that polls the worker for reports.
    polling: Option<AbortHandle>,
    /// Whether its end is expected: it was asked to stop, or killed.
    is_leaving: bool,
    /// Time and reason of the end of its connection. The exit of the process may give a better reason.
    disconnected: Option<(Instant, String)>,
}

impl WorkerRecord {
    pub(super) fn new(worker: u32) -> Self {
        Self {
            identity: WorkerIdentity::unknown(worker),
            process: None,
            link: None,
            polling: None,
            is_leaving: false,
            disconnected: None,
        }
    }

    pub(super) fn identity(&self) -> &WorkerIdentity {
        &self.identity
    }

    pub(super) fn link(&self) -> Option<&WorkerLink> {
        self.link.as_ref()
    }

    pub(super) fn has_process(&self) -> bool {
        self.process.is_some()
    }

    /// Whether it was launched and has not registered yet.
    pub(super) fn is_awaited(&self) -> bool {
        self.process.is_some() && self.link.is_none()
    }

    /// Whether its process is about to exit.
    pub(super) fn is_ending(&self) -> bool {
        self.process.is_some() && (self.is_leaving || self.disconnected.is_some())
    }

    /// Whether its connection has ended while its process may still run, with tasks of other regions.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.disconnected.is_some() && self.process.is_some() && !self.is_leaving
    }

    pub(super) fn set_process(&mut self, process: LaunchedWorker) {
        self.identity.place = process.place();
        self.process = Some(process);
    }

    pub(super) fn set_pid(&mut self, pid: u32) {
        self.identity.pid = Some(pid);
    }

    pub(super) fn set_address(&mut self, address: SocketAddr) {
        self.identity.address = Some(address);
    }

    /// Stores the connection of a registered worker and the task that polls it.
    pub(super) fn set_link(&mut self, link: WorkerLink, polling: AbortHandle) {
        self.link = Some(link);
        self.polling = Some(polling);
    }

    /// Records the end of the connection. Without a link, the ended connection belonged to the previous worker of this
    /// record.
    pub(super) fn on_disconnect(&mut self, reason: String) {
        if !self.is_leaving && self.link.is_some() && self.disconnected.is_none() {
            self.disconnected = Some((Instant::now(), reason));
        }
    }

    /// Kills its process. The agent of this process cannot be killed: its tasks are cancelled and no longer waited for.
    pub(super) fn kill(&mut self) {
        self.leave();
        if let Some(process) = &mut self.process {
            process.kill();
        } else if let Some(WorkerLink::Local(agent)) = self.link.take() {
            agent.cancel();
        }
    }

    /// Returns the end of its process, or of a connection that ended although the process runs. Each is returned once.
    pub(super) fn poll_end(&mut self) -> Option<Input> {
        let worker = self.identity.worker;
        if let Some(how) = self.process.as_mut()?.try_exit() {
            self.process = None;
            self.link = None;
            return Some(if self.is_leaving {
                Input::WorkerGone { worker }
            } else {
                Input::WorkerLost { worker, how }
            });
        }
        let (_, reason) = self.disconnected.take_if(|(since, _)| since.elapsed() >= EXIT_GRACE)?;
        // The worker is not called any more, even if no region is there to have it killed.
        self.link = None;
        Some(Input::WorkerLost { worker, how: WorkerExit::Disconnected { reason } })
    }

    /// Expects the end of the worker from now on. Dropping the link closes the connection, which tells the worker to
    /// exit.
    pub(super) fn leave(&mut self) {
        self.is_leaving = true;
        self.polling.take().iter().for_each(AbortHandle::abort);
        if self.process.is_some() {
            self.link = None;
        }
    }

    /// Removes a process that has exited.
    pub(super) fn reap(&mut self) {
        if let Some(process) = &mut self.process
            && process.try_exit().is_some()
        {
            self.process = None;
            self.link = None;
        }
    }

    /// Prepares a new attempt: a worker that is gone or cannot be called is launched again.
    pub(super) fn settle(&mut self) {
        self.reap();
        let is_here = self.link.is_some() && !self.is_leaving && self.disconnected.is_none();
        if !is_here {
            self.renew();
        }
    }

    /// Resets the record for a worker that is to be launched. A remaining process is killed.
    pub(super) fn renew(&mut self) {
        self.leave();
        *self = Self::new(self.identity.worker);
    }
}

/// Time after a connection ends in which the process may still report its exit.
const EXIT_GRACE: Duration = Duration::from_millis(300);
