//! What a channel's credit, sequence and backlog must be, kept beside the machines from the frames that pass.

use flownet_core::wire::{ControlFrame, DataHeader, DecodeResult, WireLimits, decode};
use flownet_core::{Backlog, ChannelId, SubpartitionCell};

/// The accounts of one channel.
#[derive(Debug, Default)]
pub(super) struct Book {
    /// Sequence numbers: the next to leave, the next to arrive.
    sent: u32,
    received: u32,
    data_under_way: u32,
    /// Credit the producer must have.
    pub(super) granted: u32,
    /// Credit the consumer has announced and not been sent data for.
    pub(super) promised: u32,
    /// Between the consumer's taking of a blocking event and the producer's taking of the resume.
    is_void: bool,
    is_cancelled: bool,
}

/// A frame as a bystander sees it. Payloads are passed over.
pub(super) enum ObservedFrame<'a> {
    Data(DataHeader),
    Control(ControlFrame<'a>),
}

/// Shows every frame. There must be whole ones only.
pub(super) fn each_frame<'a>(bytes: &'a [u8], limits: &WireLimits, mut see: impl FnMut(ObservedFrame<'a>)) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let (seen, len) = match decode(rest, limits).expect("machines send frames only") {
            DecodeResult::More { needed } => panic!("a frame was cut: {} of {needed} bytes", rest.len()),
            DecodeResult::Data { header, consumed } => {
                (ObservedFrame::Data(header), consumed + header.payload_bytes as usize)
            }
            DecodeResult::Control { frame, consumed } => (ObservedFrame::Control(frame), consumed),
        };
        rest = &rest[len..];
        see(seen);
    }
}

impl Book {
    pub(super) fn on_element_sent(&mut self, sequence: u32, is_data: bool) {
        assert_eq!(sequence, self.sent, "an element left out of order");
        self.sent += 1;
        if is_data {
            assert!(self.granted > 0, "a data buffer left without credit");
            self.granted -= 1;
            self.data_under_way += 1;
        }
    }

    pub(super) fn on_data_received(&mut self, sequence: u32, is_open: bool) {
        assert_eq!(sequence, self.received, "an element arrived out of order");
        self.received += 1;
        self.data_under_way -= 1;
        if is_open {
            assert!(self.promised > 0, "a data buffer came that no credit was announced for");
            self.promised -= 1;
        }
    }

    pub(super) fn on_event_received(&mut self, sequence: u32, is_blocking: bool) {
        assert_eq!(sequence, self.received, "an event arrived out of order");
        self.received += 1;
        if is_blocking {
            self.promised = 0;
            self.is_void = true;
        }
    }

    pub(super) fn on_resume_received(&mut self) {
        self.granted = 0;
        self.is_void = false;
    }

    pub(super) fn on_cancel_sent(&mut self) {
        assert!(!self.is_cancelled, "a channel was cancelled twice");
        self.is_cancelled = true;
    }

    /// Compares with both machines: `credit` is what the producer has, if it serves the channel; `free` are the segments
    /// that the open channel holds for it.
    pub(super) fn check(&self, id: ChannelId, credit: Option<u32>, free: usize) {
        let Self { granted, promised, data_under_way, .. } = *self;
        assert!(promised as usize <= free, "channel {id}: credit {promised} announced, {free} segments reserved");
        let Some(credit) = credit else { return };
        assert_eq!(credit, granted, "channel {id}: the producer's credit");
        assert!(
            self.is_void || credit + data_under_way <= promised,
            "channel {id}: credit {credit} and {data_under_way} buffers under way for {promised} announced"
        );
    }
}

/// The backlog last told must be the backlog there is.
pub(super) fn check_backlog(id: ChannelId, told: Backlog, cell: &SubpartitionCell) {
    assert!(
        cell.is_consumed() || told == cell.backlog(),
        "channel {id}: backlog {told} told, {} there",
        cell.backlog()
    );
}
