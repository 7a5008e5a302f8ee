//! Writes the snapshots of a task and queues its checkpoint reports for the coordinator.

use std::{sync::Arc, time::Duration};

use flownet_runtime::{CheckpointReport, snapshot::WrittenState, spec::TaskSpec};
use flownet_store::{Lineage, SnapshotName};
use tokio::sync::Mutex as AsyncMutex;

use super::ReportQueue;
use crate::{
    rpc::{Attempt, Report},
    snapshots::Checkpoints,
};

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

    /// Writes a reported snapshot and queues the report. Called on the task's thread.
    pub(super) fn report(&self, report: CheckpointReport) {
        let (attempt, task) = (self.attempt, self.task);
        match report {
            CheckpointReport::Acknowledged {
                checkpoint_id: checkpoint,
                parts,
                pieces,
                base,
                end,
                aligned_us,
                snapshot_us,
            } => {
                let name = self.name(checkpoint, false);
                let (shared, ended) = (Arc::clone(&self.shared), Arc::clone(&self.ended));
                let lineage = Arc::clone(&self.lineage);
                self.shared.control.spawn(async move {
                    let mut lineage = lineage.lock().await;
                    let written = shared.write(name, WrittenState { parts, pieces }).await;
                    let mut extend = |written| lineage.extend(name, base, written, &shared.store);
                    let written = written.and_then(|written| extend(written).map_err(|error| error.to_string()));
                    let report = written.map_or_else(
                        |reason| Report::Declined { checkpoint, reason, root_cause: None },
                        |snapshot| Report::Acknowledged {
                            checkpoint,
                            snapshot,
                            is_last: end.is_some(),
                            has_finished: end == Some(true),
                            aligned: Duration::from_micros(aligned_us),
                            stood_still: Duration::from_micros(snapshot_us),
                        },
                    );
                    ended.report(attempt, task, report);
                });
            }
            CheckpointReport::Overtook { checkpoint_id: checkpoint, parts } => {
                let (name, shared, ended) =
                    (self.name(checkpoint, true), Arc::clone(&self.shared), Arc::clone(&self.ended));
                self.shared.control.spawn(async move {
                    let report = shared.store.write_snapshot(name, parts).await.map_or_else(
                        |error| Report::Declined { checkpoint, reason: error.to_string(), root_cause: None },
                        |snapshot| Report::Overtook { checkpoint, snapshot },
                    );
                    ended.report(attempt, task, report);
                });
            }
            CheckpointReport::Declined { checkpoint_id: checkpoint, reason, root_cause } => {
                self.ended.report(attempt, task, Report::Declined { checkpoint, reason, root_cause });
            }
            CheckpointReport::Finished { .. } => self.ended.report(attempt, task, Report::Finished),
        }
    }
}
