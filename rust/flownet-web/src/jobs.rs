//! Jobs of a process: the running ones, and the last ones that have ended.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use flownet_cluster::{JobState, JobView};

use crate::channels::ChannelSamples;
use crate::history::{History, HistoryDocument};

/// All shown jobs, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    shown: Mutex<JobSummary>,
}

#[derive(Debug, Default)]
struct JobSummary {
    /// Number of the job added last.
    number: u64,
    jobs: Vec<Arc<ShownJob>>,
}

/// A job that the server shows.
#[derive(Debug)]
pub(crate) struct ShownJob {
    /// Id in the API.
    pub(crate) id: String,
    /// Time of submission, in milliseconds since the epoch.
    pub(crate) began_ms: u64,
    pub(crate) view: JobView,
    /// Earlier samples of channels. The lock lets one request at a time sample them.
    pub(crate) looks: tokio::sync::Mutex<ChannelSamples>,
    /// Lets one request at a time take flame samples of a subtask.
    pub(crate) sampling: tokio::sync::Mutex<()>,
    history: Mutex<History>,
    is_archived: AtomicBool,
}

impl Jobs {
    /// Adds a job and returns its id. If too many jobs have ended, removes the oldest of them.
    pub(crate) fn add(&self, view: JobView) -> String {
        let elapsed_ms = view.status().elapsed.as_millis() as u64;
        let began_ms = now_ms().saturating_sub(elapsed_ms);
        // Query the jobs first: their own locks must not be taken under this one.
        let ended: Vec<String> = self.all().iter().filter(|job| job.has_ended()).map(|job| job.id.clone()).collect();
        let too_many = ended.len().saturating_sub(MOST_ENDED - 1);
        let mut shown = self.lock();
        shown.jobs.retain(|job| !ended[..too_many].contains(&job.id));
        shown.number += 1;
        let id = shown.number.to_string();
        shown.jobs.push(Arc::new(ShownJob {
            id: id.clone(),
            began_ms,
            view,
            looks: tokio::sync::Mutex::default(),
            sampling: tokio::sync::Mutex::default(),
            history: Mutex::default(),
            is_archived: AtomicBool::new(false),
        }));
        id
    }

    pub(crate) fn all(&self) -> Vec<Arc<ShownJob>> {
        self.lock().jobs.clone()
    }

    pub(crate) fn find(&self, id: &str) -> Option<Arc<ShownJob>> {
        self.lock().jobs.iter().find(|job| job.id == id).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, JobSummary> {
        // The list changes in one step, so it is consistent even after a panic.
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ShownJob {
    pub(crate) fn has_ended(&self) -> bool {
        self.view.status().state == JobState::Ended
    }

    /// Returns true if the job has ended and was not archived yet. Returns true only once.
    pub(crate) fn is_to_be_archived(&self) -> bool {
        self.has_ended() && !self.is_archived.swap(true, Ordering::Relaxed)
    }

    /// Adds the current state to the history while the job runs.
    pub(crate) fn note(&self) {
        let status = self.view.status();
        if status.state != JobState::Ended {
            self.history().push(&status);
        }
    }

    pub(crate) fn timelines(&self) -> HistoryDocument {
        self.history().document()
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the wall-clock time in milliseconds since the epoch.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Ended jobs that are still shown.
const MOST_ENDED: usize = 20;
