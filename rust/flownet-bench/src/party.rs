//! A party of a bench: a process of its own (or, for benches within one process, a thread) that plays one role.
//!
//! # Invariants
//! - I1: a party whose bench is gone ends: a process at once, a thread when it next listens.
//! - I2: a [`Party`] dropped early kills its process and reaps it.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::BenchError;
use crate::role::{Answer, Instruction, Role, Usage};
use crate::{exchange, latency, raw};

/// How parties come to life.
#[derive(Clone, Debug)]
pub enum Launcher {
    /// Each is a process.
    Processes(ProcessCommand),
    /// Each is a thread of this process. CPU time and memory are then those of the whole process.
    Threads,
}

/// A program that calls [`run_party`] and then ends.
#[derive(Clone, Debug)]
pub struct ProcessCommand {
    /// The program.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
}

/// Stops a bench from another thread. Clones are one.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Ends the bench soon, with [`BenchError::Stopped`]; its processes are killed.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The body of a party's process: takes its role from standard input and plays it. A failure is reported to the bench
/// and returned. When the bench goes away in the middle, the process ends here.
pub fn run_party() -> Result<(), BenchError> {
    let lines = read_lines(io::stdin(), || std::process::exit(EXIT_OF_AN_ORPHAN));
    play(Control { lines, out: Box::new(io::stdout()) })
}

/// A party's line to its bench.
pub(crate) struct Control {
    lines: Receiver<(Instant, String)>,
    out: Box<dyn Write>,
}

impl Control {
    pub(crate) fn report(&mut self, answer: &Answer) -> Result<(), BenchError> {
        write_line(&mut self.out, answer).map_err(|_| BENCH_GONE)
    }

    pub(crate) fn wait_for(&mut self, expected: &Instruction) -> Result<(), BenchError> {
        let instruction = self.listen()?;
        if instruction == *expected {
            return Ok(());
        }
        Err(BenchError::Unexpected { party: "bench", said: format!("{instruction:?}") })
    }

    fn listen(&mut self) -> Result<Instruction, BenchError> {
        let (_, line) = self.lines.recv().map_err(|_| BENCH_GONE)?;
        parse(&line, "bench")
    }
}

fn play(mut control: Control) -> Result<(), BenchError> {
    let role = match control.listen()? {
        Instruction::Begin(role) => role,
        other => return Err(BenchError::Unexpected { party: "bench", said: format!("{other:?}") }),
    };
    let played = match *role {
        Role::ExchangeSender { shape, spec, credentials } => exchange::send(shape, &spec, &credentials, &mut control),
        Role::ExchangeReceiver { shape, spec, credentials, sender } => {
            exchange::receive(shape, &spec, &credentials, sender, &mut control)
        }
        Role::ExchangeLocal { spec } => exchange::run_local(&spec, &mut control),
        Role::LatencySender { shape, spec, credentials } => latency::send(shape, &spec, &credentials, &mut control),
        Role::LatencyReceiver { shape, spec, credentials, sender } => {
            latency::receive(shape, &spec, &credentials, sender, &mut control)
        }
        Role::Pong { message_bytes } => raw::pong(message_bytes, &mut control),
        Role::Ping { message_bytes, pong } => raw::ping(message_bytes, pong, &mut control),
        Role::WakeUp => latency::wake_up(&mut control),
    };
    if let Err(error) = &played {
        // If the bench is gone too, there is nobody left to tell.
        let _ = control.report(&Answer::Failed(error.to_string()));
    }
    played
}

/// A party, seen from the bench.
pub(crate) struct Party<'a> {
    name: &'static str,
    body: Body,
    to: Box<dyn Write>,
    lines: Receiver<(Instant, String)>,
    stop: &'a Stop,
}

enum Body {
    Process(Child),
    Thread,
}

impl Launcher {
    pub(crate) fn start<'a>(&self, role: Role, stop: &'a Stop) -> Result<Party<'a>, BenchError> {
        let name = role.name();
        let (body, to, lines) = match self {
            Self::Processes(command) => start_process(command)?,
            Self::Threads => start_thread().map_err(BenchError::io("a thread with its pipes"))?,
        };
        let mut party = Party { name, body, to, lines, stop };
        party.say(&Instruction::Begin(Box::new(role)))?;
        Ok(party)
    }

    /// CPU time, memory and the like of two parties together.
    pub(crate) fn sum(&self, one: u64, other: u64) -> u64 {
        match self {
            Self::Processes(_) => one + other,
            Self::Threads => one.max(other),
        }
    }
}

