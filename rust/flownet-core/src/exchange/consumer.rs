//! Consumer side of a connection: channels that read subpartitions of one peer.
//!
//! The driver decodes frames and calls [`ConsumerConnection::handle_header`] and [`ConsumerConnection::handle_frame`].
//! It writes the bytes that [`ConsumerConnection::poll_transmit`] returns. Elements go to the gates of the channels,
//! which wake their tasks.
//!
//! # Invariants
//! - I1: channel ids are assigned in rising order and never twice. A frame of a closed channel can thus be
//!   distinguished from a frame of a channel that never existed, without a record of all closed channels.
//! - I2: a protocol violation on one channel ends that channel; the others continue. Frames that name a channel we did
//!   not open end the connection.
//! - I3: a channel ends with exactly one CANCEL, or with none if the producer ended it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Poll, Waker};

use flownet_memory::MemorySegment;

use super::ready::ReadyList;
use crate::channel::{Announcement, RemoteChannel};
use crate::error::{ExchangeError, PeerViolation, ProtocolError};
use crate::event::Event;
use crate::ids::{ChannelId, PartitionId, SubpartitionIndex};
use crate::wire::{
    ControlFrame, DataHeader, ErrorCode, ErrorScope, FrameKind, encode_credits, encode_events_read, encode_fill_limits,
};

/// See the [module docs](self).
#[derive(Debug)]
pub struct ConsumerConnection {
    peer: Arc<str>,
    ready: Arc<ReadyList>,
    channels: BTreeMap<ChannelId, OpenChannel>,
    next_id: u32,
    /// Encoded frames that wait to be written, except credit.
    control: Vec<u8>,
    /// The newest unanswered PING: a peer that does not read gets one PONG for all its PINGs.
    unanswered_ping: Option<u64>,
    /// Channels with an announcement for the producer.
    to_announce: Vec<ChannelId>,
}

#[derive(Debug)]
struct OpenChannel {
    channel: Arc<RemoteChannel>,
    partition: PartitionId,
    subpartition: SubpartitionIndex,
}

/// Destination of a DATA frame's payload.
#[derive(Debug)]
pub enum PayloadSlot {
    /// The driver reads it into this segment, then calls [`ConsumerConnection::handle_payload`].
    Segment(ReceiveSlot),
    /// The driver discards this many bytes, possibly none.
    Skip(usize),
    /// No segment is available yet. The driver must read nothing after this header. When its waker is woken, it offers
    /// the same header again and then reads on. Only channels under
    /// [`ChannelControl::Tcp`](crate::channel::ChannelControl) request this.
    Wait,
}

/// Segment of a channel for one payload, with the payload's length. If it is dropped unfilled, the segment is returned.
#[derive(Debug)]
pub struct ReceiveSlot {
    channel: Arc<RemoteChannel>,
    header: DataHeader,
    segment: Option<MemorySegment>,
}

impl ConsumerConnection {
    /// Creates the consumer side of a connection to `peer`, which is its name in errors. Its channels list themselves
    /// on `ready`. The driver passes the channels that it drains there to [`Self::on_ready`].
    pub fn new(peer: impl Into<Arc<str>>, ready: Arc<ReadyList>) -> Self {
        Self {
            peer: peer.into(),
            ready,
            channels: BTreeMap::new(),
            next_id: 0,
            control: Vec::new(),
            unanswered_ping: None,
            to_announce: Vec::new(),
        }
    }

    /// Requests a subpartition of the peer for `channel`. Takes the channel's exclusive segments.
    pub fn open(
        &mut self,
        channel: Arc<RemoteChannel>,
        partition: PartitionId,
        subpartition: SubpartitionIndex,
    ) -> ChannelId {
        let id = ChannelId::new(self.next_id);
        self.next_id += 1;
        channel.connect(self.ready.listing_for(id));
        let initial_credit = channel.initial_credit();
        ControlFrame::Open { channel: id, partition, subpartition, initial_credit }.encode(&mut self.control);
        self.channels.insert(id, OpenChannel { channel, partition, subpartition });
        // Announce at once: the channel may have been released before it was opened.
        self.to_announce.push(id);
        id
    }

    /// Handles the header of a DATA frame and returns the destination of its payload. An `Err` ends the connection.
    /// After a [`PayloadSlot::Wait`], `waker` is woken.
    pub fn handle_header(&mut self, header: DataHeader, waker: &Waker) -> Result<PayloadSlot, ProtocolError> {
        let skip = PayloadSlot::Skip(header.payload_bytes as usize);
        let Some(open) = self.find(header.channel)? else { return Ok(skip) };
        let channel = Arc::clone(&open.channel);
        match receive(channel, header, waker) {
            Poll::Pending => Ok(PayloadSlot::Wait),
            Poll::Ready(Ok(Some(slot))) => Ok(PayloadSlot::Segment(slot)),
            Poll::Ready(Ok(None)) => Ok(skip),
            Poll::Ready(Err(violation)) => {
                self.fail_violator(header.channel, violation);
                Ok(skip)
            }
        }
    }

