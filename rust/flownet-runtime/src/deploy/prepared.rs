//! Prepares a task before it starts: its memory, its partitions, its channels.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use flownet_core::channel::{ChannelControl, RemoteChannel};
use flownet_core::debloat::{FillLimit, InFlightBounds};
use flownet_core::gate::InputGate;
use flownet_core::keygroup::MAX_PARALLELISM_LIMIT;
use flownet_core::partition::{PartitionHandle, ResultPartition};
use flownet_core::record::writer::{FlushPolicy, RecordWriter};
use flownet_core::{ChannelIndex, ExchangeError, PartitionId, Selector, SubpartitionIndex};
use flownet_memory::{BufferPool, BufferPoolSettings, MemoryError};
use flownet_net::{Inlets, NetworkEnvironment, ThreadParker};

use super::handle::TaskProbe;
use super::{RegisteredPartitions, TaskHandle, gate_settings};
use crate::chain::{TaskChain, TaskContext};
use crate::error::TaskError;
use crate::input::{ChannelPlace, TaskInput};
use crate::log::{self, Log, Speaker};
use crate::mailbox::Mailbox;
use crate::metrics::TaskMetrics;
use crate::outputs::Outputs;
use crate::snapshot::{CheckpointContext, Edges};
use crate::spec::{ChannelSpec, FlowControl, OutputSpec, Partitioner, TaskSpec};
use crate::task::{Markers, TaskSetup, catching};
use crate::time::WallClock;

/// Stack of a task's thread. Operators of embedded languages recurse deeply; untouched pages cost nothing.
const STACK_BYTES: usize = 8 << 20;

/// A task with its memory and its partitions, not yet connected to its producers.
///
/// If it is dropped before it starts, it returns all of them.
#[derive(Debug)]
pub struct PreparedTask {
    spec: TaskSpec,
    worker: u32,
    max_record_bytes: usize,
    writers: Vec<RecordWriter>,
    output_pools: Vec<Arc<BufferPool>>,
    output_inlets: Arc<Inlets>,
    gate: Option<PreparedGate>,
    registered: RegisteredPartitions,
    checkpointing: Option<CheckpointContext>,
    log: Arc<Log>,
    monitor: Option<Waker>,
}

#[derive(Debug)]
struct PreparedGate {
    gate: Arc<InputGate>,
    inlets: Arc<Inlets>,
    places: Vec<ChannelPlace>,
    in_flight: Option<InFlightBounds>,
    resources: GateResources,
}

/// Resources of a gate, which are released on drop.
#[derive(Debug)]
struct GateResources {
    gate: Arc<InputGate>,
    pool: Option<Arc<BufferPool>>,
    remote: Vec<Arc<RemoteChannel>>,
}

impl Drop for GateResources {
    fn drop(&mut self) {
        self.gate.close();
        self.remote.iter().for_each(|channel| channel.release());
        if let Some(pool) = &self.pool {
            pool.destroy();
        }
    }
}

impl PreparedTask {
    /// Takes the task's memory and registers its partitions. `worker` is the index of this worker in the
    /// plan.
    ///
    /// No record, sent or received, may be longer than `max_record_bytes`.
    pub fn prepare(
        spec: TaskSpec,
        worker: u32,
        environment: &NetworkEnvironment,
        max_record_bytes: usize,
    ) -> Result<Self, TaskError> {
        check(&spec)?;
        let registered = RegisteredPartitions { environment: environment.clone(), partitions: Vec::new() };
        let mut prepared = Self {
            worker,
            max_record_bytes,
            writers: Vec::with_capacity(spec.outputs.len()),
            output_pools: Vec::with_capacity(spec.outputs.len()),
            output_inlets: Inlets::new(),
            gate: None,
            registered,
            checkpointing: None,
            log: Arc::default(),
            monitor: None,
            spec,
        };
        for index in 0..prepared.spec.outputs.len() {
            prepared.add_output(index)?;
        }
        if !prepared.spec.is_source() {
            prepared.gate = Some(prepared.build_gate()?);
        }
        Ok(prepared)
    }

