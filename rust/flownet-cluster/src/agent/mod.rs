//! Runs the data plane and the tasks of a worker.
//!
//! The same [`Agent`] serves calls from a socket in a worker process and direct calls in the submitting process. Its
//! methods run on a control thread that never executes user code. A separate thread builds the chains, and task threads
//! run them.
//!
//! The tasks of a region start and stop together, independently of other regions. Each attempt of a region has its own
//! data port. So nothing of the previous attempt reaches it, such as a half-sent frame or a pending request. All
//! attempts share the network memory of the process.
//!
//! # Invariants
//! - I1: every started task is reported as ended exactly once. A failed task is reported before its user code has
//!   closed.
//! - I2: after [`Agent::stop`] no task of the region runs, no partition of it is served, and its data port is closed.
//!   After an aborted stop, only threads that wait for user code are left.
//! - I3: reports of an attempt's tasks are delivered only until the next attempt of their region is deployed.

mod reporter;

use std::{
    collections::{BTreeMap, HashMap},
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Wake, Waker},
    time::Duration,
};

use flownet_core::PartitionId;
use flownet_memory::{MemoryError, SegmentPool};
use flownet_net::{Credentials, NetworkConfig, NetworkEnvironment};
use flownet_runtime::{
    ChainFactory, CheckpointContext, CheckpointOrder, CheckpointReport, PreparedTask, TaskChain, TaskError, TaskHandle,
    flame::{Flame, FlameOrder},
    inspection::TaskChannels,
    log::{self, Log, Speaker},
    source::SourceOrder,
    spec::TaskSpec,
    work,
};
use flownet_store::{CheckpointStore, TaskSnapshot};
use tokio::{
    runtime::Handle,
    sync::{Mutex as AsyncMutex, Notify, oneshot},
};

use self::reporter::Reporter;
use crate::{
    explain::network_config,
    resources::Resources,
    rpc::{Attempt, Deployment, Inspection, StatusReport, TaskEnd, TaskReport, TaskRestore, WorkerFault},
    settings::JobSettings,
    snapshots::Checkpoints,
    threads::on_build_thread,
};

/// Tasks of one worker and their resources.
pub(crate) struct Agent {
    worker: u32,
    credentials: Credentials,
    /// Chain factory. An error is stored until a deployment can report it.
    factory: Result<Arc<dyn ChainFactory>, String>,
    /// Address on which the data plane listens, reachable by the worker's peers.
    host: IpAddr,
    /// Runtime of the data plane.
    network: Handle,
    /// Log of this worker.
    log: Arc<Log>,
    /// Lock for building tasks: one thread at a time imports users' modules.
    building: AsyncMutex<()>,
    /// Last deployment of each region on this worker.
    parts: Mutex<BTreeMap<u32, Arc<DeployedRegion>>>,
    running: Mutex<RunningTasks>,
    /// Attempt of the job to which the tasks belong.
    generation: AtomicU64,
    ended: Arc<ReportQueue>,
}

/// Resources of a region on this worker.
#[derive(Default)]
struct DeployedRegion {
    /// Lock held for a whole deploy, start or stop, so that they never overlap.
    stage: AsyncMutex<Stage>,
    stopping: AtomicBool,
}

/// Resources that exist before the tasks run.
#[derive(Default)]
struct Stage {
    environment: Option<NetworkEnvironment>,
    built: Vec<BuiltTask>,
}

/// Started tasks and their shared state.
#[derive(Default)]
struct RunningTasks {
    tasks: Vec<RunningTask>,
    /// Attempt of each region.
    attempts: BTreeMap<u32, Attempt>,
    /// Current source order and its number, also for sources that start later.
    order: (u64, SourceOrder),
    /// The same for event-time limits of sources, by task.
    limits: (u64, Vec<(u32, i64)>),
    /// Network memory of this process, while some region uses it.
    segments: Weak<SegmentPool>,
}

