//! A small cluster in one process: several network environments, and the tasks of one job on them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flownet_core::partition::PartitionHandle;
use flownet_memory::SegmentPool;
use flownet_net::{NetworkConfig, NetworkEnvironment, Secret};
use flownet_runtime::spec::{
    ChannelSpec, Codec, FlowControl, InputSpec, OperatorKind, OperatorSpec, OutputSpec, Partitioner, Payload,
    StateBackend, TaskSpec, partition_id,
};
use flownet_runtime::{CheckpointContext, PreparedTask, TaskChain, TaskError, TaskHandle};
use tokio::runtime::Runtime;

use crate::chains::TestChain;

pub(crate) const MAX_RECORD_BYTES: usize = 1 << 20;
/// Long enough for a slow machine; no test waits that long unless it fails.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where the tasks of a vertex run, and how many there are: one entry a subtask.
pub(crate) type Placement<'a> = &'a [u32];

pub(crate) struct Job {
    runtime: Runtime,
    pub(crate) environments: Vec<NetworkEnvironment>,
    vertices: Vec<Vec<(u32, TaskSpec)>>,
    chains: Vec<(u32, TaskSpec, TaskChain)>,
    edges: u32,
    pub(crate) flush_timeout_us: Option<u64>,
    pub(crate) flow_control: FlowControl,
    /// Of vertices that are yet to come.
    pub(crate) state: StateBackend,
    pub(crate) latency_interval_us: Option<u64>,
}

pub(crate) struct RunningTask {
    runtime: Runtime,
    environments: Vec<NetworkEnvironment>,
    pub(crate) tasks: Vec<TaskHandle>,
}

#[derive(Clone, Copy)]
pub(crate) struct Vertex(usize);

impl Job {
    /// `workers` environments with roomy pools.
    pub(crate) fn new(workers: u32) -> Self {
        Self::with_segments(workers, 256, 4096)
    }

    pub(crate) fn with_segments(workers: u32, segments: usize, segment_bytes: usize) -> Self {
        let max_in_flight_time = Some(Duration::from_secs(1));
        let config = NetworkConfig { max_in_flight_time, ..NetworkConfig::default() };
        Self::with_config(workers, segments, segment_bytes, &config)
    }

