//! Runs jobs of native chains, in this process and with worker processes, and counts what they leave behind.

use std::{
    collections::HashMap,
    fs,
    net::SocketAddr,
    path::Path,
    process::Command,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use flownet_cluster::{
    ClusterError, Coordinator, Dataflow, JobHandle, JobReport, JobSettings, JobState, JobStatus, Launcher,
    WorkerCommand,
    plan::{ChainingPolicy, LogicalEdge, LogicalOperator},
};
use flownet_runtime::spec::{OperatorKind, Partitioner, Payload};

use crate::chains::{CollectedRecords, NativeFactory};

/// View of this process by one test. Tests with a rig run one after the other, so that each can count what is left.
pub(crate) struct Rig {
    sockets_before: usize,
    collected: CollectedRecords,
    _turn: MutexGuard<'static, ()>,
}

/// Set in a worker process; the value is the behaviour of the worker.
pub(crate) const WORKER_MODE: &str = "FLOWNET_TEST_WORKER";
/// Set in a client process: the file for the process ids of its workers.
pub(crate) const CLIENT_FILE: &str = "FLOWNET_TEST_CLIENT";
/// Only object of the submitting process.
const COLLECTED: u32 = 0;
/// Far longer than any test needs on a busy machine. Only a failing test waits that long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

static TURN: Mutex<()> = Mutex::new(());

impl Rig {
    pub(crate) fn new() -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        Self { sockets_before: sockets(), collected: CollectedRecords::default(), _turn: turn }
    }

    pub(crate) fn submit(&self, dataflow: &Dataflow, settings: JobSettings) -> JobHandle {
        self.submit_to(dataflow, settings, worker_command("normal")).expect("a job that can start")
    }

    pub(crate) fn submit_to(
        &self,
        dataflow: &Dataflow,
        settings: JobSettings,
        launcher: impl Into<Launcher>,
    ) -> Result<JobHandle, ClusterError> {
        let objects = HashMap::from([(COLLECTED, Arc::clone(&self.collected))]);
        Coordinator::submit(dataflow, settings, launcher.into(), Arc::new(NativeFactory { objects }))
    }

    pub(crate) fn collected(&self) -> Vec<u64> {
        let mut collected = self.collected.lock().expect("unpoisoned").clone();
        collected.sort_unstable();
        collected
    }

    pub(crate) fn clear_collected(&self) {
        self.collected.lock().expect("unpoisoned").clear();
    }

    /// Checks that no process, thread or socket of any job is left.
    pub(crate) fn assert_nothing_left(self) {
        eventually("no child process", || children().is_empty().then_some(()));
        eventually("no thread of a job", || threads().is_empty().then_some(()));
        eventually("no socket of a job", || (sockets() <= self.sockets_before).then_some(()));
    }
}

/// Returns the result of a job that ends within [`PATIENCE`].
pub(crate) fn end_of(job: &JobHandle) -> Result<JobReport, ClusterError> {
    job.wait(Some(PATIENCE)).expect("the job ends")
}

/// Waits until `seen` finds what it looks for in a status.
pub(crate) fn status_with<T>(job: &JobHandle, what: &str, seen: impl Fn(&JobStatus) -> Option<T>) -> T {
    eventually(what, || seen(&job.status()))
}

pub(crate) fn running(status: &JobStatus) -> Option<()> {
    (status.state == JobState::Running).then_some(())
}

/// Calls `look` until it returns a value.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "never saw: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

pub(crate) fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// Whether a process has exited and its parent has not reaped it.
pub(crate) fn is_zombie(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
}

pub(crate) fn signal(pid: u32, signal: &str) {
    let sent = Command::new("kill").args([signal, &pid.to_string()]).status().expect("kill");
    assert!(sent.success());
}

pub(crate) fn settings(workers: u32) -> JobSettings {
    JobSettings {
        workers,
        buffer_timeout: Some(Duration::from_millis(5)),
        network_memory_bytes: Some(8 << 20),
        ..JobSettings::default()
    }
}

