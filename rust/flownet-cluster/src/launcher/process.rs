//! Starts worker processes with a greeting on their standard input, watches them, and leaves none behind.
//!
//! # Invariants
//! - I1: a dropped [`WorkerProcess`] has been killed and reaped.
//! - I2: an exit is reported as a lost connection if and only if the worker sent a [`farewell`](crate::run_worker)
//!   before it. A worker that exits kills its process group and itself, so its exit status alone looks like a kill by
//!   the system.
//! - I3: its child processes have been killed too, unless they have left the worker's process group. This happens
//!   before the worker is reaped, while no other process or group can have its number.

use std::{
    ffi::OsString,
    io::{self, Read, Write},
    net::Shutdown,
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Child, Command},
};

use flownet_store::KEY_VARIABLE;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::error::WorkerExit;

/// Command that starts one worker process.
#[derive(Clone, Debug, Default)]
pub struct WorkerCommand {
    /// Program to run; it must call [`run_worker`](crate::run_worker).
    pub program: OsString,
    /// Arguments of the program.
    pub args: Vec<OsString>,
    /// Environment variables that are set in addition to the inherited ones.
    pub env: Vec<(OsString, OsString)>,
    /// Bytes passed to the worker's factory builder; at most 256 MiB.
    pub init: Vec<u8>,
}

/// Child process that ends no later than this value.
#[derive(Debug)]
pub(crate) struct WorkerProcess {
    child: Child,
    /// Other end of its standard input.
    socket: UnixStream,
    exit: Option<WorkerExit>,
}

impl WorkerProcess {
    /// Starts a process in its own group, so that Ctrl-C in the terminal reaches only the submitting process, which
    /// then ends the job in order. A thread writes `greeting`: a child that does not read must not block the
    /// coordinator.
    pub(crate) fn spawn(command: &WorkerCommand, greeting: Vec<u8>) -> io::Result<Self> {
        let (socket, stdin) = UnixStream::pair()?;
        let mut writer = socket.try_clone()?;
        let child = Command::new(&command.program)
            .args(&command.args)
            .envs(command.env.iter().map(|(name, value)| (name, value)))
            // Workers do not sign checkpoints, and they run code of users, so they do not get the key.
            .env_remove(KEY_VARIABLE)
            .stdin(OwnedFd::from(stdin))
            .process_group(0)
            .spawn()?;
        let process = Self { child, socket, exit: None };
        let write = move || {
            // If the child dies meanwhile, its exit reports that, not this error.
            let _ = writer.write_all(&greeting).and_then(|()| writer.shutdown(Shutdown::Write));
        };
        std::thread::Builder::new().name("flownet-greeting".to_owned()).spawn(write)?;
        Ok(process)
    }

    /// Returns how the process ended, if it has.
    pub(crate) fn try_exit(&mut self) -> Option<WorkerExit> {
        if self.exit.is_none() && self.has_ended() {
            self.kill_group();
            self.exit = match self.child.try_wait() {
                Ok(Some(status)) => Some(self.farewell().unwrap_or_else(|| WorkerExit::from(status))),
                Ok(None) => None,
                Err(error) => Some(WorkerExit::Disconnected { reason: error.to_string() }),
            };
        }
        self.exit.clone()
    }

    /// Kills the process; [`try_exit`](Self::try_exit) reports when it is gone.
    pub(crate) fn kill(&mut self) {
        if self.try_exit().is_none() {
            self.kill_group();
        }
    }

    /// Returns the last message of a process that exited because of its connection. The process has ended, so the
    /// message is complete.
    fn farewell(&mut self) -> Option<WorkerExit> {
        // A child of the process may still hold its standard input. Then no end of file arrives, so the read must not
        // block.
        self.socket.set_nonblocking(true).ok()?;
        let mut said = Vec::new();
        let _ = (&self.socket).take(MAX_FAREWELL_BYTES).read_to_end(&mut said);
        let reason = String::from_utf8(said).ok().filter(|reason| !reason.is_empty())?;
        Some(WorkerExit::Disconnected { reason })
    }

    /// Checks for an exit without reaping.
    fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        // An error means that the process is no longer our child. Asking for its exit reports that, too.
        !matches!(waitid(WaitId::Pid(self.pid()), options), Ok(None))
    }

    fn kill_group(&self) {
        if let Err(error) = kill_process_group(self.pid(), Signal::KILL) {
            tracing::warn!(pid = self.child.id(), %error, "cannot kill a worker process");
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        self.kill();
        if self.exit.is_none() {
            // No process survives SIGKILL, so this wait is short.
            let _ = self.child.wait();
        }
    }
}

const MAX_FAREWELL_BYTES: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> WorkerCommand {
        WorkerCommand { program: "sh".into(), args: vec!["-c".into(), script.into()], ..WorkerCommand::default() }
    }

    fn exit(process: &mut WorkerProcess) -> WorkerExit {
        loop {
            if let Some(exit) = process.try_exit() {
                return exit;
            }
            std::thread::yield_now();
        }
    }

    fn is_alive(pid: u32) -> bool {
        std::path::Path::new(&format!("/proc/{pid}")).exists()
    }

    #[test]
    fn a_process_that_ends_is_reported_with_its_code_or_signal() {
        let mut process = WorkerProcess::spawn(&shell("exit 3"), Vec::new()).unwrap();
        assert_eq!(exit(&mut process), WorkerExit::Exited { code: 3 });
        let mut process = WorkerProcess::spawn(&shell("kill -9 $$"), Vec::new()).unwrap();
        assert_eq!(exit(&mut process), WorkerExit::Signalled { signal: 9 });
    }

    #[test]
    fn a_process_that_says_farewell_is_reported_by_that_however_it_ends() {
        for script in ["echo -n lost >&0; kill -9 $$", "echo -n lost >&0", "sleep 600 & echo -n lost >&0; kill -9 $$"] {
            let mut process = WorkerProcess::spawn(&shell(script), Vec::new()).unwrap();
            assert_eq!(exit(&mut process), WorkerExit::Disconnected { reason: "lost".to_owned() }, "{script}");
        }
    }

    #[test]
    fn a_program_that_does_not_exist_is_an_error() {
        let command = WorkerCommand { program: "/nonexistent/flownet".into(), ..WorkerCommand::default() };
        assert!(WorkerProcess::spawn(&command, Vec::new()).is_err());
    }

    #[test]
    fn what_a_process_started_ends_with_it_however_it_ends() {
        for script in
            ["sleep 600 & echo $! > pid; mv pid pid_; exit 3", "sleep 600 & echo $! > pid; mv pid pid_; sleep 600"]
        {
            let folder = tempfile::tempdir().unwrap();
            let script = format!("cd {}; {script}", folder.path().display());
            let mut process = WorkerProcess::spawn(&shell(&script), Vec::new()).unwrap();
            let started: u32 = loop {
                if let Ok(pid) = std::fs::read_to_string(folder.path().join("pid_")) {
                    break pid.trim().parse().unwrap();
                }
            };
            if script.contains("exit") {
                exit(&mut process);
            }
            drop(process);
            // The process is not our child: its parent reaps it shortly.
            let state = || std::fs::read_to_string(format!("/proc/{started}/stat")).unwrap_or_default();
            while !state().is_empty() && !state().contains(") Z ") {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn a_dropped_process_is_killed_and_reaped_even_if_it_never_reads_its_greeting() {
        let process = WorkerProcess::spawn(&shell("exec sleep 600"), vec![0; 1 << 20]).unwrap();
        let pid = process.child.id();
        assert!(is_alive(pid));
        drop(process);
        assert!(!is_alive(pid));
    }
}
