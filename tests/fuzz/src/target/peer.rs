//! The two ends of a connection, fed by a peer that breaks every rule: whatever it sends ends in elements, answers or an
//! error, and no segment is lost.

use std::io::IoSlice;
use std::sync::Arc;
use std::task::{Poll, Waker};

use flownet_core::channel::{ChannelControl, RemoteChannel};
use flownet_core::credit::EventsRead;
use flownet_core::exchange::consumer::{ConsumerConnection, PayloadSlot};
use flownet_core::exchange::outbox::Outbox;
use flownet_core::exchange::producer::{PartitionLookup, ProducerConnection, ProducerSettings};
use flownet_core::exchange::ready::ReadyList;
use flownet_core::partition::PartitionHandle;
use flownet_core::wire::{
    ControlFrame, DataHeader, DecodeResult, decode, encode_backlogs, encode_credits, encode_events_read,
    encode_fill_limits,
};
use flownet_core::{
    Backlog, BarrierKind, ChannelId, ChannelIndex, Credit, Element, Event, FillLimit, InputGate, PartitionId,
    ResultPartition, SubpartitionIndex,
};
use flownet_memory::{BufferPool, BufferPoolSettings, SegmentPool};

use super::wire::{LIMITS, SEGMENT_BYTES, barrier, data, event, open};

const CHANNELS: u32 = 2;
const CONTROLS: [ChannelControl; 4] =
    [ChannelControl::Credit, ChannelControl::Tcp { exchange: 0 }, ChannelControl::Drop, ChannelControl::Unbounded];

/// First byte: which end is ours (the lowest bit), how often our task has its turn (two bits), and what controls our
/// channels if we receive (two bits). Then frames.
pub(super) fn run(data: &[u8]) {
    let Some((&shape, frames)) = data.split_first() else { return };
    let segments = SegmentPool::new(8, SEGMENT_BYTES as usize).expect("eight segments");
    let turns = Turns { every: usize::from(shape >> 1 & 3) + 1, now: 0 };
    if shape & 1 == 0 {
        Consumer::new(&segments, CONTROLS[usize::from(shape >> 3 & 3)]).receive(frames, turns);
    } else {
        Producer::new(&segments).receive(frames, turns);
    }
    assert_eq!(segments.available(), segments.total(), "a segment is missing");
}

/// After every so many frames our task has its turn.
struct Turns {
    every: usize,
    now: usize,
}

impl Turns {
    fn is_due(&mut self) -> bool {
        self.now += 1;
        self.now.is_multiple_of(self.every)
    }
}

struct Consumer {
    connection: ConsumerConnection,
    ready: Arc<ReadyList>,
    gate: Arc<InputGate>,
}

impl Consumer {
    fn new(segments: &Arc<SegmentPool>, control: ChannelControl) -> Self {
        let (ready, gate) = (ReadyList::new(), InputGate::new(CHANNELS));
        let mut connection = ConsumerConnection::new("fuzz", Arc::clone(&ready));
        let pool = pool(segments, 5, 1);
        for index in 0..CHANNELS {
            let (gate, pool) = (Arc::clone(&gate), Arc::clone(&pool));
            let channel = RemoteChannel::with_control(gate, ChannelIndex::new(index), pool, 1, control);
            connection.open(channel, PartitionId::new(0), SubpartitionIndex::new(index));
        }
        Self { connection, ready, gate }
    }

    fn receive(mut self, mut bytes: &[u8], mut turns: Turns) {
        loop {
            match decode(bytes, &LIMITS) {
                Ok(DecodeResult::Control { frame, consumed }) => {
                    if self.connection.handle_frame(frame).is_err() {
                        break;
                    }
                    bytes = &bytes[consumed..];
                }
                Ok(DecodeResult::Data { header, consumed }) => {
                    let rest = &bytes[consumed..];
                    let (payload, later) = rest.split_at((header.payload_bytes as usize).min(rest.len()));
                    if !self.take(header, payload) {
                        break;
                    }
                    bytes = later;
                }
                Ok(DecodeResult::More { .. }) | Err(_) => break,
            }
            if turns.is_due() {
                self.read();
            }
        }
        self.read();
        self.gate.close();
    }

