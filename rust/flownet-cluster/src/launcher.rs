//! Worker processes: started with a greeting on their standard input, watched,
//! and never left behind.
//!
//! # Invariants
//! - I1: a [`WorkerProcess`] that is dropped has been killed and reaped.
//! - I2: the secret reaches a worker through a private pipe only, never by
//!   argument or environment, which other users of the machine can read.

use std::{
    ffi::OsString,
    io::{self, Read, Write},
    net::SocketAddr,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::error::WorkerExit;

/// How to start one worker process.
#[derive(Clone, Debug, Default)]
pub struct WorkerCommand {
    /// Program to run; it must call [`run_worker`](crate::run_worker).
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Environment variables set on top of the inherited ones.
    pub env: Vec<(OsString, OsString)>,
    /// Bytes handed to the worker's factory builder; at most 256 MiB.
    pub init: Vec<u8>,
}

/// What a worker is told before it can ask: the first bytes of its standard input.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Greeting {
    /// Where to dial.
    pub(crate) coordinator: SocketAddr,
    /// What to prove there.
    pub(crate) secret_hex: String,
    /// Its number.
    pub(crate) worker: u32,
    /// Silence of the coordinator after which the worker ends itself.
    pub(crate) silence_limit: Duration,
    /// Time its tasks have to end when it does.
    pub(crate) cancel_timeout: Duration,
    #[serde(with = "serde_bytes")]
    pub(crate) init: Vec<u8>,
}

/// A child process that ends no later than this value.
#[derive(Debug)]
pub(crate) struct WorkerProcess {
    child: Child,
    exit: Option<WorkerExit>,
}

impl Greeting {
    /// A `u32` (little-endian) of the length, then MessagePack.
    pub(crate) fn encode(&self) -> io::Result<Vec<u8>> {
        let body = rmp_serde::to_vec(self).map_err(io::Error::other)?;
        let length = u32::try_from(body.len()).ok().filter(|&length| length <= MAX_GREETING_BYTES);
        let length = length.ok_or_else(|| {
            let text = format!("the init bytes of a worker have {} bytes, limit {MAX_GREETING_BYTES}", body.len());
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        Ok([&length.to_le_bytes(), body.as_slice()].concat())
    }

    /// Reads one greeting and not a byte more.
    pub(crate) fn read(mut input: impl Read) -> io::Result<Self> {
        let mut length = [0; 4];
        input.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length);
        if length > MAX_GREETING_BYTES {
            let text = format!("a greeting of {length} bytes, limit {MAX_GREETING_BYTES}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let mut body = Vec::new();
        input.take(u64::from(length)).read_to_end(&mut body)?;
        if body.len() < length as usize {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        rmp_serde::from_slice(&body).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

impl WorkerProcess {
    /// Starts a process in a group of its own, so that Ctrl-C in the terminal
    /// reaches the submitting process alone, which then takes the job down in
    /// order. `greeting` is written from a thread: a child that does not read
    /// must not hold up the coordinator.
    pub(crate) fn spawn(command: &WorkerCommand, greeting: Vec<u8>) -> io::Result<Self> {
        let mut child = Command::new(&command.program)
            .args(&command.args)
            .envs(command.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let stdin = child.stdin.take();
        let process = Self { child, exit: None };
        if let Some(mut stdin) = stdin {
            let write = move || {
                // A child that dies meanwhile is seen by its exit, not by this.
                let _ = stdin.write_all(&greeting);
            };
            std::thread::Builder::new().name("flownet-greeting".to_owned()).spawn(write)?;
        }
        Ok(process)
    }

    /// How the process ended, if it has.
    pub(crate) fn try_exit(&mut self) -> Option<WorkerExit> {
        if self.exit.is_none() {
            self.exit = match self.child.try_wait() {
                Ok(status) => status.map(WorkerExit::from),
                Err(error) => Some(WorkerExit::Disconnected { reason: error.to_string() }),
            };
        }
        self.exit.clone()
    }

    /// Ends the process by force; [`try_exit`](Self::try_exit) tells when it is gone.
    pub(crate) fn kill(&mut self) {
        if self.try_exit().is_none()
            && let Err(error) = self.child.kill()
        {
            tracing::warn!(pid = self.child.id(), %error, "cannot kill a worker process");
        }
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        self.kill();
        if self.exit.is_none() {
            // Nothing survives SIGKILL, so this wait is short.
            let _ = self.child.wait();
        }
    }
}

const MAX_GREETING_BYTES: u32 = 256 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting() -> Greeting {
        Greeting {
            coordinator: SocketAddr::from(([127, 0, 0, 1], 4000)),
            secret_hex: "ab".repeat(32),
            worker: 3,
            silence_limit: Duration::from_secs(10),
            cancel_timeout: Duration::from_secs(5),
            init: vec![0, 255, 7],
        }
    }

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
    fn a_greeting_arrives_as_it_was_sent_and_nothing_after_it_is_read() {
        let mut bytes = greeting().encode().unwrap();
        bytes.extend_from_slice(b"rest");
        let mut input = bytes.as_slice();
        let read = Greeting::read(&mut input).unwrap();
        assert_eq!((read.worker, read.init, read.coordinator.port()), (3, vec![0, 255, 7], 4000));
        assert_eq!(input, b"rest");
    }

    #[test]
    fn broken_greetings_are_errors() {
        let bytes = greeting().encode().unwrap();
        for length in 0..bytes.len() {
            assert!(Greeting::read(&bytes[..length]).is_err());
        }
        assert!(Greeting::read(&[255; 64][..]).is_err(), "a giant length");
        let noise = [&8_u32.to_le_bytes()[..], &[0xc1; 8]].concat();
        assert!(Greeting::read(noise.as_slice()).is_err());
    }

    #[test]
    fn a_process_that_ends_is_reported_with_its_code_or_signal() {
        let mut process = WorkerProcess::spawn(&shell("exit 3"), Vec::new()).unwrap();
        assert_eq!(exit(&mut process), WorkerExit::Exited { code: 3 });
        let mut process = WorkerProcess::spawn(&shell("kill -9 $$"), Vec::new()).unwrap();
        assert_eq!(exit(&mut process), WorkerExit::Signalled { signal: 9 });
    }

    #[test]
    fn a_program_that_does_not_exist_is_an_error() {
        let command = WorkerCommand { program: "/nonexistent/flownet".into(), ..WorkerCommand::default() };
        assert!(WorkerProcess::spawn(&command, Vec::new()).is_err());
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
