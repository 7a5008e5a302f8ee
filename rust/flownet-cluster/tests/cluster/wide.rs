//! Tests of jobs on many workers, with TLS. Each process hosts as many workers as it may open files for, with a thread
//! for each. One process for each of 400 workers would need more memory than a test machine has.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use flownet_cluster::{Enlistment, JobHandle, JobSettings, Launcher, Tls, WorkerPool, serve_pool};
use flownet_net::Credentials;
use flownet_runtime::{ChainFactory, spec::Partitioner};

use crate::{
    chains::NativeFactory,
    rig::{PATIENCE, Rig, end_of, eventually, line, settings},
};

/// Set in a process that hosts workers: pool, credentials, its first worker, and the number after its last worker.
const HOST: &str = "FLOWNET_TEST_HOST";
/// Number of workers of the job with all-to-all connections. Not set: such jobs are too large for every test run.
const MESH_WORKERS: &str = "FLOWNET_TEST_MESH_WORKERS";
const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Files that a process has open for other purposes, for each worker, and for each end of a connection: its socket and
/// the epoll instance that watches it.
const FILES_OF_A_HOST: u64 = 64;
const FILES_OF_A_WORKER: u64 = 16;
const FILES_OF_AN_END: u64 = 2;
/// A larger host would use threads for what separate processes do as well.
const WORKERS_OF_A_HOST: u32 = 100;

/// Not a test. The host processes run this. In the test process it does nothing.
#[test]
fn host_process() {
    let Ok(given) = std::env::var(HOST) else { return };
    let words: Vec<&str> = given.split('|').collect();
    let number = |word: &str| word.parse::<u32>().expect("a number");
    let enlistment = Enlistment {
        pool: words[0].parse().expect("an address"),
        credentials: Credentials::from_text(words[1]).expect("credentials"),
        worker: 0,
        attempt: 0,
        place: String::new(),
        host: LOCALHOST,
    };
    let serve = |worker: u32| {
        let enlistment = Enlistment { worker, ..enlistment.clone() };
        thread::spawn(move || {
            let build = |_: &[u8]| Ok(Arc::new(NativeFactory::default()) as Arc<dyn ChainFactory>);
            serve_pool(&enlistment, &build).is_ok()
        })
    };
    let workers: Vec<_> = (number(words[2])..number(words[3])).map(serve).collect();
    let all_went_well = workers.into_iter().all(|worker| worker.join().unwrap_or(false));
    std::process::exit(if all_went_well { 0 } else { 1 });
}

/// Worker pool with many workers in few processes.
struct Hosts {
    pool: Arc<WorkerPool>,
    processes: Vec<Child>,
}

impl Hosts {
    /// Starts `workers` workers. Each may have up to `connections` data connections in each direction.
    fn start(workers: u32, connections: u32) -> Self {
        let pool = Arc::new(WorkerPool::open(LOCALHOST, Tls::On, None).expect("a worker pool"));
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
        let files_of_each = u64::from(connections) * 2 * FILES_OF_AN_END + FILES_OF_A_WORKER;
        let most = u32::try_from((limit - FILES_OF_A_HOST) / files_of_each).unwrap_or(workers);
        let each = most.clamp(1, WORKERS_OF_A_HOST);
        let start = |first: u32| {
            let after = (first + each).min(workers + 1);
            let given = format!("{}|{}|{first}|{after}", pool.address(), pool.credentials().to_text());
            let exe = std::env::current_exe().expect("the test binary");
            let arguments = ["wide::host_process", "--exact", "--nocapture"];
            Command::new(exe).args(arguments).env(HOST, given).stdout(Stdio::null()).spawn().expect("a process")
        };
        let processes = (1..=workers).step_by(each as usize).map(start).collect();
        let hosts = Self { pool, processes };
        assert!(hosts.pool.wait_for(workers as usize, PATIENCE), "all come");
        hosts
    }

