//! Tests of failing jobs: the error names the cause and its place, and nothing is left.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use flownet_cluster::{ClusterError, JobSettings, PlanError, Tls, WorkerCommand, WorkerExit};
use flownet_runtime::{TaskError, spec::Partitioner};

use crate::rig::{
    CLIENT_FILE, PATIENCE, Rig, Step, end_of, endless, eventually, is_alive, is_zombie, line, running, settings,
    signal, status_with, sums, threads, worker_command,
};

/// Returns the error of a job whose worker processes behave as `mode` says.
fn error_of_workers(mode: &str, settings: JobSettings) -> ClusterError {
    let rig = Rig::new();
    let job = rig.submit_to(&sums(1000, 2), settings, worker_command(mode)).expect("a job that can start");
    let error = end_of(&job).expect_err("workers that cannot work");
    drop(job);
    rig.assert_nothing_left();
    error
}

/// Starts a client process with a running job. Returns it with the processes of its workers.
fn client_in_a_job(file: &Path) -> (Child, Vec<u32>) {
    let exe = std::env::current_exe().expect("the test binary");
    let client = Command::new(exe)
        .args(["client_process", "--exact"])
        .env(CLIENT_FILE, file)
        .stdout(Stdio::null())
        .spawn()
        .expect("a client");
    let pids = eventually("the workers of the client", || std::fs::read_to_string(file).ok());
    (client, pids.split_whitespace().map(|pid| pid.parse().expect("a number")).collect())
}

#[test]
fn workers_end_themselves_when_their_client_is_killed_or_frozen() {
    let rig = Rig::new();
    let folder = tempfile::tempdir().expect("a folder");
    for how in ["-KILL", "-STOP"] {
        let (mut client, workers) = client_in_a_job(&folder.path().join(how));
        assert_eq!(workers.len(), 2);
        signal(client.id(), how);
        let is_gone = |pid: u32| !is_alive(pid) || is_zombie(pid);
        eventually("the end of the workers", || workers.iter().all(|&pid| is_gone(pid)).then_some(()));
        client.kill().expect("a client");
        client.wait().expect("a client");
    }
    rig.assert_nothing_left();
}

#[test]
fn a_killed_worker_is_named_at_once() {
    [Tls::Off, Tls::On].into_iter().for_each(kill_a_worker);
}

fn kill_a_worker(tls: Tls) {
    let rig = Rig::new();
    let job = rig.submit(&endless(2), JobSettings { tls, ..settings(2) });
    status_with(&job, "a running job", running);
    let victim = job.status().workers.into_iter().find(|worker| worker.worker == 2).expect("the second worker");
    signal(victim.pid.expect("a process"), "-KILL");
    let error = end_of(&job).expect_err("a worker is missing");
    // The process exit reveals the loss, before the silence that follows.
    assert_eq!(error, ClusterError::WorkerLost { worker: victim, how: WorkerExit::Signalled { signal: 9 } });
    drop(job);
    rig.assert_nothing_left();
}

#[test]
fn a_frozen_worker_is_named_when_the_heartbeat_limit_has_passed() {
    let rig = Rig::new();
    let settings = JobSettings {
        heartbeat_interval: Duration::from_millis(100),
        heartbeat_timeout: Duration::from_secs(1),
        ..settings(2)
    };
    let job = rig.submit(&endless(2), settings);
    status_with(&job, "a running job", running);
    let victim = job.status().workers.into_iter().find(|worker| worker.worker == 1).expect("the first worker");
    signal(victim.pid.expect("a process"), "-STOP");
    match end_of(&job) {
        Err(ClusterError::HeartbeatTimeout { worker, silent_for }) => {
            assert_eq!(worker, victim);
            assert!(silent_for >= Duration::from_secs(1));
        }
        other => panic!("{other:?}"),
    }
    drop(job);
    rig.assert_nothing_left();
}

#[test]
fn an_operator_error_comes_through_typed_from_every_place() {
    for workers in [0, 2] {
        let rig = Rig::new();
        let numbers: Step<'_> = ("numbers", 2, &[("count", "1000"), ("endless", "")]);
        let flow = line(&[numbers, ("fail", 2, &[("at", "77")])], &[Partitioner::KeyGroup]);
        let job = rig.submit(&flow, settings(workers));
        match end_of(&job) {
            Err(error @ ClusterError::Operator { .. }) => {
                let text = error.to_string();
                assert!(text.starts_with("operator 'fail 1' (subtask "), "{text}");
                assert!(text.ends_with(" failed on record 77: ValueError: told to fail"), "{text}");
                assert_eq!(text.contains("127.0.0.1:"), workers > 0, "{text}");
            }
            other => panic!("{other:?}"),
        }
        drop(job);
        rig.assert_nothing_left();
    }
}

#[test]
fn a_panic_in_a_chain_is_an_error_of_its_task() {
    let rig = Rig::new();
    let numbers: Step<'_> = ("numbers", 1, &[("count", "10")]);
    let flow = line(&[numbers, ("panic", 1, &[])], &[Partitioner::Rebalance]);
    let job = rig.submit(&flow, settings(1));
    match end_of(&job) {
        Err(ClusterError::Task { task, worker, error, .. }) => {
            assert_eq!((task.as_str(), worker.worker), ("panic 1", 1));
            assert!(matches!(*error, TaskError::Panic { .. }), "{error}");
        }
        other => panic!("{other:?}"),
    }
    drop(job);
    rig.assert_nothing_left();
}

