//! One side's network, as a worker process would have it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use flownet_core::channel::RemoteChannel;
use flownet_core::gate::InputGate;
use flownet_core::partition::ResultPartition;
use flownet_core::record::writer::{FlushPolicy, RecordWriter};
use flownet_core::{ChannelIndex, PartitionId, Selector, SubpartitionIndex};
use flownet_memory::{BufferPoolSettings, MemoryError, SegmentPool};
use flownet_net::{Credentials, GateReader, Inlets, NetError, NetworkEnvironment, PartitionWriter};
use tokio::runtime::{Builder, Runtime};

use crate::error::BenchError;
use crate::machine::peak_rss_bytes;
use crate::role::Usage;
use crate::spec::{ExchangeSpec, Partitioner};

/// Pool, port, connections and the one network thread of a process.
pub(crate) struct Network {
    runtime: Runtime,
    env: NetworkEnvironment,
    segment_bytes: usize,
}

impl Network {
    /// A network whose pool holds what `spec` asks for: the partitions of a sender, the gate of a receiver, or both.
    pub(crate) fn start(
        spec: &ExchangeSpec,
        credentials: &str,
        sends: bool,
        receives: bool,
    ) -> Result<Self, BenchError> {
        let config = spec.network.config();
        let most = |settings: BufferPoolSettings| settings.max.unwrap_or(settings.min);
        let partitions = most(config.sizing().partition(spec.channels)) * spec.writers as usize;
        let gate = most(config.sizing().gate(all_channels(spec)));
        let wanted = if sends { partitions } else { 0 } + if receives { gate } else { 0 };

        let segment_bytes = spec.network.segment_bytes;
        let pool = SegmentPool::new(spec.network.segments(wanted), segment_bytes)
            .map_err(|source| BenchError::Memory { source, segment_bytes })?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("flownet-net")
            .enable_all()
            .build()
            .map_err(BenchError::io("start the network thread"))?;
        let env = runtime.block_on(NetworkEnvironment::bind(config, Credentials::from_text(credentials)?, pool))?;
        Ok(Self { runtime, env, segment_bytes })
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.env.local_addr()
    }

    /// A writer for each task, its partition registered.
    pub(crate) fn writers(&self, spec: &ExchangeSpec) -> Result<Vec<PartitionWriter>, BenchError> {
        (0..spec.writers).map(|writer| self.writer(spec, writer)).collect()
    }

    /// A reader of all channels of all writers at `sender`. Returns once every channel was asked for.
    pub(crate) fn reader(&self, spec: &ExchangeSpec, sender: SocketAddr) -> Result<GateReader, BenchError> {
        let channels = all_channels(spec);
        let gate = InputGate::new(channels);
        let inlets = Inlets::new();
        let pool = self.env.create_gate_pool(channels).map_err(|error| self.memory_error(error))?;
        let exclusive = self.env.config().exclusive_buffers;
        let control = spec.network.control();
        let mut opened = Vec::new();
        for index in 0..channels {
            let channel = {
                let (gate, pool) = (Arc::clone(&gate), Arc::clone(&pool));
                RemoteChannel::with_control(gate, ChannelIndex::new(index), pool, exclusive, control)
            };
            let (writer, subpartition) = (index / spec.channels, index % spec.channels);
            let (partition, subpartition) = (partition_id(writer), SubpartitionIndex::new(subpartition));
            self.env.open_channel(sender, partition, subpartition, Arc::clone(&channel), &inlets);
            opened.push(channel);
        }
        let reader = GateReader::new(gate, inlets, channels, spec.record_bytes);
        // A channel is open once its request is on its way, and let go of when the connection failed, which shows when
        // the gate is read.
        let is_pending = |channel: &Arc<RemoteChannel>| !channel.is_open() && Arc::strong_count(channel) > 1;
        while opened.iter().any(is_pending) {
            std::thread::sleep(SET_UP_INTERVAL);
        }
        Ok(reader)
    }

    /// A reader of all channels of `writers`, within this process.
    pub(crate) fn local_reader(&self, spec: &ExchangeSpec, writers: &mut [PartitionWriter]) -> GateReader {
        let channels = all_channels(spec);
        let gate = InputGate::new(channels);
        let cells = writers.iter_mut().flat_map(|writer| writer.record_writer().partition().subpartitions().to_vec());
        for (index, cell) in (0..).zip(cells) {
            gate.set_local(ChannelIndex::new(index), cell);
        }
        GateReader::new(gate, Inlets::new(), channels, spec.record_bytes)
    }

    /// What was used since the CPU clock showed `cpu_ns_before`.
    pub(crate) fn usage(&self, cpu_ns_before: u64) -> Result<Usage, BenchError> {
        let pool = self.env.pool();
        Ok(Usage {
            network_memory_bytes: (pool.total() * pool.segment_bytes()) as u64,
            net: self.env.counters().into(),
            ..usage(cpu_ns_before)?
        })
    }

    /// Ends all of it and waits until it has ended.
    pub(crate) fn stop(self) {
        self.runtime.block_on(self.env.shutdown());
    }

    fn writer(&self, spec: &ExchangeSpec, writer: u32) -> Result<PartitionWriter, BenchError> {
        let pool = self.env.create_partition_pool(spec.channels).map_err(|error| self.memory_error(error))?;
        let partition = ResultPartition::new(partition_id(writer), pool, spec.channels);
        let timeout = spec.buffer_timeout();
        let flush = match timeout {
            None => FlushPolicy::WhenFull,
            Some(timeout) if timeout.is_zero() => FlushPolicy::EveryRecord,
            Some(_) => FlushPolicy::Timer,
        };
        let inlets = Inlets::new();
        self.env.register_partition(partition.handle(), timeout, &inlets);
        Ok(PartitionWriter::new(RecordWriter::new(partition, selector(spec), flush, spec.record_bytes), inlets))
    }

    fn memory_error(&self, error: NetError) -> BenchError {
        match error {
            NetError::Memory(source @ MemoryError::Insufficient { .. }) => {
                BenchError::Memory { source, segment_bytes: self.segment_bytes }
            }
            error => error.into(),
        }
    }
}

/// What this process used since the CPU clock showed `cpu_ns_before`.
pub(crate) fn usage(cpu_ns_before: u64) -> Result<Usage, BenchError> {
    Ok(Usage {
        cpu_ns: crate::clock::process_cpu_ns() - cpu_ns_before,
        peak_rss_bytes: peak_rss_bytes().map_err(BenchError::io("read /proc/self/status"))?,
        ..Usage::default()
    })
}

fn selector(spec: &ExchangeSpec) -> Selector {
    match spec.partitioner {
        Partitioner::Rr if spec.active_channels.is_some() => Selector::Custom,
        Partitioner::Rr => Selector::rebalance(0),
        Partitioner::Hash => Selector::key_group(flownet_core::keygroup::default_max_parallelism(spec.channels)),
        Partitioner::Broadcast => Selector::Broadcast,
        Partitioner::Skewed => Selector::Custom,
    }
}

fn all_channels(spec: &ExchangeSpec) -> u32 {
    // Checked when the settings were: far below 2^32.
    spec.writers * spec.channels
}

fn partition_id(writer: u32) -> PartitionId {
    PartitionId::new(u64::from(writer) + 1)
}

const SET_UP_INTERVAL: Duration = Duration::from_millis(1);
