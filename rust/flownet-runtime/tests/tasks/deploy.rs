//! Memory: what is predicted is what is taken, and what does not fit is refused.

use flownet_runtime::spec::Partitioner;
use flownet_runtime::{BufferNeed, TaskError, buffers_needed};

use crate::chains::{SeenRecords, Sink, TestChain};
use crate::rig::Job;

/// Two sources and two sinks, all to all, over two workers.
fn planned(segments: usize) -> Job {
    let mut job = Job::with_segments(2, segments, 1024);
    let source = job.vertex("source", &[0, 1]);
    let sink = job.vertex("sink", &[0, 1]);
    job.edge(source, sink, Partitioner::Rebalance);
    job
}

#[test]
fn a_task_takes_exactly_the_buffers_that_were_predicted() {
    let job = planned(256);
    let mut prepared = Vec::new();
    let mut predicted = [BufferNeed::default(); 2];
    for (worker, spec) in job.specs() {
        let environment = &job.environments[*worker as usize];
        let need = buffers_needed(spec, *worker, environment.config());
        predicted[*worker as usize] = predicted[*worker as usize] + need;
        prepared.push(job.prepare(*worker, spec).unwrap());
        assert_eq!(environment.pool().guaranteed(), predicted[*worker as usize].min);
    }
    // An output of two subpartitions: 2 to 12. A gate with one remote channel of two: 1 to 10.
    assert_eq!(predicted, [BufferNeed { min: 3, max: 22 }; 2]);
    drop(prepared);
    job.assert_all_segments_home();
}

#[test]
fn a_gate_whose_producers_are_all_local_needs_no_buffers() {
    let mut job = Job::new(1);
    let source = job.vertex("source", &[0]);
    let sink = job.vertex("sink", &[0]);
    job.edge(source, sink, Partitioner::Forward);
    let (worker, sink) = job.specs().last().unwrap().clone();
    assert_eq!(buffers_needed(&sink, worker, job.environments[0].config()), BufferNeed::default());
    let prepared = job.prepare(worker, &sink).unwrap();
    assert_eq!(job.environments[0].pool().guaranteed(), 0);
    drop(prepared);
    job.assert_all_segments_home();
}

#[test]
fn a_task_that_does_not_fit_is_refused_with_the_numbers_and_leaves_nothing() {
    let job = planned(2);
    let specs: Vec<_> = job.specs().cloned().collect();
    let source = job.prepare(0, &specs[0].1).unwrap();
    let error = job.prepare(0, &specs[2].1).unwrap_err();
    let expected = TaskError::InsufficientBuffers { task: "sink (1/2)".into(), required: 1, available: 0, total: 2 };
    assert_eq!(error, expected);
    assert!(error.to_string().contains("raise network_memory"), "{error}");
    assert_eq!(job.environments[0].pool().guaranteed(), 2);
    drop(source);
    job.assert_all_segments_home();
}

#[test]
fn a_task_gets_all_its_pools_or_none() {
    let job = |segments| {
        let mut job = Job::with_segments(2, segments, 1024);
        let [source, middle, sink] = ["source", "middle", "sink"].map(|name| job.vertex(name, &[0, 1]));
        job.edge(source, middle, Partitioner::Rebalance);
        // Two outputs and a gate: three pools.
        job.edge(middle, sink, Partitioner::Rebalance);
        job.edge(middle, sink, Partitioner::Broadcast);
        let (worker, spec) = job.specs().nth(2).unwrap().clone();
        (job, worker, spec)
    };
    let (planned, worker, spec) = job(64);
    let needed = buffers_needed(&spec, worker, planned.environments[0].config()).min;
    for segments in 1..needed {
        let (job, worker, spec) = job(segments);
        let error = job.prepare(worker, &spec).unwrap_err();
        assert!(matches!(error, TaskError::InsufficientBuffers { total, .. } if total == segments), "{error}");
        let pool = job.environments[0].pool();
        assert_eq!((pool.guaranteed(), pool.available()), (0, segments), "what it had got is given back");
        job.assert_all_segments_home();
    }
    let (exact, worker, spec) = job(needed);
    drop(exact.prepare(worker, &spec).unwrap());
    exact.assert_all_segments_home();
}

#[test]
fn plans_that_cannot_work_are_refused() {
    let job = planned(64);
    let (_, sink) = job.specs().last().unwrap().clone();
    let mut no_subtask = sink.clone();
    no_subtask.subtask = 2;
    let mut no_channels = sink.clone();
    no_channels.inputs[0].channels.clear();
    let mut few_groups = sink;
    few_groups.inputs[0].partitioner = Partitioner::KeyGroup;
    few_groups.max_parallelism = 1;
    for spec in [no_subtask, no_channels, few_groups] {
        assert!(matches!(job.prepare(0, &spec), Err(TaskError::Config(_))), "{spec:?}");
    }
    job.assert_all_segments_home();
}

#[test]
fn a_task_cannot_connect_to_what_nobody_prepared() {
    let job = planned(64);
    let (_, sink) = job.specs().nth(2).unwrap().clone();
    let mut prepared = job.prepare(0, &sink).unwrap();
    let error = prepared.connect(&std::collections::BTreeMap::new(), |_| None).unwrap_err();
    assert_eq!(error.to_string(), "partition 0 not found");
    drop(prepared);
    job.assert_all_segments_home();
}

#[test]
fn whoever_is_told_of_the_end_of_a_task_learns_how_it_ended() {
    let mut job = Job::new(1);
    let source = job.vertex("source", &[0]);
    let (worker, spec) = job.specs().next().unwrap().clone();
    let _ = source;
    let prepared = job.prepare(worker, &spec).unwrap();
    let (send, receive) = std::sync::mpsc::channel();
    let chain = Sink::new(&SeenRecords::default()).chain(&spec);
    let handle = prepared.start(chain, "here", move |result, _| send.send(result).unwrap(), || {}).unwrap();
    let told = receive.recv().unwrap();
    assert!(matches!(&told, Err(TaskError::Config(text)) if text.contains("is no source")), "{told:?}");
    assert_eq!(handle.join(), told);
    drop(handle);
    job.assert_all_segments_home();
}
