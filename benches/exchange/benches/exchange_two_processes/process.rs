//! The two processes of a run: this program again, told by its arguments what to be.
//!
//! ```text
//! sender    prints its address    reads "go"    sends everything       reads "end"    prints "done CPU_NS"
//! receiver  prints "ready"                      receives everything                   prints "done CPU_NS"
//! ```
//! The clock runs from "go" to the receiver's "done": connecting and setting up are not measured. The sender hears of
//! the end only then, so that what its own threads still had to write is counted as well.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use flownet_benches::process_cpu_ns;

use crate::{Run, bare, exchange};

/// What moves the records.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Shape {
    /// A blocking socket and nothing else.
    Bare,
    /// The exchange.
    Flownet,
}

/// What a child process is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    Sender { shape: Shape, records: u64 },
    Receiver { shape: Shape, records: u64, sender: SocketAddr },
}

impl Shape {
    pub(crate) const ALL: [Self; 2] = [Self::Bare, Self::Flownet];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Flownet => "flownet",
        }
    }

    fn from_name(name: &str) -> Result<Self, Box<dyn Error>> {
        Self::ALL.into_iter().find(|shape| shape.name() == name).ok_or_else(|| format!("no shape {name}").into())
    }
}

impl Role {
    /// The role in the arguments of a child; `None` in those of the bench itself.
    pub(crate) fn from_args(args: &[String]) -> Option<Result<Self, Box<dyn Error>>> {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        match args.as_slice() {
            ["sender", shape, records] => Some(Self::sender(shape, records)),
            ["receiver", shape, records, addr] => Some(Self::receiver(shape, records, addr)),
            _ => None,
        }
    }

    fn sender(shape: &str, records: &str) -> Result<Self, Box<dyn Error>> {
        Ok(Self::Sender { shape: Shape::from_name(shape)?, records: records.parse()? })
    }

    fn receiver(shape: &str, records: &str, addr: &str) -> Result<Self, Box<dyn Error>> {
        Ok(Self::Receiver { shape: Shape::from_name(shape)?, records: records.parse()?, sender: addr.parse()? })
    }
}

/// The body of a child process.
pub(crate) fn run_child(role: Role) -> Result<(), Box<dyn Error>> {
    match role {
        Role::Sender { shape: Shape::Bare, records } => bare::send(records),
        Role::Sender { shape: Shape::Flownet, records } => exchange::send(records),
        Role::Receiver { shape: Shape::Bare, records, sender } => bare::receive(records, sender),
        Role::Receiver { shape: Shape::Flownet, records, sender } => exchange::receive(records, sender),
    }
}

/// Starts both processes, lets them run once and takes their figures.
pub(crate) fn run_pair(shape: Shape, records: u64) -> Result<Run, Box<dyn Error>> {
    let mut sender = Party::start(&["sender", shape.name(), &records.to_string()])?;
    let addr = sender.line()?;
    let mut receiver = Party::start(&["receiver", shape.name(), &records.to_string(), &addr])?;
    receiver.expect("ready")?;

    let start = Instant::now();
    sender.say("go")?;
    let receiver_cpu_ns = receiver.done()?;
    let seconds = start.elapsed().as_secs_f64();
    sender.say("end")?;
    let sender_cpu_ns = sender.done()?;
    sender.join()?;
    receiver.join()?;

    let cpu_ns = u32::try_from((receiver_cpu_ns + sender_cpu_ns) / 1000).map(f64::from)? * 1000.0;
    let records = records as f64;
    Ok(Run { records_per_s: records / seconds, cpu_ns_per_record: cpu_ns / records })
}

/// Tells the parent something.
pub(crate) fn report(line: &str) -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Waits until the parent says `word`.
pub(crate) fn wait_for(word: &str) -> Result<(), Box<dyn Error>> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    if line.trim() == word { Ok(()) } else { Err("the bench went away".into()) }
}

/// Tells the parent that all is through, and what it cost since `cpu_ns_before`.
pub(crate) fn report_done(cpu_ns_before: u64) -> Result<(), Box<dyn Error>> {
    report(&format!("done {}", process_cpu_ns()? - cpu_ns_before))
}

/// A child process, seen from the parent. Killed when dropped early.
struct Party {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Party {
    fn start(args: &[&str]) -> Result<Self, Box<dyn Error>> {
        let mut child =
            Command::new(std::env::current_exe()?).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (to, from) = child.stdin.take().zip(child.stdout.take()).ok_or("pipes were asked for")?;
        Ok(Self { child, to, from: BufReader::new(from) })
    }

    fn say(&mut self, line: &str) -> Result<(), Box<dyn Error>> {
        Ok(writeln!(self.to, "{line}")?)
    }

    fn line(&mut self) -> Result<String, Box<dyn Error>> {
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        if line.is_empty() { Err("a child process ended early".into()) } else { Ok(line.trim().to_owned()) }
    }

    fn expect(&mut self, wanted: &str) -> Result<(), Box<dyn Error>> {
        let line = self.line()?;
        if line == wanted { Ok(()) } else { Err(format!("a child said {line}, not {wanted}").into()) }
    }

    fn done(&mut self) -> Result<u64, Box<dyn Error>> {
        let line = self.line()?;
        Ok(line.strip_prefix("done ").ok_or("a child did not say how much it used")?.parse()?)
    }

    fn join(mut self) -> Result<(), Box<dyn Error>> {
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(format!("a child ended with {status}").into()) }
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        // Ended already after `join`; the error then says so and helps nobody.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