/// Started task.
struct RunningTask {
    attempt: Attempt,
    handle: TaskHandle,
}

/// Built task that waits for its peers.
struct BuiltTask {
    prepared: PreparedTask,
    chain: TaskChain,
}

/// Ends and checkpoint reports of tasks, queued by their threads for the next poll.
#[derive(Default)]
struct ReportQueue {
    news: Mutex<QueuedReports>,
    /// Whether congestion has changed since the last report.
    has_flipped: AtomicBool,
    changed: Notify,
}

#[derive(Default)]
struct QueuedReports {
    /// Ends, each with its attempt: a snapshot may be written after its task has ended.
    ends: Vec<(Attempt, TaskEnd)>,
    reports: Vec<(Attempt, TaskReport)>,
}

impl Agent {
    pub(crate) fn new(
        worker: u32,
        credentials: Credentials,
        factory: Result<Arc<dyn ChainFactory>, String>,
        host: IpAddr,
        network: Handle,
        log: Arc<Log>,
    ) -> Arc<Self> {
        let ended = Arc::<ReportQueue>::default();
        log.set_listener(Waker::from(Arc::new(Listener(Arc::clone(&ended)))));
        Arc::new(Self {
            worker,
            credentials,
            factory,
            host,
            network,
            log,
            building: AsyncMutex::default(),
            parts: Mutex::default(),
            running: Mutex::default(),
            generation: AtomicU64::new(0),
            ended,
        })
    }

    pub(crate) fn worker(&self) -> u32 {
        self.worker
    }

    /// Opens a data plane for a region and builds its tasks. Returns the address of the data plane.
    pub(crate) async fn deploy(self: &Arc<Self>, deployment: Deployment) -> Result<SocketAddr, WorkerFault> {
        let factory = self.factory.clone().map_err(WorkerFault::Worker)?;
        let Deployment { generation, attempt, settings, segments, tasks, restored, has_digests } = deployment;
        // The previous attempt of the region has stopped, so this one replaces its resources.
        let part = Arc::<DeployedRegion>::default();
        self.parts().insert(attempt.region, Arc::clone(&part));
        let mut stage = part.stage.lock().await;
        self.log.open();
        self.generation.store(generation, Ordering::Release);
        self.running().begin(attempt);
        let checkpointing = match restored {
            None => BTreeMap::new(),
            Some(restored) => {
                let url = settings.checkpoint_storage.as_deref().unwrap_or_default();
                let store = CheckpointStore::open(url).map_err(WorkerFault::Store)?.with_digests(has_digests);
                self.checkpointing(generation, attempt, store, &settings, &tasks, restored).await?
            }
        };
        let environment = self.open_network(&settings, segments).await?;
        let address = environment.local_addr();
        stage.environment = Some(environment.clone());
        let (agent, of) = (Arc::clone(self), Arc::clone(&part));
        let build = move || agent.build_all(&of, tasks, &environment, &*factory, settings.max_record_bytes);
        let building = self.building.lock().await;
        let built = on_build_thread(build).await;
        drop(building);
        stage.built = built.map_err(|error| WorkerFault::Worker(format!("building its tasks failed: {error}")))??;
        for (task, checkpointing) in stage.built.iter_mut().zip(checkpointing.into_values()) {
            task.prepared.set_checkpointing(checkpointing);
        }
        Ok(address)
    }

