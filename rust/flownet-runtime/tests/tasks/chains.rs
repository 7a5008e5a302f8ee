//! Native sources and operators for tests.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flownet_core::Target;
use flownet_core::keygroup::hash_key;
use flownet_runtime::operator::{Collector, Kind, Operator, OperatorChain, Source};
use flownet_runtime::snapshot::Snapshot;
use flownet_runtime::spec::TaskSpec;
use flownet_runtime::state::KeyedState;
use flownet_runtime::{OperatorFailure, Outputs, SourceStatus, TaskContext, TaskError};

use crate::bytes::{Bytes, chain_to_all};

/// What a task of a test runs.
pub(crate) trait TestChain {
    /// The chain of this task.
    fn chain(self, task: &TaskSpec) -> OperatorChain<Bytes>;
}

impl TestChain for OperatorChain<Bytes> {
    fn chain(self, _: &TaskSpec) -> OperatorChain<Bytes> {
        self
    }
}

/// A source that writes to the outputs itself.
pub(crate) trait WritingSource: Send + 'static {
    fn write(&mut self, out: &mut Outputs) -> Result<SourceStatus, TaskError>;
}

/// Makes it a source of the operator model.
struct SourceAdapter<S>(S);

impl<S: WritingSource> Source<Bytes> for SourceAdapter<S> {
    fn open(&mut self, (): (), _: &TaskContext) -> Result<(), TaskError> {
        Ok(())
    }

    fn fill(&mut self, out: &mut Outputs) -> Result<Option<SourceStatus>, TaskError> {
        self.0.write(out).map(Some)
    }

    fn emit<'m>(&mut self, collector: &mut Collector<'_, 'm, Bytes>) -> Result<SourceStatus, TaskError> {
        collector.refuse("writes to the outputs itself")
    }

    fn snapshot(&mut self, (): (), _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }
}

impl<S: WritingSource> TestChain for S {
    fn chain(self, task: &TaskSpec) -> OperatorChain<Bytes> {
        chain_to_all(Kind::Source(Box::new(SourceAdapter(self))), task, |_| Target::Any)
    }
}

/// The input a record came from, and its bytes.
type ReceivedRecord = (usize, Vec<u8>);

/// What a sink has seen. Shared with the test.
#[derive(Clone, Default)]
pub(crate) struct SeenRecords(Arc<Mutex<Vec<ReceivedRecord>>>);

impl SeenRecords {
    pub(crate) fn push(&self, input: usize, record: &[u8]) {
        self.0.lock().unwrap().push((input, record.to_vec()));
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    pub(crate) fn records(&self) -> Vec<ReceivedRecord> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.records().iter().map(|(_, record)| number(record)).collect()
    }
}

pub(crate) fn number(record: &[u8]) -> u64 {
    u64::from_le_bytes(record[..8].try_into().unwrap())
}

/// Emits numbers as 8-byte records to all outputs, some at a time.
pub(crate) struct Numbers {
    pub(crate) next: u64,
    pub(crate) end: u64,
    pub(crate) target: fn(u64) -> Target,
}

impl Numbers {
    pub(crate) fn up_to(end: u64) -> Self {
        Self { next: 0, end, target: |_| Target::Any }
    }

    pub(crate) fn endless() -> Self {
        Self::up_to(u64::MAX)
    }

    pub(crate) fn keyed(end: u64, target: fn(u64) -> Target) -> Self {
        Self { next: 0, end, target }
    }
}

impl WritingSource for Numbers {
    fn write(&mut self, out: &mut Outputs) -> Result<SourceStatus, TaskError> {
        for _ in 0..100 {
            if self.next == self.end {
                return Ok(SourceStatus::Finished);
            }
            for output in 0..out.len() {
                out.emit(output, (self.target)(self.next), &self.next.to_le_bytes())?;
            }
            self.next += 1;
        }
        Ok(SourceStatus::More)
    }
}

/// Emits some records, then sleeps until cancelled.
pub(crate) struct SilentSource(pub(crate) u64);

impl WritingSource for SilentSource {
    fn write(&mut self, out: &mut Outputs) -> Result<SourceStatus, TaskError> {
        for n in 0..std::mem::take(&mut self.0) {
            out.emit(0, Target::KeyHash(hash_key(&n.to_le_bytes())), &n.to_le_bytes())?;
        }
        Ok(SourceStatus::Idle { wake_after: Duration::from_secs(3600) })
    }
}

/// Hands records on, each `copies` times; a batch of many buffers at a time.
pub(crate) struct PassOn {
    pub(crate) copies: usize,
}

impl Operator<Bytes> for PassOn {
    fn process<'m>(&mut self, record: Vec<u8>, collector: &mut Collector<'_, 'm, Bytes>) -> Result<(), TaskError> {
        (0..self.copies).try_for_each(|_| collector.emit(record.clone()))
    }

    fn snapshot(&mut self, (): (), _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }
}

