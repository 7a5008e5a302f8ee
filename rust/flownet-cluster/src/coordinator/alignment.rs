//! Sends the limits of the [`AlignmentMachine`](crate::alignment::AlignmentMachine) to the sources.

use std::collections::BTreeMap;

use super::driver::Driver;

impl Driver {
    /// Passes the time to the machine and the resulting limits to the sources.
    pub(super) fn align_sources(&mut self) {
        self.alignment.on_time(self.began.elapsed());
        let Some(limits) = self.alignment.poll_limits() else { return };
        tracing::debug!(job = self.job.settings.job_name, ?limits);
        self.orders += 1;
        let (generation, number) = (self.generation, self.orders);
        let mut by_worker: BTreeMap<u32, Vec<(u32, i64)>> = BTreeMap::new();
        for (task, limit_ms) in limits {
            by_worker.entry(self.job.plan.tasks[task as usize].worker).or_default().push((task, limit_ms));
        }
        for (worker, limits) in by_worker {
            self.workers.call(worker, async move |link| link.align(generation, number, limits).await.map(|()| None));
        }
    }
}
