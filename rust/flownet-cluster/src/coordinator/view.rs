//! Observes and controls a job without owning it.

use std::{sync::Arc, time::Duration};

use tokio::sync::mpsc;

use super::{
    events::{Event, Request},
    sources::FoundSplits,
    status_store::StatusStore,
    thread::CoordinatorThread,
};
use crate::{
    error::ClusterError,
    explain::Explanation,
    report::{JobOutcome, JobReport, JobStatus},
    sample::JobSample,
    settings::JobSettings,
    stall::Stall,
};

/// View of a job. It keeps only the status of the job alive. After the job has ended, it returns the last status, and
/// commands have no effect.
#[derive(Clone, Debug)]
pub struct JobView {
    pub(super) board: Arc<StatusStore>,
    pub(super) events: mpsc::UnboundedSender<Event>,
    pub(super) described: Arc<JobDescription>,
    pub(super) thread: Arc<CoordinatorThread>,
}

/// Description of a job before it runs.
#[derive(Debug)]
pub(super) struct JobDescription {
    pub(super) explanation: Explanation,
    pub(super) settings: JobSettings,
    /// Operators with state but without uid.
    pub(super) without_uid: Vec<String>,
}

impl JobView {
    /// Waits for the end of the job, at most `timeout`. Returns `None` if it still runs. Repeated calls return the same
    /// result.
    #[must_use]
    pub fn wait(&self, timeout: Option<Duration>) -> Option<Result<JobReport, ClusterError>> {
        let result = self.board.wait(timeout)?;
        // I1: the thread posts the result as its last step, and may still exist.
        self.thread.join();
        Some(result)
    }

    /// Returns the current status of the job. After its end, returns the last status, with rates and shares over the
    /// whole life of its tasks.
    #[must_use]
    pub fn status(&self) -> JobStatus {
        self.board.status()
    }

    /// Returns the last report of every subtask and process. Counters and queues are at most as old as the status
    /// interval.
    #[must_use]
    pub fn sample(&self) -> JobSample {
        self.board.sample()
    }

    /// Returns how the job ended, or `None` while it runs.
    #[must_use]
    pub fn outcome(&self) -> Option<JobOutcome> {
        Some(match self.board.wait(Some(Duration::ZERO))? {
            Ok(_) => JobOutcome::Finished,
            Err(ClusterError::Cancelled) => JobOutcome::Cancelled,
            Err(_) => JobOutcome::Failed,
        })
    }

    /// Returns why the job failed or was cancelled. If the user's code failed, this includes Python's traceback.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let error = self.board.wait(Some(Duration::ZERO))?.err()?;
        Some(error.traceback().map_or_else(|| error.to_string(), |text| format!("{error}\n{text}")))
    }

    /// Returns the plan of the job.
    #[must_use]
    pub fn explanation(&self) -> &Explanation {
        &self.described.explanation
    }

    /// Returns the settings of the job.
    #[must_use]
    pub fn settings(&self) -> &JobSettings {
        &self.described.settings
    }

    /// Returns the last stall of the job, in which records waited without progress, and its number, if that is above
    /// `after`. Callers that notify people report each number once. A function that does not return counts once for all
    /// subtasks of its vertex.
    #[must_use]
    pub fn stall_after(&self, after: u32) -> Option<(u32, Stall)> {
        self.board.stall_after(after)
    }

    /// Stops the job gracefully and returns at once. Its sources end, in-flight records are processed, sinks commit
    /// their output, and the job finishes. With `drain`, open windows and timers fire; without, they do not.
    /// [`stop_drains`](Self::stop_drains) returns the default for the job. If this takes longer than `stop_timeout`,
    /// the job is cancelled: [`ClusterError::StopTimeout`]. Only the first call counts.
    pub fn stop(&self, drain: bool) {
        // Without a receiver the job has ended.
        let _ = self.events.send(Event::Request(Request::Stop { drain, savepoint: None }));
    }

    /// Whether a stop fires open windows and timers if the user does not choose. A job with checkpoints resumes from
    /// its last one, so it leaves them to the next run.
    #[must_use]
    pub fn stop_drains(&self) -> bool {
        self.described.settings.checkpoint_interval.is_none()
    }

    /// Stops as [`stop`](Self::stop), and copies the last checkpoint of the job to a place of its own. An error of the
    /// copy becomes the result of the job.
    ///
    /// # Errors
    /// Those of [`savepoint`](Self::savepoint). Nothing is stopped then.
    pub fn stop_with_savepoint(&self, drain: bool, url: &str) -> Result<(), ClusterError> {
        self.may_be_saved()?;
        let stop = Event::Request(Request::Stop { drain, savepoint: Some(url.to_owned()) });
        self.events.send(stop).map_err(|_| ClusterError::Savepoint { reason: has_ended() })
    }

    /// Requests a checkpoint outside the interval: now, or as soon as the current one has ended. Returns at once.
    /// [`status`](Self::status) shows the result.
    ///
    /// # Errors
    /// Fails if the job takes no checkpoints or has ended.
    pub fn trigger_checkpoint(&self) -> Result<(), ClusterError> {
        self.takes_checkpoints().map_err(|reason| ClusterError::NotTriggered { reason })?;
        self.events
            .send(Event::Request(Request::Checkpoint))
            .map_err(|_| ClusterError::NotTriggered { reason: has_ended() })
    }

    /// Returns an error with the reason if the job takes no checkpoints.
    pub(super) fn takes_checkpoints(&self) -> Result<(), String> {
        let interval = self.described.settings.checkpoint_interval;
        let no = || "the job takes no checkpoints: call enable_checkpointing() before it is run".to_owned();
        interval.map(drop).ok_or_else(no)
    }

    /// Sends new splits of a source, as its operator encodes them, to the source's subtasks. `restarted` names the
    /// attempt by the number of restarts before it; splits for an attempt that no longer runs are ignored. Send all
    /// splits to the next attempt.
    pub fn add_splits(&self, operator: u32, restarted: u64, splits: Vec<u8>) {
        // Without a receiver the job has ended.
        let _ = self.events.send(Event::Request(Request::Splits(FoundSplits { operator, restarted, splits })));
    }

    /// Cancels the job and returns at once. A job that has finished or is failing is not affected.
    pub fn cancel(&self) {
        // Without a receiver the job has ended.
        let _ = self.events.send(Event::Request(Request::Cancel));
    }
}

pub(super) fn has_ended() -> String {
    "the job has ended".to_owned()
}
