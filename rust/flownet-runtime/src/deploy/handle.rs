//! Handle of a task that runs, or has ended.

use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;

use flownet_core::gate::InputGate;
use flownet_core::partition::PartitionHandle;
use flownet_memory::BufferPool;

use super::RegisteredPartitions;
use crate::error::TaskError;
use crate::flame::{FlameOrder, SamplingGuard, Stacks};
use crate::input::ChannelCounts;
use crate::inspection::{InputChannel, InputInspection, OutputChannel, OutputInspection, TaskChannels, TaskInspection};
use crate::latency::Latency;
use crate::mailbox::{Mail, Mailbox};
use crate::metrics::{MetricsSnapshot, QueueSnapshot, TaskMetrics};
use crate::operator_counts::OperatorCounts;
use crate::snapshot::CheckpointOrder;
use crate::source::SourceOrder;
use crate::spec::TaskSpec;
use crate::user_metrics::UserMetricSnapshot;

/// A running task. Drop it when the job is over. That withdraws its partitions from consumers that still read
/// them, and cancels the task if it still runs.
#[derive(Debug)]
pub struct TaskHandle {
    spec: TaskSpec,
    name: String,
    mailbox: Mailbox,
    outcome: Arc<OnceLock<Result<(), TaskError>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    registered: RegisteredPartitions,
    watched: TaskProbe,
}

/// State that can be inspected while the task runs. It keeps no resource alive that the task returns.
#[derive(Debug)]
pub(super) struct TaskProbe {
    pub(super) metrics: Arc<TaskMetrics>,
    pub(super) gate: Option<Arc<InputGate>>,
    /// Counts of each channel of the gate.
    pub(super) channels: Vec<Arc<ChannelCounts>>,
    /// One pool for each output.
    pub(super) output_pools: Vec<Weak<BufferPool>>,
    /// Pool of the segments of remote channels, if there are any.
    pub(super) gate_pool: Option<Weak<BufferPool>>,
}

impl TaskProbe {
    fn pools(&self) -> impl Iterator<Item = Arc<BufferPool>> {
        self.output_pools.iter().chain(&self.gate_pool).filter_map(Weak::upgrade)
    }
}

impl TaskHandle {
    pub(super) fn new(
        spec: TaskSpec,
        name: String,
        mailbox: Mailbox,
        outcome: Arc<OnceLock<Result<(), TaskError>>>,
        thread: JoinHandle<()>,
        registered: RegisteredPartitions,
        watched: TaskProbe,
    ) -> Self {
        Self { spec, name, mailbox, outcome, thread: Mutex::new(Some(thread)), registered, watched }
    }

    /// Asks the task to stop, which it does as soon as its operator returns or waits. Has no effect after it
    /// has ended.
    pub fn cancel(&self) {
        self.mailbox.post(Mail::Cancel);
    }

