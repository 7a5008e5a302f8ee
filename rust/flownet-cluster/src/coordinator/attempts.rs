//! Numbers the attempts of a job and of its regions, and decides whether and when another one follows.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use flownet_runtime::spec::TaskSpec;

use super::{
    checkpoints::{RestoredTasks, Resumption},
    job::Job,
};
use crate::{
    checkpoint::{RepeatedFailure, Supervisor},
    machine::{Failure, LaunchHistory},
    plan::Regions,
    rpc::Attempt,
};

/// Attempts of a job so far.
pub(super) struct Attempts {
    regions: Regions,
    /// Current attempt of each region.
    current: Vec<RegionAttempt>,
    /// Number of region attempts so far.
    begun: u64,
    /// Number of the current attempt of the job. It increases with each attempt.
    generation: u64,
    supervisor: Supervisor,
    /// Whether an attempt of each region has run.
    past: Vec<LaunchHistory>,
    /// State that each task restores. None without checkpoints.
    restored: Option<RestoredTasks>,
}

/// Attempt of a region.
#[derive(Clone, Debug, Default)]
struct RegionAttempt {
    number: u64,
    /// Data plane addresses by worker.
    addresses: BTreeMap<u32, SocketAddr>,
}

impl Attempts {
    /// Creates the attempts of a job that has not begun. `seed` varies the delays of restarts.
    pub(super) fn new(job: &Job, has_checkpoints: bool, seed: u64) -> Self {
        let supervisor = Supervisor::new(&job.settings.restart, has_checkpoints, seed);
        // If the job does not restart, or replaces all workers when it does, regions do not restart on their own.
        let begins_anew = supervisor.would_restart(Duration::ZERO) && !job.launcher.renews();
        let regions = if begins_anew { Regions::of(&job.plan, &job.settings) } else { Regions::one(&job.plan) };
        let count = regions.count() as usize;
        Self {
            regions,
            current: vec![RegionAttempt::default(); count],
            begun: 0,
            generation: 0,
            supervisor,
            past: vec![LaunchHistory::None; count],
            restored: None,
        }
    }

    /// Returns the regions that restart on their own.
    pub(super) fn regions(&self) -> &Regions {
        &self.regions
    }

    /// Returns the tasks of regions.
    pub(super) fn tasks_of(&self, regions: &[u32]) -> Vec<u32> {
        regions.iter().flat_map(|region| self.regions.tasks(*region)).collect()
    }

    /// Returns the number of the current attempt of the job.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the number of the last attempt of any region.
    pub(super) fn last_number(&self) -> u64 {
        self.begun
    }

    /// Returns the current attempt of a region.
    pub(super) fn of_region(&self, region: u32) -> Attempt {
        let number = self.current.get(region as usize).map_or(0, |attempt| attempt.number);
        Attempt { region, number }
    }

    /// Returns the current attempt of a task's region.
    pub(super) fn of_task(&self, task: u32) -> Attempt {
        self.of_region(self.regions.of_task(task).unwrap_or_default())
    }

    /// Whether the attempt is the current one of its region.
    pub(super) fn runs(&self, attempt: Attempt) -> bool {
        self.of_region(attempt.region) == attempt
    }

    /// Begins an attempt of the job, and so of all regions.
    pub(super) fn begin(&mut self, now: Duration) {
        self.generation += 1;
        let regions: Vec<u32> = (0..self.regions.count()).collect();
        self.begin_regions(&regions, now);
    }

    /// Begins attempts of regions.
    pub(super) fn begin_regions(&mut self, regions: &[u32], now: Duration) {
        for &region in regions {
            self.begun += 1;
            self.current[region as usize] = RegionAttempt { number: self.begun, ..RegionAttempt::default() };
        }
        self.supervisor.begins(now);
    }

    /// Sets the number of the attempt of the job that has begun, and the state that its tasks restore.
    pub(super) fn resume(&mut self, resumption: Resumption) {
        let Resumption { generation, checkpoint, restored } = resumption;
        self.generation = generation;
        self.restored = Some(restored);
        if checkpoint.is_some() {
            let unknown = self.past.iter_mut().filter(|past| **past == LaunchHistory::None);
            unknown.for_each(|past| *past = LaunchHistory::Elsewhere);
        }
    }

    /// Sets the state that tasks restore from now on.
    pub(super) fn set_restored(&mut self, restored: RestoredTasks) {
        self.restored = Some(restored);
    }

    /// Returns the state that these tasks restore. None without checkpoints.
    pub(super) fn restored(&self, tasks: &[TaskSpec]) -> Option<RestoredTasks> {
        let restored = self.restored.as_ref()?;
        let of = |task: &TaskSpec| Some((task.task_id, restored.get(&task.task_id)?.clone()));
        Some(tasks.iter().filter_map(of).collect())
    }

    /// Records the address of a worker's data plane for the current attempt of a region.
    pub(super) fn set_address(&mut self, region: u32, worker: u32, address: SocketAddr) {
        self.current[region as usize].addresses.insert(worker, address);
    }

    /// Returns the data plane addresses of a region by worker.
    pub(super) fn addresses(&self, region: u32) -> &BTreeMap<u32, SocketAddr> {
        &self.current[region as usize].addresses
    }

    /// Returns whether an attempt of each region has run, and where.
    pub(super) fn past(&self) -> &[LaunchHistory] {
        &self.past
    }

    pub(super) fn set_past(&mut self, past: Vec<LaunchHistory>) {
        self.past = past;
    }

    /// Whether a restart would follow a failure at `now`.
    pub(super) fn would_restart(&self, now: Duration) -> bool {
        self.supervisor.would_restart(now)
    }

    /// Handles the failure of an attempt; `checkpoint` is the last published one. Returns the delay before the restart,
    /// or `None` if there is none.
    pub(super) fn on_failure(&mut self, failure: &Failure, checkpoint: Option<u64>, now: Duration) -> Option<Duration> {
        self.supervisor.failed(now, failure.root_cause(), checkpoint)
    }

    /// Handles an attempt that could not begin because of the storage. Returns the delay before the next try, or `None`
    /// if there is none. A job that has never run is not tried again.
    pub(super) fn on_storage_failure(&mut self, now: Duration) -> Option<Duration> {
        let has_past = self.past.iter().any(|past| *past != LaunchHistory::None);
        has_past.then(|| self.supervisor.failed(now, None, None)).flatten()
    }

    /// Returns the failure that ended the restarts because it repeated.
    pub(super) fn gave_up(&self) -> Option<RepeatedFailure> {
        self.supervisor.gave_up()
    }
}
