//! Runs the attempts of a job one after the other: ends a failed one and begins the next.
//!
//! Within an attempt of the job, each region has attempts of its own: see [`regions`](super::regions).
//!
//! Workers that answer stay for the next attempt. Their tasks are cancelled, all resources of these tasks are freed,
//! and they get new tasks. A worker that was lost, or did not end its tasks in time, is replaced. The replacement is a
//! new process, or a worker that joins the worker pool; the attempt waits for it.

use std::time::{Duration, Instant};

use flownet_store::StoreError;

use super::super::checkpoints::Checkpoints;
use super::super::events::{Event, Request, WorkerEvent};
use super::{Driver, regions_machine};
use crate::{
    error::ClusterError,
    machine::{Failure, JobState, Outcome},
};

impl Driver {
    /// Runs the job to its end. No worker runs afterwards.
    pub(in super::super) async fn run(mut self) -> Result<(), ClusterError> {
        loop {
            if let Err(error) = self.begin_attempt().await {
                self.begin_later(error).await?;
                continue;
            }
            let outcome = self.run_attempt().await;
            let Some(delay) = self.next_attempt(&outcome) else {
                let verdict = self.verdict(outcome);
                self.workers.release_all().await;
                let Some(checkpoints) = &mut self.checkpoints else { return verdict };
                let saved = if verdict.is_ok() { checkpoints.save_last().await } else { Ok(()) };
                checkpoints.sweep_last().await;
                return verdict.and(saved);
            };
            let Err(error) = self.verdict(outcome) else { return Ok(()) };
            tracing::warn!(job = self.job.settings.job_name, %error, ?delay, "the job failed and is restarted");
            self.board.restarting(&error, None);
            self.workers.renew();
            self.wait_for_next_attempt(delay, error).await?;
        }
    }

    /// Waits for the storage after an I/O error if the job has run before, as after any other failure.
    async fn begin_later(&mut self, error: ClusterError) -> Result<(), ClusterError> {
        let (may_pass, now) = (matches!(error, ClusterError::Store(StoreError::Io { .. })), self.now());
        let delay = may_pass.then(|| self.attempts.on_storage_failure(now)).flatten();
        let Some(delay) = delay else { return Err(error) };
        tracing::warn!(job = self.job.settings.job_name, %error, ?delay, "the job cannot be restarted yet");
        self.board.restarting(&error, None);
        self.wait_for_next_attempt(delay, error).await
    }

    /// Returns the delay before the next attempt, or `None` if there is none.
    fn next_attempt(&mut self, outcome: &Outcome) -> Option<Duration> {
        let Outcome::Failed(failure) = outcome else { return None };
        if !self.machine.may_begin_again() || !self.can_restart() {
            return None;
        }
        let now = self.now();
        // Consecutive failures of several regions count as one failure.
        match self.machine.begins_again_at() {
            Some(at) => Some(at.saturating_sub(now)),
            None => self.restart_after(failure),
        }
    }

    /// Returns the delay before the failed tasks restart, or `None` if they do not.
    pub(super) fn restart_after(&mut self, failure: &Failure) -> Option<Duration> {
        let checkpoint = self.checkpoints.as_ref().and_then(Checkpoints::last_number);
        self.attempts.on_failure(failure, checkpoint, self.now())
    }

    /// Whether another attempt can follow a failed one.
    pub(super) fn can_restart(&self) -> bool {
        self.job.launcher.has_or_gets(self.job.settings.workers)
            && !self.checkpoints.as_ref().is_some_and(|checkpoints| checkpoints.is_fenced())
    }

    async fn begin_attempt(&mut self) -> Result<(), ClusterError> {
        self.workers.settle_all();
        self.attempts.begin(self.now());
        self.sources.begin_attempt();
        self.observation.begin_attempt();
        if let Some(checkpoints) = &mut self.checkpoints {
            self.attempts.resume(checkpoints.begin().await?);
        }
        self.workers.set_generation(self.attempts.generation());
        self.machine = regions_machine(&self.job, &self.attempts);
        Ok(())
    }

    /// Keeps the workers alive between two attempts and records lost ones. Waits longer if the pool expects
    /// replacements; if these do not join in time, the attempt reports the missing workers. If the user ends the job
    /// meanwhile, or its host gives up, no attempt follows. Then the job ends with the cause of the last failure.
    async fn wait_for_next_attempt(&mut self, delay: Duration, cause: ClusterError) -> Result<(), ClusterError> {
        self.board.set_state(JobState::Restarting);
        let until = Instant::now() + delay;
        loop {
            if !self.can_restart() {
                return Err(cause);
            }
            let end = until + self.job.launcher.patience(self.job.settings.workers);
            let now = Instant::now();
            if now >= end {
                return Ok(());
            }
            let look_at = end.min(now + LOOK);
            tokio::select! {
                biased;
                event = self.events.recv() => match event {
                    None | Some(Event::Request(Request::Cancel | Request::Stop { .. })) => return Err(cause),
                    Some(Event::Request(Request::Savepoint(request))) => self.request_savepoint(request),
                    Some(Event::Worker(WorkerEvent::Disconnected { worker, reason })) => {
                        self.workers.on_disconnect(worker, reason);
                    }
                    Some(_) => {}
                },
                () = tokio::time::sleep_until(look_at.into()) => {}
            }
            self.workers.reap();
        }
    }
}

/// Interval at which processes are checked between two attempts.
const LOOK: Duration = Duration::from_millis(50);
