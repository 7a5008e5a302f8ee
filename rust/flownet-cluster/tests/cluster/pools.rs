//! Tests of jobs on workers that registered on their own: one worker pool, several jobs, and the loss of a worker, its
//! tasks or the pool.

use std::{
    net::{IpAddr, Ipv4Addr},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use flownet_cluster::{
    ClusterError, Enlistment, JobSettings, JobState, Launcher, MemberEnd, PlanError, Refill, Restart, SettingsError,
    Tls, WorkerExit, WorkerPool, serve_pool,
};
use flownet_net::Credentials;
use flownet_runtime::{ChainFactory, spec::Partitioner};

use crate::{
    chains::NativeFactory,
    rig::{PATIENCE, Rig, Step, end_of, endless, eventually, line, running, settings, signal, status_with, sums},
};

/// Set in a worker process: pool, credentials, number, host and attempt.
const MEMBER: &str = "FLOWNET_TEST_MEMBER";
const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Exit code of a worker that alone was released.
const EXPELLED: i32 = 8;
/// Exit code of a worker that had to leave tasks running.
const TASKS_LEFT: i32 = 9;

/// Not a test. Worker processes of a pool run this. In the test process it does nothing.
#[test]
fn member_process() {
    let Ok(given) = std::env::var(MEMBER) else { return };
    let words: Vec<&str> = given.split('|').collect();
    let enlistment = Enlistment {
        pool: words[0].parse().expect("an address"),
        credentials: Credentials::from_text(words[1]).expect("credentials"),
        worker: words[2].parse().expect("a number"),
        attempt: words[4].parse().expect("a number"),
        place: format!("host {}", words[2]),
        host: words[3].parse().expect("an address"),
    };
    let build = |init: &[u8]| {
        assert_eq!(init, b"init bytes");
        Ok(Arc::new(NativeFactory::default()) as Arc<dyn ChainFactory>)
    };
    std::process::exit(match serve_pool(&enlistment, &build) {
        Ok(MemberEnd::Dismissed { .. }) => 0,
        Ok(MemberEnd::Expelled { .. }) => EXPELLED,
        Ok(_) => TASKS_LEFT,
        Err(_) => 1,
    });
}

/// Worker pool and the processes of its workers; number `n` is at `127.0.0.(n + 1)`.
struct PoolRig {
    pool: Arc<WorkerPool>,
    processes: Vec<Child>,
}

impl PoolRig {
    fn new(members: u32) -> Self {
        Self::with(members, Tls::Auto, None)
    }

    fn with(members: u32, tls: Tls, refill: Option<Duration>) -> Self {
        Self::refilled(members, tls, refill.map(|patience| Refill { patience, each_attempt: false }))
    }

    fn refilled(members: u32, tls: Tls, refill: Option<Refill>) -> Self {
        let pool = WorkerPool::open(LOCALHOST, tls, refill).expect("a worker pool");
        let mut rig = Self { pool: Arc::new(pool), processes: Vec::new() };
        let credentials = rig.pool.credentials().to_text();
        for worker in 1..=members {
            let process = rig.start(worker, 0, &credentials);
            rig.processes.push(process);
        }
        assert!(rig.pool.wait_for(members as usize, PATIENCE), "all come");
        rig
    }

    fn start(&self, worker: u32, attempt: u64, credentials: &str) -> Child {
        let given = format!("{}|{credentials}|{worker}|127.0.0.{}|{attempt}", self.pool.address(), worker + 1);
        let exe = std::env::current_exe().expect("the test binary");
        let arguments = ["pools::member_process", "--exact", "--nocapture"];
        Command::new(exe).args(arguments).env(MEMBER, given).stdout(Stdio::null()).spawn().expect("a member")
    }

    fn launcher(&self) -> Launcher {
        Launcher::WorkerPool { pool: Arc::clone(&self.pool), init: b"init bytes".to_vec() }
    }

    /// Releases all workers and returns the exit codes of their processes.
    fn close(mut self) -> Vec<Option<i32>> {
        self.pool.close();
        self.processes.iter_mut().map(exit_code).collect()
    }
}

fn exit_code(process: &mut Child) -> Option<i32> {
    eventually("the end of a member", || process.try_wait().expect("a child")).code()
}

#[test]
fn a_pool_with_tls_serves_jobs_and_refuses_those_that_ask_for_none() {
    let rig = Rig::new();
    let pool = PoolRig::with(2, Tls::On, None);
    for tls in [Tls::Auto, Tls::On] {
        rig.clear_collected();
        let settings = JobSettings { tls, ..settings(2) };
        let job = rig.submit_to(&sums(10_000, 4), settings, pool.launcher()).expect("a job that can start");
        end_of(&job).expect("a finished job");
        assert_eq!(rig.collected().iter().sum::<u64>(), 10_000 * 9_999 / 2);
    }
    let settings = JobSettings { tls: Tls::Off, ..settings(2) };
    let refused = rig.submit_to(&sums(10_000, 4), settings, pool.launcher()).expect_err("it asks for none");
    let mismatch = SettingsError::WorkerPoolTls { job: Tls::Off, pool: Tls::On };
    assert_eq!(refused, ClusterError::Plan(PlanError::Settings(mismatch)));
    assert_eq!(pool.close(), [Some(0), Some(0)]);
    rig.assert_nothing_left();
}

#[test]
fn a_pool_serves_jobs_in_a_row_each_member_at_its_own_address() {
    let rig = Rig::new();
    let pool = PoolRig::new(2);
    let mut pids = Vec::new();
    for _ in 0..3 {
        rig.clear_collected();
        let job = rig.submit_to(&sums(10_000, 4), settings(2), pool.launcher()).expect("a job that can start");
        end_of(&job).expect("a finished job");
        assert_eq!(rig.collected().iter().sum::<u64>(), 10_000 * 9_999 / 2);
        let workers = job.status().workers;
        let hosts: Vec<_> = workers.iter().filter_map(|worker| Some(worker.address?.ip().to_string())).collect();
        assert_eq!(hosts, ["127.0.0.1", "127.0.0.2", "127.0.0.3"]);
        assert!(workers[2].to_string().contains(" on host 2 with pid "), "{}", workers[2]);
        pids.push(workers[1..].iter().filter_map(|worker| worker.pid).collect::<Vec<_>>());
    }
    let members: Vec<u32> = pool.pool.members().iter().map(|member| member.pid).collect();
    assert_eq!(pids, vec![members; 3]);
    assert_eq!(pool.close(), [Some(0), Some(0)]);
    rig.assert_nothing_left();
}

#[test]
fn a_failed_job_and_a_cancelled_one_leave_the_pool_to_the_next() {
    let rig = Rig::new();
    let pool = PoolRig::new(2);
    let numbers: Step<'_> = ("numbers", 2, &[("count", "1000"), ("endless", "")]);
    let failing = line(&[numbers, ("fail", 2, &[("at", "77")])], &[Partitioner::KeyGroup]);
    let job = rig.submit_to(&failing, settings(2), pool.launcher()).expect("a job that can start");
    let text = end_of(&job).expect_err("told to fail").to_string();
    assert!(text.contains(" on host ") && text.ends_with("ValueError: told to fail"), "{text}");

    let job = rig.submit_to(&endless(2), settings(2), pool.launcher()).expect("a job that can start");
    status_with(&job, "a running job", running);
    let refused = rig.submit_to(&sums(10, 2), settings(2), pool.launcher()).expect("a job that can be planned");
    let text = end_of(&refused).expect_err("the worker pool is busy").to_string();
    assert!(text.contains("worker 1 on host 1 is at work for another job"), "{text}");
    job.cancel();
    assert_eq!(end_of(&job), Err(ClusterError::Cancelled));

    let job = rig.submit_to(&sums(1000, 2), settings(2), pool.launcher()).expect("a job that can start");
    end_of(&job).expect("a finished job");
    assert_eq!(pool.close(), [Some(0), Some(0)]);
    rig.assert_nothing_left();
}

#[test]
fn a_member_that_is_killed_is_named_and_missed_by_the_next_job() {
    let rig = Rig::new();
    let pool = PoolRig::new(2);
    let job = rig.submit_to(&endless(2), settings(2), pool.launcher()).expect("a job that can start");
    status_with(&job, "a running job", running);
    signal(pool.processes[1].id(), "-KILL");
    match end_of(&job) {
        Err(ClusterError::WorkerLost { worker, how: WorkerExit::Disconnected { .. } }) => {
            assert_eq!((worker.worker, worker.place.as_deref()), (2, Some("host 2")));
            assert_eq!(worker.pid, Some(pool.processes[1].id()));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(pool.pool.members().len(), 1);
    let job = rig.submit_to(&sums(10, 2), settings(2), pool.launcher()).expect("a job that can be planned");
    let text = end_of(&job).expect_err("a member is missing").to_string();
    assert!(text.contains("worker 2 on host 2 has left"), "{text}");
    assert_eq!(pool.close(), [Some(EXPELLED), None], "who had orders for a job that did not begin is let go");
    rig.assert_nothing_left();
}

#[test]
fn a_job_that_restarts_waits_for_another_in_the_place_of_a_lost_member() {
    let rig = Rig::new();
    let mut pool = PoolRig::with(2, Tls::Auto, Some(PATIENCE));
    let restart = Restart::Fixed { attempts: 1, delay: Duration::ZERO };
    let job = rig.submit_to(&endless(2), JobSettings { restart, ..settings(2) }, pool.launcher()).expect("a job");
    status_with(&job, "a running job", running);
    signal(pool.processes[1].id(), "-KILL");
    status_with(&job, "a job that waits", |status| (status.state == JobState::Restarting).then_some(()));
    assert_eq!(exit_code(&mut pool.processes[1]), None, "killed");
    pool.processes[1] = pool.start(2, 1, &pool.pool.credentials().to_text());
    status_with(&job, "a job that runs again", running);
    let pids: Vec<_> = job.status().workers.iter().filter_map(|worker| worker.pid).collect();
    assert_eq!(pids[pids.len() - 2..], [pool.processes[0].id(), pool.processes[1].id()], "the other one stayed");
    job.cancel();
    assert_eq!(end_of(&job), Err(ClusterError::Cancelled));
    assert_eq!(pool.close(), [Some(0), Some(0)]);
    rig.assert_nothing_left();
}

#[test]
fn a_pool_for_single_attempts_lets_all_members_go_before_a_restart() {
    let rig = Rig::new();
    let mut pool = PoolRig::refilled(2, Tls::Auto, Some(Refill { patience: PATIENCE, each_attempt: true }));
    let restart = Restart::Fixed { attempts: 1, delay: Duration::ZERO };
    let job = rig.submit_to(&endless(2), JobSettings { restart, ..settings(2) }, pool.launcher()).expect("a job");
    status_with(&job, "a running job", running);
    signal(pool.processes[1].id(), "-KILL");
    assert_eq!(exit_code(&mut pool.processes[0]), Some(EXPELLED));
    assert_eq!(exit_code(&mut pool.processes[1]), None, "killed");
    for worker in [1, 2] {
        pool.processes[worker as usize - 1] = pool.start(worker, 1, &pool.pool.credentials().to_text());
    }
    status_with(&job, "a job that runs again", running);
    assert_eq!(job.status().history.restarted, 1);
    job.cancel();
    assert_eq!(end_of(&job), Err(ClusterError::Cancelled));
    assert_eq!(pool.close(), [Some(0), Some(0)]);
    rig.assert_nothing_left();
}

#[test]
fn a_job_does_not_restart_where_nobody_comes_for_a_lost_member() {
    let rig = Rig::new();
    for refill in [None, Some(Duration::from_millis(200))] {
        let pool = PoolRig::with(2, Tls::Auto, refill);
        let restart = Restart::Fixed { attempts: 2, delay: Duration::ZERO };
        let job = rig.submit_to(&endless(2), JobSettings { restart, ..settings(2) }, pool.launcher()).expect("a job");
        status_with(&job, "a running job", running);
        signal(pool.processes[1].id(), "-KILL");
        let restarts = match (end_of(&job), refill) {
            (Err(ClusterError::WorkerLost { worker, how: WorkerExit::Disconnected { .. } }), None) => {
                (worker.worker, 0)
            }
            // Replacements could have joined twice, and did not.
            (Err(ClusterError::LaunchFailed { worker, how: WorkerExit::NotStarted { .. } }), Some(_)) => (worker, 2),
            other => panic!("{other:?}"),
        };
        assert_eq!(restarts, (2, job.status().history.restarted));
        assert_eq!(pool.close(), [Some(0), None]);
    }
    rig.assert_nothing_left();
}

#[test]
fn a_pool_that_goes_during_a_job_ends_the_job_and_every_member() {
    let rig = Rig::new();
    let pool = PoolRig::new(2);
    let job = rig.submit_to(&endless(2), settings(2), pool.launcher()).expect("a job that can start");
    status_with(&job, "a running job", running);
    pool.pool.close();
    assert!(matches!(end_of(&job), Err(ClusterError::WorkerLost { .. })));
    assert_eq!(pool.close(), [Some(0), Some(0)]);
    rig.assert_nothing_left();
}

#[test]
fn a_member_whose_tasks_ignore_being_cancelled_says_so_and_is_gone() {
    let rig = Rig::new();
    let pool = PoolRig::new(1);
    let numbers: Step<'_> = ("numbers", 1, &[("count", "1000"), ("endless", "")]);
    let stubborn: Step<'_> = ("stubborn", 1, &[("pause_us", "600000000")]);
    let flow = line(&[numbers, stubborn], &[Partitioner::Rebalance]);
    let settings = JobSettings { cancel_timeout: Duration::from_millis(300), ..settings(1) };
    let job = rig.submit_to(&flow, settings, pool.launcher()).expect("a job that can start");
    status_with(&job, "a full exchange", |status| (status.vertices[0].back_pressured > 0.0).then_some(()));
    job.cancel();
    assert_eq!(end_of(&job), Err(ClusterError::Cancelled));
    assert_eq!(pool.pool.members(), []);
    assert_eq!(pool.close(), [Some(TASKS_LEFT)]);
    rig.assert_nothing_left();
}

#[test]
fn strangers_and_late_comers_do_not_become_members() {
    let rig = Rig::new();
    let mut pool = PoolRig::new(1);
    let mut stranger = pool.start(2, 0, &"00".repeat(32));
    assert_eq!(exit_code(&mut stranger), Some(1));
    let credentials = pool.pool.credentials().to_text();
    let mut second = pool.start(1, 0, &credentials);
    assert_eq!(exit_code(&mut second), Some(0), "its number is taken: it is let go at once");
    assert_eq!(pool.pool.members().len(), 1);
    assert_eq!(pool.pool.members()[0].pid, pool.processes[0].id());
    pool.processes.retain_mut(|process| process.try_wait().expect("a child").is_none());
    assert_eq!(pool.close(), [Some(0)]);
    rig.assert_nothing_left();
}
