//! What the exchange tests share: workers in one process that talk over real sockets on loopback.
//!
//! A test runs writers and readers on plain threads, as tasks are, and the network on tokio. It ends with
//! [`Worker::finish_and_assert_all_segments_home`]. Nothing here sleeps to wait for something: [`eventually`] polls a
//! condition and gives up after a time that only a hung test reaches.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use flownet_core::channel::{ChannelControl, RemoteChannel};
use flownet_core::gate::InputGate;
use flownet_core::partition::ResultPartition;
use flownet_core::record::writer::{FlushPolicy, RecordWriter};
use flownet_core::selector::Selector;
use flownet_core::{ChannelIndex, Event, ExchangeError, PartitionId, SubpartitionIndex};
use flownet_memory::{DEFAULT_SEGMENT_BYTES, KIB, SegmentPool};
use flownet_net::{Credentials, GateReader, Inlets, Input, NetworkConfig, NetworkEnvironment, PartitionWriter, Secret};

/// A worker process in miniature: segments and a network.
#[derive(Debug)]
pub struct Worker {
    /// Its network.
    pub env: NetworkEnvironment,
    /// Its segments.
    pub pool: Arc<SegmentPool>,
}

/// A subpartition somewhere, as a reader asks for it.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// The worker that has it.
    pub worker: SocketAddr,
    /// The partition.
    pub partition: PartitionId,
    /// Which part of it.
    pub subpartition: SubpartitionIndex,
}

/// The size of a worker.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Segments of its pool.
    pub segments: usize,
    /// Bytes of each.
    pub segment_bytes: usize,
}

impl Size {
    /// What a worker has where nobody asks for something else.
    pub const PRODUCT: Self =
        Self { segments: 64 * KIB * KIB / DEFAULT_SEGMENT_BYTES, segment_bytes: DEFAULT_SEGMENT_BYTES };
    /// So little that almost every record spans segments.
    pub const CRAMPED: Self = Self { segments: 64, segment_bytes: 128 };
}

impl Worker {
    /// A worker with the secret of all test jobs.
    pub async fn start(size: Size, config: NetworkConfig) -> Self {
        Self::start_with(size, config, job_secret()).await
    }

    /// A worker of another job, or of one with TLS.
    pub async fn start_with(size: Size, config: NetworkConfig, credentials: impl Into<Credentials>) -> Self {
        let pool = SegmentPool::new(size.segments, size.segment_bytes).expect("test sizes are sane");
        let env =
            NetworkEnvironment::bind(config, credentials, Arc::clone(&pool)).await.expect("loopback can be bound");
        Self { env, pool }
    }

    /// A registered partition and its writer.
    pub fn writer(&self, id: u64, subpartitions: u32, selector: Selector, flush: Flush) -> PartitionWriter {
        self.writer_and_handle(id, subpartitions, selector, flush).0
    }

    /// The same, and what others know of the partition.
    pub fn writer_and_handle(
        &self,
        id: u64,
        subpartitions: u32,
        selector: Selector,
        flush: Flush,
    ) -> (PartitionWriter, flownet_core::partition::PartitionHandle) {
        let pool = self.env.create_partition_pool(subpartitions).expect("test pools fit");
        let partition = ResultPartition::new(PartitionId::new(id), pool, subpartitions);
        let handle = partition.handle();
        let writer = RecordWriter::new(partition, selector, flush.policy(), MAX_RECORD_BYTES);
        let inlets = Inlets::new();
        self.env.register_partition(handle.clone(), flush.timeout(), &inlets);
        (PartitionWriter::new(writer, inlets), handle)
    }

    /// A subpartition of this worker.
    pub fn source(&self, partition: u64, subpartition: u32) -> Source {
        Source {
            worker: self.env.local_addr(),
            partition: PartitionId::new(partition),
            subpartition: SubpartitionIndex::new(subpartition),
        }
    }

    /// A gate that reads all of these over the network.
    pub fn reader(&self, sources: &[Source]) -> GateReader {
        self.reader_under(ChannelControl::Credit, sources)
    }

