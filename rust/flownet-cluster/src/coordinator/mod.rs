//! Submits jobs: plans a dataflow, starts it and returns a handle to wait on.
//!
//! ```text
//! user's thread            thread "flownet-coordinator"          worker processes
//! JobHandle  --Event-->    Driver --Input--> RegionsMachine, JobMachine of each
//!            <--Status-           <-Command-             --rpc-->  Agent
//! ```
//!
//! # Invariants
//! - I1: when [`JobView::wait`] has returned a result, and when the handle has been dropped, no process, port or thread
//!   of the job is left. The only exception is user code in this process that ignores its cancellation: it can keep its
//!   own thread.
//! - I2: a submitted job gets exactly one result, even after a panic.

mod admission;
mod attempts;
mod channels;
mod checkpoints;
mod driver;
mod enumerator;
mod events;
mod flame;
mod job;
mod link;
mod log;
mod observation;
mod savepoints;
mod sources;
mod status_store;
mod thread;
mod view;
mod workers;

use std::{ops::Deref, sync::Arc};

use flownet_runtime::{ChainFactory, StatePart, log::Log, snapshot::has_medium};
use flownet_store::{CheckpointStore, Listing, Manifest, StateKeys, StoreError};
use tokio::sync::mpsc;

pub use self::channels::{ChannelEnd, InputChannel, OutputChannel, TaskChannels};
pub use self::flame::{FlameFrame, NoFlame, TaskFlame};
pub use self::log::{JobLogEntry, LogPage, LogPrinter, LogQuery};
pub use self::savepoints::{PendingSavepoint, Savepoint, save_checkpoint};
pub use self::view::JobView;
use self::{
    driver::Driver, events::Events, job::Job, status_store::StatusStore, thread::CoordinatorThread,
    view::JobDescription,
};
use crate::{
    checkpoint::without_uid_in,
    error::ClusterError,
    explain::Explanation,
    launcher::Launcher,
    plan::{Dataflow, Plan},
    settings::JobSettings,
    threads::{NetworkThread, SHUTDOWN_LIMIT, control_runtime},
};

/// Starts jobs.
#[derive(Clone, Copy, Debug)]
pub struct Coordinator;

/// Handle to a submitted job, with all queries of a [`JobView`]. Dropping it cancels the job and waits until nothing of
/// it is left.
#[derive(Debug)]
pub struct JobHandle {
    view: JobView,
}

impl Coordinator {
    /// Plans `dataflow` and starts it. Workers come from `launcher`; `factory` builds the chains of the tasks that run
    /// in this process.
    ///
    /// # Errors
    /// Fails if the dataflow, the settings, the memory they request or the files of its sources are invalid. Nothing
    /// has been started then. [`JobView::wait`] reports later failures.
    pub fn submit(
        dataflow: &Dataflow,
        mut settings: JobSettings,
        launcher: Launcher,
        factory: Arc<dyn ChainFactory>,
    ) -> Result<JobHandle, ClusterError> {
        checkpoints::keep_key_groups(&mut settings);
        let mut plan = Self::plan(dataflow, &settings)?;
        enumerator::enumerate(&mut plan, matches!(launcher, Launcher::Processes(_)))?;
        let credentials = launcher.credentials(&settings.tls)?;
        let board = Arc::new(StatusStore::new(&settings, &plan));
        let described = Arc::new(JobDescription {
            explanation: Explanation::of(&plan, &settings),
            settings: settings.clone(),
            without_uid: without_uid_in(&plan),
        });
        let log = Arc::new(Log::default());
        let segments = plan.demands(&settings).iter().map(|demand| (demand.worker, demand.total)).collect();
        let job = Arc::new(Job { plan, settings, segments, launcher, credentials, factory, log });
        let (sender, receiver) = mpsc::unbounded_channel();
        let events = Events { sender: sender.clone(), receiver };
        let verdict = Verdict(Arc::clone(&board));
        let thread = CoordinatorThread::start(move || {
            let log = Arc::clone(&job.log);
            let _speaking = flownet_runtime::log::enter(Arc::clone(&log), None);
            let result = coordinate(job, Arc::clone(&verdict.0), events);
            verdict.0.log().take(0, log.take(usize::MAX));
            verdict.0.set_result(result);
        });
        let thread =
            thread.map_err(|error| ClusterError::Setup { message: format!("cannot start a thread: {error}") })?;
        Ok(JobHandle { view: JobView { board, events: sender, described, thread: Arc::new(thread) } })
    }
}

impl Coordinator {
    /// Checks whether `dataflow` could be submitted with these settings, for callers with expensive workers. Starts
    /// nothing.
    ///
    /// # Errors
    /// Those of [`submit`](Self::submit).
    pub fn check(dataflow: &Dataflow, settings: &JobSettings) -> Result<(), ClusterError> {
        Self::plan(dataflow, settings).map(drop)
    }

    fn plan(dataflow: &Dataflow, settings: &JobSettings) -> Result<Plan, ClusterError> {
        let plan = Plan::new(dataflow, settings)?;
        plan.check_buffers(settings)?;
        Ok(plan)
    }
}

