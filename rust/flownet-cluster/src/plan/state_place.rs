//! Decides which tasks keep their keyed state on disk, and shares the memory for it among them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use flownet_runtime::spec::{OperatorKind, RowsKind, StateBackend};
use flownet_runtime::watermark::Watermarks;

use super::execution::PlacedTask;
use super::job_graph::JobGraph;
use crate::settings::{JobSettings, StatePlace};

/// Gives the tasks whose state may be on disk equal shares of each worker's memory for state.
pub(super) fn put_on_disk(tasks: &mut [PlacedTask], graph: &JobGraph<'_>, settings: &JobSettings) {
    let held = match settings.state_backend {
        StatePlace::Memory => return,
        StatePlace::Disk => None,
        StatePlace::Auto => Some(holding_rows(graph)),
    };
    let states = |task: &PlacedTask| {
        let may_spill = |kind: &OperatorKind| match &held {
            None => kind.can_keep_on_disk(),
            // Checkpoints may be unable to store users' objects. Rows have no such limit.
            Some(held) => {
                held.contains(&task.spec.vertex) && matches!(kind, OperatorKind::Rows(_)) && kind.can_keep_on_disk()
            }
        };
        task.spec.operators.iter().filter(|operator| may_spill(&operator.kind)).count()
    };
    let mut on_worker: BTreeMap<u32, usize> = BTreeMap::new();
    for task in &*tasks {
        *on_worker.entry(task.worker).or_default() += states(task);
    }
    for task in tasks.iter_mut().filter(|task| states(task) > 0) {
        let memory_bytes = settings.state_memory_bytes / on_worker[&task.worker];
        let folder = settings.state_dir.as_ref().map(PathBuf::from);
        task.spec.state = StateBackend::Disk { memory_bytes, folder };
    }
}

/// Returns the vertices downstream of rows without an order guarantee. Their event time may not advance until their
/// input ends, so they may have to buffer all of it.
fn holding_rows(graph: &JobGraph<'_>) -> BTreeSet<u32> {
    let is_unordered = |kind: &OperatorKind| {
        matches!(kind, OperatorKind::Rows(RowsKind::AssignTimestamps { watermarks: Watermarks::Unordered, .. }))
    };
    let vertices = graph.vertices.iter().enumerate();
    let unordered = vertices.filter(|(_, vertex)| vertex.operators.iter().any(|one| is_unordered(&one.operator.kind)));
    let mut pending: Vec<usize> = unordered.map(|(number, _)| number).collect();
    let mut found = BTreeSet::new();
    while let Some(vertex) = pending.pop() {
        if found.insert(vertex as u32) {
            pending.extend(graph.edges.iter().filter(|edge| edge.from == vertex).map(|edge| edge.to));
        }
    }
    found
}
