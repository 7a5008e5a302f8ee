//! Carries out what the [`JobMachine`] decides and tells it what happened.
//!
//! Runs on the coordinator's thread, in one loop; every call to a worker is a
//! tokio task that sends its answer back as an [`Event`]. At most one call of a
//! kind is under way to a worker, so the queue of events stays short.

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
    admission::admit_workers, board::Board, channels::Told, checkpoints::Checkpoints, flame::ToldOfFlame,
    found::FoundSplits, link::WorkerLink, savepoints::SavepointRequest,
};
use crate::{
    agent::Agent,
    alignment::AlignmentMachine,
    checkpoint::{self, Supervisor},
    error::{ClusterError, WorkerExit, WorkerIdentity},
    flow::FlowLoop,
    launcher::{LaunchedWorker, Launcher, Orders},
    machine::{Command, Failure, Input, JobMachine, JobState, Limits, Outcome},
    plan::Plan,
    rpc::{Deployment, Inspection, Introduction, News, Restored, WorkerClient, WorkerFault},
    settings::JobSettings,
    stall::StallMachine,
};

/// Everything that is fixed when a job is submitted.
pub(super) struct Job {
    pub(super) plan: Plan,
    pub(super) settings: JobSettings,
    pub(super) launcher: Launcher,
    pub(super) credentials: Credentials,
    pub(super) factory: Arc<dyn ChainFactory>,
    /// What is said in this process.
    pub(super) log: Arc<Log>,
}

/// What reaches the driver from outside its loop.
pub(super) enum Event {
    /// The user cancels.
    Cancel,
    /// The user wants the job to end well, and perhaps a copy of its last checkpoint.
    Stop { drain: bool, savepoint: Option<String> },
    /// There is more to read for a source.
    Splits { found: FoundSplits },
    /// Somebody looks at the channels of a subtask.
    Channels { vertex: u32, subtask: u32, told: Told },
    /// Somebody wants to see where a subtask spends its time.
    Flame { vertex: u32, subtask: u32, order: FlameOrder, told: ToldOfFlame },
    /// The user wants a checkpoint.
    Checkpoint,
    /// The user wants a copy of a checkpoint.
    Savepoint { request: SavepointRequest },
    /// A worker has proved itself and said who it is.
    Introduced { introduction: Introduction, client: WorkerClient },
    /// Answer to a deploy call.
    Deployed { worker: u32, address: SocketAddr },
    /// Answer to a start call.
    Started { worker: u32 },
    /// A worker could not do what it was asked.
    Faulty { worker: u32, fault: WorkerFault },
    /// Answer to a poll.
    News { worker: u32, news: News },
    /// Answer to an inspection.
    Inspected { worker: u32, round: u32, inspection: Inspection },
    /// Answer to a stop call.
    Stopped { worker: u32, news: News },
    /// Answer to a call that has nothing to say.
    Done,
    /// What became of a checkpoint that was to be published.
    Published { checkpoint: u64, result: Result<Manifest, PublishError> },
    /// An answer to what this attempt asked.
    Of { generation: u64, event: Box<Self> },
    /// A call failed: the connection is gone.
    Disconnected { worker: u32, reason: String },
}

/// The loop and what it holds. Dropping it kills and reaps every process.
pub(super) struct Driver {
    pub(super) job: Arc<Job>,
    pub(super) board: Arc<Board>,
    /// Of this attempt.
    pub(super) machine: JobMachine,
    pub(super) flow: FlowLoop,
    pub(super) alignment: AlignmentMachine,
    pub(super) orders: u64,
    pub(super) stall: StallMachine,
    pub(super) supervisor: Supervisor,
    /// The attempt that runs; they are numbered upwards.
    pub(super) generation: u64,
    /// What its tasks go on from. None without checkpoints.
    pub(super) restored: Option<BTreeMap<u32, Restored>>,
    pub(super) checkpoints: Option<Checkpoints>,
    /// Those that were asked for and not answered.
    pub(super) savepoints: Vec<SavepointRequest>,
    /// Where the last checkpoint is to be copied to.
    pub(super) last_savepoint: Option<String>,
    /// Some attempt came to run.
    pub(super) has_run: bool,
    pub(super) began: Instant,
    coordinator: SocketAddr,
    network: Handle,
    pub(super) seats: BTreeMap<u32, Seat>,
    pub(super) events: UnboundedReceiver<Event>,
    pub(super) sender: UnboundedSender<Event>,
    /// The control port, open while workers are still to come.
    admission: Option<AbortHandle>,
}

/// One worker and what is known of it.
pub(super) struct Seat {
    pub(super) identity: WorkerIdentity,
    /// What was launched of it, while it is there.
    pub(super) process: Option<LaunchedWorker>,
    pub(super) link: Option<WorkerLink>,
    polling: Option<AbortHandle>,
    /// Its end is expected: it was told to stop, or killed.
    pub(super) leaving: bool,
    /// When its connection was seen to end, and how. Its exit may tell more.
    pub(super) disconnected: Option<(Instant, String)>,
}

