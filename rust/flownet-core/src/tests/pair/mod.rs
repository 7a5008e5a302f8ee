//! A producer worker and a consumer worker with pools of their own, joined by wires on virtual time.
//!
//! Every written byte has a value computed from its channel and its position. Every event is recorded when it is
//! emitted. Each read thus checks loss, duplication and order by itself. Each read also checks that a task which slept
//! was woken before it finds an element. Rigs end with [`Pair::finish_and_assert_all_segments_home`]. If the exchange
//! failed on purpose, they end with [`Pair::assert_all_segments_home`].

mod drive;
mod ledger;
mod wire;

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Poll, Waker};

use flownet_memory::{Buffer, BufferPool, BufferPoolSettings, MemoryError, SegmentPool};

use self::drive::Receiver;
use self::ledger::{EmittedRecord, byte_of};
use self::wire::{Random, Wire};
use super::CountingWaker;
use crate::channel::{ChannelControl, RemoteChannel};
use crate::credit::Backlog;
use crate::error::ExchangeError;
use crate::event::{Barrier, BarrierKind, Event};
use crate::exchange::consumer::ConsumerConnection;
use crate::exchange::outbox::Outbox;
use crate::exchange::producer::{PartitionLookup, ProducerConnection, ProducerSettings, Watermarks};
use crate::exchange::ready::ReadyList;
use crate::gate::InputGate;
use crate::ids::{ChannelId, ChannelIndex, CheckpointId, PartitionId, SubpartitionIndex};
use crate::partition::{PartitionHandle, ResultPartition};
use crate::sizing::PoolSizing;
use crate::subpartition::Element;
use crate::wire::DataHeader;

pub(crate) const SEGMENT_BYTES: usize = 32;
pub(crate) const PARTITION: PartitionId = PartitionId::new(7);
pub(crate) const PEER: &str = "producer:1";

/// Parameters of a pair. The defaults are the product's, with small segments.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) segment_bytes: usize,
    pub(crate) channels: u32,
    pub(crate) exclusive: u32,
    pub(crate) control: ChannelControl,
    pub(crate) floating: u32,
    /// Segments of the partition; `None`: the product's.
    pub(crate) partition_segments: Option<usize>,
    /// Segments that the partition may take beyond these.
    pub(crate) overdraft: u32,
    /// Segments of the producing and of the consuming worker, whatever the pools request; `None`: as many as they
    /// request.
    pub(crate) memory: Option<(usize, usize)>,
    pub(crate) latency_ms: u64,
    /// Cuts reads and writes at random places; `None`: not cut.
    pub(crate) seed: Option<u64>,
    pub(crate) checksums: bool,
    /// Channels that read the partition directly.
    pub(crate) local: fn(u32) -> bool,
    pub(crate) registered: bool,
    /// All channels get the same bytes.
    pub(crate) is_broadcast: bool,
    pub(crate) max_buffers_per_turn: usize,
}

impl Default for Setup {
    fn default() -> Self {
        let PoolSizing { exclusive_buffers: exclusive, floating_buffers: floating, .. } = PoolSizing::default();
        Self {
            segment_bytes: SEGMENT_BYTES,
            channels: 1,
            exclusive,
            control: ChannelControl::Credit,
            floating,
            partition_segments: None,
            overdraft: PoolSizing::default().max_overdraft_buffers,
            memory: None,
            latency_ms: 1,
            seed: None,
            checksums: false,
            local: |_| false,
            registered: true,
            is_broadcast: false,
            max_buffers_per_turn: 16,
        }
    }
}

pub(crate) struct Pair {
    pub(crate) now_ms: u64,
    pub(crate) setup: Setup,
    producer_segments: Arc<SegmentPool>,
    consumer_segments: Arc<SegmentPool>,
    pub(crate) partition: Option<ResultPartition>,
    pub(crate) handle: PartitionHandle,
    pub(crate) registry: Registry,
    pub(crate) gate: Option<Arc<InputGate>>,
    pub(crate) gate_pool: Arc<BufferPool>,
    pub(crate) channels: HashMap<ChannelIndex, (ChannelId, Arc<RemoteChannel>)>,
    pub(crate) producer: Option<ProducerConnection>,
    pub(crate) producer_ready: Arc<ReadyList>,
    pub(crate) outbox: Outbox,
    /// The socket accepts no bytes.
    pub(crate) is_unwritable: bool,
    pub(crate) consumer: Option<ConsumerConnection>,
    consumer_ready: Arc<ReadyList>,
    receiver: Receiver,
    pub(crate) to_consumer: Wire,
    pub(crate) to_producer: Wire,
    /// Announcements of the consumer, in the order in which the producer decoded them.
    pub(crate) credit_frames: Vec<Vec<(ChannelId, u32)>>,
    pub(crate) backlog_frames: Vec<(ChannelId, u32)>,
    pub(crate) cancel_frames: Vec<ChannelId>,
    pub(crate) data_headers: Vec<DataHeader>,
    random: Random,
    emitted: Vec<EmittedRecord>,
    held: Vec<Buffer>,
    had_barrier: bool,
    pub(crate) blocked: Vec<ChannelIndex>,
    /// Channels in the order in which their buffers were read.
    pub(crate) read_order: Vec<ChannelIndex>,
    task_waker: Waker,
    task_wakes: Arc<CountingWaker>,
    slept_at: Option<usize>,
}

