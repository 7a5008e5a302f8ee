//! The two connection machines, without a socket: a buffer goes over, its credit comes back.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;
use std::task::{Poll, Waker};

use criterion::{Criterion, Throughput};
use flownet_benches::{PARTITION, new_partition, new_pool};
use flownet_core::channel::RemoteChannel;
use flownet_core::exchange::consumer::{ConsumerConnection, PayloadSlot};
use flownet_core::exchange::outbox::Outbox;
use flownet_core::exchange::producer::{PartitionLookup, ProducerConnection, ProducerSettings};
use flownet_core::exchange::ready::ReadyList;
use flownet_core::gate::InputGate;
use flownet_core::partition::{PartitionHandle, ResultPartition};
use flownet_core::wire::{DecodeResult, WireLimits, decode};
use flownet_core::{ChannelId, ChannelIndex, Credit, PartitionId, SubpartitionIndex};

/// The partition that the consumer asks for.
struct Only(PartitionHandle);

impl PartitionLookup for Only {
    fn find(&self, _partition: PartitionId) -> Option<PartitionHandle> {
        Some(self.0.clone())
    }
}

/// Both ends of a connection in one thread, joined by vectors instead of a socket.
struct Pair {
    partition: ResultPartition,
    producer: ProducerConnection,
    producer_ready: Arc<ReadyList>,
    lookup: Only,
    consumer: ConsumerConnection,
    consumer_ready: Arc<ReadyList>,
    gate: Arc<InputGate>,
    outbox: Outbox,
    /// On the wire to the consumer, and back.
    forth: Vec<u8>,
    back: Vec<u8>,
    drained: Vec<ChannelId>,
}

impl Pair {
    fn new(channels: u32) -> Self {
        let partition = new_partition(channels, channels as usize * 2 + 8);
        let (producer_ready, consumer_ready) = (ReadyList::new(), ReadyList::new());
        let gate = InputGate::new(channels);
        let pool = new_pool(channels as usize * EXCLUSIVE as usize + 8, 1);
        let mut consumer = ConsumerConnection::new("bench", Arc::clone(&consumer_ready));
        for index in 0..channels {
            let channel = RemoteChannel::new(Arc::clone(&gate), ChannelIndex::new(index), Arc::clone(&pool), EXCLUSIVE);
            consumer.open(channel, PARTITION, SubpartitionIndex::new(index));
        }
        let mut pair = Self {
            lookup: Only(partition.handle()),
            partition,
            producer: ProducerConnection::new(Arc::clone(&producer_ready), ProducerSettings::default()),
            producer_ready,
            consumer,
            consumer_ready,
            gate,
            outbox: Outbox::new(),
            forth: Vec::new(),
            back: Vec::new(),
            drained: Vec::new(),
        };
        pair.exchange();
        pair
    }

    /// One small buffer to each channel, all the way, and all credit back. Returns the buffers that arrived.
    fn round(&mut self, channels: u32) -> usize {
        for index in (0..channels).map(SubpartitionIndex::new) {
            self.partition.try_write(index, &[7; 600]);
            self.partition.end_record(index);
            self.partition.flush(index);
        }
        self.exchange();
        let mut arrived = Vec::new();
        while let Poll::Ready(Ok(1..)) = self.gate.poll_batch(64, &mut arrived, Waker::noop()) {}
        let buffers = arrived.len();
        drop(arrived);
        self.exchange();
        buffers
    }

    /// Moves bytes until neither side has any.
    fn exchange(&mut self) {
        loop {
            self.producer_ready.drain(&mut self.drained);
            self.drained.drain(..).for_each(|channel| self.producer.on_ready(channel));
            while self.producer.poll_transmit(&mut self.outbox, 32) {}
            self.write();
            self.deliver();
            self.consumer_ready.drain(&mut self.drained);
            self.drained.drain(..).for_each(|channel| self.consumer.on_ready(channel));
            if !self.consumer.poll_transmit(&mut self.back) && self.back.is_empty() {
                return;
            }
            self.answer();
        }
    }

    /// What a socket would take.
    fn write(&mut self) {
        while !self.outbox.is_empty() {
            let mut slices = [IoSlice::new(&[]); 64];
            let filled = self.outbox.io_slices(&mut slices);
            let mut written = 0;
            for slice in &slices[..filled] {
                self.forth.extend_from_slice(slice);
                written += slice.len();
            }
            self.outbox.advance(written);
        }
    }

    fn deliver(&mut self) {
        let mut rest = self.forth.as_slice();
        loop {
            match decode(rest, &LIMITS).expect("our own frames") {
                DecodeResult::More { .. } => break,
                DecodeResult::Data { header, consumed } => {
                    rest = &rest[consumed..];
                    let bytes = header.payload_bytes as usize;
                    if let PayloadSlot::Segment(mut slot) =
                        self.consumer.handle_header(header, Waker::noop()).expect("in order")
                    {
                        slot.as_mut_slice().copy_from_slice(&rest[..bytes]);
                        self.consumer.handle_payload(slot).expect("in order");
                    }
                    rest = &rest[bytes..];
                }
                DecodeResult::Control { frame, consumed } => {
                    self.consumer.handle_frame(frame).expect("our own frames");
                    rest = &rest[consumed..];
                }
            }
        }
        self.forth.clear();
    }

    fn answer(&mut self) {
        let mut rest = self.back.as_slice();
        while let DecodeResult::Control { frame, consumed } = decode(rest, &LIMITS).expect("our own frames") {
            self.producer.handle_frame(frame, &self.lookup).expect("in order");
            rest = &rest[consumed..];
        }
        self.back.clear();
    }
}

/// A small buffer to each channel and its credit back.
pub(crate) fn round_trip(c: &mut Criterion) {
    let mut group = c.benchmark_group("credit_machines");
    for channels in [1, 100, 1000] {
        let mut pair = Pair::new(channels);
        group.throughput(Throughput::Elements(channels.into()));
        group.bench_function(format!("buffer_and_credit/channels={channels}"), |b| {
            b.iter(|| assert_eq!(pair.round(channels), channels as usize));
        });
    }
    group.finish();
}

/// The arithmetic of credit alone.
pub(crate) fn announce(c: &mut Criterion) {
    let mut group = c.benchmark_group("credit");
    group.throughput(Throughput::Elements(1));
    group.bench_function("grant_spend", |b| {
        let mut credits: VecDeque<Credit> = (0..8).map(|_| Credit::ZERO).collect();
        b.iter(|| {
            let mut credit = credits.pop_front().unwrap_or_default();
            let moved = credit.grant(Credit::new(1)).and_then(|()| credit.spend_one());
            credits.push_back(credit);
            moved
        });
    });
    group.finish();
}

const LIMITS: WireLimits = WireLimits::for_segments(flownet_benches::SEGMENT_BYTES as u32);
const EXCLUSIVE: u32 = 2;