/// The channel into a driver.
pub(super) struct Events {
    pub(super) sender: UnboundedSender<Event>,
    pub(super) receiver: UnboundedReceiver<Event>,
}

impl Driver {
    /// Opens the control port. `network` runs the data plane of this process.
    pub(super) async fn new(
        job: Arc<Job>,
        board: Arc<Board>,
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

        let seats: BTreeMap<u32, Seat> =
            participants(&job).into_iter().map(|worker| (worker, Seat::new(worker))).collect();
        let machine = job_machine(&job, &seats);
        let checkpoints = Checkpoints::open(&job)?;
        let supervisor = Supervisor::new(&job.settings.restart, checkpoints.is_some(), u64::from(coordinator.port()));
        Ok(Self {
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
            has_run: false,
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

    /// Runs one attempt to its end. Afterwards no task runs any more.
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
                () = tokio::time::sleep_until(wake_at.into()) => self.feed(Input::Tick),
            }
            self.board.log().take(0, self.job.log.take(usize::MAX));
            self.look_after_processes();
            self.flow.on_time(self.began.elapsed());
            self.send_order();
            self.align_sources();
            self.watch_for_stalls();
        }
    }

    pub(super) fn feed(&mut self, input: Input) {
        self.machine.handle(input, self.began.elapsed());
        let state = self.machine.state();
        self.has_run |= self.machine.has_run();
        if state != JobState::Ended {
            // Whether the job has, or another attempt follows, is not the machine's to say.
            self.board.set_state(state);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Of { generation, event } if generation == self.generation => self.handle(*event),
            // Whether it is there is the same in all attempts.
            Event::Of { event, .. } if matches!(*event, Event::Disconnected { .. }) => self.handle(*event),
            Event::Of { .. } => {}
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
            Event::Deployed { worker, address } => {
                self.seat(worker).identity.address = Some(address);
                self.publish_workers();
                self.feed(Input::Deployed { worker });
            }
            Event::Started { worker } => self.feed(Input::Started { worker }),
            Event::Faulty { fault: WorkerFault::Task { task, error }, .. } => {
                self.feed(Input::TaskFailed { task, error, has_run: false });
            }
            Event::Faulty { fault: WorkerFault::Store(error), .. } => {
                self.feed(Input::CheckpointsFailed { failure: Failure::Store { error } });
            }
            Event::Faulty { worker, fault: WorkerFault::Worker(message) } => {
                self.feed(Input::WorkerFailed { worker, message });
            }
            Event::News { worker, news } => self.news(worker, news),
            Event::Done => {}
            Event::Inspected { worker, round, inspection } => self.stall.on_inspection(round, worker, inspection),
            Event::Stopped { worker, news } => self.stopped(worker, news),
            Event::Disconnected { worker, reason } => self.disconnected(worker, reason),
        }
    }

    /// The commands of the machine, until it has none or ends the job.
    fn carry_out(&mut self) -> Option<Outcome> {
        while let Some(command) = self.machine.poll_command() {
            tracing::debug!(job = self.job.settings.job_name, ?command);
            match command {
                Command::Launch { worker } => self.launch(worker),
                Command::Deploy { worker } => self.deploy(worker),
                Command::Start { worker } => self.start(worker),
                Command::EndSources { worker, drain } => {
                    self.call(worker, async move |link| link.end_sources(drain).await.map(|()| Event::Done));
                }
                Command::Stop { worker } => self.stop(worker),
                Command::Kill { worker } => self.kill(worker),
                Command::End { outcome } => return Some(outcome),
            }
        }
        None
    }