#[derive(Default)]
pub(crate) struct Registry(RefCell<HashMap<PartitionId, PartitionHandle>>);

impl Registry {
    pub(crate) fn register(&self, handle: PartitionHandle) {
        self.0.borrow_mut().insert(handle.id(), handle);
    }
}

impl PartitionLookup for Registry {
    fn find(&self, partition: PartitionId) -> Option<PartitionHandle> {
        self.0.borrow().get(&partition).cloned()
    }
}

impl Pair {
    pub(crate) fn new(setup: Setup) -> Self {
        let product = PoolSizing { max_overdraft_buffers: setup.overdraft, ..PoolSizing::default() };
        let mut output = product.partition(setup.channels);
        if let (None, Some(segments)) = (setup.memory, setup.partition_segments) {
            (output.min, output.max) = (segments, Some(segments));
        }
        let &Setup { exclusive: exclusive_buffers, floating: floating_buffers, .. } = &setup;
        let input = PoolSizing { exclusive_buffers, floating_buffers, ..product }.gate(setup.channels);
        // Enough for both pools and all overdraft.
        let enough = |pool: &BufferPoolSettings| pool.max.expect("pools of tasks are bounded") + pool.max_overdraft;
        let (producer_memory, consumer_memory) = setup.memory.unwrap_or((enough(&output), enough(&input)));
        let producer_segments = SegmentPool::new(producer_memory, setup.segment_bytes).unwrap();
        let pool = producer_segments.create_buffer_pool(output);
        let partition = ResultPartition::new(PARTITION, pool.unwrap(), setup.channels);
        let consumer_segments = SegmentPool::new(consumer_memory, setup.segment_bytes).unwrap();
        let gate_pool = consumer_segments.create_buffer_pool(input);
        let (producer_ready, consumer_ready) = (ReadyList::new(), ReadyList::new());
        let watermarks = Watermarks::for_segments(setup.segment_bytes);
        let settings = ProducerSettings { checksums: setup.checksums, watermarks, ..ProducerSettings::default() };
        let (task_waker, task_wakes) = CountingWaker::new();
        let mut pair = Self {
            now_ms: 0,
            producer_segments,
            consumer_segments,
            handle: partition.handle(),
            partition: Some(partition),
            registry: Registry::default(),
            gate: Some(InputGate::new(setup.channels)),
            gate_pool: gate_pool.unwrap(),
            channels: HashMap::new(),
            producer: Some(ProducerConnection::new(Arc::clone(&producer_ready), settings)),
            producer_ready,
            outbox: Outbox::new(),
            is_unwritable: false,
            consumer: Some(ConsumerConnection::new(PEER, Arc::clone(&consumer_ready))),
            consumer_ready,
            receiver: Receiver::default(),
            to_consumer: Wire::default(),
            to_producer: Wire::default(),
            credit_frames: Vec::new(),
            backlog_frames: Vec::new(),
            cancel_frames: Vec::new(),
            data_headers: Vec::new(),
            random: Random(setup.seed.unwrap_or(0)),
            emitted: (0..setup.channels).map(|_| EmittedRecord::default()).collect(),
            held: Vec::new(),
            had_barrier: false,
            blocked: Vec::new(),
            read_order: Vec::new(),
            task_waker,
            task_wakes,
            slept_at: None,
            setup,
        };
        if pair.setup.registered {
            pair.registry.register(pair.handle.clone());
        }
        (0..pair.setup.channels).for_each(|channel| pair.connect(channel));
        pair
    }

    pub(crate) fn with_exclusive_buffers(exclusive: u32) -> Self {
        Self::new(Setup { exclusive, floating: 0, ..Setup::default() })
    }

    fn connect(&mut self, channel: u32) {
        let (index, subpartition) = (ChannelIndex::new(channel), SubpartitionIndex::new(channel));
        if (self.setup.local)(channel) {
            self.gate().set_local(index, Arc::clone(self.handle.subpartition(subpartition).unwrap()));
            return;
        }
        let (pool, &Setup { exclusive, control, .. }) = (Arc::clone(&self.gate_pool), &self.setup);
        let remote = RemoteChannel::with_control(Arc::clone(self.gate()), index, pool, exclusive, control);
        let id = self.consumer.as_mut().unwrap().open(Arc::clone(&remote), PARTITION, subpartition);
        self.channels.insert(index, (id, remote));
    }

