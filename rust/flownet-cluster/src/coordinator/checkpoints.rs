//! Carries out the commands of the [`CheckpointMachine`]: calls workers, writes manifests, deletes unused checkpoints.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flownet_core::{Barrier, BarrierKind, CheckpointId};
use flownet_runtime::{CheckpointOrder, CheckpointReport};
use flownet_store::{CheckpointStore, FencingToken, Manifest, PublishError, StateKeys, StoreError, TaskEntry};
use tokio::sync::Mutex;

use super::attempts::RestoredTasks;
use super::driver::Driver;
use super::events::{Event, JobEvent};
use super::job::Job;
use super::{block_on, found_at};
use crate::{
    checkpoint::{
        CheckpointLimits, CheckpointMachine, CheckpointParts, Command, Input, TaskSnapshotRef, assign, operators,
    },
    error::ClusterError,
    machine::{self, Failure, JobState},
    plan::Plan,
    report::CheckpointSummary,
    rpc::TaskReport,
    settings::JobSettings,
};

/// Checkpoints of a job: their storage and the state of the current attempt.
pub(super) struct Checkpoints {
    store: CheckpointStore,
    limits: CheckpointLimits,
    attempt: Option<Attempt>,
    is_fenced: bool,
}

struct Attempt {
    machine: CheckpointMachine,
    /// Whether all tasks have run, and no region has failed since.
    has_run: bool,
    /// Last published checkpoint.
    last: Option<Manifest>,
    claim: Arc<Mutex<FencingToken>>,
    /// Origin of all checkpoints of the attempt.
    origin: Option<String>,
    /// Trigger time of the pending checkpoint, in milliseconds since the epoch.
    triggered_ms: i64,
    /// Statistics of the pending checkpoint so far.
    parts: CheckpointParts,
}

impl Checkpoints {
    /// Opens the storage that the settings name. Returns `None` if checkpoints are disabled.
    pub(super) fn open(job: &Job) -> Result<Option<Self>, ClusterError> {
        let settings = &job.settings;
        let (Some(interval), Some(url)) = (settings.checkpoint_interval, &settings.checkpoint_storage) else {
            return Ok(None);
        };
        let limits = CheckpointLimits {
            interval,
            timeout: settings.checkpoint_timeout,
            aligned_timeout: settings.checkpoint_aligned_timeout.filter(|timeout| !timeout.is_zero()),
            min_pause: settings.checkpoint_min_pause,
            tolerable_failures: settings.tolerable_failed_checkpoints,
        };
        let store = CheckpointStore::open(url)?.with_keys(StateKeys::from_environment().map_err(StoreError::from)?);
        Ok(Some(Self { store, limits, attempt: None, is_fenced: false }))
    }

    /// Whether the manifests are signed.
    pub(super) fn signs(&self) -> bool {
        self.store.signs()
    }

    /// Begins an attempt and fences off earlier ones, which cannot publish any more. Returns the number of the attempt,
    /// the checkpoint that it resumes from, and the state that each task restores.
    pub(super) async fn begin(&mut self, job: &Job) -> Result<(u64, Option<u64>, RestoredTasks), ClusterError> {
        let (mut claim, resumed) = self.store.claim().await?;
        let resumed = match &job.settings.restore_from {
            Some(restore_from) => Some(self.begin_from(restore_from, job, &mut claim, resumed).await?),
            None => resumed,
        };
        if let Some(ended) = resumed.as_ref().filter(|manifest| manifest.has_ended()) {
            let (job, checkpoint) = (&job.settings.job_name, ended.checkpoint);
            tracing::warn!(
                job,
                checkpoint,
                "nothing is left to do: the checkpoint is of a job that came to the end of its input or was stopped with drain. \
                 To resume later, stop without drain; to begin anew, use another storage"
            );
        }
        let plan = &job.plan;
        let restored = match &resumed {
            None => BTreeMap::new(),
            Some(manifest) => restored(manifest, job, self.store.url())?,
        };
        let last = resumed.clone();
        let machine = CheckpointMachine::new(self.limits, plan.tasks.len(), claim.next_checkpoint());
        let generation = claim.generation();
        let claim = Arc::new(Mutex::new(claim));
        let checkpoint = resumed.as_ref().map(|manifest| manifest.checkpoint);
        let origin = resumed.and_then(|manifest| manifest.origin);
        self.attempt = Some(Attempt {
            machine,
            has_run: false,
            last,
            claim,
            origin,
            triggered_ms: 0,
            parts: CheckpointParts::default(),
        });
        Ok((generation, checkpoint, restored))
    }