    fn launcher(&self) -> Launcher {
        Launcher::WorkerPool { pool: Arc::clone(&self.pool), init: Vec::new() }
    }

    /// Returns the number of ends of data connections: all TCP connections except those to the pool and the
    /// coordinator.
    fn sockets(&self) -> usize {
        self.processes.iter().map(|process| sockets_of(process.id())).sum()
    }

    fn resident_kib(&self) -> u64 {
        self.processes.iter().map(|process| resident_kib_of(process.id())).sum()
    }

    /// Releases all workers; all processes end successfully.
    fn close(mut self) {
        self.pool.close();
        for process in &mut self.processes {
            let end = eventually("the end of a process", || process.try_wait().expect("a child"));
            assert!(end.success(), "{end}");
        }
    }
}

impl Drop for Hosts {
    /// Kills remaining processes, so that the next test does not find those of a failed one.
    fn drop(&mut self) {
        for process in &mut self.processes {
            if matches!(process.try_wait(), Ok(None)) {
                drop(process.kill().and_then(|()| process.wait()));
            }
        }
    }
}

fn sockets_of(pid: u32) -> usize {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).expect("a process").flatten();
    let targets = files.filter_map(|file| fs::read_link(file.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}

fn resident_kib_of(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("its memory");
    line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).expect("a number")
}

/// Settings with long timeouts: few processors serve many workers, so answers take time.
fn patient(workers: u32) -> JobSettings {
    JobSettings {
        tls: Tls::On,
        heartbeat_interval: Duration::from_secs(10),
        heartbeat_timeout: PATIENCE,
        launch_timeout: PATIENCE * 10,
        stop_timeout: PATIENCE * 10,
        ..settings(workers)
    }
}

/// Each worker has tasks; only those that exchange records are connected. Twenty of them have all-to-all connections.
#[test]
fn a_hundred_workers_run_one_job_and_take_checkpoints() {
    run_with_few_connections(100);
}

/// Prints the duration of checkpoints: see `make test-mesh`. Two busy cores need minutes for 400 workers.
#[test]
fn up_to_four_hundred_workers_run_the_same_job() {
    if std::env::var(MESH_WORKERS).is_ok() {
        [20, 40, 80, 160, 400].into_iter().for_each(run_with_few_connections);
    }
}

fn run_with_few_connections(workers: u32) {
    let rig = Rig::new();
    let hosts = Hosts::start(workers, 40);
    let folder = tempfile::tempdir().expect("a folder");
    let source = [("count", "100000"), ("open", "")];
    let flow = line(
        &[
            ("numbers", workers, &source),
            ("sum", workers, &[]),
            ("sum", 20, &[]),
            ("sum", 20, &[]),
            ("collect", 1, &[]),
        ],
        &[Partitioner::Forward, Partitioner::Rescale, Partitioner::KeyGroup, Partitioner::Rebalance],
    );
    let began = Instant::now();
    let job =
        rig.submit_to(&flow, with_checkpoints(workers, folder.path()), hosts.launcher()).expect("a job that can start");
    wait_for(&job, "all records", || job.status().vertices[1].records_in == 100_000);
    let arrived = began.elapsed();
    let checkpoint = checkpoint_of(&job, 2 * workers + 41);
    job.stop(true);
    wait_for(&job, "its end", || job.outcome().is_some());
    let report = end_of(&job).expect("a finished job");
    eprintln!(
        "{workers} workers, {} subtasks, few connections: all records in {:.1} s, {checkpoint}",
        2 * workers + 41,
        arrived.as_secs_f64()
    );
    assert_eq!(report.vertices[0].parallelism, workers);
    assert_eq!(report.vertices[1].bytes_tcp, 0, "what goes forward stays on its worker");
    assert!(report.vertices[3].bytes_tcp > 0);
    assert_eq!(rig.collected().iter().sum::<u64>(), 100_000 * 99_999 / 2);
    drop(job);
    hosts.close();
    rig.assert_nothing_left();
}

