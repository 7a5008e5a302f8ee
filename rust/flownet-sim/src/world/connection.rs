//! One connection: two machines, two wires, and drivers that move bytes as flownet-net's do.

use std::io::IoSlice;
use std::sync::Arc;
use std::task::Waker;

use flownet_core::exchange::consumer::{ConsumerConnection, PayloadSlot, ReceiveSlot};
use flownet_core::exchange::outbox::Outbox;
use flownet_core::exchange::producer::{ProducerConnection, ProducerSettings};
use flownet_core::exchange::ready::ReadyList;
use flownet_core::wire::{ControlFrame, DecodeResult, WireLimits, decode};
use flownet_core::{Backlog, ChannelId, ExchangeError};

use super::book::{ObservedFrame, check_backlog, each_frame};
use super::tasks::{Channel, Registry};
use super::wire::Wire;
use crate::action::{Side, Turn};
use crate::alarm::{Alarm, DueTurns};
use crate::plan::{Plan, WorkerPlan};

#[derive(Debug)]
pub(super) struct Connection {
    /// The worker of the subpartitions and that of the gates.
    pub(super) from: usize,
    pub(super) to: usize,
    /// Where each of its channels is among the world's.
    pub(super) channels: Vec<usize>,
    limits: WireLimits,
    pub(super) producer: ProducerEnd,
    pub(super) consumer: ConsumerEnd,
    /// From producer to consumer, and back.
    pub(super) down: Wire,
    pub(super) up: Wire,
}

#[derive(Debug)]
pub(super) struct ProducerEnd {
    pub(super) machine: Option<ProducerConnection>,
    ready: Arc<ReadyList>,
    outbox: Outbox,
    staged: Vec<u8>,
    pub(super) send: Arc<Alarm>,
    pub(super) receive: Arc<Alarm>,
}

#[derive(Debug)]
pub(super) struct ConsumerEnd {
    pub(super) machine: Option<ConsumerConnection>,
    ready: Arc<ReadyList>,
    frames: Vec<u8>,
    staged: Vec<u8>,
    inbound: Inbound,
    pub(super) send: Arc<Alarm>,
    pub(super) receive: Arc<Alarm>,
}

/// What the next byte belongs to.
#[derive(Debug, Default)]
enum Inbound {
    #[default]
    Header,
    Payload {
        slot: ReceiveSlot,
        filled: usize,
        len: usize,
    },
    Skip(usize),
}

impl Connection {
    pub(super) fn new(plan: &Plan, index: usize, from: usize, to: usize, awake: &Arc<DueTurns>) -> Self {
        let alarm = |turn| Alarm::new(turn, awake);
        let link = |direction: usize| Wire::new(plan.links[(2 * index + direction) % plan.links.len()].clone());
        let (producer_ready, consumer_ready) = (ReadyList::new(), ReadyList::new());
        let settings = ProducerSettings { checksums: plan.workers[from].checksums, ..ProducerSettings::default() };
        Self {
            from,
            to,
            channels: Vec::new(),
            limits: WireLimits::for_segments(plan.segment_bytes as u32),
            producer: ProducerEnd {
                machine: Some(ProducerConnection::new(Arc::clone(&producer_ready), settings)),
                ready: producer_ready,
                outbox: Outbox::new(),
                staged: Vec::new(),
                send: alarm(Turn::Send(index, Side::Producer)),
                receive: alarm(Turn::Receive(index, Side::Producer)),
            },
            consumer: ConsumerEnd {
                machine: Some(ConsumerConnection::new(format!("worker {from}"), Arc::clone(&consumer_ready))),
                ready: consumer_ready,
                frames: Vec::new(),
                staged: Vec::new(),
                inbound: Inbound::Header,
                send: alarm(Turn::Send(index, Side::Consumer)),
                receive: alarm(Turn::Receive(index, Side::Consumer)),
            },
            down: link(0),
            up: link(1),
        }
    }

