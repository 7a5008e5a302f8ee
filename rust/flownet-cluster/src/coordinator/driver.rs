//! Carries out the commands of the [`RegionsMachine`] and reports events to it.
//!
//! The driver runs one loop on the coordinator's thread. Every call to a worker is a tokio task that sends its answer
//! back as an [`Event`]. At most one call of a kind is under way per worker, so the queue of events stays short.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use flownet_net::Credentials;
use flownet_runtime::{ChainFactory, flame::FlameOrder, log::Log, spec::TaskSpec};
use flownet_store::{Manifest, PublishError};
use tarpc::client::RpcError;
use tokio::{
    net::TcpListener,
    runtime::Handle,
    sync::mpsc::{UnboundedReceiver, UnboundedSender},
    task::AbortHandle,
};

use super::{
    admission::admit_workers, channels::ChannelsReply, checkpoints::Checkpoints, flame::ToldOfFlame,
    found::FoundSplits, link::WorkerLink, savepoints::SavepointRequest, status_store::StatusStore,
};
use crate::{
    alignment::AlignmentMachine,
    checkpoint::{self, RepeatedFailure, Supervisor},
    error::{ClusterError, WorkerIdentity},
    flow::FlowLoop,
    launcher::{LaunchedWorker, Launcher},
    machine::{Failure, Input, JobState, LaunchHistory, Limits, Outcome, Placement, RegionCommand, RegionsMachine},
    plan::{Plan, Regions},
    rpc::{Attempt, Inspection, Introduction, StatusReport, TaskRestore, WorkerClient, WorkerFault},
    settings::JobSettings,
    stall::StallMachine,
};

/// Data of a job that is fixed when it is submitted.
pub(super) struct Job {
    pub(super) plan: Plan,
    pub(super) settings: JobSettings,
    /// Segments of network memory by worker, as the plan needs them.
    pub(super) segments: BTreeMap<u32, usize>,
    pub(super) launcher: Launcher,
    pub(super) credentials: Credentials,
    pub(super) factory: Arc<dyn ChainFactory>,
    /// Log of this process.
    pub(super) log: Arc<Log>,
}

/// Event that reaches the driver from outside its loop.
pub(super) enum Event {
    /// The user cancels the job.
    Cancel,
    /// The user stops the job, and may request a copy of its last checkpoint.
    Stop { drain: bool, savepoint: Option<String> },
    /// A source has more splits to read.
    Splits { found: FoundSplits },
    /// A user views the channels of a subtask.
    Channels { vertex: u32, subtask: u32, told: ChannelsReply },
    /// A user views the flame graph of a subtask.
    Flame { vertex: u32, subtask: u32, order: FlameOrder, told: ToldOfFlame },
    /// The user requests a checkpoint.
    Checkpoint,
    /// The user requests a copy of a checkpoint.
    Savepoint { request: SavepointRequest },
    /// A worker has authenticated and introduced itself.
    Introduced { introduction: Introduction, client: WorkerClient },
    /// Answer to a deploy call.
    Deployed { region: u32, worker: u32, address: SocketAddr },
    /// Answer to a start call.
    Started { region: u32, worker: u32 },
    /// A worker failed to carry out a request, for one region or for all.
    Faulty { region: Option<u32>, worker: u32, fault: WorkerFault },
    /// Answer to a poll.
    News { worker: u32, news: StatusReport },
    /// Answer to an inspection.
    Inspected { worker: u32, round: u32, inspection: Inspection },
    /// Answer to a stop call.
    Stopped { region: u32, worker: u32, news: StatusReport },
    /// Answer to a call without a result.
    Done,
    /// Result of publishing a checkpoint.
    Published { checkpoint: u64, result: Result<Manifest, PublishError> },
    /// Answer to a call of this attempt of the job.
    Of { generation: u64, event: Box<Self> },
    /// Answer to a call of an attempt of a region.
    OfAttempt { attempt: Attempt, event: Box<Self> },
    /// A call failed because the connection has ended.
    Disconnected { worker: u32, reason: String },
}

