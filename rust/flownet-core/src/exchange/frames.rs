//! Frames of a producer: elements of its subpartitions, and the errors that end a channel.

use super::outbox::Outbox;
use crate::error::ExchangeError;
use crate::ids::ChannelId;
use crate::subpartition::{Element, PolledElement};
use crate::wire::{ControlFrame, DataHeader, ErrorCode, ErrorScope};

/// Queues the frame of an element.
pub(super) fn push_element(channel: ChannelId, polled: PolledElement, checksums: bool, out: &mut Outbox) {
    let PolledElement { element, backlog, sequence, .. } = polled;
    match element {
        Element::Data(payload) => {
            let payload_bytes = payload.len() as u32;
            let mut header = DataHeader { channel, sequence, backlog, payload_bytes, checksum: None };
            if checksums {
                header = header.with_checksum(&payload);
            }
            out.push_data(&header, payload);
        }
        Element::Event(event) => {
            let priority = event.is_priority();
            let frame = ControlFrame::Event { channel, sequence, backlog, priority, event };
            out.push_control(|run| frame.encode(run));
        }
    }
}

/// Appends the ERROR frame that ends a channel.
pub(super) fn encode_refusal(channel: ChannelId, error: &ExchangeError, run: &mut Vec<u8>) {
    let (code, scope) = (code_of(error), ErrorScope::Channel(channel));
    match error {
        ExchangeError::ProducerFailed { cause, .. } => ControlFrame::Error { scope, code, message: cause }.encode(run),
        other => ControlFrame::Error { scope, code, message: &other.to_string() }.encode(run),
    }
}

fn code_of(error: &ExchangeError) -> ErrorCode {
    match error {
        ExchangeError::PartitionNotFound { .. } => ErrorCode::PartitionNotFound,
        ExchangeError::SubpartitionNotFound { .. } => ErrorCode::SubpartitionNotFound,
        ExchangeError::AlreadyRead { .. } => ErrorCode::AlreadyRead,
        ExchangeError::ProducerFailed { .. } => ErrorCode::ProducerFailed,
        _ => ErrorCode::Released,
    }
}
