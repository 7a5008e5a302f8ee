//! Carries out the commands of the [`StallMachine`](crate::stall::StallMachine).

use super::{driver::Driver, events::JobEvent};
use crate::{machine::JobState, stall::Command};

impl Driver {
    /// Passes the time to the machine, and carries out its commands.
    pub(super) fn watch_for_stalls(&mut self) {
        let is_running = self.machine.state() == JobState::Running;
        self.stall.on_time(self.began.elapsed(), is_running, &self.job.plan);
        while let Some(command) = self.stall.poll_command() {
            match command {
                Command::Inspect { round } => self.workers.call_all(|worker, link| async move {
                    let inspection = link.inspect().await?;
                    Ok(Some(JobEvent::Inspected { worker, round, inspection }))
                }),
                Command::Show { stall, is_new } => {
                    tracing::info!(job = self.job.settings.job_name, %stall);
                    self.board.set_stall(stall, is_new);
                }
                Command::Clear => self.board.clear_stall(),
            }
        }
    }
}