    /// False at the end of the connection: a payload that does not come, or a breach.
    fn take(&mut self, header: DataHeader, payload: &[u8]) -> bool {
        let mut slot = self.connection.handle_header(header, Waker::noop());
        if matches!(slot, Ok(PayloadSlot::Wait)) {
            // What the task reads comes back, so the header has its place then.
            self.read();
            slot = self.connection.handle_header(header, Waker::noop());
        }
        match slot {
            Ok(PayloadSlot::Segment(mut slot)) if payload.len() == header.payload_bytes as usize => {
                slot.as_mut_slice().copy_from_slice(payload);
                self.connection.handle_payload(slot).is_ok()
            }
            Ok(PayloadSlot::Segment(_) | PayloadSlot::Wait) | Err(_) => false,
            Ok(PayloadSlot::Skip(_)) => true,
        }
    }

    /// The task reads all there is, and the connection answers.
    fn read(&mut self) {
        while let Poll::Ready(Ok(Some((channel, element)))) = self.gate.poll_next(Waker::noop()) {
            if let Element::Event(event) = element
                && event.is_blocking()
            {
                // A channel that failed meanwhile is not blocked any more.
                let _ = self.gate.resume(channel);
            }
        }
        let mut ready = Vec::new();
        self.ready.drain(&mut ready);
        ready.into_iter().for_each(|channel| self.connection.on_ready(channel));
        let mut answer = Vec::new();
        self.connection.poll_transmit(&mut answer);
        check_frames(&answer);
    }
}

struct Producer {
    connection: ProducerConnection,
    ready: Arc<ReadyList>,
    partition: ResultPartition,
    outbox: Outbox,
}

/// The one partition there is.
struct Only(PartitionHandle);

impl PartitionLookup for Only {
    fn find(&self, partition: PartitionId) -> Option<PartitionHandle> {
        (partition == self.0.id()).then(|| self.0.clone())
    }
}

impl Producer {
    fn new(segments: &Arc<SegmentPool>) -> Self {
        let ready = ReadyList::new();
        let connection = ProducerConnection::new(Arc::clone(&ready), ProducerSettings::default());
        let partition = ResultPartition::new(PartitionId::new(0), pool(segments, 6, CHANNELS as usize), CHANNELS);
        Self { connection, ready, partition, outbox: Outbox::new() }
    }

    fn receive(mut self, mut bytes: &[u8], mut turns: Turns) {
        let only = Only(self.partition.handle());
        while let Ok(DecodeResult::Control { frame, consumed }) = decode(bytes, &LIMITS) {
            if self.connection.handle_frame(frame, &only).is_err() {
                return;
            }
            bytes = &bytes[consumed..];
            if turns.is_due() {
                self.write(turns.now);
            }
            self.send();
        }
        self.partition.finish(true);
        self.send();
    }

    /// The task writes what it may: data for all, a barrier now and then.
    fn write(&mut self, turn: usize) {
        for index in (0..CHANNELS).map(SubpartitionIndex::new) {
            let record = [7; SEGMENT_BYTES as usize / 2 + 5];
            if self.partition.try_write(index, &record) == record.len() {
                self.partition.end_record(index);
            }
        }
        if turn.is_multiple_of(8) {
            let _ = self.partition.broadcast_event(&barrier(BarrierKind::Aligned));
        }
        self.partition.flush_all();
    }

    fn send(&mut self) {
        let mut ready = Vec::new();
        self.ready.drain(&mut ready);
        ready.into_iter().for_each(|channel| self.connection.on_ready(channel));
        while self.connection.poll_transmit(&mut self.outbox, 8) {}
        let mut sent = Vec::new();
        while !self.outbox.is_empty() {
            let mut slices = [IoSlice::new(&[]); 4];
            let filled = self.outbox.io_slices(&mut slices);
            let before = sent.len();
            slices[..filled].iter().for_each(|slice| sent.extend_from_slice(slice));
            let written = sent.len() - before;
            self.outbox.advance(written);
        }
        check_frames(&sent);
    }
}

