//! What runs on a worker: its data plane and its tasks.
//!
//! The same [`Agent`] serves calls from a socket in a worker process and direct
//! calls in the submitting process. Its methods run on a control thread that
//! never executes user code: chains are built on a thread of their own and run
//! on the threads of their tasks.
//!
//! The tasks of a region come and go together, beside those of others. Each attempt of a region has a data port of its own,
//! so that nothing of the one before, a half-sent frame or a request that was under way, reaches it; all share the network
//! memory of the process.
//!
//! # Invariants
//! - I1: every task that was started is reported as ended exactly once, one that fails before its user code has closed.
//! - I2: after [`Agent::stop`] no task of the region runs, no partition of it is served and its data
//!   port is closed. A stop that is given up on leaves only what waits for user code.
//! - I3: what tasks of an attempt say is told only until the next attempt of their region is deployed.

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
    Chain, ChainFactory, CheckpointContext, PreparedTask, TaskError, TaskHandle,
    flame::{Flame, FlameOrder},
    inspection::TaskChannels,
    log::{self, Log, Speaker},
    source::SourceOrder,
    spec::TaskSpec,
    work,
};
use flownet_store::CheckpointStore;
use tokio::{
    runtime::Handle,
    sync::{Mutex as AsyncMutex, Notify, oneshot},
};

use self::reporter::Reporter;
use crate::{
    explain::network_config,
    resources::Resources,
    rpc::{
        Attempt, Deployment, Inspection, Order, Report, StatusReport, TaskEnd, TaskReport, TaskRestore, WorkerFault,
    },
    settings::JobSettings,
    snapshots::Checkpoints,
    threads::on_build_thread,
};

/// The tasks of one worker and what they need.
pub(crate) struct Agent {
    worker: u32,
    credentials: Credentials,
    /// An error is kept until a deployment can report it.
    factory: Result<Arc<dyn ChainFactory>, String>,
    /// Where the data plane listens: an address its peers reach.
    host: IpAddr,
    /// Runs the data plane.
    network: Handle,
    /// What is said here.
    log: Arc<Log>,
    /// Held while tasks are built: users' modules are imported by one thread at a time.
    building: AsyncMutex<()>,
    /// Of each region that was deployed here, as it was the last time.
    parts: Mutex<BTreeMap<u32, Arc<DeployedRegion>>>,
    running: Mutex<RunningTasks>,
    /// The attempt of the job that the tasks are of.
    generation: AtomicU64,
    ended: Arc<ReportQueue>,
}

/// What is here of a region.
#[derive(Default)]
struct DeployedRegion {
    /// Held over a whole deploy, start or stop: they never overlap.
    stage: AsyncMutex<Stage>,
    stopping: AtomicBool,
}

/// What is there before the tasks run.
#[derive(Default)]
struct Stage {
    environment: Option<NetworkEnvironment>,
    built: Vec<BuiltTask>,
}

/// Tasks that were started, and what they have in common.
#[derive(Default)]
struct RunningTasks {
    tasks: Vec<RunningTask>,
    /// What they are of, of each region.
    attempts: BTreeMap<u32, Attempt>,
    /// The order that holds and its number: for sources that start later, too.
    order: (u64, SourceOrder),
    /// The same of how far sources may go in event time, by their task.
    limits: (u64, Vec<(u32, i64)>),
    /// The network memory of this process, as long as some region uses it.
    segments: Weak<SegmentPool>,
}

/// A task that was started.
struct RunningTask {
    attempt: Attempt,
    handle: TaskHandle,
}

/// A task that waits for its peers.
struct BuiltTask {
    prepared: PreparedTask,
    chain: Box<dyn Chain>,
}

/// Ends of tasks and what they say of checkpoints, from their threads to whoever asks next.
#[derive(Default)]
struct ReportQueue {
    news: Mutex<QueuedReports>,
    /// Congestion has changed since it was last told.
    has_flipped: AtomicBool,
    changed: Notify,
}

#[derive(Default)]
struct QueuedReports {
    /// With the attempt that each is of: a snapshot may be written later than its task ends.
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

