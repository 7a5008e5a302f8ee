//! Tests of successful jobs.

use std::time::{Duration, Instant};

use flownet_cluster::{ClusterError, JobSettings, JobState, Tls};
use flownet_runtime::spec::Partitioner;

use crate::rig::{Rig, Step, end_of, endless, eventually, is_alive, line, running, settings, status_with, sums};

fn sum_of(count: u64, workers: u32, tls: Tls) -> u64 {
    let rig = Rig::new();
    let job = rig.submit(&sums(count, 3), JobSettings { tls, ..settings(workers) });
    let report = end_of(&job).expect("a finished job");
    let sums = rig.collected();
    assert_eq!(sums.len(), 3);
    assert_eq!((report.vertices[0].records_in, report.vertices[0].records_out), (count, count));
    assert_eq!(report.vertices[1].records_in, count);
    let tcp: u64 = report.vertices.iter().map(|vertex| vertex.bytes_tcp).sum();
    assert_eq!(tcp > 0, workers > 0, "bytes over TCP: {tcp}");
    assert!(report.vertices.iter().all(|vertex| vertex.ended == vertex.parallelism));
    assert_eq!(job.status().state, JobState::Ended);
    drop(job);
    rig.assert_nothing_left();
    sums.iter().sum()
}

#[test]
fn a_job_gives_equal_results_in_process_and_over_workers() {
    let count = 200_000;
    let expected = count * (count - 1) / 2;
    for workers in [0, 1, 2] {
        for tls in [Tls::Auto, Tls::On] {
            assert_eq!(sum_of(count, workers, tls.clone()), expected, "{workers} workers, tls {tls}");
        }
    }
}

#[test]
fn every_partitioner_moves_every_record_over_worker_processes() {
    let rig = Rig::new();
    for (partitioner, copies) in [(Partitioner::Rebalance, 1), (Partitioner::Rescale, 1), (Partitioner::Broadcast, 4)] {
        rig.clear_collected();
        let numbers: Step<'_> = ("numbers", 2, &[("count", "1000")]);
        let flow = line(&[numbers, ("sum", 4, &[]), ("collect", 1, &[])], &[partitioner, Partitioner::Rebalance]);
        end_of(&rig.submit(&flow, settings(2))).expect("a finished job");
        assert_eq!(rig.collected().iter().sum::<u64>(), 499_500 * copies, "{partitioner:?}");
    }
    rig.assert_nothing_left();
}

#[test]
fn a_parallelism_beyond_the_workers_shares_them() {
    let rig = Rig::new();
    end_of(&rig.submit(&sums(10_000, 7), settings(2))).expect("a finished job");
    assert_eq!(rig.collected().iter().sum::<u64>(), 10_000 * 9_999 / 2);
    rig.assert_nothing_left();
}

#[test]
fn a_running_job_names_its_workers_and_its_bottleneck() {
    let rig = Rig::new();
    let numbers: Step<'_> = ("numbers", 1, &[("count", "1000"), ("endless", "")]);
    let flow = line(&[numbers, ("slow", 1, &[("pause_us", "200")])], &[Partitioner::Rebalance]);
    let job = rig.submit(&flow, settings(1));
    let bottleneck = status_with(&job, "a bottleneck", |status| status.bottleneck.clone());
    assert_eq!(bottleneck.vertex, 1, "{bottleneck}");
    let status = job.status();
    assert!(status.vertices[0].records_per_second > 0.0);
    let [worker] = status.workers.as_slice() else { panic!("{:?}", status.workers) };
    assert!(worker.address.is_some() && worker.pid.is_some_and(is_alive), "{worker}");
    assert!(job.wait(Some(Duration::ZERO)).is_none());
    drop(job);
    rig.assert_nothing_left();
}

#[test]
fn a_cancelled_job_says_so_and_leaves_no_process() {
    for workers in [0, 2] {
        let rig = Rig::new();
        let job = rig.submit(&endless(2), settings(workers));
        status_with(&job, "a running job", running);
        let pids: Vec<u32> = job.status().workers.iter().filter_map(|worker| worker.pid).collect();
        job.cancel();
        assert_eq!(end_of(&job), Err(ClusterError::Cancelled));
        let me = std::process::id();
        assert!(pids.iter().all(|&pid| pid == me || !is_alive(pid)), "{pids:?}");
        rig.assert_nothing_left();
    }
}

#[test]
fn a_job_can_be_cancelled_at_any_moment_of_its_start() {
    let rig = Rig::new();
    for round in 0..20_u64 {
        let job = rig.submit(&endless(2), settings(if round.is_multiple_of(4) { 0 } else { 2 }));
        let moment = Instant::now() + Duration::from_millis(round * 3);
        eventually("the moment", || (Instant::now() >= moment).then_some(()));
        if round.is_multiple_of(2) {
            job.cancel();
            assert_eq!(end_of(&job), Err(ClusterError::Cancelled));
        }
        drop(job);
    }
    rig.assert_nothing_left();
}

#[test]
fn a_waiting_thread_is_woken_by_the_end_of_the_job() {
    let rig = Rig::new();
    let job = rig.submit(&endless(1), settings(0));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| job.wait(None));
        status_with(&job, "a running job", running);
        job.cancel();
        assert_eq!(waiting.join().unwrap(), Some(Err(ClusterError::Cancelled)));
    });
    drop(job);
    rig.assert_nothing_left();
}