    fn launch(&mut self, worker: u32) {
        if self.seat(worker).link.is_some() {
            // It was kept from the attempt before.
            self.feed(Input::Registered { worker });
            return;
        }
        if worker == 0 {
            let factory = Ok(Arc::clone(&self.job.factory));
            let host = self.job.launcher.host();
            let agent = Agent::new(
                0,
                self.job.credentials.clone(),
                factory,
                host,
                self.network.clone(),
                Arc::clone(&self.job.log),
            );
            self.seat(0).identity.pid = Some(std::process::id());
            self.register(0, WorkerLink::Local(agent));
            return;
        }
        let settings = &self.job.settings;
        let orders = Orders {
            coordinator: self.coordinator,
            worker,
            silence_limit: settings.heartbeat_timeout,
            cancel_timeout: settings.cancel_timeout,
            init: self.job.launcher.init().to_vec(),
        };
        match self.job.launcher.launch(orders, &self.job.credentials) {
            Ok(process) => {
                let seat = self.seat(worker);
                seat.identity.place = process.place();
                seat.process = Some(process);
            }
            Err(error) => {
                let how = WorkerExit::NotStarted { reason: error.to_string() };
                self.feed(Input::WorkerLost { worker, how });
            }
        }
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
            // Nobody else is to come: the control port closes.
            self.admission.take().iter().for_each(AbortHandle::abort);
        }
    }

    fn register(&mut self, worker: u32, link: WorkerLink) {
        let wait = report_interval(&self.job);
        let polling = tokio::spawn(poll_news(worker, link.clone(), wait, Arc::clone(&self.board), self.sender.clone()));
        let seat = self.seat(worker);
        seat.link = Some(link);
        seat.polling = Some(polling.abort_handle());
        self.publish_workers();
        self.feed(Input::Registered { worker });
    }

    fn deploy(&mut self, worker: u32) {
        let tasks: Vec<TaskSpec> = self.job.plan.tasks_on(worker).cloned().collect();
        let restored = self.restored.as_ref().map(|restored| {
            let of = |task: &TaskSpec| Some((task.task_id, restored.get(&task.task_id)?.clone()));
            tasks.iter().filter_map(of).collect()
        });
        let (generation, settings) = (self.generation, self.job.settings.clone());
        let deployment = Deployment { generation, settings, tasks, restored };
        self.call(worker, async move |link| {
            let answer = link.deploy(deployment).await?;
            Ok(match answer {
                Ok(address) => Event::Deployed { worker, address },
                Err(fault) => Event::Faulty { worker, fault },
            })
        });
    }

    fn start(&mut self, worker: u32) {
        let addresses = self.seats.iter().filter_map(|(&peer, seat)| Some((peer, seat.identity.address?)));
        let peers: BTreeMap<u32, SocketAddr> = addresses.collect();
        self.call(worker, async move |link| {
            let answer = link.start(peers).await?;
            Ok(match answer {
                Ok(()) => Event::Started { worker },
                Err(fault) => Event::Faulty { worker, fault },
            })
        });
    }

    fn stop(&mut self, worker: u32) {
        self.call(worker, async move |link| Ok(Event::Stopped { worker, news: link.stop().await? }));
    }

    /// Ends a process; the agent of this process can only be told to hurry and
    /// then be left alone.
    fn kill(&mut self, worker: u32) {
        let seat = self.seat(worker);
        seat.leave();
        if let Some(process) = &mut seat.process {
            process.kill();
            return;
        }
        if let Some(WorkerLink::Local(agent)) = seat.link.take() {
            agent.cancel();
        }
        self.feed(Input::WorkerGone { worker });
    }

    /// An order goes to everybody who runs sources.
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

    /// The worker of a subtask, by position of its vertex and index among the subtasks, and the number of its task there. None
    /// if there is no such subtask, or its worker has no seat.
    pub(super) fn place_of(&self, (vertex, subtask): (u32, u32)) -> Option<(u32, u32)> {
        let mut tasks = self.job.plan.tasks.iter();
        let found = tasks.find(|task| (task.spec.vertex, task.spec.subtask) == (vertex, subtask))?;
        self.seats.contains_key(&found.worker).then_some((found.worker, found.spec.task_id))
    }

    pub(super) fn call<F>(&mut self, worker: u32, call: impl FnOnce(WorkerLink) -> F)
    where
        F: Future<Output = Result<Event, RpcError>> + Send + 'static,
    {
        let Some(link) = self.seat(worker).link.clone() else { return };
        let (call, sender, generation) = (call(link), self.sender.clone(), self.generation);
        tokio::spawn(async move {
            // A task of its own: what panics in it has to be told, too.
            let event = match tokio::spawn(call).await {
                Ok(Ok(event)) => event,
                Ok(Err(error)) => disconnection(worker, &error),
                Err(error) => Event::Faulty { worker, fault: WorkerFault::Worker(format!("a bug: {error}")) },
            };
            let _ = sender.send(Event::Of { generation, event: Box::new(event) });
        });
    }

    fn news(&mut self, worker: u32, mut news: News) {
        self.board.log().take(worker, std::mem::take(&mut news.said));
        if ![0, self.generation].contains(&news.generation) {
            // Of the attempt before: it lives, no more is to be learned from it.
            return self.feed(Input::Heartbeat { worker });
        }
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

    /// A worker has given back everything. Its process ends with its connection.
    fn stopped(&mut self, worker: u32, mut news: News) {
        self.board.log().take(worker, std::mem::take(&mut news.said));
        self.board.take_metrics(worker, &news);
        if self.is_kept(worker) {
            return self.feed(Input::WorkerGone { worker });
        }
        let seat = self.seat(worker);
        seat.leave();
        if seat.process.is_none() {
            self.feed(Input::WorkerGone { worker });
        }
    }

    fn disconnected(&mut self, worker: u32, reason: String) {
        let seat = self.seat(worker);
        if !seat.leaving && seat.disconnected.is_none() {
            seat.disconnected = Some((Instant::now(), reason));
        }
    }

    /// Reports processes that have ended, and connections that ended without.
    pub(super) fn look_after_processes(&mut self) {
        let mut inputs = Vec::new();
        for (&worker, seat) in &mut self.seats {
            let Some(process) = &mut seat.process else { continue };
            if let Some(how) = process.try_exit() {
                seat.process = None;
                seat.link = None;
                inputs.push(if seat.leaving {
                    Input::WorkerGone { worker }
                } else {
                    Input::WorkerLost { worker, how }
                });
            } else if seat.disconnected.as_ref().is_some_and(|(since, _)| since.elapsed() >= EXIT_GRACE)
                && let Some((_, reason)) = seat.disconnected.take()
            {
                inputs.push(Input::WorkerLost { worker, how: WorkerExit::Disconnected { reason } });
            }
        }
        inputs.into_iter().for_each(|input| self.feed(input));
    }

    fn next_wake(&self) -> Instant {
        let has_processes = self.seats.values().any(|seat| seat.process.is_some());
        let is_ending = self.seats.values().any(|seat| seat.leaving || seat.disconnected.is_some());
        let look = match (has_processes, is_ending) {
            (false, _) => IDLE_LOOK,
            (true, false) => PROCESS_LOOK,
            (true, true) => ENDING_LOOK,
        };
        let look_at = Instant::now() + look;
        let checkpoints = self.checkpoints.as_ref().and_then(Checkpoints::poll_timeout);
        let (flow, alignment) = (self.flow.poll_timeout(), self.alignment.poll_timeout());
        let timeouts = [self.machine.poll_timeout(), flow, alignment, self.stall.poll_timeout(), checkpoints];
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
                Err(failure.into_error(&self.job.plan, identity))
            }
        }
    }

    pub(super) fn seat(&mut self, worker: u32) -> &mut Seat {
        self.seats.entry(worker).or_insert_with(|| Seat::new(worker))
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

impl Seat {
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

    /// Its end is expected from now on. Without the link its connection closes,
    /// which is how a worker learns that it may go.
    pub(super) fn leave(&mut self) {
        self.leaving = true;
        self.polling.take().iter().for_each(AbortHandle::abort);
        if self.process.is_some() {
            self.link = None;
        }
    }
}

/// The machine of an attempt.
pub(super) fn job_machine(job: &Job, seats: &BTreeMap<u32, Seat>) -> JobMachine {
    let placement: Vec<u32> = job.plan.tasks.iter().map(|task| task.worker).collect();
    let limits = Limits {
        launch: job.settings.launch_timeout,
        heartbeat: job.settings.heartbeat_timeout,
        stop: job.settings.stop_timeout,
        cancel: job.settings.cancel_timeout,
    };
    JobMachine::new(&seats.keys().copied().collect::<Vec<_>>(), &placement, limits)
}

pub(super) fn flow_loop(job: &Job) -> FlowLoop {
    FlowLoop::new(job.settings.flow_control, job.plan.tasks.iter().map(|task| &task.spec))
}

pub(super) fn stall_machine(job: &Job) -> StallMachine {
    StallMachine::new(job.settings.stall_patience, report_interval(job), &job.plan)
}

/// Who takes part: all worker processes asked for, and this one if it has tasks.
fn participants(job: &Job) -> Vec<u32> {
    let driver_has_tasks = job.plan.tasks_on(0).next().is_some();
    let first = if driver_has_tasks { 0 } else { 1 };
    (first..=job.settings.workers).collect()
}

/// How often workers report, at the latest.
fn report_interval(job: &Job) -> Duration {
    let (settings, aligned) = (&job.settings, AlignmentMachine::shortest_interval(&job.plan));
    let interval = settings.heartbeat_interval.min(settings.status_interval);
    aligned.map_or(interval, |aligned| interval.min(aligned))
}

/// Asks a worker for news, one call after the other, until it cannot be reached.
async fn poll_news(worker: u32, link: WorkerLink, wait: Duration, board: Arc<Board>, events: UnboundedSender<Event>) {
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

fn disconnection(worker: u32, error: &RpcError) -> Event {
    Event::Disconnected { worker, reason: error.to_string() }
}

/// How long an ended connection waits to learn how the process ended.
const EXIT_GRACE: Duration = Duration::from_millis(300);
/// How often running processes are looked after.
const PROCESS_LOOK: Duration = Duration::from_millis(50);
/// The same while one is expected to end: a job should not wait for a poll.
const ENDING_LOOK: Duration = Duration::from_millis(5);
/// Without processes only the machine's own times matter.
const IDLE_LOOK: Duration = Duration::from_secs(1);