    /// Opens a data plane for a region and builds its tasks; answers where it listens.
    pub(crate) async fn deploy(self: &Arc<Self>, deployment: Deployment) -> Result<SocketAddr, WorkerFault> {
        let factory = self.factory.clone().map_err(WorkerFault::Worker)?;
        let Deployment { generation, attempt, settings, segments, tasks, restored, has_digests } = deployment;
        // What was here of it before has stopped: an attempt begins anew.
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

    /// What each task is told of checkpoints, in their order: it goes on from what was kept of it.
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

    /// What happened since the last call; waits for it, at most `wait`. What was said waits for more of it, and tells no more
    /// than `log_room` bytes.
    pub(crate) async fn poll(&self, wait: Duration, log_room: u64) -> StatusReport {
        let has_news = |told: &QueuedReports| told.has_some() || self.ended.has_flipped.load(Ordering::Acquire);
        let is_heard = |told: &QueuedReports| has_news(told) || (log_room > 0 && self.log.has_some());
        // Running out of time is an answer too: that nothing has ended.
        if tokio::time::timeout(wait, self.ended.wait_until(is_heard)).await.is_ok() {
            let _ = tokio::time::timeout(wait.min(GATHER_LOG), self.ended.wait_until(has_news)).await;
        }
        self.news(log_room)
    }

    /// Tells the sources how fast they may go, unless a later order came before.
    pub(crate) fn order(&self, number: u64, order: SourceOrder) {
        let mut running = self.running();
        if number > running.order.0 {
            running.order = (number, order);
            running.all().for_each(|task| task.order(order));
        }
    }

    /// Tells sources how far they may go in event time, unless later limits came before or they are of another attempt.
    pub(crate) fn align(&self, generation: u64, number: u64, limits: Vec<(u32, i64)>) {
        let mut running = self.running();
        if number > running.limits.0 && self.generation.load(Ordering::Acquire) == generation {
            running.limits = (number, limits);
            running.all().for_each(|task| running.align(task));
        }
    }

    /// Tells a source that there is more to read, unless it is of another attempt. All its tasks run.
    pub(crate) fn add_splits(&self, generation: u64, operator: u32, splits: Vec<u8>) {
        if self.generation.load(Ordering::Acquire) == generation {
            let splits: Arc<[u8]> = splits.into();
            self.running().all().for_each(|task| task.add_splits(operator, &splits));
        }
    }

    /// Tells the sources of a region that they have ended. They all run: none comes later.
    pub(crate) fn end_sources(&self, attempt: Attempt, drain: bool) {
        self.running().of(attempt.region).for_each(|task| task.end_source(drain));
    }

    /// Tells the tasks of a checkpoint, unless they are of another attempt of the job, or of one of their region that began
    /// after it was said.
    pub(crate) fn checkpoint(&self, generation: u64, latest: u64, order: Order) {
        if self.generation.load(Ordering::Acquire) == generation {
            let running = self.running();
            let told = running.tasks.iter().filter(|task| task.attempt.number <= latest);
            told.for_each(|task| task.handle.checkpoint(order.into()));
        }
    }

    /// What each task waits for.
    pub(crate) fn inspect(&self) -> Inspection {
        let running = self.running();
        let tasks = running.all().map(|task| (task.spec().task_id, task.inspect())).collect();
        Inspection { tasks, free: running.segments.upgrade().map_or(0, |pool| pool.available() as u64) }
    }

    /// Looks at the channels of one task, if it is here.
    pub(crate) fn channels(&self, task: u32) -> Option<TaskChannels> {
        let running = self.running();
        running.all().find(|one| one.spec().task_id == task).map(TaskHandle::channels)
    }

    /// Takes samples of one task, if it runs here, on a thread of their own. What was found when the time is over is the
    /// answer: that thread may have to wait for the interpreter, and this one does not.
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

    /// Cancels what runs of a region, waits for its end and gives everything back. Called
    /// again, it has nothing to do.
    pub(crate) async fn stop(&self, region: u32) -> StatusReport {
        let Some(part) = self.part(region) else { return self.news(u64::MAX) };
        part.stopping.store(true, Ordering::Release);
        let mut stage = part.stage.lock().await;
        stage.built.clear();
        self.log.close();
        self.running().of(region).for_each(TaskHandle::cancel);
        self.ended.wait_until(|_| self.running().of(region).all(|task| task.outcome().is_some())).await;
        let news = self.news(u64::MAX);
        for task in self.running().take(region) {
            // It has ended but for the last instructions of its thread; how was reported.
            let _ = task.join();
        }
        if let Some(environment) = stage.environment.take() {
            environment.shutdown().await;
        }
        if self.running().all().next().is_some() {
            // The others wait for room as before.
            self.log.open();
        }
        news
    }

    /// The same of all regions.
    pub(crate) async fn stop_all(&self) {
        self.cancel();
        let regions: Vec<u32> = self.parts().keys().copied().collect();
        for region in regions {
            self.stop(region).await;
        }
    }

    /// Tells every task to end; returns at once.
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

    /// Runs user code: imports, unpickling, constructors.
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
        // I3.
        let is_told = |of: &Attempt| attempts.get(&of.region) == Some(of);
        let ended = ends.into_iter().filter(|(of, _)| is_told(of)).map(|(_, end)| end).collect();
        let reports = reports.into_iter().filter(|(of, _)| is_told(of)).map(|(_, report)| report).collect();
        let attempts = attempts.into_values().collect();
        // Before looking: what changes from now on is told again.
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
    /// An attempt of a region begins.
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

    /// The network memory that all regions share.
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

/// Woken when something was said: whoever waits for news looks again.
struct Listener(Arc<ReportQueue>);

impl Wake for Listener {
    fn wake(self: Arc<Self>) {
        self.0.changed.notify_waiters();
    }
}

/// Woken when the congestion of an input changes.
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

    fn report(&self, attempt: Attempt, task: u32, report: Report) {
        self.lock().reports.push((attempt, TaskReport { task, report }));
        self.changed.notify_waiters();
    }

    /// Waits until `holds`, which is asked again after every end of a task.
    async fn wait_until(&self, holds: impl Fn(&QueuedReports) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Enlisted before looking: an end in between is not missed.
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

/// How long the last sample may take.
const LAST_SAMPLE_LIMIT: Duration = Duration::from_secs(1);

fn fault(spec: &TaskSpec, error: TaskError) -> WorkerFault {
    WorkerFault::Task { task: spec.task_id, error }
}

/// How long what was said waits for more before it is told.
const GATHER_LOG: Duration = Duration::from_millis(50);
