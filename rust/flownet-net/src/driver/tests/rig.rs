//! Test rig of a producer and a consumer driver, connected by a pipe of any width. Writers and readers wait as futures.

use std::cell::RefCell;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use flownet_core::channel::{ChannelControl, RemoteChannel};
use flownet_core::gate::InputGate;
use flownet_core::partition::ResultPartition;
use flownet_core::record::reader::RecordReader;
use flownet_core::record::writer::{Emit, FlushPolicy, RecordWriter};
use flownet_core::subpartition::Element;
use flownet_core::{ChannelIndex, ExchangeError, PartitionId, Selector, SubpartitionIndex, Target};
use flownet_memory::SegmentPool;
use tokio::sync::mpsc;

use super::pipe::{Kind, PipeEnd, pipe};
use crate::dialer::{OpenRequest, Requests};
use crate::driver::End;
use crate::driver::consumer::ConsumerDriver;
use crate::driver::producer::ProducerDriver;
use crate::environment::EnvironmentShared;
use crate::{Inlets, NetworkConfig, NetworkEnvironment, Secret};

/// Partition that writers write and readers request.
pub(super) const PARTITION: u64 = 7;

const SEGMENTS: usize = 64;
pub(super) const SEGMENT_BYTES: usize = 64;
const MAX_RECORD_BYTES: usize = 1 << 20;

/// Rig whose ends run only inside [`Rig::drive`], on the test's own task.
pub(super) struct Rig {
    env: NetworkEnvironment,
    segments: Arc<SegmentPool>,
    producer: RefCell<Half>,
    consumer: RefCell<Half>,
    requests: mpsc::UnboundedSender<OpenRequest>,
    peer: SocketAddr,
    peer_name: String,
}

/// State of one driver: running, ended (and how), or removed by the test.
enum Half {
    Running(Pin<Box<dyn Future<Output = End>>>),
    Ended(End),
    Gone,
}

impl Rig {
    pub(super) async fn new(pipe_bytes: usize) -> Self {
        Self::with_segments(pipe_bytes, SEGMENT_BYTES).await
    }

    pub(super) async fn with_segments(pipe_bytes: usize, segment_bytes: usize) -> Self {
        Self::with_links(Kind::Plain, pipe_bytes, segment_bytes).await
    }

    /// Creates a rig with links of this kind at both ends.
    pub(super) async fn with_links(kind: Kind, pipe_bytes: usize, segment_bytes: usize) -> Self {
        let segments = SegmentPool::new(SEGMENTS, segment_bytes).unwrap();
        let secret = Secret::from_bytes([1; 32]);
        let env = NetworkEnvironment::bind(NetworkConfig::default(), secret, Arc::clone(&segments)).await.unwrap();
        let peer: SocketAddr = "192.0.2.1:7".parse().unwrap();
        let (producer_end, consumer_end) = pipe(kind, pipe_bytes);
        let (requests, receiver) = Requests::unlisted(Arc::clone(env.shared()), peer);
        let producer = Half::Running(Box::pin(produce(Arc::clone(env.shared()), producer_end)));
        let consumer = Half::Running(Box::pin(consume(Arc::clone(env.shared()), consumer_end, receiver)));
        Self {
            env,
            segments,
            producer: RefCell::new(producer),
            consumer: RefCell::new(consumer),
            requests,
            peer,
            peer_name: peer.to_string(),
        }
    }

    pub(super) fn peer(&self) -> &str {
        &self.peer_name
    }

    pub(super) fn writer(&self, subpartitions: u32) -> Writer {
        let pool = self.env.create_partition_pool(subpartitions).unwrap();
        let partition = ResultPartition::new(PartitionId::new(PARTITION), pool, subpartitions);
        self.env.register_partition(partition.handle(), None, &Inlets::new());
        let selector = if subpartitions == 1 { Selector::Forward } else { Selector::Custom };
        Writer(RecordWriter::new(partition, selector, FlushPolicy::WhenFull, MAX_RECORD_BYTES))
    }

    pub(super) fn open(&self, subpartition: u32) -> Reader {
        self.open_under(ChannelControl::Credit, subpartition)
    }

    pub(super) fn open_under(&self, control: ChannelControl, subpartition: u32) -> Reader {
        self.open_channel(control, PARTITION, subpartition)
    }

    pub(super) fn open_partition(&self, partition: u64, subpartition: u32) -> Reader {
        self.open_channel(ChannelControl::Credit, partition, subpartition)
    }

    fn open_channel(&self, control: ChannelControl, partition: u64, subpartition: u32) -> Reader {
        let gate = InputGate::new(1);
        let pool = self.env.create_gate_pool(1).unwrap();
        let channel = RemoteChannel::with_control(Arc::clone(&gate), ChannelIndex::new(0), pool, 2, control);
        let (partition, subpartition) = (PartitionId::new(partition), SubpartitionIndex::new(subpartition));
        assert!(self.requests.send(OpenRequest { partition, subpartition, channel, inlets: Weak::new() }).is_ok());
        Reader { gate, records: RecordReader::new(MAX_RECORD_BYTES) }
    }

