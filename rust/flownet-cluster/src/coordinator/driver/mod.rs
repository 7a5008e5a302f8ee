//! Runs the loop of a job: carries out the commands of the [`RegionsMachine`] and passes events between the job's parts.
//!
//! The driver runs on the coordinator's thread. Workers, users and background tasks reach it as [`Event`]s. It has no
//! state of its own but the machine; each part has private state and a small interface:
//!
//! | part | state |
//! |---|---|
//! | [`Workers`] | processes, connections, calls |
//! | [`Attempts`] | numbers of attempts, restarts, restored state |
//! | [`Checkpoints`] | pending checkpoint, storage, savepoints |
//! | [`Sources`] | rate limits, event-time limits, splits |
//! | [`Observation`] | metrics, stalls |
//!
//! Parts call workers through [`Workers`] and show their results in the [`StatusStore`]. They do not know each other or
//! the machine: the driver passes on what one returns and another needs.

mod commands;
mod lifecycle;
mod regions;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use flownet_runtime::spec::TaskSpec;
use tokio::{runtime::Handle, sync::mpsc::UnboundedReceiver};

use super::{
    attempts::Attempts,
    channels::fetch_channels,
    checkpoints::Checkpoints,
    events::{Event, Events, JobEvent, RegionEvent, Request, WorkerEvent},
    flame::fetch_flame,
    job::Job,
    observation::Observation,
    savepoints::SavepointRequest,
    sources::{FoundSplits, Sources},
    status_store::StatusStore,
    workers::Workers,
};
use crate::{
    checkpoint::RepeatedFailure,
    error::ClusterError,
    machine::{Failure, Input, JobState, Limits, Outcome, Placement, RegionCommand, RegionsMachine},
    rpc::{StatusReport, WorkerFault},
};

/// Driver loop and the parts of the job. Dropping it kills and reaps every process.
pub(super) struct Driver {
    job: Arc<Job>,
    board: Arc<StatusStore>,
    /// Machine of the current attempt.
    machine: RegionsMachine,
    attempts: Attempts,
    workers: Workers,
    /// None if checkpoints are disabled.
    checkpoints: Option<Checkpoints>,
    sources: Sources,
    observation: Observation,
    events: UnboundedReceiver<Event>,
}

impl Driver {
    /// Opens the control port. `network` runs the data plane of this process.
    pub(super) async fn new(
        job: Arc<Job>,
        board: Arc<StatusStore>,
        events: Events,
        network: Handle,
    ) -> Result<Self, ClusterError> {
        let Events { sender, receiver } = events;
        let workers = Workers::open(Arc::clone(&job), Arc::clone(&board), sender.clone(), network).await?;
        let checkpoints = Checkpoints::open(Arc::clone(&job), Arc::clone(&board), sender)?;
        let attempts = Attempts::new(&job, checkpoints.is_some(), u64::from(workers.port()));
        Ok(Self {
            machine: regions_machine(&job, &attempts),
            attempts,
            workers,
            checkpoints,
            sources: Sources::new(Arc::clone(&job)),
            observation: Observation::new(Arc::clone(&job), Arc::clone(&board)),
            events: receiver,
            job,
            board,
        })
    }

    /// Returns the time since the job began.
    fn now(&self) -> Duration {
        self.board.began().elapsed()
    }