/// Driver loop and its state. Dropping it kills and reaps every process.
pub(super) struct Driver {
    pub(super) job: Arc<Job>,
    pub(super) board: Arc<StatusStore>,
    /// Machine of the current attempt.
    pub(super) machine: RegionsMachine,
    pub(super) regions: Regions,
    /// Current attempt of each region, with the addresses of its data planes.
    pub(super) attempts: Vec<RegionAttempt>,
    /// Number of region attempts so far.
    pub(super) attempts_begun: u64,
    pub(super) flow: FlowLoop,
    pub(super) alignment: AlignmentMachine,
    pub(super) orders: u64,
    pub(super) stall: StallMachine,
    pub(super) supervisor: Supervisor,
    /// Number of the current attempt of the job. It increases with each attempt.
    pub(super) generation: u64,
    /// State that each task restores. None without checkpoints.
    pub(super) restored: Option<BTreeMap<u32, TaskRestore>>,
    pub(super) checkpoints: Option<Checkpoints>,
    /// Savepoint requests without an answer.
    pub(super) savepoints: Vec<SavepointRequest>,
    /// URL to which the last checkpoint is copied.
    pub(super) last_savepoint: Option<String>,
    /// Whether an attempt of each region has run.
    pub(super) past: Vec<LaunchHistory>,
    pub(super) began: Instant,
    pub(super) coordinator: SocketAddr,
    pub(super) network: Handle,
    pub(super) seats: BTreeMap<u32, WorkerRecord>,
    pub(super) events: UnboundedReceiver<Event>,
    pub(super) sender: UnboundedSender<Event>,
    /// Task that serves the control port. It runs while more workers may join.
    admission: Option<AbortHandle>,
}

/// Current attempt of a region.
#[derive(Clone, Debug, Default)]
pub(super) struct RegionAttempt {
    pub(super) number: u64,
    /// Data plane addresses by worker.
    pub(super) addresses: BTreeMap<u32, SocketAddr>,
}

/// Record of one worker.
pub(super) struct WorkerRecord {
    pub(super) identity: WorkerIdentity,
    /// Launched worker, while it exists.
    pub(super) process: Option<LaunchedWorker>,
    pub(super) link: Option<WorkerLink>,
    polling: Option<AbortHandle>,
    /// Whether its end is expected: it was asked to stop, or killed.
    pub(super) leaving: bool,
    /// Time and reason of the end of its connection. The exit of the process may give a better reason.
    pub(super) disconnected: Option<(Instant, String)>,
}

/// Channel for events to a driver.
pub(super) struct Events {
    pub(super) sender: UnboundedSender<Event>,
    pub(super) receiver: UnboundedReceiver<Event>,
}

impl Driver {
    /// Opens the control port. `network` runs the data plane of this process.
    pub(super) async fn new(
        job: Arc<Job>,
        board: Arc<StatusStore>,
        events: Events,
        network: Handle,
    ) -> Result<Self, ClusterError> {
        let setup = |message: String| ClusterError::Setup { message };
        let listener = TcpListener::bind((job.launcher.host(), 0))
            .await
            .map_err(|error| setup(format!("cannot open the control port: {error}")))?;
        let coordinator = listener.local_addr().map_err(|error| setup(error.to_string()))?;
        let has_workers = job.settings.workers > 0;
        let admitting = has_workers.then(|| {
            tokio::spawn(admit_workers(listener, job.credentials.clone(), events.sender.clone())).abort_handle()
        });

        let seats: BTreeMap<u32, WorkerRecord> =
            participants(&job).into_iter().map(|worker| (worker, WorkerRecord::new(worker))).collect();
        let checkpoints = Checkpoints::open(&job)?;
        let supervisor = Supervisor::new(&job.settings.restart, checkpoints.is_some(), u64::from(coordinator.port()));
        // If the job does not restart, or replaces all workers when it does, regions do not restart on their own.
        let begins_anew = supervisor.would_restart(Duration::ZERO) && !job.launcher.renews();
        let regions = if begins_anew { Regions::of(&job.plan, &job.settings) } else { Regions::one(&job.plan) };
        let count = regions.count() as usize;
        let machine = regions_machine(&job, &seats, &regions, &[]);
        Ok(Self {
            regions,
            attempts: vec![RegionAttempt::default(); count],
            attempts_begun: 0,
            flow: flow_loop(&job),
            alignment: AlignmentMachine::new(&job.plan),
            orders: 0,
            stall: stall_machine(&job),
            supervisor,
            generation: 0,
            restored: None,
            checkpoints,
            savepoints: Vec::new(),
            last_savepoint: None,
            past: vec![LaunchHistory::None; count],
            job,
            machine,
            began: board.began(),
            board,
            coordinator,
            network,
            seats,
            events: events.receiver,
            sender: events.sender,
            admission: admitting,
        })
    }