    /// Connects every input: to `local` partitions if the producer runs on this worker, otherwise to the
    /// worker's address. The running task reports failures to reach a worker later.
    pub fn connect(
        &mut self,
        addresses: &BTreeMap<u32, SocketAddr>,
        local: impl Fn(PartitionId) -> Option<PartitionHandle>,
    ) -> Result<(), TaskError> {
        let Some(prepared) = &mut self.gate else { return Ok(()) };
        let channels = self.spec.inputs.iter().flat_map(|input| {
            let control = input.flow_control.of_channels(input.edge);
            input.channels.iter().map(move |channel| (channel, control))
        });
        let mut channels: Vec<_> = (0..).map(ChannelIndex::new).zip(channels).collect();
        let producers = channels.iter().map(|(_, (channel, _))| channel.producer_worker);
        let first = first_to_open(producers, self.worker);
        channels.rotate_left(first);
        // Channels within this process cost no dialing, and show first if a partition is missing.
        channels.sort_by_key(|(_, (channel, _))| channel.producer_worker != self.worker);
        for (index, (channel, control)) in channels {
            if channel.producer_worker == self.worker {
                prepared.connect_local(index, channel, &local)?;
            } else {
                let peer = addresses
                    .get(&channel.producer_worker)
                    .ok_or_else(|| TaskError::Config(format!("no address for worker {}", channel.producer_worker)))?;
                prepared.connect_remote(index, channel, control, *peer, &self.registered.environment);
            }
        }
        Ok(())
    }

    /// Sets the state to restore, and enables checkpoints. Without this call the task has neither.
    pub fn set_checkpointing(&mut self, checkpointing: CheckpointContext) {
        self.checkpointing = Some(checkpointing);
    }

    /// Sets the log of its thread. Without this call its log records are lost.
    pub fn set_log(&mut self, log: Arc<Log>) {
        self.log = log;
    }

    /// Starts the task on a thread of its own. `worker_name` is the user's name of this worker.
    ///
    /// Both callbacks are called on that thread, once. `on_outcome` is called as soon as the task's result is
    /// known; a task that fails reports it before its user code closes. Its second argument is true if the
    /// task ran, that is if its operators were open, with their restored state. `on_exit` is the last call of
    /// the thread.
    pub fn start(
        self,
        chain: impl Into<TaskChain>,
        worker_name: impl Into<String>,
        on_outcome: impl FnOnce(Result<(), TaskError>, bool) + Send + 'static,
        on_exit: impl FnOnce() + Send + 'static,
    ) -> Result<TaskHandle, TaskError> {
        let mailbox = Mailbox::new();
        let outcome = Arc::new(OnceLock::new());
        let name = full_name(&self.spec);
        let cx = TaskContext::of(&self.spec, worker_name.into(), self.max_record_bytes, &mailbox, WallClock::default());
        let cx = TaskContext { takes_checkpoints: self.checkpointing.is_some(), ..cx };
        let watched = self.watched(&cx.metrics);
        let alignment = self.spec.operators.iter().find_map(|operator| operator.kind.alignment());
        if let (Some(alignment), Some(monitor)) = (alignment, &self.monitor) {
            cx.metrics.watch_alignment(alignment, monitor);
        }
        let (edges, markers) = (Edges::of(&self.spec), Markers::of(&self.spec));
        let Self { spec, max_record_bytes, writers, output_pools, output_inlets, gate, registered, log, .. } = self;
        let (partitions, checkpointing) = (registered.partitions.clone(), self.checkpointing);
        let parts = TaskParts {
            cx,
            chain: chain.into(),
            max_record_bytes,
            writers,
            output_pools,
            output_inlets,
            gate,
            partitions,
            checkpointing,
            edges,
            markers,
        };

        let body = {
            let (name, mailbox, outcome) = (name.clone(), mailbox.clone(), Arc::clone(&outcome));
            let speaker = Speaker { vertex: spec.vertex, subtask: spec.subtask };
            move || {
                let _speaking = log::enter(log, Some(speaker));
                let mut on_outcome = Some(on_outcome);
                let mut tell = |result: Result<(), TaskError>, has_run| {
                    if let Some(on_outcome) = on_outcome.take() {
                        on_outcome(result, has_run);
                    }
                };
                let on_failure = |error: &TaskError, has_run| tell(Err(error.clone()), has_run);
                let result = catching(&name, || parts.run(&name, mailbox, on_failure));
                // A failed task that has not reported the failure itself never began.
                tell(result.clone(), result.is_ok());
                let _ = outcome.set(result);
                on_exit();
            }
        };
        let thread = thread::Builder::new().name(name.replace('\0', " ")).stack_size(STACK_BYTES).spawn(body);
        let thread = thread.map_err(|error| TaskError::NoThread { task: name.clone(), reason: error.to_string() })?;
        Ok(TaskHandle::new(spec, name, mailbox, outcome, thread, registered, watched))
    }