    /// The same under another control than credit, bounded as the settings say.
    pub fn reader_under(&self, control: ChannelControl, sources: &[Source]) -> GateReader {
        let channels = u32::try_from(sources.len()).expect("few channels");
        let pool = self.env.create_gate_pool(channels).expect("test pools fit");
        let gate = InputGate::new(channels);
        gate.set_bounds(self.env.config().receive_queue_limits(channels, self.pool.segment_bytes()));
        let inlets = Inlets::new();
        let reader = GateReader::new(Arc::clone(&gate), Arc::clone(&inlets), channels, MAX_RECORD_BYTES);
        let exclusive = self.env.config().exclusive_buffers;
        for (index, source) in (0..).map(ChannelIndex::new).zip(sources) {
            let (gate, pool) = (Arc::clone(&gate), Arc::clone(&pool));
            let channel = RemoteChannel::with_control(gate, index, pool, exclusive, control);
            self.env.open_channel(source.worker, source.partition, source.subpartition, channel, &inlets);
        }
        reader
    }

    /// Ends the network, then checks that every segment came home.
    pub async fn finish_and_assert_all_segments_home(self) {
        self.env.shutdown().await;
        assert_eq!(self.pool.available(), self.pool.total(), "every segment is home");
        assert_eq!(self.pool.guaranteed(), 0, "every pool is destroyed");
    }
}

/// When a writer's records become visible.
#[derive(Clone, Copy, Debug)]
pub enum Flush {
    /// After each.
    EveryRecord,
    /// By the flusher.
    Within(Duration),
    /// When a buffer is full.
    WhenFull,
}

impl Flush {
    fn policy(self) -> FlushPolicy {
        match self {
            Self::EveryRecord => FlushPolicy::EveryRecord,
            Self::Within(_) => FlushPolicy::Timer,
            Self::WhenFull => FlushPolicy::WhenFull,
        }
    }

    fn timeout(self) -> Option<Duration> {
        match self {
            Self::EveryRecord => Some(Duration::ZERO),
            Self::Within(timeout) => Some(timeout),
            Self::WhenFull => None,
        }
    }
}

/// The secret of all workers that are not meant to differ.
pub fn job_secret() -> Secret {
    Secret::from_bytes([42; 32])
}

/// Runs `work` on a plain thread, as a task does.
pub fn on_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    thread::spawn(work)
}

/// Waits for a thread without holding up the runtime, and passes its panic on.
pub async fn join<T: Send + 'static>(thread: JoinHandle<T>) -> T {
    let joined = tokio::task::spawn_blocking(move || thread.join()).await.expect("the runtime lives");
    joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Reads a gate to its end: the records of each channel, in order.
pub fn read_all(mut reader: GateReader, channels: usize) -> Result<Vec<Vec<Vec<u8>>>, ExchangeError> {
    let mut records = vec![Vec::new(); channels];
    let mut ended = 0;
    loop {
        match reader.next(|channel, record| records[channel.index()].push(record.to_vec()))? {
            Input::Event(_, Event::EndOfPartition) => ended += 1,
            Input::Records | Input::Event(..) => {}
            Input::End => {
                assert_eq!(ended, channels, "each channel ends once");
                return Ok(records);
            }
        }
    }
}

/// Waits until `condition` holds.
///
/// # Panics
/// If it does not within a time that only a hung test reaches.
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + HUNG;
    while !condition() {
        assert!(tokio::time::Instant::now() < deadline, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Deterministic noise: the same seed gives the same test.
#[derive(Clone, Debug)]
pub struct Noise(u64);

impl Noise {
    /// Noise from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        // xorshift64: plenty for record sizes.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap_or(0) % bound.max(1)
    }

    /// A record of up to `max_bytes`.
    pub fn record(&mut self, max_bytes: usize) -> Vec<u8> {
        let len = self.below(max_bytes + 1);
        (0..len).map(|_| u8::try_from(self.below(256)).unwrap_or(0)).collect()
    }
}

/// Larger than any record a test writes.
pub const MAX_RECORD_BYTES: usize = 1 << 20;

const HUNG: Duration = Duration::from_secs(30);
