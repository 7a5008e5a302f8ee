//! Failures: who is to blame is known at the task and at its neighbours.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};

use flownet_core::Target;
use flownet_runtime::error::Evidence;
use flownet_runtime::operator::{Collector, Kind, Source};
use flownet_runtime::snapshot::Snapshot;
use flownet_runtime::spec::Partitioner;
use flownet_runtime::{ExchangeFailureKind, SourceStatus, TaskContext, TaskError};

use crate::bytes::{Bytes, chain_to_all};
use crate::chains::{Breaks, Numbers, SeenRecords, SilentSource, Sink, failure};
use crate::rig::{Job, RunningTask, wait_until};

fn breaking_job(panics: bool, sink_worker: u32) -> (RunningTask, Arc<AtomicBool>) {
    let mut job = Job::new(2);
    let seen = SeenRecords::default();
    let closed = Arc::new(AtomicBool::new(false));
    let source = job.vertex("source", &[0]);
    let middle = job.vertex("middle", &[0]);
    let sink = job.vertex("sink", &[sink_worker]);
    job.edge(source, middle, Partitioner::Forward);
    job.edge(middle, sink, Partitioner::Forward);
    job.run(source, |_| Numbers::endless());
    job.run(middle, |_| Breaks { on: 5000, panics, closed: Arc::clone(&closed) });
    job.run(sink, |_| Sink::new(&seen));
    (job.start(), closed)
}

#[test]
fn an_operator_error_names_operator_and_record_and_reaches_the_consumer_as_its_producers_failure() {
    for sink_worker in [0, 1] {
        let (running, closed) = breaking_job(false, sink_worker);
        let error = running.task("middle", 0).join().unwrap_err();
        assert_eq!(error, TaskError::from(failure(5000)));
        assert!(error.to_string().contains("'breaks' (subtask 1 of 1) failed on record 5000: ValueError"));
        assert_eq!(error.evidence(), Evidence::Cause);
        assert!(closed.load(Ordering::Acquire));

        let echo = running.task("sink", 0).join().unwrap_err();
        assert!(echo.evidence() < Evidence::Cause && echo.to_string().contains("not this one"), "{echo}");
        running.finish_and_assert_all_segments_home();
    }
}

#[test]
fn a_panic_is_an_error_of_its_task_and_closes_the_chain() {
    let (running, closed) = breaking_job(true, 1);
    let error = running.task("middle", 0).join().unwrap_err();
    assert_eq!(error, TaskError::Panic { task: "middle (1/1)".into(), message: "cannot stand 5000".into() });
    assert!(closed.load(Ordering::Acquire));
    let TaskError::Exchange(echo) = running.task("sink", 0).join().unwrap_err() else { panic!() };
    assert!(matches!(echo.kind, ExchangeFailureKind::ProducerFailed { .. }), "{echo}");
    running.finish_and_assert_all_segments_home();
}

#[test]
fn a_lost_worker_fails_its_consumers_with_an_echo() {
    let mut job = Job::new(2);
    let seen = SeenRecords::default();
    let source = job.vertex("source", &[0]);
    let sink = job.vertex("sink", &[1]);
    job.edge(source, sink, Partitioner::Forward);
    job.run(source, |_| SilentSource(1));
    job.run(sink, |_| Sink::new(&seen));

    let running = job.start();
    wait_until("the worker is connected", || seen.len() == 1);
    running.kill_network(0);

    let TaskError::Exchange(lost) = running.task("sink", 0).join().unwrap_err() else { panic!() };
    assert!(matches!(lost.kind, ExchangeFailureKind::ConnectionLost { .. }), "{lost}");
    running.finish_and_assert_all_segments_home();
}

#[test]
fn a_consumer_that_fails_does_not_fail_its_producer() {
    let mut job = Job::new(2);
    let source = job.vertex("source", &[0]);
    let middle = job.vertex("middle", &[1]);
    let sink = job.vertex("sink", &[0]);
    job.edge(source, middle, Partitioner::Forward);
    job.edge(middle, sink, Partitioner::Forward);
    job.run(source, |_| Numbers::up_to(100_000));
    job.run(middle, |_| Breaks { on: 10, panics: false, closed: Arc::default() });
    job.run(sink, |_| Sink::new(&SeenRecords::default()));

    let running = job.start();
    assert!(running.task("middle", 0).join().is_err());
    // What it still writes goes nowhere; whoever runs the job cancels it.
    assert_eq!(running.task("source", 0).join(), Ok(()));
    running.finish_and_assert_all_segments_home();
}

/// Polls as it is told and closes as it is told, once it may.
struct ClosingSource {
    polled: Result<SourceStatus, TaskError>,
    closed: Result<(), TaskError>,
    may_close: Receiver<()>,
}

impl Source<Bytes> for ClosingSource {
    fn open(&mut self, (): (), _: &TaskContext) -> Result<(), TaskError> {
        Ok(())
    }

    fn emit<'m>(&mut self, _: &mut Collector<'_, 'm, Bytes>) -> Result<SourceStatus, TaskError> {
        self.polled.clone()
    }

    fn snapshot(&mut self, (): (), _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }

    fn close(&mut self, (): ()) -> Result<(), TaskError> {
        self.may_close.recv().unwrap();
        self.closed.clone()
    }
}

#[test]
fn a_failure_is_told_before_the_chain_closes_and_a_failure_to_close_is_one() {
    let error = |text: &str| Err(TaskError::Config(text.into()));
    let failed = || Err(TaskError::Config("polled".into()));
    for (polled, closed, expected) in [
        (failed(), error("closed"), error("polled")),
        (failed(), Ok(()), error("polled")),
        (Ok(SourceStatus::Finished), error("closed"), error("closed")),
        (Ok(SourceStatus::Finished), Ok(()), Ok(())),
    ] {
        let mut job = Job::new(1);
        job.vertex("source", &[0]);
        let (worker, spec) = job.specs().next().unwrap().clone();
        let ((send, receive), (close, may_close)) = (channel(), channel());
        let told_first = polled.is_err();
        let source = ClosingSource { polled, closed, may_close };
        let chain = chain_to_all(Kind::Source(Box::new(source)), &spec, |_| Target::Any);
        let tell = move |result, _| send.send(result).unwrap();
        let handle = job.prepare(worker, &spec).unwrap().start(chain, "here", tell, || {}).unwrap();
        if told_first {
            assert_eq!(receive.recv().unwrap(), expected);
            assert_eq!(handle.outcome(), None, "it has not closed");
        }
        close.send(()).unwrap();
        assert_eq!(handle.join(), expected);
        assert_eq!(receive.iter().count(), usize::from(!told_first), "told once");
        drop(handle);
        job.assert_all_segments_home();
    }
}
