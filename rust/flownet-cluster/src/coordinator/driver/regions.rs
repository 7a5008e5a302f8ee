//! Restarts failed regions of a job while the others run: attempts of regions within an attempt of the job.
//!
//! The job keeps its generation and its fencing token for the storage. The coordinator that restarts a region holds
//! them, so no other one can have published meanwhile, and it knows the last checkpoint.
//!
//! # Invariants
//! - A1: a region begins only when nothing of its previous attempt is left: each worker has reported that everything is
//!   freed, or is gone.
//! - A2: a region resumes from the last published checkpoint, which is the same for all regions. While a checkpoint is
//!   being published and may become the last one, no region begins.
//! - A3: no checkpoint spans two attempts of a region. A pending checkpoint is given up when a region fails, and none
//!   is triggered until all regions run again.
//! - A4: a report about a task counts only if it comes from the current attempt of its region. Attempts of all regions
//!   share one sequence of numbers, so no number is used twice.
//! - A5: a region that has finished restarts only with the whole job.

use std::time::Duration;

use super::Driver;
use crate::{
    machine::{Failure, Input, Outcome},
    tracker::FailedTasks,
};

impl Driver {
    /// Handles failed regions: they restart, or everything that is left ends.
    pub(super) fn regions_failed(&mut self, regions: &[u32], failure: Failure) {
        let now = self.now();
        let delay = if self.can_restart() { self.restart_after(&failure) } else { None };
        let (Some(delay), Err(error)) = (delay, self.verdict(Outcome::Failed(failure))) else {
            return self.machine.give_up(now);
        };
        let names = self.names_of(regions);
        tracing::warn!(job = self.job.settings.job_name, tasks = ?names, %error, ?delay, "tasks failed and are restarted");
        let tasks: Vec<u32> = self.attempts.tasks_of(regions);
        self.board.restarting(&error, Some(FailedTasks { tasks: &tasks, names }));
        self.machine.restart_at(now + delay);
        self.show_state();
    }

    /// Begins waiting regions if it is time and nothing holds them.
    pub(super) fn begin_waiting_regions(&mut self) {
        if self.regions_are_held() {
            return;
        }
        self.machine.begin_waiting(self.now());
        self.show_state();
    }

    /// Returns the time of the next check for waiting regions, if there are any.
    pub(super) fn regions_begin_at(&self) -> Option<Duration> {
        let at = self.machine.begins_at()?;
        Some(if self.regions_are_held() { at.max(self.now() + LOOK) } else { at })
    }

    /// Begins attempts of regions. The machine's commands for them are carried out afterwards.
    pub(super) fn begin_regions(&mut self, regions: &[u32]) {
        let tasks: Vec<u32> = self.attempts.tasks_of(regions);
        self.attempts.begin_regions(regions, self.now());
        for &region in regions {
            self.workers.settle(self.workers_of(region));
        }
        self.sources.restart(&tasks);
        self.board.begin_again(&tasks, self.names_of(regions));
        let Some(checkpoints) = &mut self.checkpoints else { return };
        match checkpoints.restart(tasks) {
            Ok(restored) => self.attempts.set_restored(restored),
            // If the error persists, the next attempt of the job reports it.
            Err(failure) => self.feed(Input::CheckpointsFailed { failure }),
        }
    }

    fn regions_are_held(&self) -> bool {
        let Some(at) = self.machine.begins_at() else { return true };
        let is_publishing = self.checkpoints.as_ref().is_some_and(|checkpoints| checkpoints.is_publishing());
        let is_in_doubt = |worker: u32| self.workers.is_in_doubt(worker);
        let mut waiting = self.machine.waiting().into_iter();
        let is_any_in_doubt = waiting.any(|region| self.workers_of(region).into_iter().any(is_in_doubt));
        let comes = self.job.launcher.patience(self.job.settings.workers);
        let waits_for_members = !comes.is_zero() && self.now() < at + comes;
        is_publishing || is_any_in_doubt || waits_for_members
    }

    fn workers_of(&self, region: u32) -> Vec<u32> {
        let mut workers: Vec<u32> =
            self.attempts.regions().tasks(region).map(|task| self.job.plan.tasks[task as usize].worker).collect();
        workers.sort_unstable();
        workers.dedup();
        workers
    }

    /// Returns the names of the regions' vertices for users.
    fn names_of(&self, regions: &[u32]) -> Vec<String> {
        let vertices = regions.iter().flat_map(|region| self.attempts.regions().vertices(*region));
        vertices.map(|vertex| self.job.plan.vertices[vertex].name.clone()).collect()
    }
}

/// Interval at which regions are checked that must not begin yet.
const LOOK: Duration = Duration::from_millis(50);
