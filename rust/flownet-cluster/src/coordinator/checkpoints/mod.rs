//! Triggers the checkpoints of a job, collects their reports, publishes them and deletes unused ones.
//!
//! Carries out the commands of the [`CheckpointMachine`]. The driver passes the state of the job, the reports of tasks
//! and the results of publishing.

mod manifest;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flownet_core::{Barrier, BarrierKind, CheckpointId};
use flownet_runtime::{CheckpointOrder, CheckpointReport};
use flownet_store::{CheckpointStore, FencingToken, Manifest, PublishError, StateKeys, StoreError, TaskSnapshot};
use tokio::sync::{Mutex, mpsc::UnboundedSender};

pub(super) use self::manifest::{RestoredTasks, keep_key_groups};
use self::manifest::{bytes_by_task, has_new_source, manifest, restored};
use super::events::{Event, JobEvent};
use super::found_at;
use super::job::Job;
use super::savepoints::{SavepointRequest, Savepoints, copy_last, copy_to_all};
use super::status_store::StatusStore;
use super::workers::Workers;
use crate::{
    checkpoint::{
        CheckpointLimits, CheckpointMachine, CheckpointParts, Command, Input, SnapshotTimes, TaskSnapshotRef,
    },
    error::ClusterError,
    machine::{Failure, JobState},
    report::CheckpointSummary,
    rpc::TaskReport,
};

/// Checkpoints of a job: their storage, the state of the current attempt and the requested savepoints.
pub(super) struct Checkpoints {
    job: Arc<Job>,
    board: Arc<StatusStore>,
    events: UnboundedSender<Event>,
    store: CheckpointStore,
    limits: CheckpointLimits,
    attempt: Option<Attempt>,
    savepoints: Savepoints,
    is_fenced: bool,
}

struct Attempt {
    generation: u64,
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

/// Start of an attempt of the job.
pub(super) struct Resumption {
    /// Number of the attempt.
    pub(super) generation: u64,
    /// Checkpoint that the attempt resumes from.
    pub(super) checkpoint: Option<u64>,
    /// State that each task restores.
    pub(super) restored: RestoredTasks,
}

impl Checkpoints {
    /// Opens the storage that the settings name. Returns `None` if checkpoints are disabled.
    pub(super) fn open(
        job: Arc<Job>,
        board: Arc<StatusStore>,
        events: UnboundedSender<Event>,
    ) -> Result<Option<Self>, ClusterError> {
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
        let (attempt, savepoints) = (None, Savepoints::default());
        Ok(Some(Self { job, board, events, store, limits, attempt, savepoints, is_fenced: false }))
    }

    /// Whether the manifests are signed.
    pub(super) fn signs(&self) -> bool {
        self.store.signs()
    }

    /// Begins an attempt and fences off earlier ones, which cannot publish any more. Savepoint requests without a
    /// checkpoint are repeated.
    pub(super) async fn begin(&mut self) -> Result<Resumption, ClusterError> {
        let (mut claim, resumed) = self.store.claim().await?;
        let resumed = match &self.job.settings.restore_from {
            Some(restore_from) => Some(self.begin_from(restore_from, &mut claim, resumed).await?),
            None => resumed,
        };
        let is_over = |manifest: &&Manifest| manifest.has_ended() && !has_new_source(manifest, &self.job.plan);
        if let Some(ended) = resumed.as_ref().filter(is_over) {
            let (job, checkpoint) = (&self.job.settings.job_name, ended.checkpoint);
            tracing::warn!(
                job,
                checkpoint,
                "nothing is left to do: the checkpoint is of a job that came to the end of its input or was stopped with drain. \
                 To resume later, stop without drain; to begin anew, use another storage"
            );
        }
        let restored = match &resumed {
            None => BTreeMap::new(),
            Some(manifest) => restored(manifest, &self.job, self.store.url())?,
        };
        let generation = claim.generation();
        let checkpoint = resumed.as_ref().map(|manifest| manifest.checkpoint);
        let origin = resumed.as_ref().and_then(|manifest| manifest.origin.clone());
        self.attempt = Some(Attempt {
            generation,
            machine: CheckpointMachine::new(self.limits, self.job.plan.tasks.len(), claim.next_checkpoint()),
            has_run: false,
            last: resumed,
            claim: Arc::new(Mutex::new(claim)),
            origin,
            triggered_ms: 0,
            parts: CheckpointParts::default(),
        });
        self.board.resumed(checkpoint);
        if self.savepoints.begin_attempt() {
            self.request();
        }
        Ok(Resumption { generation, checkpoint, restored })
    }

