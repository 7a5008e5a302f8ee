//! Data of a job that is fixed when it is submitted.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use flownet_net::Credentials;
use flownet_runtime::{ChainFactory, log::Log};

use crate::{
    alignment::AlignmentMachine,
    launcher::Launcher,
    plan::{PlacedTask, Plan},
    settings::JobSettings,
};

/// Plan and settings of a job, and the sources of its workers and chains.
pub(super) struct Job {
    pub(super) plan: Plan,
    pub(super) settings: JobSettings,
    /// Segments of network memory by worker, as the plan needs them.
    pub(super) segments: BTreeMap<u32, usize>,
    pub(super) launcher: Launcher,
    pub(super) credentials: Credentials,
    pub(super) factory: Arc<dyn ChainFactory>,
    /// Log of this process.
    pub(super) log: Arc<Log>,
}

impl Job {
    /// Returns the workers of the job: all requested processes, and this process if it has tasks.
    pub(super) fn participants(&self) -> impl Iterator<Item = u32> + use<> {
        let driver_has_tasks = self.plan.tasks_on(0).next().is_some();
        let first = if driver_has_tasks { 0 } else { 1 };
        first..=self.settings.workers
    }

    /// Returns the longest time between two reports of a worker.
    pub(super) fn report_interval(&self) -> Duration {
        let (settings, aligned) = (&self.settings, AlignmentMachine::shortest_interval(&self.plan));
        let interval = settings.heartbeat_interval.min(settings.status_interval);
        aligned.map_or(interval, |aligned| interval.min(aligned))
    }

    /// Returns a subtask, by index of its vertex and index within the vertex.
    pub(super) fn subtask(&self, vertex: u32, subtask: u32) -> Option<&PlacedTask> {
        self.plan.tasks.iter().find(|task| (task.spec.vertex, task.spec.subtask) == (vertex, subtask))
    }
}