impl Deref for JobHandle {
    type Target = JobView;

    fn deref(&self) -> &JobView {
        &self.view
    }
}

impl Drop for JobHandle {
    fn drop(&mut self) {
        self.cancel();
        self.view.thread.join();
    }
}

/// Lists the checkpoints in a folder, and the damage there. Changes nothing.
///
/// # Errors
/// Fails if there is no such folder, or if it cannot be read.
pub fn checkpoints(storage: &str) -> Result<Listing, StoreError> {
    let store = existing(storage)?;
    let runtime = control_runtime().map_err(|error| StoreError::Url {
        url: storage.to_owned(),
        why: format!("cannot start a runtime: {error}"),
    })?;
    runtime.block_on(store.checkpoints())
}

/// Checkpoint with all its state.
#[derive(Debug)]
pub struct CheckpointContents {
    /// Manifest of the checkpoint.
    pub manifest: Manifest,
    /// State of all its tasks.
    pub parts: Vec<StatePart>,
}

/// Reads a checkpoint or savepoint in a folder: the one with this number, or the last. Changes nothing.
///
/// # Errors
/// Fails if there is none, or if its content differs from what was written.
pub fn read_checkpoint(storage: &str, checkpoint: Option<u64>) -> Result<CheckpointContents, ClusterError> {
    block_on(async {
        let (store, manifest) = found_at(storage, checkpoint).await?;
        let mut parts = Vec::new();
        for task in &manifest.tasks {
            parts.extend(store.read_parts(&task.parts).await?);
        }
        Ok(CheckpointContents { manifest, parts })
    })
}

/// Reads from the last readable checkpoint in a folder only the parts of its tasks that describe how to read values.
///
/// # Errors
/// Fails if there is none.
pub fn read_medium(storage: &str) -> Result<CheckpointContents, ClusterError> {
    block_on(async {
        let store = existing(storage)?;
        let Listing { checkpoints, damage } = store.checkpoints().await?;
        let mut failed = missing(storage, damage);
        for listed in checkpoints.into_iter().rev() {
            let parts = listed.manifest.tasks.iter().flat_map(|task| &task.parts);
            let parts: Vec<_> = parts.filter(|part| has_medium(&part.name, &part.share)).cloned().collect();
            match store.read_parts(&parts).await {
                Ok(parts) => return Ok(CheckpointContents { manifest: listed.manifest, parts }),
                Err(error) => failed = error,
            }
        }
        Err(failed.into())
    })
}

/// Finds the checkpoint with this number in a folder, or the last.
async fn found_at(url: &str, checkpoint: Option<u64>) -> Result<(CheckpointStore, Manifest), StoreError> {
    found_in(existing(url)?, url, checkpoint).await
}

async fn found_in(
    store: CheckpointStore,
    url: &str,
    checkpoint: Option<u64>,
) -> Result<(CheckpointStore, Manifest), StoreError> {
    let Some(number) = checkpoint else {
        let last = store.last_checkpoint().await?.ok_or_else(|| StoreError::Empty { url: url.to_owned() })?;
        return Ok((store, last));
    };
    let Listing { checkpoints, damage } = store.checkpoints().await?;
    let found = checkpoints.into_iter().rev().find(|one| one.manifest.checkpoint == number);
    Ok((store, found.ok_or_else(|| missing(url, damage))?.manifest))
}

/// Returns the reason why a checkpoint is not found: its signature may be rejected.
fn missing(url: &str, damage: Vec<StoreError>) -> StoreError {
    let refused = damage.into_iter().find(|error| matches!(error, StoreError::Signature { .. }));
    refused.unwrap_or_else(|| StoreError::Empty { url: url.to_owned() })
}

/// Opens an existing folder with the keys of this process.
fn existing(url: &str) -> Result<CheckpointStore, StoreError> {
    Ok(CheckpointStore::existing(url)?.with_keys(StateKeys::from_environment()?))
}

/// Runs work on checkpoints outside all jobs.
fn block_on<T>(work: impl Future<Output = Result<T, ClusterError>>) -> Result<T, ClusterError> {
    let runtime = control_runtime().map_err(|error| ClusterError::Setup { message: error.to_string() })?;
    runtime.block_on(work)
}

/// Posts a result even if the coordinator's thread panics (I2).
struct Verdict(Arc<StatusStore>);

impl Drop for Verdict {
    fn drop(&mut self) {
        self.0.set_result(Err(ClusterError::Setup { message: "the coordinator ended unexpectedly".to_owned() }));
    }
}

/// Runs the coordinator's thread. The runtimes end in here, so their threads are gone before the result is posted.
fn coordinate(job: Arc<Job>, board: Arc<StatusStore>, events: Events) -> Result<(), ClusterError> {
    let setup = |error: std::io::Error| ClusterError::Setup { message: format!("cannot start a thread: {error}") };
    let network = NetworkThread::start().map_err(setup)?;
    let control = control_runtime().map_err(setup)?;
    let handle = network.handle().clone();
    let result = control.block_on(async { Driver::new(job, board, events, handle).await?.run().await });
    control.shutdown_timeout(SHUTDOWN_LIMIT);
    drop(network);
    result
}