fn with_checkpoints(workers: u32, folder: &Path) -> JobSettings {
    JobSettings {
        checkpoint_interval: Some(Duration::from_secs(1)),
        checkpoint_storage: Some(folder.to_str().expect("a path in UTF-8").to_owned()),
        allow_non_replayable: true,
        ..patient(workers)
    }
}

/// Waits for a checkpoint that begins after this call and has all subtasks. Returns its duration as text.
fn checkpoint_of(job: &JobHandle, subtasks: u32) -> String {
    let made = job.status().history.checkpoints_made;
    wait_for(job, "checkpoints", || job.status().history.checkpoints_made >= made + 2);
    let status = job.status();
    let last = status.history.checkpoints.last().expect("one was made");
    assert_eq!(last.parts.iter().map(|part| part.subtasks).sum::<u32>(), subtasks);
    format!("a checkpoint in {} ms", last.duration.as_millis())
}

/// Prints how long this takes and how much memory it needs: see `make test-mesh`.
#[test]
fn each_of_many_workers_is_connected_to_each() {
    let Ok(workers) = std::env::var(MESH_WORKERS) else { return };
    let workers: u32 = workers.parse().expect("a number of workers");
    let rig = Rig::new();
    let hosts = Hosts::start(workers, workers);
    let (sockets, resident_kib) = (hosts.sockets(), hosts.resident_kib());
    let began = Instant::now();
    let source = [("count", RECORDS_TEXT), ("open", "")];
    let flow = line(
        &[("numbers", workers, &source), ("sum", workers, &[]), ("collect", 1, &[])],
        &[Partitioner::KeyGroup, Partitioner::Rebalance],
    );
    // So little that the memory of connections is visible beside it.
    let folder = tempfile::tempdir().expect("a folder");
    let settings = with_checkpoints(workers, folder.path());
    let settings = JobSettings { network_memory_bytes: Some(1 << 20), ..settings };
    let job = rig.submit_to(&flow, settings, hosts.launcher()).expect("a job that can start");
    let connections = workers as usize * (workers as usize - 1);
    wait_for(&job, "a connection of each to each", || hosts.sockets() >= sockets + 2 * connections);
    let connected = began.elapsed();
    let more_kib = hosts.resident_kib() - resident_kib;
    wait_for(&job, "all records", || job.status().vertices[1].records_in == RECORDS);
    let arrived = began.elapsed();
    let checkpoint = checkpoint_of(&job, 2 * workers + 1);
    let asked = Instant::now();
    job.stop(true);
    wait_for(&job, "its end", || job.outcome().is_some());
    let stopped = asked.elapsed();
    end_of(&job).expect("a finished job");
    assert_eq!(rig.collected().iter().sum::<u64>(), RECORDS * (RECORDS - 1) / 2);
    eprintln!(
        "{workers} workers in {} processes: {connections} connections in {:.1} s, all records in {:.1} s, {checkpoint}, \
         stopped in {:.1} s; {:.0} MiB more with 1 MiB a worker for buffers, {:.1} KiB a connection with both ends beside that",
        hosts.processes.len(),
        connected.as_secs_f64(),
        arrived.as_secs_f64(),
        stopped.as_secs_f64(),
        more_kib as f64 / 1024.0,
        more_kib.saturating_sub(u64::from(workers) << 10) as f64 / connections as f64
    );
    drop(job);
    hosts.close();
    rig.assert_nothing_left();
}

/// Waits as long as the job runs: many handshakes take long on few cores.
fn wait_for(job: &JobHandle, what: &str, is_there: impl Fn() -> bool) {
    while !is_there() {
        let failed = job.wait(Some(Duration::from_millis(100))).and_then(Result::err);
        assert!(failed.is_none(), "never saw {what}: {failed:?}");
    }
}

/// Number of records through a mesh.
const RECORDS: u64 = 1_000_000;
const RECORDS_TEXT: &str = "1000000";