    /// Returns the checkpoint context of each task, by position in `tasks`, with the state that it restores.
    async fn checkpointing(
        &self,
        generation: u64,
        attempt: Attempt,
        store: CheckpointStore,
        settings: &JobSettings,
        tasks: &[TaskSpec],
        mut restored: BTreeMap<u32, TaskRestore>,
    ) -> Result<BTreeMap<usize, CheckpointContext>, WorkerFault> {
        let shared = Arc::new(Checkpoints { store, generation, control: Handle::current() });
        let mut checkpointing = BTreeMap::new();
        for (place, spec) in tasks.iter().enumerate() {
            let TaskRestore { parts, has_finished } = restored.remove(&spec.task_id).unwrap_or_default();
            let restored = shared.restored(parts).await.map_err(WorkerFault::Store)?;
            let reporter = Reporter::new(Arc::clone(&shared), spec, attempt, Arc::clone(&self.ended));
            let report = Arc::new(move |report| reporter.report(report));
            let (mode, overtakes) = (settings.checkpoint_mode, settings.overtakes());
            checkpointing.insert(place, CheckpointContext { mode, overtakes, restored, has_finished, report });
        }
        Ok(checkpointing)
    }

    /// Connects the tasks of a region and starts them.
    pub(crate) async fn start(&self, attempt: Attempt, peers: &BTreeMap<u32, SocketAddr>) -> Result<(), WorkerFault> {
        let Some(part) = self.part(attempt.region) else { return Ok(()) };
        let mut stage = part.stage.lock().await;
        let mut built = std::mem::take(&mut stage.built);
        let partitions: HashMap<PartitionId, _> = built
            .iter()
            .flat_map(|task| task.prepared.partitions())
            .map(|partition| (partition.id(), partition.clone()))
            .collect();
        for task in &mut built {
            let connected = task.prepared.connect(peers, |partition| partitions.get(&partition).cloned());
            connected.map_err(|error| fault(task.prepared.spec(), error))?;
        }
        let name = match stage.environment.as_ref().filter(|_| self.worker > 0) {
            Some(environment) => environment.local_addr().to_string(),
            None => "driver".to_owned(),
        };
        for task in built {
            self.start_task(task, attempt, &name)?;
        }
        if let Some(environment) = &stage.environment {
            work::watch(environment, self.running().of(attempt.region).map(TaskHandle::live_metrics).collect());
        }
        Ok(())
    }

    /// Returns what happened since the last call, after a wait of at most `wait` for an event. Log records wait briefly
    /// for more of them. Returns at most `log_room` bytes of log records.
    pub(crate) async fn poll(&self, wait: Duration, log_room: u64) -> StatusReport {
        let has_news = |told: &QueuedReports| told.has_some() || self.ended.has_flipped.load(Ordering::Acquire);
        let is_heard = |told: &QueuedReports| has_news(told) || (log_room > 0 && self.log.has_some());
        // A timeout is an answer, too: no task has ended.
        if tokio::time::timeout(wait, self.ended.wait_until(is_heard)).await.is_ok() {
            let _ = tokio::time::timeout(wait.min(GATHER_LOG), self.ended.wait_until(has_news)).await;
        }
        self.news(log_room)
    }

    /// Sets the rate limit of the sources, unless a later order came before.
    pub(crate) fn order(&self, number: u64, order: SourceOrder) {
        let mut running = self.running();
        if number > running.order.0 {
            running.order = (number, order);
            running.all().for_each(|task| task.order(order));
        }
    }

    /// Sets the event-time limits of sources, unless later limits came before or they belong to another attempt.
    pub(crate) fn align(&self, generation: u64, number: u64, limits: Vec<(u32, i64)>) {
        let mut running = self.running();
        if number > running.limits.0 && self.generation.load(Ordering::Acquire) == generation {
            running.limits = (number, limits);
            running.all().for_each(|task| running.align(task));
        }
    }

    /// Passes new splits to a source, unless they belong to another attempt. All tasks of the source run.
    pub(crate) fn add_splits(&self, generation: u64, operator: u32, splits: Vec<u8>) {
        if self.generation.load(Ordering::Acquire) == generation {
            let splits: Arc<[u8]> = splits.into();
            self.running().all().for_each(|task| task.add_splits(operator, &splits));
        }
    }