impl Party<'_> {
    pub(crate) fn say(&mut self, instruction: &Instruction) -> Result<(), BenchError> {
        // A party that failed has said why: the next answer is better than "broken pipe".
        let _ = write_line(&mut self.to, instruction);
        Ok(())
    }

    pub(crate) fn listening(&mut self) -> Result<SocketAddr, BenchError> {
        match self.answer()? {
            (_, Answer::Listening(address)) => Ok(address),
            (_, other) => Err(self.unexpected(&other)),
        }
    }

    pub(crate) fn ready(&mut self) -> Result<(), BenchError> {
        match self.answer()? {
            (_, Answer::Ready) => Ok(()),
            (_, other) => Err(self.unexpected(&other)),
        }
    }

    /// When it was done, and with what.
    pub(crate) fn done(&mut self) -> Result<(Instant, Usage), BenchError> {
        match self.answer()? {
            (at, Answer::Done(usage)) => Ok((at, *usage)),
            (_, other) => Err(self.unexpected(&other)),
        }
    }

    /// Waits until it has ended.
    pub(crate) fn join(mut self) -> Result<(), BenchError> {
        match self.next_line() {
            Err(BenchError::PartyGone { .. }) => {}
            Err(error) => return Err(error),
            Ok((_, said)) => return Err(BenchError::Unexpected { party: self.name, said }),
        }
        if let Body::Process(child) = &mut self.body {
            child.wait().map_err(BenchError::io("wait for a process"))?;
        }
        Ok(())
    }

    fn answer(&mut self) -> Result<(Instant, Answer), BenchError> {
        let (at, line) = self.next_line()?;
        match parse(&line, self.name)? {
            Answer::Failed(reason) => Err(BenchError::PartyFailed { party: self.name, reason }),
            answer => Ok((at, answer)),
        }
    }

    fn next_line(&mut self) -> Result<(Instant, String), BenchError> {
        loop {
            if self.stop.is_stopped() {
                return Err(BenchError::Stopped);
            }
            match self.lines.recv_timeout(STOP_INTERVAL) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(BenchError::PartyGone { party: self.name }),
            }
        }
    }

    fn unexpected(&self, answer: &Answer) -> BenchError {
        BenchError::Unexpected { party: self.name, said: format!("{answer:?}") }
    }
}

impl Drop for Party<'_> {
    fn drop(&mut self) {
        if let Body::Process(child) = &mut self.body {
            // Ended already after `join`; the errors then say so and help nobody.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

type StartedProcess = (Body, Box<dyn Write>, Receiver<(Instant, String)>);

/// In a process group of its own, so that Ctrl-C in the terminal reaches the bench alone, which then ends its parties.
fn start_process(command: &ProcessCommand) -> Result<StartedProcess, BenchError> {
    let launch = |source| BenchError::Launch { program: command.program.to_string_lossy().into_owned(), source };
    let mut child = Command::new(&command.program)
        .args(&command.args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(launch)?;
    let pipes = child.stdin.take().zip(child.stdout.take());
    let (to, from) = pipes.ok_or_else(|| launch(io::ErrorKind::BrokenPipe.into()))?;
    Ok((Body::Process(child), Box::new(to), read_lines(from, || ())))
}

fn start_thread() -> io::Result<StartedProcess> {
    let (party_in, bench_out) = io::pipe()?;
    let (bench_in, party_out) = io::pipe()?;
    thread::Builder::new().name("flownet-party".to_owned()).spawn(move || {
        let lines = read_lines(party_in, || ());
        // The error was reported to the bench.
        let _ = play(Control { lines, out: Box::new(party_out) });
    })?;
    Ok((Body::Thread, Box::new(bench_out), read_lines(bench_in, || ())))
}

/// Lines as they come, with their time; `at_end` runs when the other side closed its end, after the last line was taken
/// into the queue.
fn read_lines(from: impl Read + Send + 'static, at_end: impl FnOnce() + Send + 'static) -> Receiver<(Instant, String)> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if sender.send((Instant::now(), line)).is_err() {
                return;
            }
        }
        at_end();
    });
    receiver
}

fn write_line(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

fn parse<T: DeserializeOwned>(line: &str, party: &'static str) -> Result<T, BenchError> {
    serde_json::from_str(line).map_err(|_| BenchError::Unexpected { party, said: line.to_owned() })
}

const BENCH_GONE: BenchError = BenchError::PartyGone { party: "bench" };
const EXIT_OF_AN_ORPHAN: i32 = 3;
/// How often a waiting bench looks whether it was stopped.
const STOP_INTERVAL: Duration = Duration::from_millis(100);
