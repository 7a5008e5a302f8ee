//! Copies checkpoints as savepoints to a place that a user owns.
//!
//! A savepoint of a running job is a checkpoint like any other. It is triggered at once and copied when it is
//! published; meanwhile nothing is deleted. The savepoint of a job that stops is a copy of its last checkpoint.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use flownet_store::{CheckpointStore, FILE_VARIABLE, KEY_VARIABLE, Manifest, StateKeys, StoreError};
use serde::Serialize;

use super::checkpoints::wall_clock_ms;
use super::events::{Event, Request};
use super::view::{JobView, has_ended};
use super::{block_on, found_at, found_in};
use crate::{checkpoint::without_uid, error::ClusterError, shown};

/// Written savepoint.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Savepoint {
    /// URL of its folder.
    pub url: String,
    /// Number of the copied checkpoint.
    pub checkpoint: u64,
    /// Size of its state in bytes.
    pub bytes: u64,
    /// Time from the trigger of the checkpoint until the copy was complete.
    #[serde(rename = "seconds", serialize_with = "shown::seconds")]
    pub duration: Duration,
}

/// Savepoint that was requested.
#[derive(Debug)]
pub struct PendingSavepoint(Receiver<Result<Savepoint, ClusterError>>);

/// Driver's record of a request.
pub(super) struct SavepointRequest {
    url: String,
    answer: Sender<Result<Savepoint, ClusterError>>,
    /// Checkpoint to copy, once it is triggered.
    checkpoint: Option<u64>,
}

impl PendingSavepoint {
    /// Returns the result, if it is there.
    #[must_use]
    pub fn poll(&self) -> Option<Result<Savepoint, ClusterError>> {
        self.wait(Duration::ZERO)
    }

    /// Waits for the result, at most `timeout`.
    pub fn wait(&self, timeout: Duration) -> Option<Result<Savepoint, ClusterError>> {
        match self.0.recv_timeout(timeout) {
            Ok(answer) => Some(answer),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                Some(Err(ClusterError::Savepoint { reason: "the job has ended before it was taken".into() }))
            }
        }
    }
}

impl JobView {
    /// Requests a savepoint in a folder of its own and returns at once. The job continues.
    ///
    /// # Errors
    /// Fails if the job takes no checkpoints or has ended, or if operators with state have no uid.
    pub fn savepoint(&self, url: &str) -> Result<PendingSavepoint, ClusterError> {
        self.may_be_saved()?;
        let (answer, receiver) = channel();
        let request = SavepointRequest { url: url.to_owned(), answer, checkpoint: None };
        let event = Event::Request(Request::Savepoint(request));
        self.events.send(event).map_err(|_| ClusterError::Savepoint { reason: has_ended() })?;
        Ok(PendingSavepoint(receiver))
    }

    pub(super) fn may_be_saved(&self) -> Result<(), ClusterError> {
        self.takes_checkpoints().map_err(|reason| ClusterError::Savepoint { reason })?;
        check_uids(self.described.without_uid.clone())
    }
}

/// Copies a checkpoint in a folder to a place of its own: the one with this number, or the last. The job may run or
/// have ended. With `trusts_unsigned` the checkpoint is unsigned, and the copy is signed.
///
/// # Errors
/// Fails if there is none, if operators with state have no uid, or if one of the places cannot be used.
pub fn save_checkpoint(
    storage: &str,
    checkpoint: Option<u64>,
    url: &str,
    trusts_unsigned: bool,
) -> Result<Savepoint, ClusterError> {
    block_on(async {
        let (store, manifest) = if trusts_unsigned {
            if !StateKeys::from_environment().map_err(StoreError::from)?.are_set() {
                let why = format!("there is none to sign with: set {KEY_VARIABLE} or {FILE_VARIABLE}");
                return Err(StoreError::Key { why }.into());
            }
            found_in(CheckpointStore::existing(storage)?, storage, checkpoint).await?
        } else {
            found_at(storage, checkpoint).await?
        };
        save(&store, &manifest, url).await
    })
}