    /// Ends the sources of a region. They all run: none starts later.
    pub(crate) fn end_sources(&self, attempt: Attempt, drain: bool) {
        self.running().of(attempt.region).for_each(|task| task.end_source(drain));
    }

    /// Passes a checkpoint order to the tasks. Skips tasks of another attempt of the job, and of region attempts that
    /// began after the order.
    pub(crate) fn checkpoint(&self, generation: u64, latest: u64, order: CheckpointOrder) {
        if self.generation.load(Ordering::Acquire) == generation {
            let running = self.running();
            let told = running.tasks.iter().filter(|task| task.attempt.number <= latest);
            told.for_each(|task| task.handle.checkpoint(order));
        }
    }

    /// Returns what each task waits for.
    pub(crate) fn inspect(&self) -> Inspection {
        let running = self.running();
        let tasks = running.all().map(|task| (task.spec().task_id, task.inspect())).collect();
        Inspection { tasks, free: running.segments.upgrade().map_or(0, |pool| pool.available() as u64) }
    }

    /// Returns the channels of one task, if it runs here.
    pub(crate) fn channels(&self, task: u32) -> Option<TaskChannels> {
        let running = self.running();
        running.all().find(|one| one.spec().task_id == task).map(TaskHandle::channels)
    }

    /// Samples one task, if it runs here, on a separate thread. Returns the samples that exist when the time is over:
    /// that thread may have to wait for the interpreter, and this one does not.
    pub(crate) async fn flame(&self, task: u32, order: FlameOrder) -> Result<Option<Flame>, String> {
        let factory = self.factory.clone()?;
        let (end, ended) = oneshot::channel::<()>();
        let started = {
            let running = self.running();
            let mut here = running.all().filter(|one| one.outcome().is_none());
            let Some(found) = here.find(|one| one.spec().task_id == task) else { return Ok(None) };
            found.sample(order, move || factory.stacks(task), move || drop(end))
        };
        let sampling = started.map_err(|error| format!("cannot start a thread: {error}"))?;
        let _ = tokio::time::timeout(order.whole().saturating_add(LAST_SAMPLE_LIMIT), ended).await;
        Ok(Some(sampling.flame()))
    }

    /// Cancels the tasks of a region, waits for their end and frees all resources. A repeated call has no effect.
    pub(crate) async fn stop(&self, region: u32) -> StatusReport {
        let Some(part) = self.part(region) else { return self.news(u64::MAX) };
        part.stopping.store(true, Ordering::Release);
        let mut stage = part.stage.lock().await;
        stage.built.clear();
        self.log.close();
        self.running().of(region).for_each(TaskHandle::cancel);
        self.ended.wait_until(|_| self.running().of(region).all(|task| task.outcome().is_some())).await;
        // The last report needs the counters of the tasks, which are removed below.
        let news = self.news(u64::MAX);
        for task in self.running().take(region) {
            // The task has reported its end. Only the last instructions of its thread may remain.
            let _ = task.join();
        }
        if let Some(environment) = stage.environment.take() {
            environment.shutdown().await;
        }
        if self.running().all().next().is_some() {
            // Other regions wait for room in the log as before.
            self.log.open();
        }
        news
    }

    /// Stops all regions.
    pub(crate) async fn stop_all(&self) {
        self.cancel();
        let regions: Vec<u32> = self.parts().keys().copied().collect();
        for region in regions {
            self.stop(region).await;
        }
    }

    /// Cancels every task and returns at once.
    pub(crate) fn cancel(&self) {
        self.parts().values().for_each(|part| part.stopping.store(true, Ordering::Release));
        self.log.close();
        self.running().all().for_each(TaskHandle::cancel);
    }

