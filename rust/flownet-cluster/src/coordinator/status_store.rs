//! Stores the status of a job and its result. The driver writes it, and users read it.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::log::JobLog;
use crate::{
    error::{ClusterError, WorkerIdentity},
    machine::JobState,
    plan::Plan,
    report::{CheckpointSummary, JobReport, JobStatus},
    rpc::StatusReport,
    sample::{JobSample, WorkerSample},
    settings::JobSettings,
    stall::Stall,
    tracker::{FailedTasks, Tracker},
};

/// Status store that the driver writes and the handle reads and waits for.
#[derive(Debug)]
pub(super) struct StatusStore {
    began: Instant,
    posted: Mutex<StatusEntry>,
    ended: Condvar,
    log: JobLog,
}

#[derive(Debug)]
struct StatusEntry {
    tracker: Tracker,
    state: JobState,
    workers: Vec<WorkerIdentity>,
    /// Result of the job, and the time from its beginning to its end.
    result: Option<(Result<JobReport, ClusterError>, Duration)>,
}

impl StatusStore {
    pub(super) fn new(settings: &JobSettings, plan: &Plan) -> Self {
        let tracker = Tracker::new(settings, plan);
        let posted = StatusEntry { tracker, state: JobState::Created, workers: Vec::new(), result: None };
        Self { began: Instant::now(), posted: Mutex::new(posted), ended: Condvar::new(), log: JobLog::default() }
    }

    /// Returns the log of the job.
    pub(super) fn log(&self) -> &JobLog {
        &self.log
    }

    pub(super) fn began(&self) -> Instant {
        self.began
    }

    pub(super) fn set_state(&self, state: JobState) {
        self.lock().state = state;
    }

    pub(super) fn set_workers(&self, workers: Vec<WorkerIdentity>) {
        self.lock().workers = workers;
    }

    /// Records that the job is stalled; `is_new` if users are notified.
    pub(super) fn set_stall(&self, stall: Stall, is_new: bool) {
        self.lock().tracker.stalled(stall, is_new);
    }

    /// Records that the job makes progress again.
    pub(super) fn clear_stall(&self) {
        let now = self.began.elapsed();
        self.lock().tracker.moves_again(now);
    }

    /// Returns the last stall to report to users, and its number, if the number is above `after`.
    pub(super) fn stall_after(&self, after: u32) -> Option<(u32, Stall)> {
        self.lock().tracker.stall_after(after)
    }

    pub(super) fn take_metrics(&self, worker: u32, news: &StatusReport) {
        let now = self.began.elapsed();
        let tracker = &mut self.lock().tracker;
        for (task, operators) in &news.operators {
            tracker.count_operators(*task, operators);
        }
        for &(task, metrics) in &news.metrics {
            tracker.sample(task, metrics, now);
        }
        for (task, metrics) in &news.user_metrics {
            tracker.sample_users(*task, metrics);
        }
        for (task, latencies) in &news.latencies {
            tracker.sample_latencies(*task, latencies, now);
        }
        for (task, split) in &news.latest_splits {
            tracker.latest_split(*task, split);
        }
        tracker.worker(WorkerSample::new(worker, news, now));
        for end in &news.ended {
            tracker.ended(end.task);
        }
    }

    /// Begins an attempt: the counters of its tasks start at 0.
    pub(super) fn begin_attempt(&self) {
        let now = self.began.elapsed();
        self.lock().tracker.begin_attempt(now);
    }

    /// Records the checkpoint that the attempt resumes from, if any.
    pub(super) fn resumed(&self, checkpoint: Option<u64>) {
        self.lock().tracker.resumed(checkpoint);
    }

    /// Begins attempts of these tasks only.
    pub(super) fn begin_again(&self, tasks: &[u32], names: Vec<String>) {
        let now = self.began.elapsed();
        self.lock().tracker.begin_again(tasks, names, now);
    }

    /// Records a failed attempt that another follows: of some tasks, or of the whole job.
    pub(super) fn restarting(&self, cause: &ClusterError, some: Option<FailedTasks<'_>>) {
        let now = self.began.elapsed();
        self.lock().tracker.restarting(cause.to_string(), cause.traceback(), some, now);
    }

    pub(super) fn checkpoint_made(&self, checkpoint: CheckpointSummary, bytes: &[u64]) {
        self.lock().tracker.checkpoint_made(checkpoint, bytes);
    }

    /// Records that a checkpoint is under way and waits for these tasks.
    pub(super) fn checkpoint_waits_for(&self, checkpoint: u64, tasks: Vec<u32>) {
        let now = self.began.elapsed();
        self.lock().tracker.checkpoint_waits_for(checkpoint, tasks, now);
    }

    /// Records that the checkpoint under way no longer waits for this task.
    pub(super) fn checkpoint_answered(&self, task: u32) {
        self.lock().tracker.checkpoint_answered(task);
    }

    pub(super) fn no_checkpoint_under_way(&self) {
        self.lock().tracker.no_checkpoint_under_way();
    }

    pub(super) fn checkpoint_failed(&self, reason: &str) {
        self.lock().tracker.checkpoint_failed(reason);
    }

    /// Sets the result of the job. Only the first call counts.
    pub(super) fn set_result(&self, result: Result<(), ClusterError>) {
        let mut posted = self.lock();
        if posted.result.is_none() {
            let elapsed = self.began.elapsed();
            let report = result.map(|()| posted.tracker.report(elapsed));
            posted.state = JobState::Ended;
            posted.result = Some((report, elapsed));
        }
        drop(posted);
        self.ended.notify_all();
        self.log.end();
    }

    pub(super) fn status(&self) -> JobStatus {
        let posted = self.lock();
        posted.tracker.status(posted.state, self.elapsed(&posted), posted.workers.clone())
    }

    pub(super) fn sample(&self) -> JobSample {
        let posted = self.lock();
        posted.tracker.job_sample(posted.state, self.elapsed(&posted))
    }

    /// Returns the time since the job began, or until its end.
    fn elapsed(&self, posted: &StatusEntry) -> Duration {
        posted.result.as_ref().map_or_else(|| self.began.elapsed(), |(_, elapsed)| *elapsed)
    }

    /// Waits for the end of the job, at most `timeout`.
    pub(super) fn wait(&self, timeout: Option<Duration>) -> Option<Result<JobReport, ClusterError>> {
        let is_running = |posted: &mut StatusEntry| posted.result.is_none();
        let posted = self.lock();
        let posted = match timeout {
            None => self.ended.wait_while(posted, is_running).unwrap_or_else(PoisonError::into_inner),
            Some(timeout) => {
                let waited = self.ended.wait_timeout_while(posted, timeout, is_running);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        posted.result.as_ref().map(|(result, _)| result.clone())
    }

    fn lock(&self) -> MutexGuard<'_, StatusEntry> {
        // Plain data, replaced field by field: consistent even after a panic.
        self.posted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