    /// Wakes `monitor` when the task's input becomes congested or ceases to be, if its flow control asks for
    /// it. Also wakes it when a source that is aligned with others has moved by a step.
    pub fn set_monitor(&mut self, monitor: &Waker) {
        self.monitor = Some(monitor.clone());
        let is_watched = self.spec.inputs.iter().any(|input| input.flow_control == FlowControl::Storm);
        if let Some(prepared) = self.gate.as_ref().filter(|_| is_watched) {
            prepared.gate.set_monitor(monitor.clone());
        }
    }

    /// Description of the task.
    pub fn spec(&self) -> &TaskSpec {
        &self.spec
    }

    /// The partitions the task fills, for consumers on this worker.
    pub fn partitions(&self) -> &[PartitionHandle] {
        &self.registered.partitions
    }

    fn add_output(&mut self, index: usize) -> Result<(), TaskError> {
        let output = &self.spec.outputs[index];
        let environment = &self.registered.environment;
        let settings = environment.config().sizing().partition(output.subpartitions);
        let pool = create_pool(environment, settings, &self.spec)?;
        let partition = ResultPartition::new(output.partition_id(), Arc::clone(&pool), output.subpartitions);
        if environment.config().max_in_flight_time.is_some() {
            // Until the speed of its readers is known.
            partition.set_fill_limit(FillLimit::ONE_RECORD);
        }
        let handle = partition.handle();
        let flush = match output.flush_timeout_us {
            None => FlushPolicy::WhenFull,
            Some(0) => FlushPolicy::EveryRecord,
            Some(_) => FlushPolicy::Timer,
        };
        let flush_timeout = output.flush_timeout_us.map(Duration::from_micros);
        environment.register_partition(handle.clone(), flush_timeout, &self.output_inlets);
        self.registered.partitions.push(handle);
        let selector = selector(output, &self.spec);
        self.writers.push(RecordWriter::new(partition, selector, flush, self.max_record_bytes));
        self.output_pools.push(pool);
        Ok(())
    }

    fn build_gate(&self) -> Result<PreparedGate, TaskError> {
        let environment = &self.registered.environment;
        let settings = gate_settings(&self.spec, self.worker, environment.config());
        let pool = settings.map(|settings| create_pool(environment, settings, &self.spec)).transpose()?;
        let mut places = Vec::new();
        for (input, spec) in self.spec.inputs.iter().enumerate() {
            let is_local = |channel: &ChannelSpec| channel.producer_worker == self.worker;
            places.extend(spec.channels.iter().map(|channel| ChannelPlace {
                input,
                is_local: is_local(channel),
                in_iteration: spec.in_iteration,
                counts: Arc::default(),
            }));
        }
        let gate = InputGate::new(u32::try_from(places.len()).unwrap_or(u32::MAX));
        gate.set_bounds(
            environment.config().receive_queue_limits(self.remote_channels(), environment.pool().segment_bytes()),
        );
        let resources = GateResources { gate: Arc::clone(&gate), pool, remote: Vec::new() };
        let local = u32::try_from(self.spec.channels(self.worker, true)).unwrap_or(u32::MAX);
        let (config, segment_bytes) = (environment.config(), environment.pool().segment_bytes());
        let in_flight = config.in_flight_bounds(local, self.remote_channels(), segment_bytes);
        Ok(PreparedGate { gate, inlets: Inlets::new(), places, in_flight, resources })
    }

