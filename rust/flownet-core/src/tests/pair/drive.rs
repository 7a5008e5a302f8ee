//! The two drivers: they move bytes between machines and wires, as real ones do between machines and sockets.

use std::io::IoSlice;
use std::task::Waker;

use super::Pair;
use crate::channel::ChannelControl;
use crate::error::ProtocolError;
use crate::exchange::consumer::{PayloadSlot, ReceiveSlot};
use crate::wire::codec::{DecodeResult, decode};
use crate::wire::{ControlFrame, WireLimits};

/// State of the consumer's driver between two reads.
#[derive(Default)]
pub(super) struct Receiver {
    staged: Vec<u8>,
    filling: Option<(ReceiveSlot, usize)>,
    skip: usize,
}

impl Pair {
    /// Runs both connections until no byte and no wake-up is left.
    pub(crate) fn run_until_idle(&mut self) {
        for _ in 0..100_000 {
            if !self.step() {
                let Some(next_ms) = self.next_arrival_ms() else { return };
                self.now_ms = next_ms;
            }
        }
        panic!("the connections never come to rest");
    }

    /// Runs one turn of each driver. Returns false if no bytes moved.
    pub(crate) fn step(&mut self) -> bool {
        let moved = self.step_producer() | self.step_consumer();
        self.assert_credit_is_backed();
        moved
    }

    fn next_arrival_ms(&self) -> Option<u64> {
        let firsts = [&self.to_consumer, &self.to_producer].into_iter().filter_map(|wire| wire.in_flight.front());
        firsts.map(|(arrival_ms, _)| *arrival_ms).min()
    }

    fn step_producer(&mut self) -> bool {
        if self.producer.is_none() {
            return false;
        }
        let mut moved = self.producer_reads();
        let producer = self.producer.as_mut().unwrap();
        let mut ready = Vec::new();
        self.producer_ready.drain(&mut ready);
        moved |= !ready.is_empty();
        ready.into_iter().for_each(|channel| producer.on_ready(channel));
        if self.is_unwritable {
            return moved;
        }
        moved |= producer.poll_transmit(&mut self.outbox, self.setup.max_buffers_per_turn);
        moved | self.write_outbox()
    }

    fn producer_reads(&mut self) -> bool {
        let cut = self.setup.seed.map(|_| &mut self.random);
        let moved = self.to_producer.receive(self.now_ms, cut);
        let bytes = std::mem::take(&mut self.to_producer.unread);
        let limits = WireLimits::for_segments(self.setup.segment_bytes as u32);
        let mut at = 0;
        loop {
            match decode(&bytes[at..], &limits).expect("the consumer sends only frames") {
                DecodeResult::More { .. } => break,
                DecodeResult::Data { .. } => panic!("a consumer sends no data"),
                DecodeResult::Control { frame, consumed } => {
                    self.note(&frame);
                    let producer = self.producer.as_mut().unwrap();
                    producer.handle_frame(frame, &self.registry).expect("the consumer keeps to the protocol");
                    at += consumed;
                }
            }
        }
        self.to_producer.unread = bytes[at..].to_vec();
        moved
    }

    fn note(&mut self, frame: &ControlFrame<'_>) {
        match frame {
            ControlFrame::Credit(credits) => {
                self.credit_frames.push(credits.clone().map(|(channel, credit)| (channel, credit.get())).collect());
            }
            ControlFrame::Cancel { channel } => self.cancel_frames.push(*channel),
            _ => {}
        }
    }

    fn write_outbox(&mut self) -> bool {
        let mut moved = false;
        while !self.outbox.is_empty() {
            let mut slices = [IoSlice::new(&[]); 4];
            let filled = self.outbox.io_slices(&mut slices);
            let mut bytes: Vec<u8> = slices[..filled].iter().flat_map(|slice| slice.iter().copied()).collect();
            assert!(!bytes.is_empty(), "an outbox that is not empty has bytes to write");
            if self.setup.seed.is_some() {
                bytes.truncate(self.random.up_to(bytes.len()));
            }
            self.outbox.advance(bytes.len());
            self.to_consumer.send(self.now_ms + self.setup.latency_ms, bytes);
            moved = true;
        }
        moved
    }