    /// The producer's end transmits. Says when what left arrives.
    pub(super) fn producer_sends(
        &mut self,
        now_us: u64,
        bytes: usize,
        worker: &WorkerPlan,
        channels: &mut [Channel],
    ) -> Option<u64> {
        let end = &mut self.producer;
        let machine = end.machine.as_mut()?;
        let mut ready = Vec::new();
        let waker = end.send.waker();
        while end.ready.poll_drain(&mut ready, &waker).is_ready() {}
        ready.into_iter().for_each(|channel| machine.on_ready(channel));
        let queued = end.outbox.queued_bytes();
        let has_more = queued > worker.outbox_bytes || {
            let has_more = machine.poll_transmit(&mut end.outbox, worker.buffers_per_turn);
            note_sent(&peek(&end.outbox, queued), &self.limits, &self.channels, channels);
            has_more
        };
        let room = self.down.room().min(bytes);
        let mut out = peek(&end.outbox, 0);
        out.truncate(room);
        end.outbox.advance(out.len());
        self.down.is_full = self.down.room() == out.len() && !end.outbox.is_empty();
        if !self.down.is_full && (has_more || !end.outbox.is_empty()) {
            end.send.set();
        }
        (!out.is_empty()).then(|| self.down.send(now_us, out))
    }

    /// The consumer's end transmits. Says when what left arrives.
    pub(super) fn consumer_sends(&mut self, now_us: u64, bytes: usize, channels: &mut [Channel]) -> Option<u64> {
        let end = &mut self.consumer;
        let machine = end.machine.as_mut()?;
        let mut ready = Vec::new();
        let waker = end.send.waker();
        // With more patience than any driver has: what nobody was woken for goes out with what somebody was.
        if end.ready.is_pressing(usize::MAX) {
            while end.ready.poll_drain(&mut ready, &waker).is_ready() {}
        }
        ready.into_iter().for_each(|channel| machine.on_ready(channel));
        let queued = end.frames.len();
        machine.poll_transmit(&mut end.frames);
        note_announced(&end.frames[queued..], &self.limits, &self.channels, channels);
        let room = self.up.room().min(bytes).min(end.frames.len());
        let out: Vec<u8> = end.frames.drain(..room).collect();
        self.up.is_full = self.up.room() == out.len() && !end.frames.is_empty();
        if !self.up.is_full && !end.frames.is_empty() {
            end.send.set();
        }
        (!out.is_empty()).then(|| self.up.send(now_us, out))
    }

    /// The producer's end reads. False if the peer said that it leaves.
    pub(super) fn producer_receives(&mut self, bytes: usize, registry: &Registry, channels: &mut [Channel]) -> bool {
        let read = self.up.receive(bytes);
        if !self.up.arrived().is_empty() {
            self.producer.receive.set();
        }
        if std::mem::take(&mut self.up.is_full) {
            self.consumer.send.set();
        }
        let end = &mut self.producer;
        let Some(machine) = end.machine.as_mut() else { return true };
        end.staged.extend(read);
        let mut at = 0;
        loop {
            match decode(&end.staged[at..], &self.limits).expect("the consumer sends frames only") {
                DecodeResult::More { .. } => break,
                DecodeResult::Data { .. } => panic!("a consumer sent data"),
                DecodeResult::Control { frame, consumed } => {
                    note_granted(&frame, &self.channels, channels);
                    machine.handle_frame(frame, registry).expect("the consumer keeps to the protocol");
                    at += consumed;
                }
            }
        }
        end.staged.drain(..at);
        end.send.set();
        !machine.is_closed()
    }

    /// The consumer's end reads.
    pub(super) fn consumer_receives(&mut self, bytes: usize, channels: &mut [Channel]) {
        let read = self.down.receive(bytes);
        if !self.down.arrived().is_empty() {
            self.consumer.receive.set();
        }
        if std::mem::take(&mut self.down.is_full) {
            self.producer.send.set();
        }
        let end = &mut self.consumer;
        if end.machine.is_none() {
            return;
        }
        end.staged.extend(read);
        let staged = std::mem::take(&mut end.staged);
        let mut at = 0;
        while end.advance(&staged, &mut at, &self.limits, &self.channels, channels) {}
        end.staged = staged[at..].to_vec();
        end.send.set();
    }