    fn watched(&self, metrics: &Arc<TaskMetrics>) -> TaskProbe {
        let places = self.gate.iter().flat_map(|prepared| &prepared.places);
        let gate_pool = self.gate.as_ref().and_then(|prepared| prepared.resources.pool.as_ref());
        TaskProbe {
            metrics: Arc::clone(metrics),
            gate: self.gate.as_ref().map(|prepared| Arc::clone(&prepared.gate)),
            channels: places.map(|place| Arc::clone(&place.counts)).collect(),
            output_pools: self.output_pools.iter().map(Arc::downgrade).collect(),
            gate_pool: gate_pool.map(Arc::downgrade),
        }
    }

    fn remote_channels(&self) -> u32 {
        u32::try_from(self.spec.channels(self.worker, false)).unwrap_or(u32::MAX)
    }
}

/// Parts of the task that move to its thread.
struct TaskParts {
    cx: TaskContext,
    chain: TaskChain,
    max_record_bytes: usize,
    writers: Vec<RecordWriter>,
    output_pools: Vec<Arc<BufferPool>>,
    output_inlets: Arc<Inlets>,
    gate: Option<PreparedGate>,
    partitions: Vec<PartitionHandle>,
    checkpointing: Option<CheckpointContext>,
    edges: Edges,
    markers: Option<Markers>,
}

impl TaskParts {
    fn run(self, name: &str, mailbox: Mailbox, on_failure: impl FnOnce(&TaskError, bool)) -> Result<(), TaskError> {
        let Self { cx, chain, max_record_bytes, writers, output_pools, output_inlets, gate, partitions, .. } = self;
        let (checkpointing, edges, markers) = (self.checkpointing, self.edges, self.markers);
        crate::work::enter_thread(&cx.metrics);
        let parker = Arc::new(ThreadParker::current());
        mailbox.set_owner(parker.waker().clone());
        let (cancel, metrics) = (&cx.cancel, &cx.metrics);
        let outputs = Outputs::new(writers, Arc::clone(&parker), output_inlets, cancel.clone(), Arc::clone(metrics));
        // Dropping `_resources` returns the gate's segments: after the task has dropped the buffers that it
        // read.
        let (input, inlets, _resources) = match gate {
            Some(PreparedGate { gate, inlets, places, in_flight, resources }) => {
                let input = TaskInput::new(gate, &places, max_record_bytes, cancel.clone(), Arc::clone(metrics));
                let mut input = input.with_in_flight_bounds(in_flight);
                if let Some(checkpointing) = &checkpointing {
                    let attention = checkpointing.overtakes.then(|| mailbox.attention());
                    input = input.with_checkpoints(checkpointing.mode, attention);
                }
                (Some(input), inlets, Some(resources))
            }
            None => (None, Inlets::new(), None),
        };
        let setup = TaskSetup {
            cx,
            input,
            inlets,
            outputs,
            output_pools,
            partitions,
            mailbox,
            parker,
            checkpointing,
            edges,
            markers,
        };
        chain.run(setup, name, on_failure)
    }
}

impl PreparedGate {
    fn connect_local(
        &self,
        index: ChannelIndex,
        channel: &ChannelSpec,
        local: impl Fn(PartitionId) -> Option<PartitionHandle>,
    ) -> Result<(), TaskError> {
        let partition = channel.partition_id();
        let subpartition = SubpartitionIndex::new(channel.subpartition);
        let handle = local(partition).ok_or(ExchangeError::PartitionNotFound { partition })?;
        let cell = handle.subpartition(subpartition);
        let cell = cell.ok_or(ExchangeError::SubpartitionNotFound { partition, subpartition })?;
        self.gate.set_local(index, Arc::clone(cell));
        Ok(())
    }