/// What we send are whole good frames, whatever was received.
fn check_frames(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let consumed = match decode(bytes, &LIMITS).expect("own frames are good") {
            DecodeResult::Control { consumed, .. } => consumed,
            DecodeResult::Data { header, consumed } => consumed + header.payload_bytes as usize,
            DecodeResult::More { .. } => panic!("half a frame"),
        };
        bytes = &bytes[consumed..];
    }
}

fn pool(segments: &Arc<SegmentPool>, size: usize, lanes: usize) -> Arc<BufferPool> {
    let settings = BufferPoolSettings { min: size, max: Some(size), lanes, max_per_lane: 3, max_overdraft: 0 };
    segments.create_buffer_pool(settings).expect("there are eight")
}

pub(super) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let (one, other) = (ChannelId::new(0), ChannelId::new(1));
    let payload = [7; SEGMENT_BYTES as usize];
    let frames = |shape: u8, parts: &[Vec<u8>]| [vec![shape], parts.concat()].concat();
    let control = |frame: ControlFrame<'_>| {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        bytes
    };
    let credit = |channel, credit| {
        let mut bytes = Vec::new();
        encode_credits([(channel, Credit::new(credit))], &mut bytes);
        bytes
    };
    let fill = |channel, limit| {
        let mut bytes = Vec::new();
        encode_fill_limits([(channel, FillLimit::new(limit))], &mut bytes);
        bytes
    };
    let events = |channel, read| {
        let mut bytes = Vec::new();
        encode_events_read([(channel, EventsRead::new(read))], &mut bytes);
        bytes
    };
    let mut backlog = Vec::new();
    encode_backlogs([(one, Backlog::new(2)), (other, Backlog::new(1))], &mut backlog);
    let end = |channel, sequence| {
        [
            control(event(channel, sequence, Event::EndOfData { drain: true })),
            control(event(channel, sequence + 1, Event::EndOfPartition)),
        ]
        .concat()
    };
    let aligned = || barrier(BarrierKind::Aligned);
    vec![
        ("receive-two-channels", frames(0, &[data(one, 0, 2, &payload, true), data(other, 0, 0, b"abc", false)])),
        ("receive-to-the-end", frames(2, &[data(one, 0, 0, &payload, false), end(one, 1), end(other, 0)])),
        ("receive-a-backlog", frames(0, &[backlog, data(one, 0, 1, b"a", false), data(one, 1, 0, b"b", false)])),
        ("receive-a-barrier", frames(0, &[control(event(one, 0, aligned())), data(one, 1, 0, b"after", false)])),
        ("receive-without-credit", frames(6, &[0, 1, 2].map(|sequence| data(one, sequence, 9, &payload, false)))),
        ("send-to-one", frames(1, &[control(open(one, 1)), credit(one, 2), credit(one, 1)])),
        ("send-to-both", frames(1, &[control(open(one, 2)), control(open(other, 0)), credit(other, 3)])),
        ("send-and-cancel", frames(3, &[control(open(one, 2)), control(ControlFrame::Cancel { channel: one })])),
        ("send-and-resume", {
            let ping = |token| control(ControlFrame::Ping { token });
            let pings: Vec<_> = (0..8).map(ping).collect();
            frames(1, &[control(open(one, 9)), pings.concat(), control(ControlFrame::Resume { channel: one })])
        }),
        ("send-events-that-are-read", frames(1, &[control(open(one, 2)), events(one, 1), events(one, 9)])),
        (
            "send-little-in-a-buffer",
            frames(1, &[control(open(one, 2)), fill(one, 5), fill(one, 0), fill(one, u32::MAX)]),
        ),
        ("send-and-close", frames(1, &[control(open(one, 2)), control(ControlFrame::Close)])),
    ]
}