    pub(crate) fn gate(&self) -> &Arc<InputGate> {
        self.gate.as_ref().unwrap()
    }

    pub(crate) fn remote(&self, channel: u32) -> &Arc<RemoteChannel> {
        &self.channels[&ChannelIndex::new(channel)].1
    }

    pub(crate) fn id(&self, channel: u32) -> ChannelId {
        self.channels[&ChannelIndex::new(channel)].0
    }

    /// Creates a pool of another job on the consuming worker.
    pub(crate) fn late_gate_pool(&self, min: usize) -> Result<Arc<BufferPool>, MemoryError> {
        let settings = BufferPoolSettings { min, max: Some(min), ..PoolSizing::default().gate(1) };
        self.consumer_segments.create_buffer_pool(settings)
    }

    // Writing.

    /// Writes up to `bytes` bytes as one record. Returns how many found room.
    pub(crate) fn emit_bytes(&mut self, channel: u32, bytes: usize) -> usize {
        let emitted = &mut self.emitted[channel as usize];
        let key = if self.setup.is_broadcast { 0 } else { channel };
        let data: Vec<u8> = (0..bytes as u64).map(|at| byte_of(key, emitted.written + at)).collect();
        let Some(partition) = &mut self.partition else { return 0 };
        let taken = partition.try_write(SubpartitionIndex::new(channel), &data);
        partition.end_record(SubpartitionIndex::new(channel));
        emitted.note(taken);
        taken
    }

    /// Writes `buffers` full buffers.
    pub(crate) fn emit_buffers(&mut self, channel: u32, buffers: usize) {
        let taken = self.emit_bytes(channel, buffers * SEGMENT_BYTES);
        assert_eq!(taken, buffers * SEGMENT_BYTES, "the partition has room for {buffers} buffers");
    }

    /// Writes the same bytes to all channels of a rig that `is_broadcast`.
    pub(crate) fn broadcast_bytes(&mut self, bytes: usize) -> usize {
        let written = self.emitted[0].written;
        assert!(self.setup.is_broadcast && self.emitted.iter().all(|emitted| emitted.written == written));
        let data: Vec<u8> = (0..bytes as u64).map(|at| byte_of(0, written + at)).collect();
        let partition = self.partition.as_mut().unwrap();
        let taken = partition.try_broadcast_write(&data);
        partition.end_broadcast_record();
        self.emitted.iter_mut().for_each(|emitted| emitted.note(taken));
        taken
    }

    pub(crate) fn emit_event(&mut self, channel: u32, event: Event) {
        self.try_emit_event(channel, event).unwrap();
    }

    pub(crate) fn try_emit_event(&mut self, channel: u32, event: Event) -> Result<(), ExchangeError> {
        self.had_barrier |= event.is_blocking();
        if let Some(partition) = &mut self.partition {
            partition.emit_event(SubpartitionIndex::new(channel), &event)?;
            self.emitted[channel as usize].note_event(event);
        }
        Ok(())
    }

    pub(crate) fn broadcast_event(&mut self, event: Event) {
        self.had_barrier |= event.is_blocking();
        if let Some(partition) = &mut self.partition {
            partition.broadcast_event(&event).unwrap();
            self.emitted.iter_mut().for_each(|emitted| emitted.note_event(event.clone()));
        }
    }

    pub(crate) fn flush(&mut self, channel: u32) {
        if let Some(partition) = &mut self.partition {
            partition.flush(SubpartitionIndex::new(channel));
        }
    }

    /// Ends and drops the partition, as a task does.
    pub(crate) fn finish_producer(&mut self) {
        if let Some(mut partition) = self.partition.take() {
            partition.finish(true);
            for emitted in &mut self.emitted {
                emitted.note_event(Event::EndOfData { drain: true });
                emitted.note_event(Event::EndOfPartition);
            }
        }
    }

    // Reading.

    /// Reads up to `elements` elements and drops their buffers. Returns their number.
    pub(crate) fn read(&mut self, elements: usize) -> usize {
        let read = self.hold(elements);
        self.drop_held();
        read
    }

    /// Reads up to `elements` elements and holds their buffers, as a slow task does.
    pub(crate) fn hold(&mut self, elements: usize) -> usize {
        let mut read = 0;
        while read < elements && self.read_one().expect("the gate did not fail") {
            read += 1;
        }
        read
    }

    pub(crate) fn drop_held(&mut self) {
        self.held.clear();
    }

    /// Drops the oldest of the held buffers, as a task does after processing them.
    pub(crate) fn drop_all_held_but(&mut self, kept: usize) {
        self.held.drain(..self.held.len() - kept);
    }