async fn save(store: &CheckpointStore, manifest: &Manifest, url: &str) -> Result<Savepoint, ClusterError> {
    check_uids(without_uid(manifest))?;
    let to = CheckpointStore::open(url)?.with_keys(StateKeys::from_environment().map_err(StoreError::from)?);
    let saved = store.save(manifest, &to).await?;
    let since_trigger = u64::try_from(wall_clock_ms() - manifest.triggered_ms).unwrap_or(0);
    Ok(Savepoint {
        url: to.url().to_owned(),
        checkpoint: manifest.checkpoint,
        bytes: saved.bytes(),
        duration: Duration::from_millis(since_trigger),
    })
}

fn check_uids(operators: Vec<String>) -> Result<(), ClusterError> {
    if operators.is_empty() { Ok(()) } else { Err(ClusterError::MissingUid { operators }) }
}

/// Requests for savepoints without an answer.
#[derive(Default)]
pub(super) struct Savepoints {
    requests: Vec<SavepointRequest>,
    /// URL to which the last checkpoint of the job is copied.
    last: Option<String>,
}

impl Savepoints {
    pub(super) fn add(&mut self, request: SavepointRequest) {
        self.requests.push(request);
    }

    /// Sets the place for a copy of the last checkpoint. Only the first call counts.
    pub(super) fn set_last(&mut self, url: String) {
        self.last.get_or_insert(url);
    }

    /// Returns the place for a copy of the last checkpoint, once.
    pub(super) fn take_last(&mut self) -> Option<String> {
        self.last.take()
    }

    /// Assigns the checkpoint to all requests until now. Returns whether there are any.
    pub(super) fn assign(&mut self, checkpoint: u64) -> bool {
        let mut is_wanted = false;
        for request in self.requests.iter_mut().filter(|request| request.checkpoint.is_none()) {
            request.checkpoint = Some(checkpoint);
            is_wanted = true;
        }
        is_wanted
    }

    /// Reassigns requests of a checkpoint that was given up without a failure of its own to the next checkpoint.
    /// Returns whether there are any.
    pub(super) fn unassign(&mut self, checkpoint: u64) -> bool {
        let mut unassigned = self.take(checkpoint);
        unassigned.iter_mut().for_each(|request| request.checkpoint = None);
        let is_wanted = !unassigned.is_empty();
        self.requests.append(&mut unassigned);
        is_wanted
    }

    /// Fails the requests of a checkpoint that will never be published.
    pub(super) fn refuse(&mut self, checkpoint: u64, reason: &str) {
        for request in self.take(checkpoint) {
            request.answer(Err(ClusterError::Savepoint { reason: reason.to_owned() }));
        }
    }

    /// Prepares the requests for a new attempt: those with a checkpoint of the previous one fail, the others are
    /// repeated. Returns whether there are any to repeat.
    pub(super) fn begin_attempt(&mut self) -> bool {
        for request in self.take_if(|of| of.is_some()) {
            request.answer(Err(ClusterError::Savepoint { reason: "the job failed and was restarted".into() }));
        }
        !self.requests.is_empty()
    }

    /// Removes and returns the requests of a checkpoint.
    pub(super) fn take(&mut self, checkpoint: u64) -> Vec<SavepointRequest> {
        self.take_if(|of| of == Some(checkpoint))
    }

    fn take_if(&mut self, is_wanted: impl Fn(Option<u64>) -> bool) -> Vec<SavepointRequest> {
        self.requests.extract_if(.., |request| is_wanted(request.checkpoint)).collect()
    }
}

/// Copies a published checkpoint for all of its requests, and answers them.
pub(super) async fn copy_to_all(requests: Vec<SavepointRequest>, manifest: &Manifest, store: &CheckpointStore) {
    for request in requests {
        let saved = save(store, manifest, &request.url).await;
        request.answer(saved);
    }
}

/// Copies the last checkpoint in a store.
pub(super) async fn copy_last(store: &CheckpointStore, url: &str, job: &str) -> Result<(), ClusterError> {
    let began = Instant::now();
    let empty = || StoreError::Empty { url: store.url().to_owned() };
    let manifest = store.last_checkpoint().await?.ok_or_else(empty)?;
    let saved = save(store, &manifest, url).await?;
    tracing::info!(job, url = saved.url, took = ?began.elapsed(), "savepoint");
    Ok(())
}

impl SavepointRequest {
    fn answer(self, answer: Result<Savepoint, ClusterError>) {
        // The caller may have stopped waiting.
        let _ = self.answer.send(answer);
    }
}
