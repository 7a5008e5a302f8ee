//! Carries out what the [`CheckpointMachine`] decides: calls workers, writes manifests, deletes what is no longer asked for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flownet_runtime::snapshot::StatePart;
use flownet_store::{
    CheckpointStore, Claim, Manifest, OperatorEntry, PartRef, PublishError, StoreError, TaskEntry, TaskSnapshot,
};
use tokio::sync::Mutex;

use super::attempts::RestoredTasks;
use super::driver::{Driver, Event, Job};
use crate::{
    checkpoint::{CheckpointLimits, CheckpointMachine, Command, Input, Kept},
    error::ClusterError,
    machine::{self, Failure, JobState},
    plan::{PlacedTask, Plan},
    report::CheckpointSummary,
    rpc::{Order, Report, Restored, TaskReport},
};

/// The checkpoints of a job: where they are, and those of the attempt that runs.
pub(super) struct Checkpoints {
    store: CheckpointStore,
    limits: CheckpointLimits,
    attempt: Option<Attempt>,
    is_fenced: bool,
}

struct Attempt {
    machine: CheckpointMachine,
    claim: Arc<Mutex<Claim>>,
    /// When the pending one was triggered, in milliseconds since the epoch.
    triggered_ms: i64,
    /// The longest that a task took to align for it, and stood still for its snapshot.
    aligned: Duration,
    stood_still: Duration,
}

impl Checkpoints {
    /// The place that the settings name; none if no checkpoints are asked for.
    pub(super) fn open(job: &Job) -> Result<Option<Self>, ClusterError> {
        let settings = &job.settings;
        let (Some(interval), Some(url)) = (settings.checkpoint_interval, &settings.checkpoint_storage) else {
            return Ok(None);
        };
        let limits = CheckpointLimits {
            interval,
            timeout: settings.checkpoint_timeout,
            min_pause: settings.checkpoint_min_pause,
            tolerable_failures: settings.tolerable_failed_checkpoints,
        };
        Ok(Some(Self { store: CheckpointStore::open(url)?, limits, attempt: None, is_fenced: false }))
    }

    /// Begins an attempt: nobody before it publishes anything any more. Tells its number, the checkpoint that it goes on
    /// from, and what each task goes on from.
    pub(super) async fn begin(&mut self, job: &Job) -> Result<(u64, Option<u64>, RestoredTasks), ClusterError> {
        let (claim, resumed) = self.store.claim().await?;
        let plan = &job.plan;
        let kept = match &resumed {
            None => BTreeMap::new(),
            Some(manifest) => kept_of(manifest, plan).map_err(|why| ClusterError::Restore {
                checkpoint: manifest.checkpoint,
                storage: self.store.url().to_owned(),
                why,
            })?,
        };
        let restored = restored(&kept, plan);
        let machine = CheckpointMachine::new(self.limits, plan.tasks.len(), claim.next_checkpoint(), kept);
        let generation = claim.generation();
        let claim = Arc::new(Mutex::new(claim));
        let (triggered_ms, aligned, stood_still) = (0, Duration::ZERO, Duration::ZERO);
        self.attempt = Some(Attempt { machine, claim, triggered_ms, aligned, stood_still });
        Ok((generation, resumed.map(|manifest| manifest.checkpoint), restored))
    }

    /// Whether another run of the job has begun: this one must not take over again.
    pub(super) fn is_fenced(&self) -> bool {
        self.is_fenced
    }

    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        self.attempt.as_ref()?.machine.poll_timeout()
    }
}

impl Driver {
    /// Tells the machine how the attempt does, and does what it says.
    pub(super) fn follow_checkpoints(&mut self) {
        if self.checkpoints.is_none() {
            return;
        }
        self.feed_checkpoints(match self.machine.state() {
            JobState::Running => Input::Running,
            JobState::Failing | JobState::Cancelling | JobState::Finishing | JobState::Ended => Input::Ending,
            _ => Input::Tick,
        });
        while let Some(command) = self.attempt().and_then(|attempt| attempt.machine.poll_command()) {
            tracing::debug!(job = self.job.settings.job_name, ?command);
            match command {
                Command::Trigger { checkpoint } => self.trigger(checkpoint),
                Command::Publish { checkpoint, kept, .. } => self.publish(checkpoint, &kept),
                Command::Complete { checkpoint } => self.tell_all(Order::Complete { checkpoint }),
                Command::Abort { checkpoint } => self.tell_all(Order::Abort { checkpoint }),
                Command::Fail { checkpoint, failed, reason } => {
                    let failure = Failure::Checkpoint { checkpoint, failed, reason };
                    self.feed(machine::Input::CheckpointsFailed { failure });
                }
            }
        }
    }