    /// Receives a filled slot.
    pub fn handle_payload(&mut self, mut slot: ReceiveSlot) -> Result<(), ProtocolError> {
        let header = slot.header;
        let received = header.verify(slot.as_mut_slice()).and_then(|()| match slot.segment.take() {
            Some(segment) => slot.channel.deliver(segment, header.payload_bytes as usize, header.backlog),
            None => Ok(()),
        });
        if let Err(violation) = received {
            self.fail_violator(header.channel, violation);
        }
        Ok(())
    }

    /// Handles any other frame. An `Err` ends the connection.
    pub fn handle_frame(&mut self, frame: ControlFrame<'_>) -> Result<(), ProtocolError> {
        match frame {
            ControlFrame::Event { channel, sequence, backlog, event, priority: _ } => {
                let Some(open) = self.find(channel)? else { return Ok(()) };
                let is_end = matches!(event, Event::EndOfPartition);
                match open.channel.on_event(event, sequence, backlog) {
                    Ok(()) if is_end => drop(self.channels.remove(&channel)),
                    Ok(()) => {}
                    Err(violation) => self.fail_violator(channel, violation),
                }
            }
            ControlFrame::Backlog(backlogs) => {
                for (channel, backlog) in backlogs {
                    if let Some(open) = self.find(channel)? {
                        open.channel.on_backlog(backlog);
                    }
                }
            }
            ControlFrame::Error { scope: ErrorScope::Channel(channel), code, message } => {
                if self.find(channel)?.is_some()
                    && let Some(open) = self.channels.remove(&channel)
                {
                    open.channel.fail(open.error(code, message, &self.peer));
                }
            }
            ControlFrame::Error { scope: ErrorScope::Connection, code, message } => {
                for open in std::mem::take(&mut self.channels).into_values() {
                    open.channel.fail(open.error(code, message, &self.peer));
                }
            }
            ControlFrame::Ping { token } => self.unanswered_ping = Some(token),
            ControlFrame::Pong { .. } => {}
            ControlFrame::Open { channel, .. }
            | ControlFrame::Resume { channel }
            | ControlFrame::Cancel { channel } => return Err(wrong_side(channel, frame.kind())),
            ControlFrame::Credit(_) | ControlFrame::Fill(_) | ControlFrame::Events(_) | ControlFrame::Close => {
                return Err(wrong_side(ChannelId::default(), frame.kind()));
            }
        }
        Ok(())
    }

    /// Queues a channel from the [`ReadyList`], which has an announcement.
    pub fn on_ready(&mut self, channel: ChannelId) {
        self.to_announce.push(channel);
    }

