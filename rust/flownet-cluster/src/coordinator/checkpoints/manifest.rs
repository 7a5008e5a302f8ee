//! Writes and reads the manifests of a job's checkpoints.

use std::collections::{BTreeMap, BTreeSet};

use flownet_store::{Manifest, TaskEntry};

use super::super::{block_on, found_at, job::Job};
use crate::{
    checkpoint::{TaskSnapshotRef, assign, operators},
    error::ClusterError,
    plan::Plan,
    rpc::TaskRestore,
    settings::JobSettings,
};

/// State that each task restores, by its number.
pub(in super::super) type RestoredTasks = BTreeMap<u32, TaskRestore>;

/// Returns the state that each task restores.
pub(super) fn restored(manifest: &Manifest, job: &Job, storage: &str) -> Result<RestoredTasks, ClusterError> {
    let assigned = assign(manifest, &job.plan, job.settings.allow_non_restored_state);
    let (checkpoint, storage) = (manifest.checkpoint, storage.to_owned());
    assigned.map_err(|why| ClusterError::Restore { checkpoint, storage, why })
}

/// Returns true if the job reads a source that the checkpoint does not know, such as a live one after a backfill.
pub(super) fn has_new_source(manifest: &Manifest, plan: &Plan) -> bool {
    let known: BTreeSet<_> = manifest.tasks.iter().flat_map(|entry| &entry.uids).collect();
    let mut sources = plan.tasks.iter().filter(|task| task.spec.is_source());
    sources.any(|task| task.spec.operators.first().is_some_and(|source| !known.contains(&source.state_uid())))
}

/// Returns the bytes of a checkpoint by task, in the order of the plan.
pub(super) fn bytes_by_task(job: &Job, manifest: &Manifest) -> Vec<u64> {
    let bytes = |entry: &TaskEntry| entry.parts.iter().map(|part| part.bytes).sum();
    let entries = manifest.tasks.iter().map(|entry| ((entry.uids.clone(), entry.subtask), bytes(entry)));
    let by_task: BTreeMap<_, u64> = entries.collect();
    let tasks = job.plan.tasks.iter();
    tasks.map(|task| by_task.get(&(uids(&task.spec), task.spec.subtask)).copied().unwrap_or(0)).collect()
}

/// Returns the manifest of a checkpoint of this job.
pub(super) fn manifest(job: &Job, generation: u64, checkpoint: u64, kept: &BTreeMap<u32, TaskSnapshotRef>) -> Manifest {
    let of = |(task, kept): (&u32, &TaskSnapshotRef)| {
        let spec = &job.plan.tasks.get(*task as usize)?.spec;
        Some(TaskEntry {
            uids: uids(spec),
            subtask: spec.subtask,
            has_finished: kept.has_finished,
            parts: kept.snapshot.parts.clone(),
        })
    };
    Manifest {
        generation,
        checkpoint,
        job: job.settings.job_name.clone(),
        origin: None,
        triggered_ms: 0,
        duration_ms: 0,
        max_parallelism: max_parallelism(&job.plan),
        operators: operators(&job.plan),
        tasks: kept.iter().filter_map(of).collect(),
    }
}

fn uids(task: &flownet_runtime::spec::TaskSpec) -> Vec<String> {
    task.operators.iter().map(|operator| operator.state_uid()).collect()
}

fn max_parallelism(plan: &Plan) -> u32 {
    plan.tasks.first().map_or(1, |task| task.spec.max_parallelism)
}

/// Sets the number of key groups of a resumed job to the number in its checkpoint, unless the user has set one: each
/// key belongs to its group for good. Errors of the storage are reported when the job begins.
pub(in super::super) fn keep_key_groups(settings: &mut JobSettings) {
    if settings.checkpoint_interval.is_none() || settings.max_parallelism.is_some() {
        return;
    }
    // The job's own storage comes first.
    let places =
        [(&settings.checkpoint_storage, None), (&settings.restore_from, settings.restore_checkpoint.map(u64::from))];
    for (url, checkpoint) in places {
        let Some(url) = url else { continue };
        if let Ok((_, last)) = block_on(async { Ok(found_at(url, checkpoint).await?) }) {
            settings.max_parallelism = Some(last.max_parallelism);
            return;
        }
    }
}