    pub(crate) fn try_read(&mut self) -> Result<bool, ExchangeError> {
        self.read_one()
    }

    fn read_one(&mut self) -> Result<bool, ExchangeError> {
        let gate = Arc::clone(self.gate());
        let polled = gate.poll_next(&self.task_waker);
        if let Some(wakes) = self.slept_at
            && polled.is_ready()
        {
            assert!(self.task_wakes.count() > wakes, "a task that sleeps is woken before it finds something");
        }
        self.slept_at = polled.is_pending().then(|| self.task_wakes.count());
        match polled {
            Poll::Pending | Poll::Ready(Ok(None)) => Ok(false),
            Poll::Ready(Ok(Some((channel, element)))) => {
                self.check(channel, element);
                Ok(true)
            }
            Poll::Ready(Err(error)) => Err(error),
        }
    }

    fn check(&mut self, channel: ChannelIndex, element: Element) {
        let emitted = &mut self.emitted[channel.index()];
        match element {
            Element::Data(buffer) => {
                assert!(!self.blocked.contains(&channel), "a blocked channel yields nothing");
                let key = if self.setup.is_broadcast { 0 } else { channel.get() };
                emitted.check_data(key, &buffer);
                self.read_order.push(channel);
                self.held.push(buffer);
            }
            Element::Event(event) => {
                emitted.check_event(&event);
                if event.is_blocking() {
                    self.blocked.push(channel);
                }
            }
        }
    }

    pub(crate) fn resume_all(&mut self) {
        for channel in std::mem::take(&mut self.blocked) {
            self.gate().resume(channel).unwrap();
        }
    }

    /// For exchanges that fail: blocked channels may be gone.
    pub(crate) fn resume_blocked_if_possible(&mut self) {
        for channel in std::mem::take(&mut self.blocked) {
            let _ = self.gate().resume(channel);
        }
    }

    /// Bytes written and not read yet.
    pub(crate) fn unread_bytes(&self, channel: u32) -> u64 {
        self.emitted[channel as usize].written - self.emitted[channel as usize].read
    }

    // Observation.

    pub(crate) fn consumer_queue(&self) -> usize {
        self.gate().queued_buffers()
    }

    pub(crate) fn backlog(&self, channel: u32) -> Backlog {
        self.handle.subpartition(SubpartitionIndex::new(channel)).unwrap().backlog()
    }

    pub(crate) fn sender_credit(&self, channel: u32) -> u32 {
        let id = self.id(channel);
        self.producer.as_ref().and_then(|producer| producer.credit(id)).map_or(0, |credit| credit.get())
    }

    // End.

    /// Ends the stream, reads all of it, checks that no data is missing, and counts segments.
    pub(crate) fn finish_and_assert_all_segments_home(mut self) {
        self.finish_producer();
        self.drop_held();
        self.is_unwritable = false;
        for _ in 0..10_000 {
            self.run_until_idle();
            let read = self.read(usize::MAX);
            if read == 0 && self.blocked.is_empty() {
                break;
            }
            self.resume_all();
        }
        for (channel, emitted) in self.emitted.iter().enumerate() {
            assert!(emitted.is_settled(), "channel {channel} misses elements");
        }
        assert!(self.gate().is_finished(), "every channel came to its end");
        assert!(self.handle.is_consumed());
        let kept = self.producer.as_ref().map_or(0, ProducerConnection::open_channels);
        assert_eq!(kept, 0, "the producer's end keeps nothing of channels that ended");
        let kept = self.consumer.as_ref().map_or(0, ConsumerConnection::open_channels);
        assert_eq!(kept, 0, "nor does the consumer's");
        self.assert_all_segments_home();
    }

    /// Drops everything and counts segments.
    pub(crate) fn assert_all_segments_home(mut self) {
        self.held.clear();
        self.partition = None;
        self.gate = None;
        let channels = std::mem::take(&mut self.channels);
        self.outbox.clear();
        self.receiver = Receiver::default();
        self.producer = None;
        self.consumer = None;
        for (channel, (_, remote)) in &channels {
            assert_eq!(remote.owned_segments(), 0, "what {channel:?} had it has not any more");
        }
        drop(channels);
        assert_eq!(self.gate_pool.in_use(), 0, "no channel holds a segment");
        self.gate_pool.destroy();
        assert_eq!(self.producer_segments.available(), self.producer_segments.total(), "producer's segments home");
        assert_eq!(self.consumer_segments.available(), self.consumer_segments.total(), "consumer's segments home");
    }
}

pub(crate) fn barrier(checkpoint: u64, kind: BarrierKind) -> Event {
    Event::Barrier(Barrier { checkpoint_id: CheckpointId::new(checkpoint), timestamp_ms: 0, kind })
}

pub(crate) fn watermark(timestamp_ms: i64) -> Event {
    Event::Watermark { timestamp_ms }
}