    /// Appends all frames that wait to be written. One frame carries the credit of all channels, another one their fill
    /// limits. Returns false if there were none.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> bool {
        let before = out.len();
        let (mut credits, mut fill_limits, mut events) = (Vec::new(), Vec::new(), Vec::new());
        for id in std::mem::take(&mut self.to_announce) {
            let Announcement { credit, fill_limit, events_read, .. } = self.announce(id);
            if !credit.is_zero() {
                credits.push((id, credit));
            }
            fill_limits.extend(fill_limit.map(|limit| (id, limit)));
            if events_read.get() > 0 {
                events.push((id, events_read));
            }
        }
        if let Some(token) = self.unanswered_ping.take() {
            ControlFrame::Pong { token }.encode(&mut self.control);
        }
        out.append(&mut self.control);
        // Fill limits first, so that the producer applies them to the buffers that the credit pays for.
        encode_fill_limits(fill_limits, out);
        encode_credits(credits, out);
        encode_events_read(events, out);
        out.len() > before
    }

    /// Sends a PING to check that the peer is alive. Its PONG needs no handling.
    pub fn ping(&mut self, token: u64) {
        ControlFrame::Ping { token }.encode(&mut self.control);
    }

    /// Sends an unrequested PONG as a sign of life.
    pub fn pong(&mut self, token: u64) {
        ControlFrame::Pong { token }.encode(&mut self.control);
    }

    /// Closes the connection: releases every channel and sends a last frame to the peer.
    pub fn close(&mut self) {
        for open in std::mem::take(&mut self.channels).into_values() {
            open.channel.fail(ExchangeError::Closed);
        }
        ControlFrame::Close.encode(&mut self.control);
    }

    /// Handles a lost connection: every channel that has not ended fails with `error`.
    pub fn connection_lost(&mut self, error: &ExchangeError) {
        for open in std::mem::take(&mut self.channels).into_values() {
            open.channel.fail(error.clone());
        }
    }

    /// Returns the number of open channels.
    #[must_use]
    pub fn open_channels(&self) -> usize {
        self.channels.len()
    }

    /// Returns the open channel with this id, or `None` if it was closed (I1).
    fn find(&self, id: ChannelId) -> Result<Option<&OpenChannel>, ProtocolError> {
        match self.channels.get(&id) {
            None if id.get() >= self.next_id => {
                Err(ProtocolError::Peer { channel: id, violation: PeerViolation::UnknownChannel })
            }
            found => Ok(found),
        }
    }

    /// Takes the announcement of a channel and encodes its CANCEL or RESUME frame.
    fn announce(&mut self, id: ChannelId) -> Announcement {
        let Some(open) = self.channels.get(&id) else { return Announcement::default() };
        let announcement = open.channel.take_announcement();
        if announcement.cancel {
            ControlFrame::Cancel { channel: id }.encode(&mut self.control);
            self.channels.remove(&id);
        } else if announcement.resume {
            ControlFrame::Resume { channel: id }.encode(&mut self.control);
        }
        announcement
    }

    /// Ends a channel whose peer violated the protocol, and makes the peer stop sending for it (I2).
    fn fail_violator(&mut self, id: ChannelId, violation: PeerViolation) {
        if let Some(open) = self.channels.remove(&id) {
            open.channel.fail(ExchangeError::ProtocolViolation {
                peer: Arc::clone(&self.peer),
                partition: open.partition,
                subpartition: open.subpartition,
                channel: open.channel.index(),
                violation,
            });
            ControlFrame::Cancel { channel: id }.encode(&mut self.control);
        }
    }
}

impl Drop for ConsumerConnection {
    fn drop(&mut self) {
        let error = ExchangeError::connection_lost(Arc::clone(&self.peer), "connection dropped");
        self.connection_lost(&error);
    }
}

impl ReceiveSlot {
    /// Returns the bytes to fill: the whole payload.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        match &mut self.segment {
            Some(segment) => &mut segment.as_mut_slice()[..self.header.payload_bytes as usize],
            None => &mut [],
        }
    }
}

impl Drop for ReceiveSlot {
    fn drop(&mut self) {
        if let Some(segment) = self.segment.take() {
            self.channel.forfeit(segment);
        }
    }
}

impl OpenChannel {
    fn error(&self, code: ErrorCode, message: &str, peer: &Arc<str>) -> ExchangeError {
        match code {
            ErrorCode::PartitionNotFound => ExchangeError::PartitionNotFound { partition: self.partition },
            ErrorCode::SubpartitionNotFound => {
                ExchangeError::SubpartitionNotFound { partition: self.partition, subpartition: self.subpartition }
            }
            ErrorCode::AlreadyRead => ExchangeError::AlreadyRead { subpartition: self.subpartition },
            ErrorCode::ProducerFailed => ExchangeError::producer_failed(self.partition, message),
            ErrorCode::Released => ExchangeError::Released,
            ErrorCode::Protocol => {
                let reason = format!("it says that this process broke the protocol: {message}");
                ExchangeError::connection_lost(Arc::clone(peer), reason)
            }
            ErrorCode::Leaving | ErrorCode::Other(_) => ExchangeError::connection_lost(Arc::clone(peer), message),
        }
    }
}

fn receive(
    channel: Arc<RemoteChannel>,
    header: DataHeader,
    waker: &Waker,
) -> Poll<Result<Option<ReceiveSlot>, PeerViolation>> {
    if header.payload_bytes == 0 {
        let taken = header.verify(&[]).and_then(|()| channel.on_empty_buffer(header.sequence, header.backlog));
        return Poll::Ready(taken.map(|()| None));
    }
    let place = channel.poll_place(header.sequence, header.payload_bytes as usize, waker);
    place.map_ok(|segment| segment.map(|segment| ReceiveSlot { channel, header, segment: Some(segment) })).map(
        |placed| {
            let max_bytes = match &placed {
                Ok(Some(slot)) => slot.segment.as_ref().map_or(0, MemorySegment::len) as u32,
                _ => return placed,
            };
            if header.payload_bytes > max_bytes {
                return Err(PeerViolation::PayloadTooLong { len_bytes: header.payload_bytes, max_bytes });
            }
            placed
        },
    )
}

pub(super) fn wrong_side(channel: ChannelId, kind: FrameKind) -> ProtocolError {
    ProtocolError::Peer { channel, violation: PeerViolation::WrongSide { kind: kind.code() } }
}