    /// Runs one attempt to its end. No task runs afterwards.
    pub(super) async fn run_attempt(&mut self) -> Outcome {
        self.feed(Input::Begin);
        loop {
            self.follow_checkpoints();
            if let Some(outcome) = self.carry_out() {
                return outcome;
            }
            let wake_at = self.next_wake();
            tokio::select! {
                biased;
                event = self.events.recv() => match event {
                    Some(event) => self.handle(event),
                    None => self.feed(Input::Cancel),
                },
                () = tokio::time::sleep_until(wake_at.into()) => {
                    // A worker whose process has ended is not silent. This process may have been frozen, so exits come
                    // before timeouts.
                    self.look_after_processes();
                    self.feed(Input::Tick);
                }
            }
            self.board.log().take(0, self.job.log.take(usize::MAX));
            self.look_after_processes();
            self.flow.on_time(self.began.elapsed());
            self.send_order();
            self.align_sources();
            self.watch_for_stalls();
            self.begin_waiting_regions();
        }
    }

    /// Passes an event of a task, or of all regions, to the machine.
    pub(super) fn feed(&mut self, input: Input) {
        self.machine.handle(input, self.began.elapsed());
        self.show_state();
    }

    /// Passes an event of a region's attempt to the machine.
    pub(super) fn feed_in(&mut self, region: u32, input: Input) {
        self.machine.handle_in(region, input, self.began.elapsed());
        self.show_state();
    }

    fn feed_for(&mut self, region: Option<u32>, input: Input) {
        match region {
            Some(region) => self.feed_in(region, input),
            None => self.feed(input),
        }
    }

    pub(super) fn show_state(&mut self) {
        let state = self.machine.state();
        self.past = self.machine.past();
        if state != JobState::Ended {
            // The machine does not know whether the job has ended or another attempt follows.
            self.board.set_state(state);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Of { generation, event } if generation == self.generation => self.handle(*event),
            // A lost connection matters in all attempts.
            Event::Of { event, .. } | Event::OfAttempt { event, .. }
                if matches!(*event, Event::Disconnected { .. }) =>
            {
                self.handle(*event);
            }
            Event::OfAttempt { attempt, event } if self.runs(attempt) => self.handle(*event),
            Event::Of { .. } | Event::OfAttempt { .. } => {}
            Event::Published { checkpoint, result } => self.published(checkpoint, result),
            Event::Cancel => self.feed(Input::Cancel),
            Event::Stop { drain, savepoint } => {
                self.last_savepoint = self.last_savepoint.take().or(savepoint);
                self.feed(Input::Stop { drain });
            }
            Event::Splits { found } => self.deal(found),
            Event::Channels { vertex, subtask, told } => self.look_at_channels((vertex, subtask), told),
            Event::Flame { vertex, subtask, order, told } => self.sample_task((vertex, subtask), order, told),
            Event::Checkpoint => self.feed_checkpoints(checkpoint::Input::Requested),
            Event::Savepoint { request } => self.take_savepoint_request(request),
            Event::Introduced { introduction, client } => self.introduced(introduction, client),
            Event::Deployed { region, worker, address } => {
                self.attempts[region as usize].addresses.insert(worker, address);
                self.seat(worker).identity.address = Some(address);
                self.publish_workers();
                self.feed_in(region, Input::Deployed { worker });
            }
            Event::Started { region, worker } => self.feed_in(region, Input::Started { worker }),
            Event::Faulty { fault: WorkerFault::Task { task, error }, .. } => {
                self.feed(Input::TaskNotBuilt { task, error });
            }
            Event::Faulty { region, fault: WorkerFault::Store(error), .. } => {
                let input = Input::CheckpointsFailed { failure: Failure::Store { error } };
                self.feed_for(region, input);
            }
            Event::Faulty { region, worker, fault: WorkerFault::Worker(message) } => {
                let input = Input::WorkerFailed { worker, message };
                self.feed_for(region, input);
            }
            Event::News { worker, news } => self.news(worker, news),
            Event::Done => {}
            Event::Inspected { worker, round, inspection } => self.stall.on_inspection(round, worker, inspection),
            Event::Stopped { region, worker, news } => self.stopped(region, worker, news),
            Event::Disconnected { worker, reason } => self.disconnected(worker, reason),
        }
    }