/// Returns the command that runs this test binary as a worker, with its test `worker_process`. The output is that of
/// the test harness and is discarded.
pub(crate) fn worker_command(mode: &str) -> WorkerCommand {
    let exe = std::env::current_exe().expect("the test binary");
    let script = "exec \"$0\" worker_process --exact --nocapture >/dev/null";
    WorkerCommand {
        program: "sh".into(),
        args: vec!["-c".into(), script.into(), exe.into_os_string()],
        env: vec![(WORKER_MODE.into(), mode.into())],
        init: b"init bytes".to_vec(),
    }
}

/// Kind, parallelism and configuration of an operator.
pub(crate) type Step<'a> = (&'a str, u32, &'a [(&'a str, &'a str)]);

/// Returns a line of operators, none chained; `collect` runs on the driver.
pub(crate) fn line(operators: &[Step<'_>], partitioners: &[Partitioner]) -> Dataflow {
    let operator = |(id, &(kind, parallelism, config)): (u32, &Step<'_>)| LogicalOperator {
        id,
        uid: None,
        name: format!("{kind} {id}"),
        kind: OperatorKind::Custom {
            name: kind.to_owned(),
            settings: config.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect(),
        },
        payload: if kind == "collect" { Payload::Local(COLLECTED) } else { Payload::None },
        rate_limit: None,
        brake: None,
        target: None,
        parallelism,
        chaining: ChainingPolicy::Never,
        on_driver: kind == "collect",
        workers: Vec::new(),
    };
    let edge = |(from, &partitioner): (u32, &Partitioner)| LogicalEdge {
        from,
        tag: None,
        to: from + 1,
        side: 0,
        partitioner,
        payload: Payload::None,
        flow_control: None,
    };
    Dataflow {
        operators: (0..).zip(operators).map(operator).collect(),
        edges: (0..).zip(partitioners).map(edge).collect(),
    }
}

/// Returns a dataflow of numbers that are summed by key and collected on the driver.
pub(crate) fn sums(count: u64, parallelism: u32) -> Dataflow {
    let count = count.to_string();
    line(
        &[("numbers", parallelism, &[("count", &count)]), ("sum", parallelism, &[]), ("collect", 1, &[])],
        &[Partitioner::KeyGroup, Partitioner::Rebalance],
    )
}

/// Returns a dataflow of endless numbers and a sum.
pub(crate) fn endless(parallelism: u32) -> Dataflow {
    line(
        &[("numbers", parallelism, &[("count", "1000"), ("endless", "")]), ("sum", parallelism, &[])],
        &[Partitioner::KeyGroup],
    )
}

/// Returns the coordinator's address from a worker's greeting.
pub(crate) fn coordinator_of(greeting: &[u8]) -> SocketAddr {
    type Orders = (SocketAddr, u32, Duration, Duration, serde_bytes::ByteBuf);
    let (_secret, orders): (String, Orders) = postcard::from_bytes(&greeting[4..]).expect("a greeting");
    orders.0
}

fn children() -> Vec<String> {
    let me = std::process::id().to_string();
    let parent_of = |stat: &str| stat.rsplit(')').next()?.split_whitespace().nth(1).map(str::to_owned);
    let processes = fs::read_dir("/proc").expect("proc").flatten();
    let stats = processes.filter_map(|process| fs::read_to_string(process.path().join("stat")).ok());
    stats.filter(|stat| parent_of(stat).as_deref() == Some(&me)).collect()
}

/// Returns the threads that flownet names, and those of the tests' tasks.
pub(crate) fn threads() -> Vec<String> {
    let threads = fs::read_dir("/proc/self/task").expect("proc").flatten();
    let names = threads.filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
    let of_jobs = ["flownet", "numbers ", "sum ", "collect ", "fail ", "slow ", "panic ", "stubborn "];
    names.filter(|name| of_jobs.iter().any(|prefix| name.starts_with(prefix))).collect()
}

fn sockets() -> usize {
    let files = fs::read_dir("/proc/self/fd").expect("proc").flatten();
    let targets = files.filter_map(|file| fs::read_link(file.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}