    /// Waits until the task has ended and has returned everything except its unread partitions.
    pub fn join(&self) -> Result<(), TaskError> {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            // Panics of operators are caught: this one is the callback's, or a bug of ours.
            tracing::error!(task = self.name, "the task's thread panicked outside of its chain");
            let message = "outside of its chain".to_owned();
            let _ = self.outcome.set(Err(TaskError::Panic { task: self.name.clone(), message }));
        }
        self.outcome.wait().clone()
    }

    /// Result of the task; `None` while it runs.
    pub fn outcome(&self) -> Option<Result<(), TaskError>> {
        self.outcome.get().cloned()
    }

    /// Counters so far. If operator state may have changed, asks the task to count it for the next call.
    pub fn metrics(&self) -> MetricsSnapshot {
        if self.watched.metrics.wants_tally() {
            self.mailbox.post(Mail::Count);
        }
        let (bytes_out, queues) = self.queues();
        let receive_queue = self.watched.gate.as_ref().map(|gate| gate.receive_queue()).unwrap_or_default();
        MetricsSnapshot {
            bytes_out,
            dropped_records: receive_queue.dropped_records,
            dropped_bytes: receive_queue.dropped_bytes,
            queues,
            ..self.watched.metrics.snapshot()
        }
    }

    /// The counters themselves, for readers that [watch](crate::work::watch) the current work of the task.
    pub fn live_metrics(&self) -> Arc<TaskMetrics> {
        Arc::clone(&self.watched.metrics)
    }

    /// Records in and out of each of its operators so far, upstream first.
    pub fn operators(&self) -> Vec<OperatorCounts> {
        self.watched.metrics.operators()
    }

    /// Metrics of its functions so far.
    pub fn user_metrics(&self) -> Vec<UserMetricSnapshot> {
        self.watched.metrics.users().snapshot()
    }

    /// The split of the record that was latest, if one came later than the delay of its watermarks allows.
    pub fn latest_split(&self) -> Option<String> {
        self.watched.metrics.late_splits().latest(self.spec.subtask)
    }

    /// Times that latency markers took to reach this task so far.
    pub fn latencies(&self) -> Vec<Latency> {
        self.watched.metrics.latencies().snapshot()
    }

    /// The reasons for which it waits, found by inspection of each of its channels.
    pub fn inspect(&self) -> TaskInspection {
        let pools = self.watched.output_pools.iter().map(Weak::upgrade);
        let partitions = self.registered.partitions.iter();
        let gate_pool = self.watched.gate_pool.as_ref().and_then(Weak::upgrade);
        let input = self.watched.gate.as_ref().map(|gate| InputInspection::of(&self.spec, gate, gate_pool.as_deref()));
        TaskInspection {
            state: self.watched.metrics.state(),
            unread_buffers: self.watched.metrics.unread().0,
            outputs: partitions.zip(pools).map(|(one, pool)| OutputInspection::of(one, pool.as_deref())).collect(),
            input: input.unwrap_or_default(),
        }
    }

    /// Inspects each of its channels, for the web UI.
    pub fn channels(&self) -> TaskChannels {
        let TaskProbe { gate, channels, metrics, .. } = &self.watched;
        let inputs = gate.as_ref().map(|gate| InputChannel::all(&self.spec, gate, channels)).unwrap_or_default();
        TaskChannels { age: metrics.age(), inputs, outputs: OutputChannel::all(&self.registered.partitions) }
    }

    /// Begins to sample the stack of its thread: see [`flame`](crate::flame). `on_end` is called at the end.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn sample(
        &self,
        order: FlameOrder,
        stacks: impl FnOnce() -> Option<Box<dyn Stacks>> + Send + 'static,
        on_end: impl FnOnce() + Send + 'static,
    ) -> io::Result<SamplingGuard> {
        SamplingGuard::start(Arc::clone(&self.watched.metrics), order, stacks, on_end)
    }

    /// Sets the rate limit of a source; other tasks ignore it.
    pub fn order(&self, order: SourceOrder) {
        if self.spec.is_source() {
            self.mailbox.post(Mail::Order(order));
        }
    }

    /// Sets the event time up to which a source may read, because of the sources that it is aligned with;
    /// other tasks ignore it.
    pub fn align(&self, limit_ms: i64) {
        if self.spec.is_source() {
            self.mailbox.post(Mail::Align(limit_ms));
        }
    }

    /// Adds splits for this operator of a source; other tasks ignore them.
    pub fn add_splits(&self, operator: u32, splits: &Arc<[u8]>) {
        if self.spec.is_source() && self.spec.operators.first().is_some_and(|head| head.id == operator) {
            self.mailbox.post(Mail::Splits(Arc::clone(splits)));
        }
    }

    /// Ends a source, or announces the end of its input to the head of an iteration; other tasks ignore it.
    pub fn end_source(&self, drain: bool) {
        if self.spec.is_source() || self.spec.heads_iteration() {
            self.mailbox.post(Mail::EndSource { drain });
        }
    }

    /// Orders a checkpoint. Has no effect after the task has ended, or if it was started without checkpoints.
    pub fn checkpoint(&self, order: CheckpointOrder) {
        self.mailbox.post(Mail::Checkpoint(order));
    }

    /// Returns true if its input is congested and its flow control asks for that.
    pub fn is_congested(&self) -> bool {
        self.watched.gate.as_ref().is_some_and(|gate| gate.is_congested())
    }

    /// Number of bytes sent, and the state of the queues.
    fn queues(&self) -> (u64, QueueSnapshot) {
        let (mut bytes_out, mut queues) = (0, QueueSnapshot::default());
        for channel in self.registered.partitions.iter().flat_map(PartitionHandle::outgoing) {
            bytes_out += channel.bytes;
            queues.send_buffers += channel.queued_buffers;
            queues.send_bytes += channel.queued_bytes;
        }
        if let Some(gate) = &self.watched.gate {
            let (buffers, bytes) = self.watched.metrics.unread();
            queues.receive_buffers = gate.queued_buffers() as u64 + buffers;
            queues.receive_bytes = gate.receive_queue().queued_bytes + bytes;
        }
        for pool in self.watched.pools() {
            queues.pool_used += pool.in_use() as u64;
            queues.pool_size += pool.size() as u64;
        }
        if let Some(pool) = self.watched.gate_pool.as_ref().and_then(Weak::upgrade) {
            queues.in_pool_used = pool.in_use() as u64;
            queues.in_pool_size = pool.size() as u64;
        }
        (bytes_out, queues)
    }

    /// Description of the task.
    pub fn spec(&self) -> &TaskSpec {
        &self.spec
    }

    /// Name and subtask, as in errors.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for TaskHandle {
    fn drop(&mut self) {
        self.cancel();
    }
}
