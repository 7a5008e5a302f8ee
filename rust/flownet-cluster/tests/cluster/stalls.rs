//! Tests of stalled jobs: the cause is reported, and the job continues.

use std::time::Duration;

use flownet_cluster::{JobSettings, JobStatus, Stall, StallCause};
use flownet_runtime::spec::{FlowControl, Partitioner};

use crate::rig::{Rig, Step, end_of, endless, line, running, settings, signal, status_with};

/// Settings that report stalls early and lost workers late.
fn impatient(workers: u32) -> JobSettings {
    JobSettings {
        stall_patience: Duration::from_millis(500),
        status_interval: Duration::from_millis(20),
        heartbeat_timeout: Duration::from_secs(3600),
        ..settings(workers)
    }
}

fn stall(status: &JobStatus) -> Option<Stall> {
    status.stall.clone()
}

#[test]
fn a_job_that_waits_for_a_stopped_worker_says_so_and_goes_on_with_it() {
    let rig = Rig::new();
    let job = rig.submit(&endless(2), impatient(2));
    status_with(&job, "a running job", running);
    let victim = job.status().workers.into_iter().find(|worker| worker.worker == 2).expect("the second worker");
    let pid = victim.pid.expect("a process");
    signal(pid, "-STOP");

    let seen = status_with(&job, "a stall", stall);
    assert_eq!(seen.cause, StallCause::Worker, "{seen}");
    assert!(
        seen.summary.starts_with("worker 2 does not answer, where sum 1 (subtask 2 of 2, worker 2) runs"),
        "{seen}"
    );
    assert!(seen.chain[0].starts_with("numbers 0 (subtask 1 of 2, worker 1) waits for room: "), "{seen}");
    assert!(seen.chain[0].contains(" for sum 1 (subtask 2 of 2, worker 2); its output holds "), "{seen}");
    assert!(job.status().stall.is_some());
    let (number, told) = job.stall_after(0).expect("something to tell");
    assert_eq!(
        (number, told.summary, job.sample().stall.map(|stall| stall.chain)),
        (1, seen.summary, Some(seen.chain))
    );
    assert_eq!(job.stall_after(1), None);

    signal(pid, "-CONT");
    status_with(&job, "a job that moves again", |status| status.stall.is_none().then_some(()));
    assert!(job.wait(Some(Duration::ZERO)).is_none(), "a stall ends no job");
    job.cancel();
    end_of(&job).expect_err("cancelled");
    drop(job);
    rig.assert_nothing_left();
}

#[test]
fn a_function_that_does_not_return_is_named_by_whom_it_holds_up() {
    for workers in [0, 2] {
        let rig = Rig::new();
        let numbers: Step<'_> = ("numbers", 2, &[("count", "1000"), ("endless", "")]);
        let slow: Step<'_> = ("slow", 1, &[("pause_us", "3600000000")]);
        let job = rig.submit(&line(&[numbers, slow], &[Partitioner::Rebalance]), impatient(workers));
        let seen = status_with(&job, "a stall", stall);
        assert_eq!((seen.cause, seen.waiting), (StallCause::Function, 2), "{seen}");
        let place = if workers == 0 { "" } else { ", worker 1" };
        let culprit = format!("slow 1 (subtask 1 of 1{place}) is at work and does not return");
        assert_eq!(seen.summary, culprit);
        assert!(seen.chain.last().is_some_and(|last| last.starts_with(&format!("{culprit}, for "))), "{seen}");
        job.cancel();
        end_of(&job).expect_err("cancelled");
        drop(job);
        rig.assert_nothing_left();
    }
}

#[test]
fn a_slow_sink_is_no_stall_whatever_controls_flow() {
    for flow_control in FlowControl::ALL {
        let rig = Rig::new();
        let numbers: Step<'_> = ("numbers", 2, &[("count", "1500")]);
        let slow: Step<'_> = ("slow", 1, &[("pause_us", "1000")]);
        let settings = JobSettings {
            flow_control,
            segment_bytes: 512,
            receive_buffer_bytes: Some(4096),
            stall_patience: Duration::from_secs(1),
            ..impatient(2)
        };
        let job = rig.submit(&line(&[numbers, slow], &[Partitioner::Rebalance]), settings);
        let report = end_of(&job).expect("a job that finishes");
        assert_eq!(report.stalls, None, "{}", flow_control.name());
        assert_eq!(job.stall_after(0), None);
        drop(job);
        rig.assert_nothing_left();
    }
}
