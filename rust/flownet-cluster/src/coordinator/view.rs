//! A job as seen by those who ask about it, steer it, and do not own it.

use std::{sync::Arc, time::Duration};

use tokio::sync::mpsc;

use super::{driver::Event, found::FoundSplits, status_store::StatusStore, thread::CoordinatorThread};
use crate::{
    error::ClusterError,
    explain::Explanation,
    report::{JobOutcome, JobReport, JobStatus},
    sample::JobSample,
    settings::JobSettings,
    stall::Stall,
};

/// A job, for whoever watches it. Keeping one keeps nothing of the job alive but what is known of it; when the job has ended,
/// it answers as it was last, and what it is asked to do comes to nothing.
#[derive(Clone, Debug)]
pub struct JobView {
    pub(super) board: Arc<StatusStore>,
    pub(super) events: mpsc::UnboundedSender<Event>,
    pub(super) described: Arc<JobDescription>,
    pub(super) thread: Arc<CoordinatorThread>,
}

/// What is known of a job before it runs.
#[derive(Debug)]
pub(super) struct JobDescription {
    pub(super) explanation: Explanation,
    pub(super) settings: JobSettings,
    /// Operators that keep state and have none.
    pub(super) without_uid: Vec<String>,
}

impl JobView {
    /// Waits for the end of the job, at most `timeout`; `None` if it still
    /// runs. Asked again, it answers the same.
    #[must_use]
    pub fn wait(&self, timeout: Option<Duration>) -> Option<Result<JobReport, ClusterError>> {
        let result = self.board.wait(timeout)?;
        // I1: the thread has posted the result with its last breath, and may still be there.
        self.thread.join();
        Some(result)
    }

    /// What the job does now. When it has ended: what it was like then, with rates and shares over the whole life of its
    /// tasks.
    #[must_use]
    pub fn status(&self) -> JobStatus {
        self.board.status()
    }

    /// What every subtask and process does now, as last reported: counters and
    /// queues are at most as old as the status interval.
    #[must_use]
    pub fn sample(&self) -> JobSample {
        self.board.sample()
    }

    /// How the job ended; none while it runs.
    #[must_use]
    pub fn outcome(&self) -> Option<JobOutcome> {
        Some(match self.board.wait(Some(Duration::ZERO))? {
            Ok(_) => JobOutcome::Finished,
            Err(ClusterError::Cancelled) => JobOutcome::Cancelled,
            Err(_) => JobOutcome::Failed,
        })
    }

    /// Why the job ended, if it failed or was cancelled; where the user's code failed, with Python's traceback.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let error = self.board.wait(Some(Duration::ZERO))?.err()?;
        Some(error.traceback().map_or_else(|| error.to_string(), |text| format!("{error}\n{text}")))
    }

    /// What the job took, as it was planned.
    #[must_use]
    pub fn explanation(&self) -> &Explanation {
        &self.described.explanation
    }

    /// What it was submitted with.
    #[must_use]
    pub fn settings(&self) -> &JobSettings {
        &self.described.settings
    }

    /// The last time that the job was found to stand still although records
    /// wait, and the number of that time, if it is above `after`. For whoever
    /// tells people: each number once. A function that does not return counts
    /// once for all subtasks of its vertex.
    #[must_use]
    pub fn stall_after(&self, after: u32) -> Option<(u32, Stall)> {
        self.board.stall_after(after)
    }

    /// Asks the job to end well; returns at once. Its sources end, what is in
    /// flight is worked off, sinks make final what they got, and the job has
    /// finished. With `drain` windows and timers that are open fire, else they
    /// do not; [`stop_drains`](Self::stop_drains) says what suits the job. What takes longer than `stop_timeout` is cancelled:
    /// [`ClusterError::StopTimeout`]. Only the first call counts.
    pub fn stop(&self, drain: bool) {
        // Without a receiver the job has ended.
        let _ = self.events.send(Event::Stop { drain, savepoint: None });
    }

    /// Whether a stop should fire windows and timers that are open if the user does not say. A job with checkpoints resumes
    /// from its last one, so it leaves them to the next run.
    #[must_use]
    pub fn stop_drains(&self) -> bool {
        self.described.settings.checkpoint_interval.is_none()
    }

    /// As [`stop`](Self::stop), and copies the last checkpoint of the job to a place of its own. What goes wrong with that is the result
    /// of the job.
    ///
    /// # Errors
    /// As of [`savepoint`](Self::savepoint); nothing is stopped then.
    pub fn stop_with_savepoint(&self, drain: bool, url: &str) -> Result<(), ClusterError> {
        self.may_be_saved()?;
        let stop = Event::Stop { drain, savepoint: Some(url.to_owned()) };
        self.events.send(stop).map_err(|_| ClusterError::Savepoint { reason: has_ended() })
    }

    /// Asks for a checkpoint beside those that come by themselves: now, or as soon as the one that is under way has ended.
    /// Returns at once; [`status`](Self::status) tells what came of it.
    ///
    /// # Errors
    /// The job takes no checkpoints or has ended.
    pub fn trigger_checkpoint(&self) -> Result<(), ClusterError> {
        self.takes_checkpoints().map_err(|reason| ClusterError::NotTriggered { reason })?;
        self.events.send(Event::Checkpoint).map_err(|_| ClusterError::NotTriggered { reason: has_ended() })
    }

    /// Else why not.
    pub(super) fn takes_checkpoints(&self) -> Result<(), String> {
        let interval = self.described.settings.checkpoint_interval;
        let no = || "the job takes no checkpoints: call enable_checkpointing() before it is run".to_owned();
        interval.map(drop).ok_or_else(no)
    }

    /// Tells the subtasks of a source that there is more to read, as its operator writes it: those of the attempt before which
    /// the job was restarted so often, if it still runs. Tell the next one of everything.
    pub fn add_splits(&self, operator: u32, restarted: u64, splits: Vec<u8>) {
        // Without a receiver the job has ended.
        let _ = self.events.send(Event::Splits { found: FoundSplits { operator, restarted, splits } });
    }

    /// Asks the job to end without finishing; returns at once. A job that has
    /// finished, or is failing, goes on as it was.
    pub fn cancel(&self) {
        // Without a receiver the job has ended.
        let _ = self.events.send(Event::Cancel);
    }
}

pub(super) fn has_ended() -> String {
    "the job has ended".to_owned()
}