    /// Returns the checkpoint that a job resumes from if it begins with one stored elsewhere. That is the job's own
    /// last checkpoint if it began from the given one, or else a copy of the given one.
    async fn begin_from(
        &self,
        restore_from: &str,
        job: &Job,
        claim: &mut FencingToken,
        resumed: Option<Manifest>,
    ) -> Result<Manifest, ClusterError> {
        match (found_at(restore_from, job.settings.restore_checkpoint.map(u64::from)).await, resumed) {
            // The given checkpoint may have been deleted meanwhile.
            (Err(_), Some(resumed)) if resumed.origin.is_some() => Ok(resumed),
            (Err(error), _) => Err(error.into()),
            (Ok((_, given)), Some(resumed)) if resumed.origin == Some(given.identity()) => Ok(resumed),
            (Ok(_), Some(_)) => {
                let (storage, restore_from) = (self.store.url().to_owned(), restore_from.to_owned());
                Err(ClusterError::OtherOrigin { storage, restore_from })
            }
            (Ok((from, given)), None) => {
                // A checkpoint that does not fit the plan is not copied.
                restored(&given, job, from.url())?;
                Ok(claim.adopt(&from, &given).await.map_err(PublishError::into_error)?)
            }
        }
    }

    /// Whether another run of the job has begun. Then this run must not claim the storage again.
    pub(super) fn is_fenced(&self) -> bool {
        self.is_fenced
    }

    /// Returns the number of the last published checkpoint.
    pub(super) fn last_number(&self) -> Option<u64> {
        Some(self.attempt.as_ref()?.last.as_ref()?.checkpoint)
    }

    /// Returns the number of the last published checkpoint and the state that each task restores from it.
    pub(super) fn last(&self, job: &Job) -> (Option<u64>, Result<RestoredTasks, ClusterError>) {
        match self.attempt.as_ref().and_then(|attempt| attempt.last.as_ref()) {
            None => (None, Ok(BTreeMap::new())),
            Some(manifest) => (Some(manifest.checkpoint), restored(manifest, job, self.store.url())),
        }
    }

    /// Whether a checkpoint is being published and may count at any moment.
    pub(super) fn is_publishing(&self) -> bool {
        self.attempt.as_ref().is_some_and(|attempt| attempt.machine.is_publishing())
    }

    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        self.attempt.as_ref()?.machine.poll_timeout()
    }
}

impl Driver {
    /// Passes the state of the attempt to the machine, and carries out its commands.
    pub(super) fn follow_checkpoints(&mut self) {
        if self.checkpoints.is_none() {
            return;
        }
        let (state, runs) = (self.machine.state(), self.machine.all_run());
        // The user may have stopped the attempt before all tasks ran: once they run, it still ends with a checkpoint.
        let begins_to_run = |attempt: &mut Attempt| !std::mem::replace(&mut attempt.has_run, true);
        let begins = runs && self.attempt().is_some_and(begins_to_run);
        let is_broken = self.machine.is_broken() && self.regions.count() > 1;
        if is_broken && let Some(attempt) = self.attempt() {
            attempt.has_run = false;
        }
        self.feed_checkpoints(match state {
            _ if is_broken => Input::Suspended,
            JobState::Running if runs => Input::Running,
            _ if begins => Input::Running,
            JobState::Failing | JobState::Cancelling | JobState::Finishing | JobState::Ended => Input::Ending,
            _ => Input::Tick,
        });
        while let Some(command) = self.attempt().and_then(|attempt| attempt.machine.poll_command()) {
            tracing::debug!(job = self.job.settings.job_name, ?command);
            match command {
                Command::Trigger { checkpoint } => {
                    let is_saved = self.assign_savepoints(checkpoint);
                    self.trigger(checkpoint, is_saved);
                    self.show_unanswered(checkpoint);
                }
                Command::Overtake { checkpoint } => {
                    let triggered_ms = self.attempt().map_or(0, |attempt| attempt.triggered_ms);
                    let barrier = barrier(checkpoint, triggered_ms, BarrierKind::AlignedWithTimeout);
                    self.tell_all(CheckpointOrder::Overtake(barrier));
                    self.show_unanswered(checkpoint);
                }
                Command::Publish { checkpoint, kept, .. } => self.publish(checkpoint, &kept),
                Command::Complete { checkpoint } => self.tell_all(CheckpointOrder::Complete(checkpoint)),
                Command::GiveUp { checkpoint } => {
                    self.unassign_savepoints(checkpoint);
                    self.tell_all(CheckpointOrder::Abort(checkpoint));
                }
                Command::Abort { checkpoint, reason } => {
                    tracing::warn!(job = self.job.settings.job_name, checkpoint, reason, "a checkpoint failed");
                    self.board.checkpoint_failed(&reason);
                    self.refuse_savepoints(checkpoint, "its checkpoint failed");
                    self.tell_all(CheckpointOrder::Abort(checkpoint));
                }
                Command::Fail { checkpoint, failed, reason, root_cause } => {
                    let failure = Failure::Checkpoint { checkpoint, failed, reason, root_cause };
                    self.feed(machine::Input::CheckpointsFailed { failure });
                }
            }
        }
        if self.attempt().is_none_or(|attempt| attempt.machine.under_way().is_none()) {
            self.board.no_checkpoint_under_way();
        }
    }