#[test]
fn a_chain_that_cannot_be_built_fails_the_job_before_a_record_moves() {
    let rig = Rig::new();
    let numbers: Step<'_> = ("numbers", 1, &[("count", "10")]);
    let job = rig.submit(&line(&[numbers, ("nonsense", 1, &[])], &[Partitioner::Rebalance]), settings(1));
    match end_of(&job) {
        Err(ClusterError::Task { error, .. }) => {
            assert_eq!(*error, TaskError::Config("unknown kind 'nonsense'".into()));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(job.status().vertices[0].records_out, 0);
    drop(job);
    rig.assert_nothing_left();
}

/// Cancels a job whose sink, on `workers`, sleeps through it.
fn cancel_a_stubborn_job(rig: &Rig, workers: u32, pause: Duration) -> ClusterError {
    let pause_us = pause.as_micros().to_string();
    let numbers: Step<'_> = ("numbers", 1, &[("count", "1000"), ("endless", "")]);
    let flow = line(&[numbers, ("stubborn", 1, &[("pause_us", &pause_us)])], &[Partitioner::Rebalance]);
    let settings = JobSettings { cancel_timeout: Duration::from_millis(300), ..settings(workers) };
    let job = rig.submit(&flow, settings);
    status_with(&job, "a full exchange", |status| (status.vertices[0].back_pressured > 0.0).then_some(()));
    job.cancel();
    end_of(&job).expect_err("a cancelled job")
}

#[test]
fn a_worker_that_ignores_being_cancelled_is_killed() {
    let rig = Rig::new();
    // Far longer than this test waits for anything.
    let error = cancel_a_stubborn_job(&rig, 1, 5 * PATIENCE);
    assert_eq!(error, ClusterError::Cancelled);
    rig.assert_nothing_left();
}

#[test]
fn a_task_of_this_process_that_ignores_being_cancelled_does_not_hold_the_job() {
    let rig = Rig::new();
    let error = cancel_a_stubborn_job(&rig, 0, Duration::from_secs(12));
    assert_eq!(error, ClusterError::Cancelled);
    assert!(threads().iter().any(|thread| thread.starts_with("stubborn")), "the job has waited for its task");
    // Its thread ends with the sleep; the job does not wait for it.
    rig.assert_nothing_left();
}

#[test]
fn a_worker_that_exits_or_cannot_start_is_a_failed_launch() {
    let how = WorkerExit::Exited { code: 3 };
    let error = error_of_workers("exits", settings(1));
    assert_eq!(error, ClusterError::LaunchFailed { worker: 1, how });

    let rig = Rig::new();
    let command = WorkerCommand { program: "/nonexistent/worker".into(), ..WorkerCommand::default() };
    let job = rig.submit_to(&sums(10, 1), settings(2), command).expect("a job that can be planned");
    let error = end_of(&job).expect_err("no such program");
    assert!(matches!(error, ClusterError::LaunchFailed { worker: 1, how: WorkerExit::NotStarted { .. } }), "{error}");
    drop(job);
    rig.assert_nothing_left();
}

#[test]
fn workers_that_never_register_are_given_up_and_killed() {
    let launch_timeout = Duration::from_millis(500);
    let error = error_of_workers("hangs", JobSettings { launch_timeout, ..settings(2) });
    assert_eq!(error, ClusterError::LaunchTimeout { workers: vec![1, 2], limit: launch_timeout });
}

#[test]
fn a_worker_without_its_code_says_why() {
    match error_of_workers("no factory", settings(1)) {
        ClusterError::WorkerFailed { worker, message } => {
            assert_eq!((worker.worker, message.as_str()), (1, "the module cannot be imported"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn strangers_on_the_control_port_are_refused_and_the_job_goes_on() {
    for tls in [Tls::Off, Tls::On] {
        let rig = Rig::new();
        let settings = JobSettings { tls, ..settings(2) };
        let job = rig.submit_to(&sums(1000, 2), settings, worker_command("intruder")).expect("a job");
        end_of(&job).expect("a finished job");
        assert_eq!(rig.collected().iter().sum::<u64>(), 499_500);
        drop(job);
        rig.assert_nothing_left();
    }
}

#[test]
fn a_job_that_does_not_fit_its_memory_is_refused_before_anything_starts() {
    let rig = Rig::new();
    let settings = JobSettings { network_memory_bytes: Some(3 * 32 * 1024), ..settings(2) };
    match rig.submit_to(&sums(10, 2), settings, worker_command("normal")) {
        Err(error @ ClusterError::Plan(PlanError::InsufficientBuffers { total: 3, .. })) => {
            let text = error.to_string();
            assert!(text.contains("network_memory") && text.contains("has 3"), "{text}");
        }
        other => panic!("{other:?}"),
    }
    rig.assert_nothing_left();
}

#[test]
fn the_least_memory_that_is_accepted_is_enough_to_finish() {
    let rig = Rig::new();
    for (workers, parallelism) in [(0, 2), (2, 2), (2, 32)] {
        let flow = sums(20_000, parallelism);
        rig.clear_collected();
        let starved = JobSettings { network_memory_bytes: Some(32 * 1024), ..settings(workers) };
        let explanation = flownet_cluster::explain(&flow, &starved).expect("a plan");
        let Some(PlanError::InsufficientBuffers { memory_bytes, .. }) = explanation.refusal else {
            panic!("{explanation}");
        };
        let least = JobSettings { network_memory_bytes: Some(memory_bytes), ..settings(workers) };
        let job = rig.submit(&flow, least);
        let ended = job.wait(Some(PATIENCE)).expect("the job moves");
        ended.expect("a finished job");
        assert_eq!(rig.collected().iter().sum::<u64>(), 20_000 * 19_999 / 2);
    }
    rig.assert_nothing_left();
}