    /// Carries out the commands of the machine until it has none or ends the attempt.
    fn carry_out(&mut self) -> Option<Outcome> {
        while let Some(command) = self.machine.poll_command() {
            tracing::debug!(job = self.job.settings.job_name, ?command);
            match command {
                RegionCommand::Of { region, command } => self.carry_out_in(region, command),
                RegionCommand::Failed { regions, failure } => self.regions_failed(&regions, failure),
                RegionCommand::Begin { regions } => self.begin_regions(&regions),
                RegionCommand::End { outcome } => return Some(outcome),
            }
        }
        None
    }

    fn introduced(&mut self, introduction: Introduction, client: WorkerClient) {
        let Introduction { worker, pid } = introduction;
        let expected = self.seats.get(&worker).is_some_and(|seat| seat.process.is_some() && seat.link.is_none());
        if !expected {
            // Dropping the client closes the connection.
            tracing::warn!(worker, pid, "a worker introduced itself that was not expected");
            return;
        }
        self.seat(worker).identity.pid = Some(pid);
        self.register(worker, WorkerLink::Remote(client));
        let may_be_replaced = self.supervisor.would_restart(self.began.elapsed());
        if !may_be_replaced && self.seats.values().all(|seat| seat.link.is_some() || seat.identity.worker == 0) {
            // No more workers will join, so the control port closes.
            self.admission.take().iter().for_each(AbortHandle::abort);
        }
    }

    pub(super) fn register(&mut self, worker: u32, link: WorkerLink) {
        let wait = report_interval(&self.job);
        let polling = tokio::spawn(poll_news(worker, link.clone(), wait, Arc::clone(&self.board), self.sender.clone()));
        let seat = self.seat(worker);
        seat.link = Some(link);
        seat.polling = Some(polling.abort_handle());
        self.publish_workers();
        self.feed(Input::Registered { worker });
    }

    /// Sends an order to every worker with sources.
    fn send_order(&mut self) {
        let Some(order) = self.flow.poll_order() else { return };
        tracing::debug!(job = self.job.settings.job_name, ?order);
        self.orders += 1;
        let number = self.orders;
        let sources = self.job.plan.tasks.iter().filter(|task| task.spec.is_source());
        for worker in sources.map(|task| task.worker).collect::<BTreeSet<_>>() {
            self.call(worker, async move |link| link.order(number, order).await.map(|()| Event::Done));
        }
    }

    /// Returns the worker and the task number of a subtask, by index of its vertex and index within the vertex. Returns
    /// `None` if there is no such subtask, or its worker has no record.
    pub(super) fn place_of(&self, (vertex, subtask): (u32, u32)) -> Option<(u32, u32)> {
        let mut tasks = self.job.plan.tasks.iter();
        let found = tasks.find(|task| (task.spec.vertex, task.spec.subtask) == (vertex, subtask))?;
        self.seats.contains_key(&found.worker).then_some((found.worker, found.spec.task_id))
    }