    /// Shows the tasks that have not answered a checkpoint, from its trigger on.
    fn show_unanswered(&mut self, checkpoint: u64) {
        let tasks = self.attempt().map(|attempt| attempt.machine.unanswered()).unwrap_or_default();
        self.board.checkpoint_waits_for(checkpoint, tasks);
    }

    /// Returns the index of a task's vertex.
    fn vertex_of(&self, task: u32) -> u32 {
        self.job.plan.tasks.get(task as usize).map_or(0, |task| task.spec.vertex)
    }

    pub(super) fn take_reports(&mut self, reports: &[TaskReport]) {
        for TaskReport { task, report } in reports {
            let task = *task;
            let input = match report.clone() {
                CheckpointReport::Acknowledged {
                    checkpoint_id: checkpoint,
                    state: snapshot,
                    end,
                    aligned_us,
                    snapshot_us,
                } => {
                    let vertex = self.vertex_of(task);
                    if let Some(attempt) = self.attempt() {
                        let after =
                            Duration::from_millis(wall_clock_ms().saturating_sub(attempt.triggered_ms).max(0) as u64);
                        let aligned = Duration::from_micros(aligned_us);
                        let stood_still = Duration::from_micros(snapshot_us);
                        attempt.parts.acknowledged(vertex, &snapshot, (after, aligned, stood_still));
                    }
                    let (is_last, has_finished) = (end.is_some(), end == Some(true));
                    Input::Acknowledged { task, checkpoint, kept: TaskSnapshotRef { snapshot, is_last, has_finished } }
                }
                CheckpointReport::Overtook { checkpoint_id: checkpoint, state: snapshot } => {
                    let vertex = self.vertex_of(task);
                    if let Some(attempt) = self.attempt() {
                        attempt.parts.overtook(vertex, &snapshot);
                    }
                    Input::Overtook { task, checkpoint, snapshot }
                }
                CheckpointReport::Declined { checkpoint_id: checkpoint, reason, root_cause } => {
                    let name = self.job.plan.tasks.get(task as usize).map_or("?", |task| &task.spec.name);
                    Input::Declined { task, checkpoint, reason: format!("task '{name}': {reason}"), root_cause }
                }
                CheckpointReport::Finished { .. } => Input::Finished { task },
            };
            self.feed_checkpoints(input);
            if self.attempt().is_some_and(|attempt| attempt.machine.has_answer_of(task)) {
                self.board.checkpoint_answered(task);
            }
        }
    }

    pub(super) fn task_ended(&mut self, task: u32) {
        self.feed_checkpoints(Input::Ended { task });
        self.board.checkpoint_answered(task);
    }

    pub(super) fn published(&mut self, checkpoint: u64, result: Result<Manifest, PublishError>) {
        match result {
            Ok(manifest) => {
                let Some(attempt) = self.attempt() else { return };
                let parts = attempt.parts.take();
                let (aligned, stood_still) = CheckpointParts::longest(&parts);
                let at = self.began.elapsed();
                let summary = CheckpointSummary {
                    number: checkpoint,
                    at,
                    bytes: manifest.bytes(),
                    written_bytes: manifest.written_bytes(),
                    duration: Duration::from_millis(manifest.duration_ms),
                    aligned,
                    stood_still,
                    parts,
                };
                self.board.checkpoint_made(summary, &bytes_by_task(&self.job, &manifest));
                if let Some(attempt) = self.attempt() {
                    attempt.last = Some(manifest.clone());
                }
                self.feed_checkpoints(Input::Published { checkpoint });
                self.save_and_sweep(manifest);
            }
            Err(PublishError::NotPublished(error @ StoreError::Fenced { .. })) => {
                if let Some(checkpoints) = &mut self.checkpoints {
                    checkpoints.is_fenced = true;
                }
                self.feed(machine::Input::CheckpointsFailed { failure: Failure::Store { error } });
            }
            Err(PublishError::NotPublished(error)) => {
                self.feed_checkpoints(Input::NotPublished { checkpoint, reason: error.to_string() });
            }
            // Only the log tells whether the checkpoint counts, and only the next attempt reads it.
            Err(PublishError::Unknown(error)) => {
                self.feed(machine::Input::CheckpointsFailed { failure: Failure::Store { error } });
            }
        }
    }