    pub(super) fn take_reports(&mut self, reports: &[TaskReport]) {
        for TaskReport { task, report } in reports {
            let task = *task;
            let input = match report.clone() {
                Report::Acknowledged { checkpoint, snapshot, is_last, has_finished, aligned, stood_still } => {
                    if let Some(attempt) = self.attempt() {
                        attempt.aligned = attempt.aligned.max(aligned);
                        attempt.stood_still = attempt.stood_still.max(stood_still);
                    }
                    Input::Acknowledged { task, checkpoint, kept: Kept { snapshot, is_last, has_finished } }
                }
                Report::Declined { checkpoint, reason } => {
                    let name = self.job.plan.tasks.get(task as usize).map_or("?", |task| &task.spec.name);
                    let reason = format!("task '{name}': {reason}");
                    tracing::warn!(job = self.job.settings.job_name, checkpoint, reason, "a checkpoint was declined");
                    self.board.checkpoint_failed(&reason);
                    Input::Declined { task, checkpoint, reason }
                }
                Report::Finished => Input::Finished { task },
            };
            self.feed_checkpoints(input);
        }
    }

    pub(super) fn task_ended(&mut self, task: u32) {
        self.feed_checkpoints(Input::Ended { task });
    }

    pub(super) fn published(&mut self, checkpoint: u64, result: Result<Manifest, PublishError>) {
        match result {
            Ok(manifest) => {
                let Some(attempt) = self.attempt() else { return };
                let (aligned, stood_still) = (attempt.aligned, attempt.stood_still);
                let at = self.began.elapsed();
                self.board.checkpoint_made(CheckpointSummary {
                    number: checkpoint,
                    at,
                    bytes: manifest.bytes(),
                    duration: Duration::from_millis(manifest.duration_ms),
                    aligned,
                    stood_still,
                });
                self.feed_checkpoints(Input::Published { checkpoint });
                self.sweep();
            }
            Err(PublishError::NotPublished(error @ StoreError::Fenced { .. })) => {
                if let Some(checkpoints) = &mut self.checkpoints {
                    checkpoints.is_fenced = true;
                }
                self.feed(machine::Input::CheckpointsFailed { failure: Failure::Store { error } });
            }
            Err(PublishError::NotPublished(error)) => {
                let reason = error.to_string();
                self.board.checkpoint_failed(&reason);
                self.feed_checkpoints(Input::NotPublished { checkpoint, reason });
            }
            // Only the log can say, and only the next attempt reads it.
            Err(PublishError::Unknown(error)) => {
                self.feed(machine::Input::CheckpointsFailed { failure: Failure::Store { error } });
            }
        }
    }

    fn trigger(&mut self, checkpoint: u64) {
        let triggered_ms = wall_clock_ms();
        if let Some(attempt) = self.attempt() {
            attempt.triggered_ms = triggered_ms;
            (attempt.aligned, attempt.stood_still) = (Duration::ZERO, Duration::ZERO);
        }
        self.tell_all(Order::Trigger { checkpoint, triggered_ms });
    }

    fn tell_all(&mut self, order: Order) {
        let generation = self.generation;
        let workers: Vec<u32> = self.seats.keys().copied().collect();
        for worker in workers {
            self.call(worker, async move |link| link.checkpoint(generation, order).await.map(|()| Event::Done));
        }
    }

    fn publish(&mut self, checkpoint: u64, kept: &BTreeMap<u32, Kept>) {
        let (job, sender, generation) = (Arc::clone(&self.job), self.sender.clone(), self.generation);
        let Some(attempt) = self.attempt() else { return };
        let (claim, triggered_ms) = (Arc::clone(&attempt.claim), attempt.triggered_ms);
        let mut manifest = manifest(&job, generation, checkpoint, kept);
        manifest.triggered_ms = triggered_ms;
        tokio::spawn(async move {
            manifest.duration_ms = u64::try_from(wall_clock_ms() - triggered_ms).unwrap_or(0);
            let result = claim.lock().await.publish(&manifest).await.map(|()| manifest);
            let event = Box::new(Event::Published { checkpoint, result });
            let _ = sender.send(Event::Of { generation, event });
        });
    }

    fn sweep(&mut self) {
        let retained = self.job.settings.retained_checkpoints as usize;
        let Some(attempt) = self.attempt() else { return };
        let claim = Arc::clone(&attempt.claim);
        tokio::spawn(async move {
            if let Err(error) = claim.lock().await.sweep(retained).await {
                tracing::warn!(%error, "old checkpoints could not be deleted");
            }
        });
    }

    /// Before the job ends: what goes on beside it ends with it.
    pub(super) async fn last_sweep(&mut self) {
        let retained = self.job.settings.retained_checkpoints as usize;
        let Some(attempt) = self.attempt() else { return };
        if let Err(error) = attempt.claim.lock().await.sweep(retained).await {
            tracing::warn!(%error, "old checkpoints could not be deleted");
        }
    }