    fn news(&mut self, worker: u32, mut news: StatusReport) {
        self.board.log().take(worker, std::mem::take(&mut news.said));
        // Reports of earlier attempts prove only that the worker lives.
        let running: Vec<u32> =
            news.attempts.iter().filter(|attempt| self.runs(**attempt)).map(|attempt| attempt.region).collect();
        news.retain(|task| self.regions.of_task(task).is_some_and(|region| running.contains(&region)));
        self.take_reports(&news.reports);
        self.board.take_metrics(worker, &news);
        self.stall.on_report(worker, &news.metrics, self.began.elapsed());
        self.flow.on_congestion(worker, news.is_congested);
        for (task, metrics) in &news.metrics {
            self.flow.on_metrics(*task, metrics);
            self.alignment.on_metrics(*task, metrics);
        }
        self.feed(Input::Heartbeat { worker });
        for end in news.ended {
            let task = end.task;
            self.stall.on_movement(self.began.elapsed());
            match end.error {
                None => {
                    self.task_ended(task);
                    self.feed(Input::TaskFinished { task });
                }
                Some(error) => self.feed(Input::TaskFailed { task, error, has_run: end.has_run }),
            }
        }
    }

    /// Handles the answer of a worker that has freed everything of a region. The worker stays for other regions and
    /// later attempts.
    fn stopped(&mut self, region: u32, worker: u32, news: StatusReport) {
        self.news(worker, news);
        self.feed_in(region, Input::WorkerGone { worker });
    }

    fn next_wake(&self) -> Instant {
        let has_processes = self.seats.values().any(|seat| seat.process.is_some());
        let ends = |seat: &WorkerRecord| seat.process.is_some() && (seat.leaving || seat.disconnected.is_some());
        let is_ending = self.seats.values().any(ends);
        let look = match (has_processes, is_ending) {
            (false, _) => IDLE_LOOK,
            (true, false) => PROCESS_LOOK,
            (true, true) => ENDING_LOOK,
        };
        let look_at = Instant::now() + look;
        let checkpoints = self.checkpoints.as_ref().and_then(Checkpoints::poll_timeout);
        let (flow, alignment) = (self.flow.poll_timeout(), self.alignment.poll_timeout());
        let begins = self.regions_begin_at();
        let timeouts = [self.machine.poll_timeout(), begins, flow, alignment, self.stall.poll_timeout(), checkpoints];
        timeouts.into_iter().flatten().fold(look_at, |look_at, timeout| look_at.min(self.began + timeout))
    }

    pub(super) fn verdict(&self, outcome: Outcome) -> Result<(), ClusterError> {
        match outcome {
            Outcome::Finished => Ok(()),
            Outcome::Cancelled => Err(ClusterError::Cancelled),
            Outcome::StopTimeout { tasks } => {
                let specs = tasks.iter().map(|&task| &self.job.plan.tasks[task as usize].spec);
                let name = |spec: &TaskSpec| format!("{} ({}/{})", spec.name, spec.subtask + 1, spec.parallelism);
                let (limit, tasks) = (self.job.settings.stop_timeout, specs.map(name).collect());
                Err(ClusterError::StopTimeout { limit, tasks })
            }
            Outcome::Failed(failure) => {
                let identity = |worker: u32| match self.seats.get(&worker) {
                    Some(seat) => seat.identity.clone(),
                    None => WorkerIdentity::unknown(worker),
                };
                let error = failure.into_error(&self.job.plan, identity);
                Err(match self.supervisor.gave_up() {
                    None => error,
                    Some(RepeatedFailure { attempts, checkpoint }) => {
                        ClusterError::Repeated { error: Box::new(error), attempts, checkpoint }
                    }
                })
            }
        }
    }