    async fn open_network(&self, settings: &JobSettings, segments: usize) -> Result<NetworkEnvironment, WorkerFault> {
        let failed = |error: &dyn std::fmt::Display| WorkerFault::Worker(error.to_string());
        let pool = self.running().segments(segments, settings.segment_bytes).map_err(|error| failed(&error))?;
        let config = NetworkConfig { bind: self.host, ..network_config(settings) };
        let bind = NetworkEnvironment::bind(config, self.credentials.clone(), pool);
        let bound = self.network.spawn(bind).await.map_err(|error| failed(&error))?;
        bound.map_err(|error| failed(&error))
    }

    /// Builds the tasks. Runs user code: imports, unpickling, constructors.
    fn build_all(
        &self,
        part: &DeployedRegion,
        tasks: Vec<TaskSpec>,
        environment: &NetworkEnvironment,
        factory: &dyn ChainFactory,
        max_record_bytes: usize,
    ) -> Result<Vec<BuiltTask>, WorkerFault> {
        let mut built = Vec::with_capacity(tasks.len());
        for spec in tasks {
            if part.stopping.load(Ordering::Acquire) {
                return Err(WorkerFault::Task { task: spec.task_id, error: TaskError::Cancelled });
            }
            let prepared = PreparedTask::prepare(spec.clone(), self.worker, environment, max_record_bytes)
                .map_err(|error| fault(&spec, error))?;
            let speaker = Speaker { vertex: spec.vertex, subtask: spec.subtask };
            let _speaking = log::enter(Arc::clone(&self.log), Some(speaker));
            let chain = factory.build(&spec).map_err(|error| fault(&spec, error))?;
            built.push(BuiltTask { prepared, chain });
        }
        Ok(built)
    }

    fn start_task(&self, mut task: BuiltTask, attempt: Attempt, name: &str) -> Result<(), WorkerFault> {
        let spec = task.prepared.spec().clone();
        let (ended, exited, task_id) = (Arc::clone(&self.ended), Arc::clone(&self.ended), spec.task_id);
        let on_outcome = move |result: Result<(), TaskError>, has_run| {
            ended.push(attempt, TaskEnd { task: task_id, error: result.err(), has_run });
        };
        task.prepared.set_monitor(&Waker::from(Arc::clone(&self.ended)));
        task.prepared.set_log(Arc::clone(&self.log));
        let started = task.prepared.start(task.chain, name, on_outcome, move || exited.changed.notify_waiters());
        let handle = started.map_err(|error| fault(&spec, error))?;
        let mut running = self.running();
        handle.order(running.order.1);
        running.align(&handle);
        running.tasks.push(RunningTask { attempt, handle });
        Ok(())
    }

    fn news(&self, log_room: u64) -> StatusReport {
        let attempts = self.running().attempts.clone();
        let QueuedReports { ends, reports } = std::mem::take(&mut *self.ended.lock());
        // I3: reports of earlier attempts are dropped.
        let is_told = |of: &Attempt| attempts.get(&of.region) == Some(of);
        let ended = ends.into_iter().filter(|(of, _)| is_told(of)).map(|(_, end)| end).collect();
        let reports = reports.into_iter().filter(|(of, _)| is_told(of)).map(|(_, report)| report).collect();
        let attempts = attempts.into_values().collect();
        // Reset before reading the state: later changes are reported again.
        self.ended.has_flipped.store(false, Ordering::Release);
        let running = self.running();
        let metrics = running.all().map(|task| (task.spec().task_id, task.metrics())).collect();
        let operators = running.all().map(|task| (task.spec().task_id, task.operators())).collect();
        let counted = running.all().map(|task| (task.spec().task_id, task.user_metrics()));
        let user_metrics = counted.filter(|(_, metrics)| !metrics.is_empty()).collect();
        let marked = running.all().map(|task| (task.spec().task_id, task.latencies()));
        let latencies = marked.filter(|(_, latencies)| !latencies.is_empty()).collect();
        let latest_splits =
            running.all().filter_map(|task| Some((task.spec().task_id, task.latest_split()?))).collect();
        let is_congested = running.all().any(TaskHandle::is_congested);
        let segments = running.segments.upgrade();
        drop(running);
        let garbage =
            self.factory.as_ref().map_or_else(|_| Default::default(), |factory| factory.garbage_collections());
        let resources = Resources::now(segments.as_deref(), garbage);
        let said = self.log.take(usize::try_from(log_room).unwrap_or(usize::MAX));
        StatusReport {
            attempts,
            ended,
            reports,
            metrics,
            operators,
            user_metrics,
            latencies,
            latest_splits,
            is_congested,
            resources,
            said,
        }
    }