    pub(crate) fn with_config(workers: u32, segments: usize, segment_bytes: usize, config: &NetworkConfig) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let secret = Secret::generate().unwrap();
        let environment = || {
            let pool = SegmentPool::new(segments, segment_bytes).unwrap();
            runtime.block_on(NetworkEnvironment::bind(config.clone(), secret.clone(), pool)).unwrap()
        };
        let environments = (0..workers).map(|_| environment()).collect();
        let flow_control = FlowControl::Credit;
        let flush_timeout_us = Some(1000);
        let state = StateBackend::Memory;
        Self {
            runtime,
            environments,
            vertices: vec![],
            chains: vec![],
            edges: 0,
            flush_timeout_us,
            flow_control,
            state,
            latency_interval_us: None,
        }
    }

    /// Adds subtasks without edges.
    pub(crate) fn vertex(&mut self, name: &str, placement: Placement<'_>) -> Vertex {
        let parallelism = u32::try_from(placement.len()).unwrap();
        let tasks = (0..).zip(placement).map(|(subtask, worker)| {
            let task = TaskSpec {
                task_id: u32::try_from(self.vertices.len()).unwrap() * 100 + subtask,
                vertex: u32::try_from(self.vertices.len()).unwrap(),
                name: name.to_owned(),
                subtask,
                parallelism,
                max_parallelism: 128,
                codec: Codec::Typed,
                object_reuse: false,
                state: self.state.clone(),
                latency_interval_us: self.latency_interval_us,
                operators: vec![],
                inputs: vec![],
                outputs: vec![],
            };
            (*worker, task)
        });
        let tasks = tasks.collect();
        self.vertices.push(tasks);
        Vertex(self.vertices.len() - 1)
    }

    /// Connects every subtask of `from` to every one of `to`; forward edges one to one.
    pub(crate) fn edge(&mut self, from: Vertex, to: Vertex, partitioner: Partitioner) {
        let edge = self.edges;
        self.edges += 1;
        let (producers, consumers) = (self.vertices[from.0].clone(), self.vertices[to.0].len());
        let is_forward = partitioner == Partitioner::Forward;
        for (_, producer) in &mut self.vertices[from.0] {
            producer.outputs.push(OutputSpec {
                edge,
                from_operator: 0,
                tag: None,
                timestamps: false,
                in_iteration: false,
                splits: false,
                partitioner,
                payload: Payload::None,
                partition: partition_id(edge, producer.subtask),
                subpartitions: if is_forward { 1 } else { u32::try_from(consumers).unwrap() },
                flush_timeout_us: self.flush_timeout_us,
            });
        }
        for (_, consumer) in &mut self.vertices[to.0] {
            let read = producers.iter().filter(|(_, producer)| !is_forward || producer.subtask == consumer.subtask);
            let channels = read.map(|(worker, producer)| ChannelSpec {
                producer_worker: *worker,
                partition: partition_id(edge, producer.subtask),
                subpartition: if is_forward { 0 } else { consumer.subtask },
            });
            let (flow_control, channels) = (self.flow_control, channels.collect());
            consumer.inputs.push(InputSpec {
                edge,
                to_operator: 0,
                side: 0,
                timestamps: false,
                in_iteration: false,
                splits: false,
                partitioner,
                flow_control,
                channels,
            });
        }
    }

    /// The same within an iteration.
    pub(crate) fn edge_in_iteration(&mut self, from: Vertex, to: Vertex, partitioner: Partitioner) {
        self.edge(from, to, partitioner);
        self.vertices[from.0].iter_mut().for_each(|(_, task)| task.outputs.last_mut().unwrap().in_iteration = true);
        self.vertices[to.0].iter_mut().for_each(|(_, task)| task.inputs.last_mut().unwrap().in_iteration = true);
    }

    /// Says that an iteration begins at a vertex.
    pub(crate) fn heads_iteration(&mut self, vertex: Vertex) {
        let head = OperatorSpec {
            id: u32::try_from(vertex.0).unwrap(),
            uid: None,
            name: "iterate".to_owned(),
            kind: OperatorKind::IterationHead { iteration: 0 },
            payload: Payload::None,
            rate_limit: None,
            brake: None,
            target: None,
            upstream: None,
        };
        self.vertices[vertex.0].iter_mut().for_each(|(_, task)| task.operators = vec![head.clone()]);
    }

    /// Says what each subtask of a vertex runs.
    pub(crate) fn run<C: TestChain>(&mut self, vertex: Vertex, chain: impl Fn(u32) -> C) {
        for (worker, task) in &self.vertices[vertex.0] {
            self.chains.push((*worker, task.clone(), chain(task.subtask).chain(task).into()));
        }
    }

    /// The tasks as planned so far, with the workers they run on.
    pub(crate) fn specs(&self) -> impl Iterator<Item = &(u32, TaskSpec)> {
        self.vertices.iter().flatten()
    }

    pub(crate) fn prepare(&self, worker: u32, spec: &TaskSpec) -> Result<PreparedTask, TaskError> {
        PreparedTask::prepare(spec.clone(), worker, &self.environments[worker as usize], MAX_RECORD_BYTES)
    }

    pub(crate) fn start(self) -> RunningTask {
        self.start_with(|_| None)
    }

    /// The same, with checkpoints where `checkpointing` says so.
    pub(crate) fn start_with(mut self, checkpointing: impl Fn(&TaskSpec) -> Option<CheckpointContext>) -> RunningTask {
        let chains = std::mem::take(&mut self.chains);
        let mut prepared = Vec::new();
        let mut partitions = BTreeMap::<_, PartitionHandle>::new();
        for (worker, spec, chain) in chains {
            let mut task = self.prepare(worker, &spec).unwrap();
            if let Some(checkpointing) = checkpointing(&spec) {
                task.set_checkpointing(checkpointing);
            }
            partitions.extend(task.partitions().iter().map(|partition| ((worker, partition.id()), partition.clone())));
            prepared.push((worker, task, chain));
        }
        let addresses = self.addresses();
        for (worker, task, _) in &mut prepared {
            task.connect(&addresses, |id| partitions.get(&(*worker, id)).cloned()).unwrap();
        }
        let start = |(worker, task, chain): (u32, PreparedTask, TaskChain)| {
            task.start(chain, format!("worker {worker}"), |_, _| {}, || {}).unwrap()
        };
        let tasks = prepared.into_iter().map(start).collect();
        RunningTask { runtime: self.runtime, environments: self.environments, tasks }
    }

    /// For jobs that are not started.
    pub(crate) fn assert_all_segments_home(self) {
        RunningTask { runtime: self.runtime, environments: self.environments, tasks: vec![] }
            .finish_and_assert_all_segments_home();
    }

    fn addresses(&self) -> BTreeMap<u32, SocketAddr> {
        (0..).zip(self.environments.iter().map(NetworkEnvironment::local_addr)).collect()
    }
}

impl RunningTask {
    pub(crate) fn task(&self, name: &str, subtask: u32) -> &TaskHandle {
        let is_it = |task: &&TaskHandle| task.spec().name == name && task.spec().subtask == subtask;
        self.tasks.iter().find(is_it).unwrap()
    }

    /// Waits for the tasks to end by themselves.
    pub(crate) fn join(&self) {
        for task in &self.tasks {
            task.join().unwrap_or_else(|error| panic!("{}: {error}", task.name()));
        }
    }

    /// Cuts a worker off, as if its process had died.
    pub(crate) fn kill_network(&self, worker: u32) {
        self.runtime.block_on(self.environments[worker as usize].shutdown());
    }

    /// Ends whatever still runs; asserts that no segment is missing.
    pub(crate) fn finish_and_assert_all_segments_home(mut self) {
        self.tasks.iter().for_each(TaskHandle::cancel);
        for task in &self.tasks {
            let _ = task.join();
        }
        self.tasks.clear();
        for environment in &self.environments {
            self.runtime.block_on(environment.shutdown());
        }
        let pools: Vec<_> = self.environments.iter().map(|environment| Arc::clone(environment.pool())).collect();
        for pool in pools {
            wait_until("all segments are home", || pool.available() == pool.total());
            assert_eq!(pool.guaranteed(), 0, "a buffer pool outlived its task");
        }
    }

    pub(crate) fn join_and_assert_all_segments_home(self) {
        self.join();
        self.finish_and_assert_all_segments_home();
    }
}

pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// For a condition that is asked again and again: true each tenth time.
pub(crate) fn now_and_then() -> impl FnMut() -> bool {
    let mut asked = 0;
    move || {
        asked += 1;
        asked % 10 == 0
    }
}