    /// Runs `test` together with the drivers.
    pub(super) async fn drive<T>(&self, test: impl Future<Output = T>) -> T {
        let mut test = std::pin::pin!(test);
        poll_fn(|cx| {
            self.producer.borrow_mut().poll(cx);
            self.consumer.borrow_mut().poll(cx);
            test.as_mut().poll(cx)
        })
        .await
    }

    /// Runs the drivers until the producer's end has ended.
    pub(super) async fn drive_to_end(&self) {
        let has_ended = || matches!(*self.producer.borrow(), Half::Ended(_));
        self.drive(poll_fn(|_| if has_ended() { Poll::Ready(()) } else { Poll::Pending })).await;
    }

    pub(super) fn drop_consumer(&mut self) {
        *self.consumer.get_mut() = Half::Gone;
    }

    pub(super) fn drop_producer(&mut self) {
        *self.producer.get_mut() = Half::Gone;
    }

    /// Returns how the producer's end ended, if it did.
    pub(super) fn producer_end(&mut self) -> Option<&End> {
        match self.producer.get_mut() {
            Half::Ended(end) => Some(end),
            Half::Running(_) | Half::Gone => None,
        }
    }

    /// Replaces the producer with the test itself.
    pub(super) fn take_raw_producer_end(&mut self) -> PipeEnd {
        self.take_raw_producer_end_of(Kind::Plain)
    }

    pub(super) fn take_raw_producer_end_of(&mut self, kind: Kind) -> PipeEnd {
        self.replace_producer(pipe(kind, 1 << 16))
    }

    /// Replaces the producer, with a pipe of this width.
    pub(super) fn take_raw_producer_end_through(&mut self, pipe_bytes: usize) -> PipeEnd {
        self.replace_producer(pipe(Kind::Plain, pipe_bytes))
    }

    fn replace_producer(&mut self, (ours, theirs): (PipeEnd, PipeEnd)) -> PipeEnd {
        let (requests, receiver) = Requests::unlisted(Arc::clone(self.env.shared()), self.peer);
        self.requests = requests;
        *self.producer.get_mut() = Half::Gone;
        *self.consumer.get_mut() = Half::Running(Box::pin(consume(Arc::clone(self.env.shared()), theirs, receiver)));
        ours
    }

    /// Replaces the consumer with the test itself.
    pub(super) fn take_raw_consumer_end(&mut self) -> PipeEnd {
        let (ours, theirs) = pipe(Kind::Plain, 256);
        *self.consumer.get_mut() = Half::Gone;
        *self.producer.get_mut() = Half::Running(Box::pin(produce(Arc::clone(self.env.shared()), theirs)));
        ours
    }

    pub(super) async fn finish_and_assert_all_segments_home(self) {
        drop((self.producer, self.consumer, self.requests));
        self.env.shutdown().await;
        assert_eq!(self.segments.available(), SEGMENTS, "every segment is home");
        assert_eq!(self.segments.guaranteed(), 0, "every pool is destroyed");
    }
}

impl Half {
    fn poll(&mut self, cx: &mut Context<'_>) {
        if let Self::Running(driver) = self
            && let Poll::Ready(end) = driver.as_mut().poll(cx)
        {
            *self = Self::Ended(end);
        }
    }
}

async fn produce(shared: Arc<EnvironmentShared>, link: PipeEnd) -> End {
    ProducerDriver::new(link, shared).run().await
}

async fn consume(shared: Arc<EnvironmentShared>, link: PipeEnd, requests: Requests) -> End {
    let mut driver = ConsumerDriver::new(link, requests, &shared);
    let end = driver.run().await;
    driver.fail_because(&end);
    end
}

/// Output of a task.
pub(super) struct Writer(RecordWriter);

impl Writer {
    pub(super) async fn emit(&mut self, target: Target, record: &[u8]) {
        let mut emit = self.0.try_emit(target, record).unwrap();
        while emit == Emit::Blocked {
            poll_fn(|cx| self.0.poll_ready(cx.waker())).await.unwrap();
            emit = self.0.resume().unwrap();
        }
    }

    pub(super) async fn emit_all(mut self, records: &[Vec<u8>]) {
        for record in records {
            self.emit(Target::Any, record).await;
        }
        self.finish();
    }

    pub(super) fn flush(&mut self) {
        self.0.flush_all();
    }

    pub(super) fn finish(&mut self) {
        self.0.finish(true).unwrap();
    }
}

/// Input of a task, with one channel.
pub(super) struct Reader {
    gate: Arc<InputGate>,
    records: RecordReader,
}

impl Reader {
    pub(super) async fn next(&mut self) -> Result<Option<Element>, ExchangeError> {
        let next = poll_fn(|cx| self.gate.poll_next(cx.waker())).await?;
        Ok(next.map(|(_, element)| element))
    }

    pub(super) async fn read_all(mut self) -> Result<Vec<Vec<u8>>, ExchangeError> {
        let mut read = Vec::new();
        while let Some(element) = self.next().await? {
            if let Element::Data(buffer) = element {
                self.records.push(buffer);
                while let Some(record) = self.records.next_record()? {
                    read.push(record.to_vec());
                }
            }
        }
        Ok(read)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.gate.close();
    }
}

/// Returns records of all lengths from zero to more than a segment. Each contains its number.
pub(super) fn numbered(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| vec![u8::try_from(number % 251).unwrap(); number % 90]).collect()
}