    fn part(&self, region: u32) -> Option<Arc<DeployedRegion>> {
        self.parts().get(&region).map(Arc::clone)
    }

    fn parts(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<DeployedRegion>>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running(&self) -> MutexGuard<'_, RunningTasks> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunningTasks {
    /// Begins an attempt of a region.
    fn begin(&mut self, attempt: Attempt) {
        if self.tasks.is_empty() {
            (self.order, self.limits) = Default::default();
        }
        self.attempts.insert(attempt.region, attempt);
    }

    fn all(&self) -> impl Iterator<Item = &TaskHandle> {
        self.tasks.iter().map(|task| &task.handle)
    }

    fn of(&self, region: u32) -> impl Iterator<Item = &TaskHandle> {
        self.tasks.iter().filter(move |task| task.attempt.region == region).map(|task| &task.handle)
    }

    fn take(&mut self, region: u32) -> impl Iterator<Item = TaskHandle> + use<> {
        let (taken, left) = std::mem::take(&mut self.tasks).into_iter().partition(|task| task.attempt.region == region);
        self.tasks = left;
        Vec::into_iter(taken).map(|task: RunningTask| task.handle)
    }

    /// Returns the network memory that all regions share.
    fn segments(&mut self, total: usize, segment_bytes: usize) -> Result<Arc<SegmentPool>, MemoryError> {
        if let Some(segments) = self.segments.upgrade() {
            return Ok(segments);
        }
        let segments = SegmentPool::new(total, segment_bytes)?;
        self.segments = Arc::downgrade(&segments);
        Ok(segments)
    }

    fn align(&self, task: &TaskHandle) {
        if let Some((_, limit_ms)) = self.limits.1.iter().find(|(of, _)| *of == task.spec().task_id) {
            task.align(*limit_ms);
        }
    }
}

/// Waker of the log: when records arrive, a waiting poll checks again.
struct Listener(Arc<ReportQueue>);

impl Wake for Listener {
    fn wake(self: Arc<Self>) {
        self.0.changed.notify_waiters();
    }
}

/// Waker of the inputs: called when the congestion of one changes.
impl Wake for ReportQueue {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.has_flipped.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }
}

impl ReportQueue {
    fn push(&self, attempt: Attempt, end: TaskEnd) {
        self.lock().ends.push((attempt, end));
        self.changed.notify_waiters();
    }

    fn report(&self, attempt: Attempt, task: u32, report: CheckpointReport<TaskSnapshot>) {
        self.lock().reports.push((attempt, TaskReport { task, report }));
        self.changed.notify_waiters();
    }

    /// Waits until `holds` returns true. Checks it after every change of the queue.
    async fn wait_until(&self, holds: impl Fn(&QueuedReports) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the check, so that no end in between is missed.
            changed.as_mut().enable();
            if holds(&self.lock()) {
                return;
            }
            changed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueuedReports> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueuedReports {
    fn has_some(&self) -> bool {
        !self.ends.is_empty() || !self.reports.is_empty()
    }
}

/// Longest time that the last sample may take.
const LAST_SAMPLE_LIMIT: Duration = Duration::from_secs(1);

fn fault(spec: &TaskSpec, error: TaskError) -> WorkerFault {
    WorkerFault::Task { task: spec.task_id, error }
}

/// Time for which log records wait for more before they are sent.
const GATHER_LOG: Duration = Duration::from_millis(50);
