//! Carries out commands for the attempts of regions: launches, calls, watches and kills workers.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use flownet_runtime::spec::TaskSpec;
use tarpc::client::RpcError;

use super::checkpoints::Checkpoints;
use super::driver::{Driver, Event, disconnection};
use super::link::WorkerLink;
use crate::{
    agent::Agent,
    error::WorkerExit,
    launcher::Orders,
    machine::{Command, Input},
    rpc::{Attempt, Deployment, WorkerFault},
};

impl Driver {
    pub(super) fn carry_out_in(&mut self, region: u32, command: Command) {
        match command {
            Command::Launch { worker } => self.launch(region, worker),
            Command::Deploy { worker } => self.deploy(region, worker),
            Command::Start { worker } => self.start(region, worker),
            Command::EndSources { worker, drain } => {
                let attempt = self.attempt_of(region);
                self.call_in(region, worker, async move |link| {
                    link.end_sources(attempt, drain).await.map(|()| Event::Done)
                });
            }
            Command::Stop { worker } => self.stop(region, worker),
            Command::Kill { worker } => self.kill(worker),
            // Only the machine of the regions handles this command.
            Command::End { .. } => {}
        }
    }

    fn launch(&mut self, region: u32, worker: u32) {
        let seat = self.seat(worker);
        if seat.link.is_some() {
            // The worker stayed from the previous attempt, or another region uses it.
            return self.feed_in(region, Input::Registered { worker });
        }
        if seat.process.is_some() {
            // The worker is already starting for another region.
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

    fn deploy(&mut self, region: u32, worker: u32) {
        let is_of = |task: &&TaskSpec| self.regions.of_task(task.task_id) == Some(region);
        let tasks: Vec<TaskSpec> = self.job.plan.tasks_on(worker).filter(is_of).cloned().collect();
        let restored = self.restored.as_ref().map(|restored| {
            let of = |task: &TaskSpec| Some((task.task_id, restored.get(&task.task_id)?.clone()));
            tasks.iter().filter_map(of).collect()
        });
        let (generation, settings) = (self.generation, self.job.settings.clone());
        let has_digests = self.checkpoints.as_ref().is_some_and(Checkpoints::signs);
        let attempt = self.attempt_of(region);
        let segments = self.job.segments.get(&worker).copied().unwrap_or_else(|| settings.segments(0));
        let deployment = Deployment { generation, attempt, settings, segments, tasks, restored, has_digests };
        self.call_in(region, worker, async move |link| {
            let answer = link.deploy(deployment).await?;
            Ok(match answer {
                Ok(address) => Event::Deployed { region, worker, address },
                Err(fault) => Event::Faulty { region: Some(region), worker, fault },
            })
        });
    }

    fn start(&mut self, region: u32, worker: u32) {
        let (attempt, peers) = (self.attempt_of(region), self.attempts[region as usize].addresses.clone());
        self.call_in(region, worker, async move |link| {
            let answer = link.start(attempt, peers).await?;
            Ok(match answer {
                Ok(()) => Event::Started { region, worker },
                Err(fault) => Event::Faulty { region: Some(region), worker, fault },
            })
        });
    }

    fn stop(&mut self, region: u32, worker: u32) {
        self.call_in(region, worker, async move |link| {
            Ok(Event::Stopped { region, worker, news: link.stop(region).await? })
        });
    }

    /// Ends a worker process. The agent of this process cannot be killed: its tasks are cancelled and no longer waited
    /// for.
    fn kill(&mut self, worker: u32) {
        let seat = self.seat(worker);
        seat.leave();
        let has_process = seat.process.is_some();
        if let Some(process) = &mut seat.process {
            process.kill();
        } else if let Some(WorkerLink::Local(agent)) = seat.link.take() {
            agent.cancel();
        }
        // Other regions with tasks on this worker have lost it.
        self.feed(Input::WorkerLost { worker, how: WorkerExit::Killed });
        if !has_process {
            self.feed(Input::WorkerGone { worker });
        }
    }

    pub(super) fn disconnected(&mut self, worker: u32, reason: String) {
        let seat = self.seat(worker);
        // Without a link, the ended connection belonged to the previous worker of this record.
        if !seat.leaving && seat.link.is_some() && seat.disconnected.is_none() {
            seat.disconnected = Some((Instant::now(), reason));
        }
    }

    /// Reports processes that have ended, and connections that ended although their process runs.
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
                // The worker is not called any more, even if no region is there to have it killed.
                seat.link = None;
                inputs.push(Input::WorkerLost { worker, how: WorkerExit::Disconnected { reason } });
            }
        }
        inputs.into_iter().for_each(|input| self.feed(input));
    }

    /// Calls a worker for the attempt of the job.
    pub(super) fn call<F>(&mut self, worker: u32, call: impl FnOnce(WorkerLink) -> F)
    where
        F: Future<Output = Result<Event, RpcError>> + Send + 'static,
    {
        let generation = self.generation;
        self.call_for(None, worker, call, move |event| Event::Of { generation, event });
    }

    /// Calls a worker for the attempt of a region.
    fn call_in<F>(&mut self, region: u32, worker: u32, call: impl FnOnce(WorkerLink) -> F)
    where
        F: Future<Output = Result<Event, RpcError>> + Send + 'static,
    {
        let attempt = self.attempt_of(region);
        self.call_for(Some(region), worker, call, move |event| Event::OfAttempt { attempt, event });
    }

    fn call_for<F>(
        &mut self,
        region: Option<u32>,
        worker: u32,
        call: impl FnOnce(WorkerLink) -> F,
        of: impl FnOnce(Box<Event>) -> Event + Send + 'static,
    ) where
        F: Future<Output = Result<Event, RpcError>> + Send + 'static,
    {
        let Some(link) = self.seat(worker).link.clone() else { return };
        let (call, sender) = (call(link), self.sender.clone());
        tokio::spawn(async move {
            // The call runs in its own task, so that a panic in it is also reported.
            let event = match tokio::spawn(call).await {
                Ok(Ok(event)) => event,
                Ok(Err(error)) => disconnection(worker, &error),
                Err(error) => Event::Faulty { region, worker, fault: WorkerFault::Worker(format!("a bug: {error}")) },
            };
            let _ = sender.send(of(Box::new(event)));
        });
    }

    pub(super) fn attempt_of(&self, region: u32) -> Attempt {
        let number = self.attempts.get(region as usize).map_or(0, |attempt| attempt.number);
        Attempt { region, number }
    }

    /// Whether the attempt is the current one of its region.
    pub(super) fn runs(&self, attempt: Attempt) -> bool {
        self.attempt_of(attempt.region) == attempt
    }
}

/// Time after a connection ends in which the process may still report its exit.
const EXIT_GRACE: Duration = Duration::from_millis(300);