    pub(super) fn seat(&mut self, worker: u32) -> &mut WorkerRecord {
        self.seats.entry(worker).or_insert_with(|| WorkerRecord::new(worker))
    }

    fn publish_workers(&self) {
        let registered = self.seats.values().filter(|seat| seat.link.is_some());
        self.board.set_workers(registered.map(|seat| seat.identity.clone()).collect());
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.admission.iter().for_each(AbortHandle::abort);
    }
}

impl WorkerRecord {
    pub(super) fn new(worker: u32) -> Self {
        Self {
            identity: WorkerIdentity::unknown(worker),
            process: None,
            link: None,
            polling: None,
            leaving: false,
            disconnected: None,
        }
    }

    /// Whether its connection has ended while its process may still run, with tasks of other regions.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.disconnected.is_some() && self.process.is_some() && !self.leaving
    }

    /// Expects the end of the worker from now on. Dropping the link closes the connection, which tells the worker to
    /// exit.
    pub(super) fn leave(&mut self) {
        self.leaving = true;
        self.polling.take().iter().for_each(AbortHandle::abort);
        if self.process.is_some() {
            self.link = None;
        }
    }
}

/// Creates the machine of an attempt of the job.
pub(super) fn regions_machine(
    job: &Job,
    seats: &BTreeMap<u32, WorkerRecord>,
    regions: &Regions,
    past: &[LaunchHistory],
) -> RegionsMachine {
    let limits = Limits {
        launch: job.settings.launch_timeout,
        heartbeat: job.settings.heartbeat_timeout,
        stop: job.settings.stop_timeout,
        cancel: job.settings.cancel_timeout,
    };
    let placement = Placement {
        workers: job.plan.tasks.iter().map(|task| task.worker).collect(),
        regions: regions.clone(),
        participants: seats.keys().copied().collect(),
        limits,
    };
    RegionsMachine::new(placement, past)
}

pub(super) fn flow_loop(job: &Job) -> FlowLoop {
    FlowLoop::new(job.settings.flow_control, job.plan.tasks.iter().map(|task| &task.spec))
}

pub(super) fn stall_machine(job: &Job) -> StallMachine {
    StallMachine::new(job.settings.stall_patience, report_interval(job), &job.plan)
}

/// Returns the workers of the job: all requested processes, and this process if it has tasks.
fn participants(job: &Job) -> Vec<u32> {
    let driver_has_tasks = job.plan.tasks_on(0).next().is_some();
    let first = if driver_has_tasks { 0 } else { 1 };
    (first..=job.settings.workers).collect()
}

/// Returns the longest time between two reports of a worker.
fn report_interval(job: &Job) -> Duration {
    let (settings, aligned) = (&job.settings, AlignmentMachine::shortest_interval(&job.plan));
    let interval = settings.heartbeat_interval.min(settings.status_interval);
    aligned.map_or(interval, |aligned| interval.min(aligned))
}

/// Polls a worker for reports, one call after the other, until it cannot be reached.
async fn poll_news(
    worker: u32,
    link: WorkerLink,
    wait: Duration,
    board: Arc<StatusStore>,
    events: UnboundedSender<Event>,
) {
    loop {
        let (event, is_last) = match link.poll(wait, board.log().room()).await {
            Ok(news) => (Event::News { worker, news }, false),
            Err(error) => (disconnection(worker, &error), true),
        };
        if events.send(event).is_err() || is_last {
            return;
        }
    }
}

pub(super) fn disconnection(worker: u32, error: &RpcError) -> Event {
    Event::Disconnected { worker, reason: error.to_string() }
}

/// Interval at which running processes are checked.
const PROCESS_LOOK: Duration = Duration::from_millis(50);
/// Interval while a process is expected to end, so that a job does not wait for a check.
const ENDING_LOOK: Duration = Duration::from_millis(5);
/// Interval without processes: only the machine's own timeouts matter.
const IDLE_LOOK: Duration = Duration::from_secs(1);
