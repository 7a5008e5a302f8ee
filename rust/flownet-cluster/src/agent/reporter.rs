//! Writes the snapshots of a task and queues its checkpoint reports for the coordinator.

use std::sync::Arc;

use flownet_runtime::{CheckpointReport, spec::TaskSpec};
use flownet_store::{Lineage, SnapshotName};
use tokio::sync::Mutex as AsyncMutex;

use super::ReportQueue;
use crate::{rpc::Attempt, snapshots::Checkpoints};

/// Receives a task's checkpoint reports, and writes its snapshots before it passes the reports on.
pub(super) struct Reporter {
    shared: Arc<Checkpoints>,
    ended: Arc<ReportQueue>,
    /// Attempt to which the task belongs.
    attempt: Attempt,
    task: u32,
    vertex: u32,
    subtask: u32,
    /// Earlier snapshots that the next one may build on. Locked while a snapshot is written, so that snapshots are
    /// written in order.
    lineage: Arc<AsyncMutex<Lineage>>,
}

impl Reporter {
    pub(super) fn new(shared: Arc<Checkpoints>, spec: &TaskSpec, attempt: Attempt, ended: Arc<ReportQueue>) -> Self {
        let TaskSpec { task_id: task, vertex, subtask, .. } = *spec;
        Self { shared, ended, attempt, task, vertex, subtask, lineage: Arc::default() }
    }

    fn name(&self, checkpoint: u64, overtaken: bool) -> SnapshotName {
        let (generation, vertex, subtask) = (self.shared.generation, self.vertex, self.subtask);
        SnapshotName { generation, checkpoint, vertex, subtask, overtaken }
    }

    /// Writes the state in a report and queues the report with its location. Called on the task's thread.
    pub(super) fn report(&self, report: CheckpointReport) {
        let (attempt, task) = (self.attempt, self.task);
        match report {
            CheckpointReport::Acknowledged { checkpoint_id, state, end, aligned_us, snapshot_us } => {
                let name = self.name(checkpoint_id, false);
                let (shared, ended) = (Arc::clone(&self.shared), Arc::clone(&self.ended));
                let lineage = Arc::clone(&self.lineage);
                self.shared.control.spawn(async move {
                    let mut lineage = lineage.lock().await;
                    let written = shared.write(name, state.written).await;
                    let mut extend = |written| lineage.extend(name, state.base, written, &shared.store);
                    let written = written.and_then(|written| extend(written).map_err(|error| error.to_string()));
                    let report = written.map_or_else(
                        |reason| CheckpointReport::Declined { checkpoint_id, reason, root_cause: None },
                        |state| CheckpointReport::Acknowledged { checkpoint_id, state, end, aligned_us, snapshot_us },
                    );
                    ended.report(attempt, task, report);
                });
            }
            CheckpointReport::Overtook { checkpoint_id, state } => {
                let (name, shared, ended) =
                    (self.name(checkpoint_id, true), Arc::clone(&self.shared), Arc::clone(&self.ended));
                self.shared.control.spawn(async move {
                    let report = shared.write(name, state.written).await.map_or_else(
                        |reason| CheckpointReport::Declined { checkpoint_id, reason, root_cause: None },
                        |state| CheckpointReport::Overtook { checkpoint_id, state },
                    );
                    ended.report(attempt, task, report);
                });
            }
            CheckpointReport::Declined { checkpoint_id, reason, root_cause } => {
                self.ended.report(attempt, task, CheckpointReport::Declined { checkpoint_id, reason, root_cause });
            }
            CheckpointReport::Finished { drain } => {
                self.ended.report(attempt, task, CheckpointReport::Finished { drain });
            }
        }
    }
}