    /// Both ends learn that the connection is gone; what was under way is.
    pub(super) fn lose(&mut self, reason: &str) {
        self.down.clear();
        self.up.clear();
        self.consumer.inbound = Inbound::Header;
        self.producer.outbox.clear();
        if let Some(mut machine) = self.producer.machine.take() {
            machine.connection_lost();
        }
        if let Some(mut machine) = self.consumer.machine.take() {
            machine.connection_lost(&ExchangeError::connection_lost(format!("worker {}", self.from), reason));
        }
    }

    /// Credit never exceeds what is reserved, and is what the frames made it.
    pub(super) fn check(&self, channels: &[Channel]) {
        for &channel in &self.channels {
            let Some(remote) = &channels[channel].remote else { continue };
            let free = remote.channel.free_segments();
            if remote.channel.is_open() {
                let credit = self.producer.machine.as_ref().and_then(|machine| machine.credit(remote.id));
                remote.book.check(remote.id, credit.map(|credit| credit.get()), free);
            } else {
                assert_eq!(free, 0, "channel {} is closed and keeps segments", remote.id);
            }
        }
    }

    /// Bytes of the next frame that arrived at this end; of a data frame, its header and its payload come one after the
    /// other if it is to be `split`.
    pub(super) fn next_frame_bytes(&self, side: Side, split: bool) -> usize {
        let arrived = match (side, &self.consumer.inbound) {
            (Side::Producer, _) => self.up.arrived(),
            (Side::Consumer, Inbound::Header) => self.down.arrived(),
            (Side::Consumer, Inbound::Payload { filled, len, .. }) => return len - filled,
            (Side::Consumer, Inbound::Skip(left)) => return *left,
        };
        match decode(arrived, &self.limits) {
            Ok(DecodeResult::Data { consumed, .. }) if split => consumed,
            Ok(DecodeResult::Data { header, consumed }) => consumed + header.payload_bytes as usize,
            Ok(DecodeResult::Control { consumed, .. }) => consumed,
            Ok(DecodeResult::More { .. }) | Err(_) => arrived.len(),
        }
    }
}

impl ConsumerEnd {
    /// One step through what was read. False when more is needed for the next.
    fn advance(
        &mut self,
        staged: &[u8],
        at: &mut usize,
        limits: &WireLimits,
        ids: &[usize],
        channels: &mut [Channel],
    ) -> bool {
        let Some(machine) = &mut self.machine else { return false };
        let rest = &staged[*at..];
        match std::mem::take(&mut self.inbound) {
            Inbound::Payload { mut slot, filled, len } => {
                let target = &mut slot.as_mut_slice()[filled..];
                let taken = target.len().min(rest.len());
                target[..taken].copy_from_slice(&rest[..taken]);
                let is_full = taken == target.len();
                *at += taken;
                if is_full {
                    machine.handle_payload(slot).expect("the producer keeps to the protocol");
                } else {
                    self.inbound = Inbound::Payload { slot, filled: filled + taken, len };
                }
                is_full
            }
            Inbound::Skip(left) => {
                let taken = left.min(rest.len());
                *at += taken;
                if taken < left {
                    self.inbound = Inbound::Skip(left - taken);
                }
                taken == left
            }
            Inbound::Header => match decode(rest, limits).expect("the producer sends frames only") {
                DecodeResult::More { .. } => false,
                DecodeResult::Data { header, consumed } => {
                    *at += consumed;
                    let len = header.payload_bytes as usize;
                    note_data_received(header.channel, header.sequence, ids, channels);
                    self.inbound =
                        match machine.handle_header(header, Waker::noop()).expect("the producer keeps to the protocol")
                        {
                            PayloadSlot::Segment(slot) => Inbound::Payload { slot, filled: 0, len },
                            PayloadSlot::Skip(bytes) => Inbound::Skip(bytes),
                            PayloadSlot::Wait => panic!("a payload that credit was given for waits for a segment"),
                        };
                    true
                }
                DecodeResult::Control { frame, consumed } => {
                    *at += consumed;
                    note_event_received(&frame, ids, channels);
                    machine.handle_frame(frame).expect("the producer keeps to the protocol");
                    true
                }
            },
        }
    }
}