    fn feed_checkpoints(&mut self, input: Input) {
        let now = self.began.elapsed();
        if let Some(attempt) = self.attempt() {
            attempt.machine.handle(input, now);
        }
    }

    fn attempt(&mut self) -> Option<&mut Attempt> {
        self.checkpoints.as_mut()?.attempt.as_mut()
    }
}

/// What a checkpoint of this job is made of.
fn manifest(job: &Job, generation: u64, checkpoint: u64, kept: &BTreeMap<u32, Kept>) -> Manifest {
    let of = |(task, kept): (&u32, &Kept)| {
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

/// The operators of a job, in the order of its tasks.
fn operators(plan: &Plan) -> Vec<OperatorEntry> {
    let first = plan.tasks.iter().filter(|task| task.spec.subtask == 0);
    let operators = first.flat_map(|task| task.spec.operators.iter().map(move |operator| (task, operator)));
    operators
        .map(|(task, operator)| OperatorEntry {
            uid: operator.state_uid(),
            name: operator.name.clone(),
            kind: operator.kind.name().to_owned(),
            parallelism: task.spec.parallelism,
        })
        .collect()
}

/// What each task kept for a checkpoint, by its number in this plan; or why the two do not fit.
fn kept_of(manifest: &Manifest, plan: &Plan) -> Result<BTreeMap<u32, Kept>, String> {
    fits(manifest, plan)?;
    let of = |(number, task): (u32, &PlacedTask)| {
        let uids = uids(&task.spec);
        let is_same = |entry: &&TaskEntry| entry.uids == uids && entry.subtask == task.spec.subtask;
        let entry = manifest.tasks.iter().find(is_same)?;
        let bytes = entry.parts.iter().map(|part| part.bytes).sum();
        let snapshot = TaskSnapshot { parts: entry.parts.clone(), bytes };
        // A task that had finished is there in this attempt, too, until its first checkpoint counts.
        Some((number, Kept { snapshot, is_last: entry.has_finished, has_finished: entry.has_finished }))
    };
    let kept: BTreeMap<u32, Kept> = (0..).zip(&plan.tasks).filter_map(of).collect();
    match kept.len() == plan.tasks.len() && kept.len() == manifest.tasks.len() {
        true => Ok(kept),
        false => Err("its operators were chained otherwise; the dataflow and its settings must be as they were, or \
                      the job begin anew in another folder"
            .into()),
    }
}

/// Whether a checkpoint is of this plan.
fn fits(manifest: &Manifest, plan: &Plan) -> Result<(), String> {
    const WAY_OUT: &str = "go on with the dataflow that it is of, or begin anew in another folder";
    let (ours, groups) = (operators(plan), max_parallelism(plan));
    for (theirs, ours) in manifest.operators.iter().zip(&ours) {
        let (was, is) = ((&theirs.uid, &theirs.kind), (&ours.uid, &ours.kind));
        if was != is {
            return Err(format!(
                "it has the operator '{}' ({}, {}) where the dataflow has '{}' ({}, {}); {WAY_OUT}",
                theirs.name, theirs.kind, theirs.uid, ours.name, ours.kind, ours.uid
            ));
        }
        if theirs.parallelism != ours.parallelism {
            return Err(format!(
                "operator '{}' had {} subtasks and is to have {}; changing that is not supported yet",
                ours.name, theirs.parallelism, ours.parallelism
            ));
        }
    }
    if manifest.operators.len() != ours.len() {
        let (was, is) = (manifest.operators.len(), ours.len());
        return Err(format!("it is of a dataflow of {was} operators, this one has {is}; {WAY_OUT}"));
    }
    if manifest.max_parallelism != groups {
        let was = manifest.max_parallelism;
        return Err(format!("it has {was} key groups, the job {groups}; set max_parallelism={was}"));
    }
    Ok(())
}

/// What each task goes on from: parts of its operators that it may take something of, whoever kept them.
fn restored(kept: &BTreeMap<u32, Kept>, plan: &Plan) -> RestoredTasks {
    let all: Vec<&PartRef> = kept.values().flat_map(|kept| &kept.snapshot.parts).collect();
    let is_for = |part: &&PartRef, task: &PlacedTask| {
        let PartRef { uid, name, share, .. } = (*part).clone();
        StatePart { uid, name, share, bytes: Vec::new() }.is_for(&task.spec)
    };
    let of = |(number, task): (u32, &PlacedTask)| {
        let parts = all.iter().copied().filter(|part| is_for(part, task)).cloned().collect();
        let has_finished = kept.get(&number).is_some_and(|kept| kept.has_finished);
        (number, Restored { parts, has_finished })
    };
    (0..).zip(&plan.tasks).map(of).collect()
}

fn wall_clock_ms() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
}