    /// Triggers a checkpoint. With `is_saved` it becomes a savepoint, from which any dataflow can resume, so it must
    /// not contain in-flight data.
    fn trigger(&mut self, checkpoint: u64, is_saved: bool) {
        let settings = &self.job.settings;
        let kind = match settings.checkpoint_aligned_timeout {
            _ if is_saved || !settings.overtakes() => BarrierKind::Aligned,
            Some(timeout) if !timeout.is_zero() => BarrierKind::AlignedWithTimeout,
            _ => BarrierKind::Unaligned,
        };
        if kind == BarrierKind::Aligned {
            self.feed_checkpoints(Input::Aligned { checkpoint });
        }
        let triggered_ms = wall_clock_ms();
        if let Some(attempt) = self.attempt() {
            attempt.triggered_ms = triggered_ms;
            attempt.parts.take();
        }
        self.tell_all(CheckpointOrder::Trigger(barrier(checkpoint, triggered_ms, kind)));
    }

    fn tell_all(&mut self, order: CheckpointOrder) {
        // A region that begins later resumes from the checkpoint that is last then, so it must not receive earlier
        // orders.
        let (generation, latest) = (self.generation, self.attempts_begun);
        self.workers.call_all(|_, link| async move { link.checkpoint(generation, latest, order).await.map(|()| None) });
    }

    fn publish(&mut self, checkpoint: u64, kept: &BTreeMap<u32, TaskSnapshotRef>) {
        let (job, sender, generation) = (Arc::clone(&self.job), self.sender.clone(), self.generation);
        let Some(attempt) = self.attempt() else { return };
        let (claim, triggered_ms) = (Arc::clone(&attempt.claim), attempt.triggered_ms);
        let mut manifest = manifest(&job, generation, checkpoint, kept);
        (manifest.triggered_ms, manifest.origin) = (triggered_ms, attempt.origin.clone());
        tokio::spawn(async move {
            manifest.duration_ms = u64::try_from(wall_clock_ms() - triggered_ms).unwrap_or(0);
            let result = claim.lock().await.publish(&manifest).await.map(|()| manifest);
            let event = JobEvent::Published { checkpoint, result };
            let _ = sender.send(Event::Job { generation, event });
        });
    }

    /// Deletes old checkpoints before the job ends, because background deletions end with it.
    pub(super) async fn last_sweep(&mut self) {
        let retained = self.job.settings.retained_checkpoints as usize;
        let Some(attempt) = self.attempt() else { return };
        if let Err(error) = attempt.claim.lock().await.finish(retained).await {
            tracing::warn!(%error, "old checkpoints could not be deleted");
        }
    }

    pub(super) fn claim(&mut self) -> Option<Arc<Mutex<FencingToken>>> {
        self.attempt().map(|attempt| Arc::clone(&attempt.claim))
    }

    pub(super) fn feed_checkpoints(&mut self, input: Input) {
        let now = self.began.elapsed();
        if let Some(attempt) = self.attempt() {
            attempt.machine.handle(input, now);
        }
    }

    fn attempt(&mut self) -> Option<&mut Attempt> {
        self.checkpoints.as_mut()?.attempt.as_mut()
    }
}

fn barrier(checkpoint: u64, timestamp_ms: i64, kind: BarrierKind) -> Barrier {
    Barrier { checkpoint_id: CheckpointId::new(checkpoint), timestamp_ms, kind }
}

/// Returns the state that each task restores.
fn restored(manifest: &Manifest, job: &Job, storage: &str) -> Result<RestoredTasks, ClusterError> {
    let assigned = assign(manifest, &job.plan, job.settings.allow_non_restored_state);
    let (checkpoint, storage) = (manifest.checkpoint, storage.to_owned());
    assigned.map_err(|why| ClusterError::Restore { checkpoint, storage, why })
}

/// Returns the bytes of a checkpoint by task, in the order of the plan.
fn bytes_by_task(job: &Job, manifest: &Manifest) -> Vec<u64> {
    let bytes = |entry: &TaskEntry| entry.parts.iter().map(|part| part.bytes).sum();
    let entries = manifest.tasks.iter().map(|entry| ((entry.uids.clone(), entry.subtask), bytes(entry)));
    let by_task: BTreeMap<_, u64> = entries.collect();
    let tasks = job.plan.tasks.iter();
    tasks.map(|task| by_task.get(&(uids(&task.spec), task.spec.subtask)).copied().unwrap_or(0)).collect()
}

/// Returns the manifest of a checkpoint of this job.
fn manifest(job: &Job, generation: u64, checkpoint: u64, kept: &BTreeMap<u32, TaskSnapshotRef>) -> Manifest {
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
pub(super) fn keep_key_groups(settings: &mut JobSettings) {
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

pub(super) fn wall_clock_ms() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
}
