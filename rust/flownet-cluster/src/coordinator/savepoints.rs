//! Savepoints: checkpoints that are copied to a place of the user's own.
//!
//! One that is asked for while the job runs is a checkpoint as any other, triggered at once, which is copied when it counts;
//! meanwhile nothing is deleted. That of a job that stops is a copy of its last one.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use flownet_store::{CheckpointStore, FILE_VARIABLE, KEY_VARIABLE, Manifest, StateKeys, StoreError};
use serde::Serialize;

use super::checkpoints::wall_clock_ms;
use super::driver::{Driver, Event};
use super::view::{JobView, has_ended};
use super::{block_on, found_at, found_in};
use crate::{
    checkpoint::{Input, without_uid},
    error::ClusterError,
    shown,
};

/// A savepoint that was written.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Savepoint {
    /// Where it is.
    pub url: String,
    /// Number of the checkpoint that it is a copy of.
    pub checkpoint: u64,
    /// State that it is made of.
    pub bytes: u64,
    /// From the trigger of that checkpoint until it was copied.
    #[serde(rename = "seconds", serialize_with = "shown::seconds")]
    pub duration: Duration,
}

/// A savepoint that was asked for.
#[derive(Debug)]
pub struct PendingSavepoint(Receiver<Result<Savepoint, ClusterError>>);

/// What the driver knows of it.
pub(super) struct SavepointRequest {
    url: String,
    answer: Sender<Result<Savepoint, ClusterError>>,
    /// The checkpoint that is to be copied, once it is triggered.
    checkpoint: Option<u64>,
}

impl PendingSavepoint {
    /// The answer, if it is there.
    #[must_use]
    pub fn poll(&self) -> Option<Result<Savepoint, ClusterError>> {
        self.wait(Duration::ZERO)
    }

    /// Waits until it is written, at most `timeout`.
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
    /// Asks for a savepoint in a folder of its own; returns at once. The job goes on.
    ///
    /// # Errors
    /// The job takes no checkpoints or has ended, or operators that keep state have no uid.
    pub fn savepoint(&self, url: &str) -> Result<PendingSavepoint, ClusterError> {
        self.may_be_saved()?;
        let (answer, receiver) = channel();
        let request = SavepointRequest { url: url.to_owned(), answer, checkpoint: None };
        self.events.send(Event::Savepoint { request }).map_err(|_| ClusterError::Savepoint { reason: has_ended() })?;
        Ok(PendingSavepoint(receiver))
    }

    pub(super) fn may_be_saved(&self) -> Result<(), ClusterError> {
        self.takes_checkpoints().map_err(|reason| ClusterError::Savepoint { reason })?;
        check_uids(self.described.without_uid.clone())
    }
}

/// Copies a checkpoint in a folder, the one of this number or the last, of a job that runs or of one that does not any more, to
/// a place of its own. `trusts_unsigned`: it is not signed, and the copy is to be.
///
/// # Errors
/// There is none, operators that keep state have no uid, or one of the places cannot be used.
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

impl Driver {
    pub(super) fn take_savepoint_request(&mut self, request: SavepointRequest) {
        self.savepoints.push(request);
        self.feed_checkpoints(Input::Requested);
    }

    /// Whoever asked until now gets this one.
    pub(super) fn assign_savepoints(&mut self, checkpoint: u64) -> bool {
        let mut is_wanted = false;
        for request in self.savepoints.iter_mut().filter(|request| request.checkpoint.is_none()) {
            request.checkpoint = Some(checkpoint);
            is_wanted = true;
        }
        is_wanted
    }

    /// The checkpoint was given up for nothing that it did: whoever asked gets the next one.
    pub(super) fn unassign_savepoints(&mut self, checkpoint: u64) {
        let mut unassigned = self.take_savepoints(|of| of == Some(checkpoint));
        unassigned.iter_mut().for_each(|request| request.checkpoint = None);
        if !unassigned.is_empty() {
            self.savepoints.append(&mut unassigned);
            self.feed_checkpoints(Input::Requested);
        }
    }

    /// The checkpoint will never count.
    pub(super) fn refuse_savepoints(&mut self, checkpoint: u64, reason: &str) {
        for request in self.take_savepoints(|of| of == Some(checkpoint)) {
            request.answer(Err(ClusterError::Savepoint { reason: reason.to_owned() }));
        }
    }

    /// An attempt begins: who waits for a checkpoint of the one before is told, who waits for any asks anew.
    pub(super) fn ask_again_for_savepoints(&mut self) {
        for request in self.take_savepoints(|of| of.is_some()) {
            request.answer(Err(ClusterError::Savepoint { reason: "the job failed and was restarted".into() }));
        }
        if !self.savepoints.is_empty() {
            self.feed_checkpoints(Input::Requested);
        }
    }

    /// The checkpoint counts: it is copied for whoever asked, and then what nobody can ask for any more is deleted.
    pub(super) fn save_and_sweep(&mut self, manifest: Manifest) {
        let requests = self.take_savepoints(|of| of == Some(manifest.checkpoint));
        let retained = self.job.settings.retained_checkpoints as usize;
        let Some(claim) = self.claim() else { return };
        tokio::spawn(async move {
            // What is copied stays: whoever would delete it needs the claim.
            let claim = claim.lock().await;
            for request in requests {
                let saved = save(claim.store(), &manifest, &request.url).await;
                request.answer(saved);
            }
            if let Err(error) = claim.sweep(retained).await {
                tracing::warn!(%error, "old checkpoints could not be deleted");
            }
        });
    }

    /// The job has been stopped: its last checkpoint is copied, if that was wanted.
    pub(super) async fn save_last(&mut self) -> Result<(), ClusterError> {
        let Some(url) = self.last_savepoint.take() else { return Ok(()) };
        let began = Instant::now();
        let Some(claim) = self.claim() else { return Ok(()) };
        let claim = claim.lock().await;
        let empty = || StoreError::Empty { url: claim.store().url().to_owned() };
        let manifest = claim.store().last_checkpoint().await?.ok_or_else(empty)?;
        let saved = save(claim.store(), &manifest, &url).await?;
        tracing::info!(job = self.job.settings.job_name, url = saved.url, took = ?began.elapsed(), "savepoint");
        Ok(())
    }

    fn take_savepoints(&mut self, is_wanted: impl Fn(Option<u64>) -> bool) -> Vec<SavepointRequest> {
        let (taken, left) =
            std::mem::take(&mut self.savepoints).into_iter().partition(|request| is_wanted(request.checkpoint));
        self.savepoints = left;
        taken
    }
}

impl SavepointRequest {
    fn answer(self, answer: Result<Savepoint, ClusterError>) {
        // Who has gone does not want to know.
        let _ = self.answer.send(answer);
    }
}
