//! Carries out commands for the attempts of regions: launches, calls, watches and kills workers.

use flownet_runtime::spec::TaskSpec;

use super::super::checkpoints::Checkpoints;
use super::super::events::RegionEvent;
use super::super::workers::Launch;
use super::Driver;
use crate::{
    error::WorkerExit,
    machine::{Command, Input},
    rpc::Deployment,
};

impl Driver {
    pub(super) fn carry_out_in(&mut self, region: u32, command: Command) {
        match command {
            Command::Launch { worker } => self.launch(region, worker),
            Command::Deploy { worker } => self.deploy(region, worker),
            Command::Start { worker } => self.start(region, worker),
            Command::EndSources { worker, drain } => {
                let attempt = self.attempts.of_region(region);
                self.workers
                    .call_in(attempt, worker, async move |link| link.end_sources(attempt, drain).await.map(|()| None));
            }
            Command::Stop { worker } => self.stop(region, worker),
            Command::Kill { worker } => self.kill(worker),
            // Only the machine of the regions handles this command.
            Command::End { .. } => {}
        }
    }

    fn launch(&mut self, region: u32, worker: u32) {
        match self.workers.launch(worker) {
            Launch::IsRegistered => self.feed_in(region, Input::Registered { worker }),
            Launch::Starts => {}
            Launch::Registers => self.feed(Input::Registered { worker }),
            Launch::Failed(how) => self.feed(Input::WorkerLost { worker, how }),
        }
    }

    fn deploy(&mut self, region: u32, worker: u32) {
        let is_of = |task: &&TaskSpec| self.attempts.regions().of_task(task.task_id) == Some(region);
        let tasks: Vec<TaskSpec> = self.job.plan.tasks_on(worker).filter(is_of).cloned().collect();
        let restored = self.attempts.restored(&tasks);
        let (generation, settings) = (self.attempts.generation(), self.job.settings.clone());
        let has_digests = self.checkpoints.as_ref().is_some_and(Checkpoints::signs);
        let attempt = self.attempts.of_region(region);
        let segments = self.job.segments.get(&worker).copied().unwrap_or_else(|| settings.segments(0));
        let deployment = Deployment { generation, attempt, settings, segments, tasks, restored, has_digests };
        self.workers.call_in(attempt, worker, async move |link| {
            let answer = link.deploy(deployment).await?;
            Ok(Some(match answer {
                Ok(address) => RegionEvent::Deployed { worker, address },
                Err(fault) => RegionEvent::Faulty { worker, fault },
            }))
        });
    }

    fn start(&mut self, region: u32, worker: u32) {
        let (attempt, peers) = (self.attempts.of_region(region), self.attempts.addresses(region).clone());
        self.workers.call_in(attempt, worker, async move |link| {
            let answer = link.start(attempt, peers).await?;
            Ok(Some(match answer {
                Ok(()) => RegionEvent::Started { worker },
                Err(fault) => RegionEvent::Faulty { worker, fault },
            }))
        });
    }

    fn stop(&mut self, region: u32, worker: u32) {
        let attempt = self.attempts.of_region(region);
        self.workers.call_in(attempt, worker, async move |link| {
            let report = Box::new(link.stop(region).await?);
            Ok(Some(RegionEvent::Stopped { worker, report }))
        });
    }

    /// Ends a worker by force.
    fn kill(&mut self, worker: u32) {
        let has_process = self.workers.kill(worker);
        // Other regions with tasks on this worker have lost it.
        self.feed(Input::WorkerLost { worker, how: WorkerExit::Killed });
        if !has_process {
            self.feed(Input::WorkerGone { worker });
        }
    }

    /// Reports processes that have ended, and connections that ended although their process runs.
    pub(super) fn report_ended_workers(&mut self) {
        let ends = self.workers.poll_ends();
        ends.into_iter().for_each(|input| self.feed(input));
    }
}