impl TestChain for PassOn {
    fn chain(self, task: &TaskSpec) -> OperatorChain<Bytes> {
        chain_to_all(Kind::Operator(Box::new(self)), task, |record| Target::KeyHash(hash_key(record)))
    }
}

/// Keeps what it sees; takes its time over each record.
pub(crate) struct Sink {
    pub(crate) seen: SeenRecords,
    pub(crate) pause: Duration,
    pub(crate) closed: Arc<AtomicBool>,
    /// Reads only while this is set.
    pub(crate) gate: Arc<AtomicBool>,
}

impl Sink {
    pub(crate) fn new(seen: &SeenRecords) -> Self {
        let open = Arc::new(AtomicBool::new(true));
        Self { seen: seen.clone(), pause: Duration::ZERO, closed: Arc::default(), gate: open }
    }

    pub(crate) fn slow(seen: &SeenRecords, pause: Duration) -> Self {
        Self { pause, ..Self::new(seen) }
    }

    pub(crate) fn shut(seen: &SeenRecords, gate: &Arc<AtomicBool>) -> Self {
        Self { gate: Arc::clone(gate), ..Self::new(seen) }
    }
}

impl Operator<Bytes> for Sink {
    fn process<'m>(&mut self, record: Vec<u8>, collector: &mut Collector<'_, 'm, Bytes>) -> Result<(), TaskError> {
        while !self.gate.load(Ordering::Acquire) {
            collector.pause(Duration::from_millis(1))?;
        }
        self.seen.push(collector.side().into(), &record);
        if self.pause.is_zero() { Ok(()) } else { collector.pause(self.pause) }
    }

    fn snapshot(&mut self, (): (), _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }

    fn close(&mut self, (): ()) -> Result<(), TaskError> {
        self.closed.store(true, Ordering::Release);
        Ok(())
    }
}

impl TestChain for Sink {
    fn chain(self, task: &TaskSpec) -> OperatorChain<Bytes> {
        chain_to_all(Kind::Operator(Box::new(self)), task, |_| Target::Any)
    }
}

/// Counts each key; says the counts at the end: count, then key.
pub(crate) struct Count {
    pub(crate) counts: Option<KeyedState<u64>>,
}

impl Operator<Bytes> for Count {
    fn open(&mut self, (): (), cx: &TaskContext) -> Result<(), TaskError> {
        self.counts = Some(KeyedState::new(cx.key_group_range));
        Ok(())
    }

    fn process<'m>(&mut self, key: Vec<u8>, _: &mut Collector<'_, 'm, Bytes>) -> Result<(), TaskError> {
        *self.counts.as_mut().unwrap().get_or_insert_with(&key, hash_key(&key), || 0)? += 1;
        Ok(())
    }

    fn on_watermark(&mut self, _: i64, collector: &mut Collector<'_, '_, Bytes>) -> Result<(), TaskError> {
        for (key, count) in self.counts.as_mut().unwrap().drain() {
            collector.emit([&count.to_le_bytes(), &*key].concat())?;
        }
        Ok(())
    }

    fn snapshot(&mut self, (): (), _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }
}

impl TestChain for Count {
    fn chain(self, task: &TaskSpec) -> OperatorChain<Bytes> {
        chain_to_all(Kind::Operator(Box::new(self)), task, |_| Target::Any)
    }
}

/// Breaks on one record, as an operator does or as a bug does.
pub(crate) struct Breaks {
    pub(crate) on: u64,
    pub(crate) panics: bool,
    pub(crate) closed: Arc<AtomicBool>,
}

impl Operator<Bytes> for Breaks {
    fn process<'m>(&mut self, record: Vec<u8>, collector: &mut Collector<'_, 'm, Bytes>) -> Result<(), TaskError> {
        let n = number(&record);
        assert!(!(self.panics && n == self.on), "cannot stand {n}");
        if n == self.on { Err(failure(n).into()) } else { collector.emit(record) }
    }

    fn snapshot(&mut self, (): (), _: &mut Snapshot<'_>) -> Result<(), TaskError> {
        Ok(())
    }

    fn close(&mut self, (): ()) -> Result<(), TaskError> {
        self.closed.store(true, Ordering::Release);
        Ok(())
    }
}

impl TestChain for Breaks {
    fn chain(self, task: &TaskSpec) -> OperatorChain<Bytes> {
        chain_to_all(Kind::Operator(Box::new(self)), task, |_| Target::Any)
    }
}

pub(crate) fn failure(n: u64) -> OperatorFailure {
    OperatorFailure {
        operator: "breaks".into(),
        subtask: 0,
        parallelism: 1,
        record: Some(n.to_string()),
        error_type: "ValueError".into(),
        message: "not this one".into(),
        traceback: None,
        is_transient: false,
    }
}