    fn step_consumer(&mut self) -> bool {
        if self.consumer.is_none() {
            return false;
        }
        let cut = self.setup.seed.map(|_| &mut self.random);
        let mut moved = self.to_consumer.receive(self.now_ms, cut);
        let bytes = std::mem::take(&mut self.to_consumer.unread);
        self.consumer_takes(&bytes).expect("the producer keeps to the protocol");
        let consumer = self.consumer.as_mut().unwrap();
        let mut ready = Vec::new();
        self.consumer_ready.drain(&mut ready);
        moved |= !ready.is_empty();
        ready.into_iter().for_each(|channel| consumer.on_ready(channel));
        let mut out = Vec::new();
        if consumer.poll_transmit(&mut out) {
            self.to_producer.send(self.now_ms + self.setup.latency_ms, out);
            moved = true;
        }
        moved
    }

    /// Handles bytes that the consumer's driver has read.
    pub(crate) fn consumer_takes(&mut self, bytes: &[u8]) -> Result<(), ProtocolError> {
        let limits = WireLimits::for_segments(self.setup.segment_bytes as u32);
        let consumer = self.consumer.as_mut().unwrap();
        let receiver = &mut self.receiver;
        receiver.staged.extend_from_slice(bytes);
        let staged = std::mem::take(&mut receiver.staged);
        let mut at = 0;
        loop {
            let rest = &staged[at..];
            if let Some((mut slot, filled)) = receiver.filling.take() {
                let target = &mut slot.as_mut_slice()[filled..];
                let taken = target.len().min(rest.len());
                target[..taken].copy_from_slice(&rest[..taken]);
                at += taken;
                if taken < target.len() {
                    receiver.filling = Some((slot, filled + taken));
                    break;
                }
                consumer.handle_payload(slot)?;
                continue;
            }
            if receiver.skip > 0 {
                let taken = receiver.skip.min(rest.len());
                receiver.skip -= taken;
                at += taken;
                if receiver.skip > 0 {
                    break;
                }
                continue;
            }
            match decode(rest, &limits)? {
                DecodeResult::More { .. } => break,
                DecodeResult::Data { header, consumed } => {
                    at += consumed;
                    self.data_headers.push(header);
                    match consumer.handle_header(header, Waker::noop())? {
                        PayloadSlot::Segment(slot) => receiver.filling = Some((slot, 0)),
                        PayloadSlot::Skip(bytes) => receiver.skip = bytes,
                        PayloadSlot::Wait => {
                            at -= consumed;
                            break;
                        }
                    }
                }
                DecodeResult::Control { frame, consumed } => {
                    at += consumed;
                    if let ControlFrame::Backlog(backlogs) = &frame {
                        self.backlog_frames.extend(backlogs.clone().map(|(channel, count)| (channel, count.get())));
                    }
                    consumer.handle_frame(frame)?;
                }
            }
        }
        receiver.staged = staged[at..].to_vec();
        Ok(())
    }

    /// Checks that the sender never has more credit than the receiver holds segments for it.
    fn assert_credit_is_backed(&self) {
        // A blocked channel voids all credit at once, its sender only when it is resumed.
        if self.had_barrier || self.setup.control != ChannelControl::Credit {
            return;
        }
        for (id, remote) in self.channels.values() {
            let credit = self.producer.as_ref().and_then(|producer| producer.credit(*id)).map_or(0, |c| c.get());
            // A released channel is about to inform the sender.
            let free = if remote.is_open() { remote.free_segments() } else { usize::MAX };
            assert!(credit as usize <= free, "credit {credit} for {free} segments");
        }
    }
}