    /// Returns the checkpoint that a job resumes from if it begins with one stored elsewhere. That is the job's own
    /// last checkpoint if it began from the given one, or else a copy of the given one.
    async fn begin_from(
        &self,
        restore_from: &str,
        claim: &mut FencingToken,
        resumed: Option<Manifest>,
    ) -> Result<Manifest, ClusterError> {
        match (found_at(restore_from, self.job.settings.restore_checkpoint.map(u64::from)).await, resumed) {
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
                restored(&given, &self.job, from.url())?;
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

    /// Whether a checkpoint is being published and may count at any moment.
    pub(super) fn is_publishing(&self) -> bool {
        self.attempt.as_ref().is_some_and(|attempt| attempt.machine.is_publishing())
    }

    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        self.attempt.as_ref()?.machine.poll_timeout()
    }

    /// Prepares for tasks that restart. Returns the state that each task of the job restores.
    pub(super) fn restart(&mut self, tasks: Vec<u32>) -> Result<RestoredTasks, Failure> {
        let last = self.attempt.as_ref().and_then(|attempt| attempt.last.as_ref());
        let checkpoint = last.map(|manifest| manifest.checkpoint);
        let restored = last.map_or_else(|| Ok(BTreeMap::new()), |last| restored(last, &self.job, self.store.url()));
        self.board.resumed(checkpoint);
        self.feed(Input::Restarted { tasks });
        restored.map_err(|error| {
            let (checkpoint, reason) = (checkpoint.unwrap_or(0), error.to_string());
            Failure::Checkpoint { checkpoint, failed: 1, reason, root_cause: None }
        })
    }

    /// Requests a checkpoint outside the interval.
    pub(super) fn request(&mut self) {
        self.feed(Input::Requested);
    }

    /// Requests a checkpoint and a copy of it.
    pub(super) fn request_savepoint(&mut self, request: SavepointRequest) {
        self.savepoints.add(request);
        self.request();
    }

    /// Requests a copy of the last checkpoint of the job.
    pub(super) fn request_last_savepoint(&mut self, url: String) {
        self.savepoints.set_last(url);
    }

    /// Passes the state of the attempt to the machine. `is_broken` if some regions have failed and others run.
    pub(super) fn on_state(&mut self, state: JobState, all_run: bool, is_broken: bool) {
        let Some(attempt) = &mut self.attempt else { return };
        // The user may have stopped the attempt before all tasks ran: once they run, it still ends with a checkpoint.
        let begins = all_run && !std::mem::replace(&mut attempt.has_run, true);
        if is_broken {
            attempt.has_run = false;
        }
        self.feed(match state {
            _ if is_broken => Input::Suspended,
            JobState::Running if all_run => Input::Running,
            _ if begins => Input::Running,
            JobState::Failing | JobState::Cancelling | JobState::Finishing | JobState::Ended => Input::Ending,
            _ => Input::Tick,
        });
    }

    /// Carries out the commands of the machine until it has none, or until one fails the attempt. Orders reach the
    /// region attempts up to number `latest`: a region that begins later resumes from the checkpoint that is last then,
    /// so it must not receive earlier orders.
    pub(super) fn carry_out(&mut self, workers: &Workers, latest: u64) -> Option<Failure> {
        while let Some(command) = self.attempt.as_mut().and_then(|attempt| attempt.machine.poll_command()) {
            tracing::debug!(job = self.job.settings.job_name, ?command);
            let order = match command {
                Command::Trigger { checkpoint } => Some(self.trigger(checkpoint)),
                Command::Overtake { checkpoint } => Some(self.overtake(checkpoint)),
                Command::Publish { checkpoint, kept, .. } => {
                    self.publish(checkpoint, &kept);
                    None
                }
                Command::Complete { checkpoint } => Some(CheckpointOrder::Complete(checkpoint)),
                Command::GiveUp { checkpoint } => {
                    if self.savepoints.unassign(checkpoint) {
                        self.request();
                    }
                    Some(CheckpointOrder::Abort(checkpoint))
                }
                Command::Abort { checkpoint, reason } => {
                    tracing::warn!(job = self.job.settings.job_name, checkpoint, reason, "a checkpoint failed");
                    self.board.checkpoint_failed(&reason);
                    self.savepoints.refuse(checkpoint, "its checkpoint failed");
                    Some(CheckpointOrder::Abort(checkpoint))
                }
                Command::Fail { checkpoint, failed, reason, root_cause } => {
                    return Some(Failure::Checkpoint { checkpoint, failed, reason, root_cause });
                }
            };
            if let Some(order) = order {
                let generation = workers.generation();
                workers
                    .call_all(|_, link| async move { link.checkpoint(generation, latest, order).await.map(|()| None) });
            }
        }
        if self.attempt.as_ref().is_none_or(|attempt| attempt.machine.under_way().is_none()) {
            self.board.no_checkpoint_under_way();
        }
        None
    }

    /// Begins a checkpoint. If a savepoint is requested, it must not contain in-flight data, because any dataflow can
    /// resume from it.
    fn trigger(&mut self, checkpoint: u64) -> CheckpointOrder {
        let is_saved = self.savepoints.assign(checkpoint);
        let settings = &self.job.settings;
        let kind = match settings.checkpoint_aligned_timeout {
            _ if is_saved || !settings.overtakes() => BarrierKind::Aligned,
            Some(timeout) if !timeout.is_zero() => BarrierKind::AlignedWithTimeout,
            _ => BarrierKind::Unaligned,
        };
        if kind == BarrierKind::Aligned {
            self.feed(Input::Aligned { checkpoint });
        }
        let timestamp_ms = wall_clock_ms();
        if let Some(attempt) = &mut self.attempt {
            attempt.triggered_ms = timestamp_ms;
            attempt.parts.take();
        }
        self.show_unanswered(checkpoint);
        CheckpointOrder::Trigger(Barrier { checkpoint_id: CheckpointId::new(checkpoint), timestamp_ms, kind })
    }

    /// Switches a checkpoint to unaligned barriers.
    fn overtake(&mut self, checkpoint: u64) -> CheckpointOrder {
        self.show_unanswered(checkpoint);
        let timestamp_ms = self.attempt.as_ref().map_or(0, |attempt| attempt.triggered_ms);
        let (checkpoint_id, kind) = (CheckpointId::new(checkpoint), BarrierKind::AlignedWithTimeout);
        CheckpointOrder::Overtake(Barrier { checkpoint_id, timestamp_ms, kind })
    }

    /// Shows the tasks that have not answered a checkpoint, from its trigger on.
    fn show_unanswered(&self, checkpoint: u64) {
        let tasks = self.attempt.as_ref().map(|attempt| attempt.machine.unanswered()).unwrap_or_default();
        self.board.checkpoint_waits_for(checkpoint, tasks);
    }

    fn publish(&self, checkpoint: u64, kept: &BTreeMap<u32, TaskSnapshotRef>) {
        let Some(attempt) = &self.attempt else { return };
        let (events, generation) = (self.events.clone(), attempt.generation);
        let (claim, triggered_ms) = (Arc::clone(&attempt.claim), attempt.triggered_ms);
        let mut manifest = manifest(&self.job, generation, checkpoint, kept);
        (manifest.triggered_ms, manifest.origin) = (triggered_ms, attempt.origin.clone());
        tokio::spawn(async move {
            manifest.duration_ms = u64::try_from(wall_clock_ms() - triggered_ms).unwrap_or(0);
            let result = claim.lock().await.publish(&manifest).await.map(|()| manifest);
            let event = JobEvent::Published { checkpoint, result };
            let _ = events.send(Event::Job { generation, event });
        });
    }

    /// Handles checkpoint reports of tasks.
    pub(super) fn on_reports(&mut self, reports: &[TaskReport]) {
        for TaskReport { task, report } in reports {
            let Some(input) = self.input_of(*task, report.clone()) else { return };
            self.feed(input);
            if self.attempt.as_ref().is_some_and(|attempt| attempt.machine.has_answer_of(*task)) {
                self.board.checkpoint_answered(*task);
            }
        }
    }

    /// Returns the event of a report, and adds the report to the statistics of the pending checkpoint. Returns `None`
    /// before the first attempt.
    fn input_of(&mut self, task: u32, report: CheckpointReport<TaskSnapshot>) -> Option<Input> {
        let attempt = self.attempt.as_mut()?;
        let spec = self.job.plan.tasks.get(task as usize).map(|task| &task.spec);
        let vertex = spec.map_or(0, |spec| spec.vertex);
        Some(match report {
            CheckpointReport::Acknowledged { checkpoint_id: checkpoint, state, end, aligned_us, snapshot_us } => {
                let after = Duration::from_millis(wall_clock_ms().saturating_sub(attempt.triggered_ms).max(0) as u64);
                let times = SnapshotTimes {
                    after,
                    aligned: Duration::from_micros(aligned_us),
                    stood_still: Duration::from_micros(snapshot_us),
                };
                attempt.parts.acknowledged(vertex, &state, times);
                let (is_last, has_finished) = (end.is_some(), end == Some(true));
                Input::Acknowledged {
                    task,
                    checkpoint,
                    kept: TaskSnapshotRef { snapshot: state, is_last, has_finished },
                }
            }
            CheckpointReport::Overtook { checkpoint_id: checkpoint, state } => {
                attempt.parts.overtook(vertex, &state);
                Input::Overtook { task, checkpoint, snapshot: state }
            }
            CheckpointReport::Declined { checkpoint_id: checkpoint, reason, root_cause } => {
                let name = spec.map_or("?", |spec| &spec.name);
                Input::Declined { task, checkpoint, reason: format!("task '{name}': {reason}"), root_cause }
            }
            CheckpointReport::Finished { .. } => Input::Finished { task },
        })
    }

    /// Handles the successful end of a task.
    pub(super) fn on_task_end(&mut self, task: u32) {
        self.feed(Input::Ended { task });
        self.board.checkpoint_answered(task);
    }

    /// Handles the result of publishing a checkpoint. Returns the failure that ends the attempt, if any.
    pub(super) fn on_published(&mut self, checkpoint: u64, result: Result<Manifest, PublishError>) -> Option<Failure> {
        match result {
            Ok(manifest) => {
                self.show_published(&manifest);
                self.feed(Input::Published { checkpoint });
                self.copy_and_sweep(manifest);
                None
            }
            Err(PublishError::NotPublished(error @ StoreError::Fenced { .. })) => {
                self.is_fenced = true;
                Some(Failure::Store { error })
            }
            Err(PublishError::NotPublished(error)) => {
                self.feed(Input::NotPublished { checkpoint, reason: error.to_string() });
                None
            }
            // Only the log tells whether the checkpoint counts, and only the next attempt reads it.
            Err(PublishError::Unknown(error)) => Some(Failure::Store { error }),
        }
    }

    fn show_published(&mut self, manifest: &Manifest) {
        let Some(attempt) = &mut self.attempt else { return };
        let parts = attempt.parts.take();
        attempt.last = Some(manifest.clone());
        let (aligned, stood_still) = CheckpointParts::longest(&parts);
        let summary = CheckpointSummary {
            number: manifest.checkpoint,
            at: self.board.began().elapsed(),
            bytes: manifest.bytes(),
            written_bytes: manifest.written_bytes(),
            duration: Duration::from_millis(manifest.duration_ms),
            aligned,
            stood_still,
            parts,
        };
        self.board.checkpoint_made(summary, &bytes_by_task(&self.job, manifest));
    }

    /// Copies a published checkpoint for its savepoint requests, then deletes checkpoints that are no longer needed.
    fn copy_and_sweep(&mut self, manifest: Manifest) {
        let requests = self.savepoints.take(manifest.checkpoint);
        let retained = self.job.settings.retained_checkpoints as usize;
        let Some(claim) = self.attempt.as_ref().map(|attempt| Arc::clone(&attempt.claim)) else { return };
        tokio::spawn(async move {
            // Deletion needs the claim, so holding it protects the checkpoint that is copied.
            let claim = claim.lock().await;
            copy_to_all(requests, &manifest, claim.store()).await;
            if let Err(error) = claim.sweep(retained).await {
                tracing::warn!(%error, "old checkpoints could not be deleted");
            }
        });
    }

    /// Copies the last checkpoint of a stopped job, if a savepoint was requested.
    pub(super) async fn save_last(&mut self) -> Result<(), ClusterError> {
        let Some(url) = self.savepoints.take_last() else { return Ok(()) };
        let Some(attempt) = &self.attempt else { return Ok(()) };
        let claim = attempt.claim.lock().await;
        copy_last(claim.store(), &url, &self.job.settings.job_name).await
    }

    /// Deletes old checkpoints before the job ends, because background deletions end with it.
    pub(super) async fn sweep_last(&self) {
        let retained = self.job.settings.retained_checkpoints as usize;
        let Some(attempt) = &self.attempt else { return };
        if let Err(error) = attempt.claim.lock().await.finish(retained).await {
            tracing::warn!(%error, "old checkpoints could not be deleted");
        }
    }

    fn feed(&mut self, input: Input) {
        let now = self.board.began().elapsed();
        if let Some(attempt) = &mut self.attempt {
            attempt.machine.handle(input, now);
        }
    }
}

pub(super) fn wall_clock_ms() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
}