/// The bytes of an outbox behind the first `skip`.
fn peek(outbox: &Outbox, skip: usize) -> Vec<u8> {
    let mut slices = vec![IoSlice::new(&[]); MAX_SLICES];
    let filled = outbox.io_slices(&mut slices);
    let mut bytes = Vec::with_capacity(outbox.queued_bytes());
    slices[..filled].iter().for_each(|slice| bytes.extend_from_slice(slice));
    assert_eq!(bytes.len(), outbox.queued_bytes(), "an outbox shows all it has");
    bytes.drain(..skip);
    bytes
}

fn note_sent(bytes: &[u8], limits: &WireLimits, ids: &[usize], channels: &mut [Channel]) {
    let mut told: Vec<(ChannelId, Backlog)> = Vec::new();
    each_frame(bytes, limits, |seen| match seen {
        ObservedFrame::Data(header) => {
            channels[ids[header.channel.get() as usize]].book().on_element_sent(header.sequence, true);
            told.push((header.channel, header.backlog));
        }
        ObservedFrame::Control(ControlFrame::Event { channel, sequence, backlog, .. }) => {
            channels[ids[channel.get() as usize]].book().on_element_sent(sequence, false);
            told.push((channel, backlog));
        }
        ObservedFrame::Control(ControlFrame::Backlog(backlogs)) => told.extend(backlogs),
        ObservedFrame::Control(_) => {}
    });
    for (at, &(id, backlog)) in told.iter().enumerate() {
        if told[at + 1..].iter().all(|&(later, _)| later != id) {
            check_backlog(id, backlog, &channels[ids[id.get() as usize]].cell);
        }
    }
}

fn note_announced(bytes: &[u8], limits: &WireLimits, ids: &[usize], channels: &mut [Channel]) {
    each_frame(bytes, limits, |seen| match seen {
        ObservedFrame::Control(ControlFrame::Open { channel, initial_credit, .. }) => {
            channels[ids[channel.get() as usize]].book().promised += initial_credit.get();
        }
        ObservedFrame::Control(ControlFrame::Credit(credits)) => {
            for (channel, credit) in credits {
                channels[ids[channel.get() as usize]].book().promised += credit.get();
            }
        }
        ObservedFrame::Control(ControlFrame::Cancel { channel }) => {
            channels[ids[channel.get() as usize]].book().on_cancel_sent();
        }
        _ => {}
    });
}

fn note_granted(frame: &ControlFrame<'_>, ids: &[usize], channels: &mut [Channel]) {
    match frame {
        ControlFrame::Open { channel, initial_credit, .. } => {
            channels[ids[channel.get() as usize]].book().granted += initial_credit.get();
        }
        ControlFrame::Credit(credits) => {
            for (channel, credit) in credits.clone() {
                channels[ids[channel.get() as usize]].book().granted += credit.get();
            }
        }
        ControlFrame::Resume { channel } => channels[ids[channel.get() as usize]].book().on_resume_received(),
        _ => {}
    }
}

fn note_data_received(id: ChannelId, sequence: u32, ids: &[usize], channels: &mut [Channel]) {
    let channel = &mut channels[ids[id.get() as usize]];
    let is_open = channel.remote.as_ref().is_some_and(|remote| remote.channel.is_open());
    channel.book().on_data_received(sequence, is_open);
}

fn note_event_received(frame: &ControlFrame<'_>, ids: &[usize], channels: &mut [Channel]) {
    if let ControlFrame::Event { channel, sequence, event, .. } = frame {
        channels[ids[channel.get() as usize]].book().on_event_received(*sequence, event.is_blocking());
    }
}

/// More than any outbox of a plan has.
const MAX_SLICES: usize = 256;