    /// Runs one attempt to its end. No task runs afterwards.
    async fn run_attempt(&mut self) -> Outcome {
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
                    Some(event) => {
                        // An event that arrives during a freeze must not make workers silent that have left by then.
                        if wake_at.elapsed() >= FREEZE {
                            self.report_ended_workers();
                        }
                        self.handle(event);
                    }
                    None => self.feed(Input::Cancel),
                },
                () = tokio::time::sleep_until(wake_at.into()) => {
                    // A worker whose process has ended is not silent. This process may have been frozen, so exits come
                    // before timeouts.
                    self.report_ended_workers();
                    self.feed(Input::Tick);
                }
            }
            self.board.log().take(0, self.job.log.take(usize::MAX));
            self.report_ended_workers();
            self.sources.on_time(self.board.began().elapsed(), &self.workers);
            self.observation.on_time(self.machine.state() == JobState::Running, &self.workers);
            self.begin_waiting_regions();
        }
    }

    /// Passes an event of a task, or of all regions, to the machine.
    fn feed(&mut self, input: Input) {
        self.machine.handle(input, self.now());
        self.show_state();
    }

    /// Passes an event of a region's attempt to the machine.
    fn feed_in(&mut self, region: u32, input: Input) {
        self.machine.handle_in(region, input, self.now());
        self.show_state();
    }

    fn show_state(&mut self) {
        let state = self.machine.state();
        self.attempts.set_past(self.machine.past());
        if state != JobState::Ended {
            // The machine does not know whether the job has ended or another attempt follows.
            self.board.set_state(state);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Request(request) => self.on_request(request),
            Event::Worker(event) => self.on_worker_event(event),
            Event::Job { generation, event } if generation == self.attempts.generation() => self.on_job_event(event),
            Event::Region { attempt, event } if self.attempts.runs(attempt) => {
                self.on_region_event(attempt.region, event)
            }
            Event::Job { .. } | Event::Region { .. } => {}
        }
    }

    fn on_request(&mut self, request: Request) {
        match request {
            Request::Cancel => self.feed(Input::Cancel),
            Request::Stop { drain, savepoint } => {
                if let (Some(checkpoints), Some(url)) = (&mut self.checkpoints, savepoint) {
                    checkpoints.request_last_savepoint(url);
                }
                self.feed(Input::Stop { drain });
            }
            Request::Splits(found) => self.add_splits(&found),
            Request::Channels { vertex, subtask, reply } => {
                if let Some(placed) = self.job.subtask(vertex, subtask) {
                    let attempt = self.attempts.of_task(placed.spec.task_id);
                    fetch_channels(&self.job, &self.workers, placed, attempt, reply);
                }
            }
            Request::Flame { vertex, subtask, order, reply } => {
                if let Some(placed) = self.job.subtask(vertex, subtask) {
                    fetch_flame(&self.workers, placed, order, reply);
                }
            }
            Request::Checkpoint => {
                if let Some(checkpoints) = &mut self.checkpoints {
                    checkpoints.request();
                }
            }
            Request::Savepoint(request) => self.request_savepoint(request),
        }
    }

    fn on_worker_event(&mut self, event: WorkerEvent) {
        match event {
            WorkerEvent::Introduced { introduction, client } => {
                if self.workers.admit(introduction, client) {
                    self.feed(Input::Registered { worker: introduction.worker });
                    if !self.attempts.would_restart(self.now()) {
                        self.workers.close_port_if_complete();
                    }
                }
            }
            WorkerEvent::Reported { worker, report } => self.on_report(worker, *report),
            WorkerEvent::Disconnected { worker, reason } => self.workers.on_disconnect(worker, reason),
        }
    }

    fn on_job_event(&mut self, event: JobEvent) {
        match event {
            JobEvent::Inspected { worker, round, inspection } => {
                self.observation.on_inspection(worker, round, inspection);
            }
            JobEvent::Published { checkpoint, result } => {
                let failure =
                    self.checkpoints.as_mut().and_then(|checkpoints| checkpoints.on_published(checkpoint, result));
                if let Some(failure) = failure {
                    self.feed(Input::CheckpointsFailed { failure });
                }
            }
            JobEvent::CallFailed { worker, message } => self.feed(Input::WorkerFailed { worker, message }),
        }
    }

    fn on_region_event(&mut self, region: u32, event: RegionEvent) {
        match event {
            RegionEvent::Deployed { worker, address } => {
                self.attempts.set_address(region, worker, address);
                self.workers.set_address(worker, address);
                self.feed_in(region, Input::Deployed { worker });
            }
            RegionEvent::Started { worker } => self.feed_in(region, Input::Started { worker }),
            RegionEvent::Stopped { worker, report } => {
                self.on_report(worker, *report);
                // The worker stays for other regions and later attempts.
                self.feed_in(region, Input::WorkerGone { worker });
            }
            RegionEvent::Faulty { fault: WorkerFault::Task { task, error }, .. } => {
                self.feed(Input::TaskNotBuilt { task, error });
            }
            RegionEvent::Faulty { fault: WorkerFault::Store(error), .. } => {
                self.feed_in(region, Input::CheckpointsFailed { failure: Failure::Store { error } });
            }
            RegionEvent::Faulty { worker, fault: WorkerFault::Worker(message) } => {
                self.feed_in(region, Input::WorkerFailed { worker, message });
            }
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

    /// Passes new splits on, if the attempt that they are for still runs.
    fn add_splits(&self, found: &FoundSplits) {
        let is_running = self.machine.state() == JobState::Running;
        if is_running && self.board.status().history.restarted == found.restarted {
            self.sources.add_splits(found, &self.workers);
        }
    }

    fn on_report(&mut self, worker: u32, mut report: StatusReport) {
        self.board.log().take(worker, std::mem::take(&mut report.said));
        // Reports of earlier attempts prove only that the worker lives.
        let running: Vec<u32> = report
            .attempts
            .iter()
            .filter(|attempt| self.attempts.runs(**attempt))
            .map(|attempt| attempt.region)
            .collect();
        report.retain(|task| self.attempts.regions().of_task(task).is_some_and(|region| running.contains(&region)));
        if let Some(checkpoints) = &mut self.checkpoints {
            checkpoints.on_reports(&report.reports);
        }
        self.observation.on_report(worker, &report);
        self.sources.on_report(worker, &report);
        self.feed(Input::Heartbeat { worker });
        for end in report.ended {
            let task = end.task;
            self.observation.on_task_end();
            match end.error {
                None => {
                    if let Some(checkpoints) = &mut self.checkpoints {
                        checkpoints.on_task_end(task);
                    }
                    self.feed(Input::TaskFinished { task });
                }
                Some(error) => self.feed(Input::TaskFailed { task, error, has_run: end.has_run }),
            }
        }
    }

    fn next_wake(&self) -> Instant {
        let look_at = Instant::now() + self.workers.poll_interval();
        let checkpoints = self.checkpoints.as_ref().and_then(Checkpoints::poll_timeout);
        let (sources, observation) = (self.sources.poll_timeout(), self.observation.poll_timeout());
        let timeouts = [self.machine.poll_timeout(), self.regions_begin_at(), sources, observation, checkpoints];
        timeouts.into_iter().flatten().fold(look_at, |look_at, timeout| look_at.min(self.board.began() + timeout))
    }

    /// Passes the state of the attempt to its checkpoints, and carries out what follows.
    fn follow_checkpoints(&mut self) {
        let is_broken = self.machine.is_broken() && self.attempts.regions().count() > 1;
        let (state, all_run, latest) = (self.machine.state(), self.machine.all_run(), self.attempts.last_number());
        if let Some(checkpoints) = &mut self.checkpoints {
            checkpoints.on_state(state, all_run, is_broken);
        }
        while let Some(checkpoints) = &mut self.checkpoints
            && let Some(failure) = checkpoints.carry_out(&self.workers, latest)
        {
            self.feed(Input::CheckpointsFailed { failure });
        }
    }

    fn request_savepoint(&mut self, request: SavepointRequest) {
        // A job without checkpoints refuses savepoints before they get here.
        if let Some(checkpoints) = &mut self.checkpoints {
            checkpoints.request_savepoint(request);
        }
    }

    fn verdict(&self, outcome: Outcome) -> Result<(), ClusterError> {
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
                let error = failure.into_error(&self.job.plan, |worker| self.workers.identity(worker));
                Err(match self.attempts.gave_up() {
                    None => error,
                    Some(RepeatedFailure { attempts, checkpoint }) => {
                        ClusterError::Repeated { error: Box::new(error), attempts, checkpoint }
                    }
                })
            }
        }
    }
}

/// Creates the machine of an attempt of the job.
fn regions_machine(job: &Job, attempts: &Attempts) -> RegionsMachine {
    let limits = Limits {
        launch: job.settings.launch_timeout,
        heartbeat: job.settings.heartbeat_timeout,
        stop: job.settings.stop_timeout,
        cancel: job.settings.cancel_timeout,
    };
    let placement = Placement {
        workers: job.plan.tasks.iter().map(|task| task.worker).collect(),
        regions: attempts.regions().clone(),
        participants: job.participants().collect(),
        limits,
    };
    RegionsMachine::new(placement, attempts.past())
}

/// Delay of the loop from which on this process counts as frozen.
const FREEZE: Duration = Duration::from_secs(1);