    fn connect_remote(
        &mut self,
        index: ChannelIndex,
        channel: &ChannelSpec,
        control: ChannelControl,
        peer: SocketAddr,
        environment: &NetworkEnvironment,
    ) {
        let Some(pool) = &self.resources.pool else { return };
        let exclusive = environment.config().exclusive_buffers;
        let (gate, pool) = (Arc::clone(&self.gate), Arc::clone(pool));
        let remote = RemoteChannel::with_control(gate, index, pool, exclusive, control);
        self.resources.remote.push(Arc::clone(&remote));
        let subpartition = SubpartitionIndex::new(channel.subpartition);
        environment.open_channel(peer, channel.partition_id(), subpartition, remote, &self.inlets);
    }
}

/// Position of the channel that a worker opens first: the one to the next worker after it. If all workers
/// began with the same ones, those would have to answer all others at once, while the rest waits for its
/// turn.
fn first_to_open(mut producers: impl Iterator<Item = u32>, worker: u32) -> usize {
    producers.position(|producer| producer > worker).unwrap_or(0)
}

pub(super) fn check(spec: &TaskSpec) -> Result<(), TaskError> {
    let TaskSpec { subtask, parallelism, max_parallelism, .. } = *spec;
    let wrong = if subtask >= parallelism || parallelism.max(max_parallelism) > MAX_PARALLELISM_LIMIT {
        format!("subtask {subtask} of {parallelism} with {max_parallelism} key groups")
    } else if spec.is_keyed() && parallelism > max_parallelism {
        format!("keys for {parallelism} subtasks with {max_parallelism} key groups")
    } else if let Some(input) = spec.inputs.iter().find(|input| input.channels.is_empty()) {
        format!("input edge {} without channels", input.edge)
    } else if let Some(output) = spec.outputs.iter().find(|output| output.subpartitions == 0) {
        format!("output edge {} without subpartitions", output.edge)
    } else {
        return Ok(());
    };
    Err(TaskError::Config(format!("task '{}' cannot work: {wrong}", full_name(spec))))
}

fn create_pool(
    environment: &NetworkEnvironment,
    settings: BufferPoolSettings,
    spec: &TaskSpec,
) -> Result<Arc<BufferPool>, TaskError> {
    environment.pool().create_buffer_pool(settings).map_err(|error| match error {
        MemoryError::Insufficient { required, available, total } => {
            TaskError::InsufficientBuffers { task: full_name(spec), required, available, total }
        }
        other => ExchangeError::from(other).into(),
    })
}

pub(super) fn selector(output: &OutputSpec, spec: &TaskSpec) -> Selector {
    // Any number is suitable, as long as writers begin at different places. The same job begins in the same
    // way each time.
    let start = spec.task_id.wrapping_mul(0x9e37_79b9);
    match output.partitioner {
        Partitioner::Forward => Selector::Forward,
        Partitioner::Rebalance => Selector::rebalance(start),
        Partitioner::Rescale => Selector::rescale(start),
        Partitioner::Broadcast => Selector::Broadcast,
        Partitioner::KeyGroup => Selector::key_group(spec.max_parallelism),
        Partitioner::Custom => Selector::Custom,
    }
}

pub(super) fn full_name(spec: &TaskSpec) -> String {
    format!("{} ({}/{})", spec.name, spec.subtask + 1, spec.parallelism)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_workers_open_channels_to_the_same_one_first() {
        for (workers, parallelism) in [(5, 5), (5, 13), (40, 40), (3, 2)] {
            let producers: Vec<u32> = (0..parallelism).map(|subtask| 1 + subtask % workers).collect();
            let begins = |worker| producers[first_to_open(producers.iter().copied(), worker)];
            let first: BTreeSet<u32> = (1..=workers).map(begins).collect();
            assert_eq!(first.len(), parallelism.min(workers) as usize, "{workers} workers, {parallelism} subtasks");
        }
        assert_eq!(first_to_open([3, 1, 2].into_iter(), 9), 0, "all are behind");
        assert_eq!(first_to_open([].into_iter(), 1), 0);
    }
}
