//! Observes the tasks of a job for its users: stores their metrics, detects stalls and inspects single tasks.
//!
//! Carries out the commands of the [`StallMachine`].

use std::{sync::Arc, time::Duration};

use super::{events::JobEvent, job::Job, status_store::StatusStore, workers::Workers};
use crate::{
    rpc::{Inspection, StatusReport},
    stall::{Command, StallMachine},
};

/// Observation of the current attempt of a job.
pub(super) struct Observation {
    job: Arc<Job>,
    board: Arc<StatusStore>,
    stall: StallMachine,
}

impl Observation {
    pub(super) fn new(job: Arc<Job>, board: Arc<StatusStore>) -> Self {
        let stall = stall_machine(&job);
        Self { job, board, stall }
    }

    /// Begins an attempt of the job.
    pub(super) fn begin_attempt(&mut self) {
        self.stall = stall_machine(&self.job);
        self.board.begin_attempt();
    }

    /// Handles a report of a worker about tasks of the current attempt.
    pub(super) fn on_report(&mut self, worker: u32, report: &StatusReport) {
        self.board.take_metrics(worker, report);
        self.stall.on_report(worker, &report.metrics, self.now());
    }

    /// Handles the end of a task, which proves that the job makes progress.
    pub(super) fn on_task_end(&mut self) {
        self.stall.on_movement(self.now());
    }

    /// Handles the answer of a worker to an inspection.
    pub(super) fn on_inspection(&mut self, worker: u32, round: u32, inspection: Inspection) {
        self.stall.on_inspection(round, worker, inspection);
    }

    /// Looks for stalls. Inspects the workers if nothing seems to move.
    pub(super) fn on_time(&mut self, is_running: bool, workers: &Workers) {
        self.stall.on_time(self.now(), is_running, &self.job.plan);
        while let Some(command) = self.stall.poll_command() {
            match command {
                Command::Inspect { round } => workers.call_all(|worker, link| async move {
                    let inspection = link.inspect().await?;
                    Ok(Some(JobEvent::Inspected { worker, round, inspection }))
                }),
                Command::Show { stall, is_new } => {
                    tracing::info!(job = self.job.settings.job_name, %stall);
                    self.board.set_stall(stall, is_new);
                }
                Command::Clear => self.board.clear_stall(),
            }
        }
    }

    /// Returns the time of the next call of [`Self::on_time`].
    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        self.stall.poll_timeout()
    }

    fn now(&self) -> Duration {
        self.board.began().elapsed()
    }
}

fn stall_machine(job: &Job) -> StallMachine {
    StallMachine::new(job.settings.stall_patience, job.report_interval(), &job.plan)
}
