//! Producer side of a connection: one reader for each subpartition that the peer opened.
//!
//! The driver passes in decoded frames and the channels of the [`ReadyList`]. It writes the [`Outbox`] that
//! [`ProducerConnection::poll_transmit`] fills. It should call that method only while the socket accepts bytes.
//!
//! # Invariants
//! - I1: a reader is in the queue of ready readers at most once, and sends one buffer per turn. Channels thus share the
//!   connection buffer by buffer.
//! - I2: a data buffer costs one credit, and none is sent without credit; events are free.
//! - I3: a reader that is not queued sleeps: its subpartition, a credit or a resume queues it again.
//! - I4: the peer opens channel ids in rising order. A frame for a lower id that is not open crossed our end of
//!   partition or the peer's own cancel, and is ignored. A frame for a higher id ends the connection.
//! - I5: a reader that has data and sleeps without credit has reported this to the peer, in its last frame or in a
//!   BACKLOG. The peer then owes it a credit.
//! - I6: the memory used for a peer that does not read is bounded. Only its newest PING is answered. At most
//!   [`MAX_UNANSWERED_REQUESTS`] of its requests wait for their partition, or for their refusal to be written. The text
//!   of a refusal is encoded when the socket has room for it.
//! - I7: at most [`EVENT_WINDOW`](crate::credit::EVENT_WINDOW) events of a channel are in transit or unread. Elements
//!   after the last of them wait here, including data. The peer then has events to read, and reports when it has read
//!   them. Latency markers do not use up the window: when few events are left, the subpartition accepts no markers.
//!
//! Channels without credit ([`Credit::UNLIMITED`]) differ only in a `WriteBufferWaterMark` between the connection's
//! queue and the socket.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use flownet_memory::planted;

use super::consumer::wrong_side;
use super::frames::{encode_refusal, push_element};
use super::outbox::Outbox;
use super::ready::ReadyList;
pub use crate::alternatives::write_buffer_water_mark::Watermarks;
use crate::alternatives::write_buffer_water_mark::WriteBufferWaterMark;
use crate::credit::{Backlog, Credit, EventWindow, EventsRead};
use crate::debloat::FillLimit;
use crate::error::{ExchangeError, PeerViolation, ProtocolError};
use crate::event::Event;
use crate::ids::{ChannelId, PartitionId, SubpartitionIndex};
use crate::partition::{PartitionHandle, SubpartitionCell};
use crate::subpartition::Element;
use crate::wire::{ControlFrame, ErrorCode, ErrorScope, encode_backlogs};

/// Finds the partitions of this process for a connection.
pub trait PartitionLookup {
    /// Returns the partition if it is registered.
    fn find(&self, partition: PartitionId) -> Option<PartitionHandle>;
}

/// Settings of a [`ProducerConnection`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ProducerSettings {
    /// Whether to add a CRC32C to every DATA frame. Default: no, because TCP has its own checksum, though a weak one.
    pub checksums: bool,
    /// How long a request waits for a partition that is not registered yet. Default: 10,000.
    pub request_timeout_ms: u64,
    /// Bytes in the socket's queue at which a connection without credit pauses and resumes. Flink before 1.5 set
    /// Netty's watermarks to two segments, and to one segment and a byte. The defaults are the same, for segments of 32
    /// KiB.
    pub watermarks: Watermarks,
}

impl Default for ProducerSettings {
    fn default() -> Self {
        let watermarks = Watermarks::for_segments(flownet_memory::DEFAULT_SEGMENT_BYTES);
        Self { checksums: false, request_timeout_ms: 10_000, watermarks }
    }
}

/// See the [module docs](self).
#[derive(Debug)]
pub struct ProducerConnection {
    settings: ProducerSettings,
    ready_list: Arc<ReadyList>,
    readers: BTreeMap<ChannelId, Reader>,
    /// Readers that may have elements to send, in the order of their turns.
    ready: VecDeque<ChannelId>,
    parked: BTreeMap<ChannelId, ParkedRequest>,
    /// Lowest id that the peer may open next. If it exceeds every id, the peer may open none.
    next_id: u64,
    /// Channels whose end must be reported to the peer. Encoded when the socket accepts them.
    refusals: VecDeque<Refusal>,
    /// Encoded frames that need no particular place among the elements.
    control: Vec<u8>,
    /// The newest unanswered PING (I6).
    unanswered_ping: Option<u64>,
    backlogs: Vec<(ChannelId, Backlog)>,
    water_mark: WriteBufferWaterMark,
    is_closed: bool,
}

#[derive(Debug)]
struct Reader {
    cell: Arc<SubpartitionCell>,
    credit: Credit,
    events: EventWindow,
    /// Whether the subpartition was asked to leave out markers.
    leaves_out_markers: bool,
    /// Backlog that was last reported to the peer. If it is zero, the peer owes no credit. A reader without credit must
    /// then report new data, or it waits for ever.
    told: Backlog,
    is_queued: bool,
}

/// Content of a channel's ERROR frame.
#[derive(Debug)]
struct Refusal {
    channel: ChannelId,
    error: ExchangeError,
}

/// Request for a partition that is not registered yet.
#[derive(Debug)]
struct ParkedRequest {
    partition: PartitionId,
    subpartition: SubpartitionIndex,
    credit: Credit,
    fill_limit: Option<FillLimit>,
    /// Set by the first tick after the request arrived.
    since_ms: Option<u64>,
}

impl ProducerConnection {
    /// Creates the producer side of a connection. Its subpartitions list themselves on `ready`. The driver passes the
    /// channels that it drains there to [`Self::on_ready`].
    #[must_use]
    pub fn new(ready: Arc<ReadyList>, settings: ProducerSettings) -> Self {
        Self {
            water_mark: WriteBufferWaterMark::new(settings.watermarks),
            settings,
            ready_list: ready,
            readers: BTreeMap::new(),
            ready: VecDeque::new(),
            parked: BTreeMap::new(),
            next_id: 0,
            refusals: VecDeque::new(),
            control: Vec::new(),
            unanswered_ping: None,
            backlogs: Vec::new(),
            is_closed: false,
        }
    }

    /// Handles a frame of the peer. An `Err` ends the connection.
    pub fn handle_frame(
        &mut self,
        frame: ControlFrame<'_>,
        lookup: &impl PartitionLookup,
    ) -> Result<(), ProtocolError> {
        match frame {
            ControlFrame::Open { channel, partition, subpartition, initial_credit } => {
                self.check_new(channel)?;
                self.next_id = u64::from(channel.get()) + 1;
                let (credit, fill_limit) = (initial_credit, None);
                self.open(
                    channel,
                    ParkedRequest { partition, subpartition, credit, fill_limit, since_ms: None },
                    lookup,
                );
            }
            ControlFrame::Credit(credits) => {
                for (channel, credit) in credits {
                    self.on_credit(channel, credit)?;
                }
            }
            ControlFrame::Fill(limits) => {
                for (channel, limit) in limits {
                    self.on_fill_limit(channel, limit)?;
                }
            }
            ControlFrame::Events(read) => {
                for (channel, read) in read {
                    self.on_events_read(channel, read)?;
                }
            }
            ControlFrame::Resume { channel } => self.on_resume(channel)?,
            ControlFrame::Cancel { channel } => {
                self.check_known(channel)?;
                self.remove(channel);
                self.parked.remove(&channel);
            }
            ControlFrame::Close => {
                self.connection_lost();
                self.is_closed = true;
            }
            ControlFrame::Ping { token } => self.unanswered_ping = Some(token),
            ControlFrame::Pong { .. } => {}
            ControlFrame::Event { channel, .. } => return Err(wrong_side(channel, frame.kind())),
            ControlFrame::Backlog(_) | ControlFrame::Error { .. } => {
                return Err(wrong_side(ChannelId::default(), frame.kind()));
            }
        }
        Ok(())
    }

    /// Queues a channel from the [`ReadyList`] whose subpartition has changed.
    pub fn on_ready(&mut self, channel: ChannelId) {
        if let Some(reader) = self.readers.get_mut(&channel)
            && !std::mem::replace(&mut reader.is_queued, true)
        {
            self.ready.push_back(channel);
        }
    }

    /// Serves the parked requests whose partition has been registered meanwhile. Call it after each registration.
    pub fn retry_parked(&mut self, lookup: &impl PartitionLookup) {
        for (channel, request) in std::mem::take(&mut self.parked) {
            self.open(channel, request, lookup);
        }
    }

    /// Refuses requests that have waited too long. Call it a few times within the timeout; the clock may start at any
    /// value. A request's wait begins with the first call after its arrival.
    pub fn expire_parked(&mut self, now_ms: u64) {
        // The map is in order of arrival: new requests are last, and those that expire are first.
        for request in self.parked.values_mut().rev().take_while(|request| request.since_ms.is_none()) {
            request.since_ms = Some(now_ms);
        }
        let timeout_ms = self.settings.request_timeout_ms;
        while let Some(first) = self.parked.first_entry()
            && now_ms.saturating_sub(first.get().since_ms.unwrap_or(now_ms)) >= timeout_ms
        {
            let (channel, ParkedRequest { partition, .. }) = first.remove_entry();
            self.refuse(channel, ExchangeError::PartitionNotFound { partition });
        }
    }

    /// Queues frames until about `max_buffers` elements are queued or no more can be sent. Returns true if there may be
    /// more: call it again when the outbox is written.
    pub fn poll_transmit(&mut self, out: &mut Outbox, max_buffers: usize) -> bool {
        let mut room = max_buffers;
        while room > 0
            && self.water_mark.may_queue(out.queued_bytes())
            && let Some(channel) = self.ready.pop_front()
        {
            room = room.saturating_sub(self.serve(channel, room, out));
            if planted!(ClearedAfterLooking)
                && let Some(reader) = self.readers.get_mut(&channel)
            {
                reader.is_queued = false;
            }
        }
        self.push_answers(out);
        !self.ready.is_empty() || !self.refusals.is_empty()
    }

    /// Queues PONG, BACKLOG and other control frames and a bounded number of refusals (I6).
    fn push_answers(&mut self, out: &mut Outbox) {
        if let Some(token) = self.unanswered_ping.take() {
            ControlFrame::Pong { token }.encode(&mut self.control);
        }
        if !self.control.is_empty() || !self.backlogs.is_empty() {
            out.push_control(|run| {
                run.append(&mut self.control);
                encode_backlogs(self.backlogs.drain(..), run);
            });
        }
        // A plain loop: every transmit passes here, and there are usually no refusals.
        for _ in 0..REFUSALS_PER_TRANSMIT {
            let Some(Refusal { channel, error }) = self.refusals.pop_front() else { break };
            out.push_control(|run| encode_refusal(channel, &error, run));
        }
    }

    /// Sends a PING to check that the peer is alive. Its PONG needs no handling.
    pub fn ping(&mut self, token: u64) {
        ControlFrame::Ping { token }.encode(&mut self.control);
    }

    /// Sends an unrequested PONG as a sign of life.
    pub fn pong(&mut self, token: u64) {
        ControlFrame::Pong { token }.encode(&mut self.control);
    }

    /// Ends the connection for the given cause, for example because this process leaves. The next transmit reports it
    /// to the peer, whose channels fail.
    pub fn leave(&mut self, code: ErrorCode, reason: &str) {
        self.connection_lost();
        ControlFrame::Error { scope: ErrorScope::Connection, code, message: reason }.encode(&mut self.control);
    }

    /// Handles a lost connection: releases every subpartition that it read.
    pub fn connection_lost(&mut self) {
        self.ready.clear();
        self.parked.clear();
        self.refusals.clear();
        for reader in std::mem::take(&mut self.readers).into_values() {
            reader.cell.release();
        }
    }

    /// Returns true if the peer said that it leaves: the driver closes the connection.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Returns true if channels without credit were opened: the peer may leave requested data unread.
    #[must_use]
    pub fn is_uncontrolled(&self) -> bool {
        self.water_mark.is_on()
    }

    /// Returns the number of subpartitions being read.
    #[must_use]
    pub fn open_channels(&self) -> usize {
        self.readers.len()
    }

    /// Returns the number of requests that wait for their partition. If there are any, the driver must call
    /// [`Self::expire_parked`].
    #[must_use]
    pub fn parked_requests(&self) -> usize {
        self.parked.len()
    }

    /// Returns the number of data buffers that the peer accepts on this channel, if it is open.
    #[must_use]
    pub fn credit(&self, channel: ChannelId) -> Option<Credit> {
        self.readers.get(&channel).map(|reader| reader.credit)
    }

    fn open(&mut self, channel: ChannelId, request: ParkedRequest, lookup: &impl PartitionLookup) {
        let ParkedRequest { partition, subpartition, credit, fill_limit, .. } = request;
        let Some(handle) = lookup.find(partition) else {
            self.parked.insert(channel, request);
            return;
        };
        let attached = match handle.subpartition(subpartition) {
            Some(cell) => cell.attach_reader(self.ready_list.waker_for(channel)).map(|()| Arc::clone(cell)),
            None => Err(ExchangeError::SubpartitionNotFound { partition, subpartition }),
        };
        match attached {
            Ok(cell) => {
                self.water_mark.on_open(credit);
                // A peer that does not control by credit sends no fill limits either.
                if let Some(limit) = fill_limit.or(credit.is_unlimited().then_some(FillLimit::NONE)) {
                    cell.set_fill_limit(limit);
                }
                let (events, told) = (EventWindow::default(), Backlog::ZERO);
                let reader = Reader { cell, credit, events, leaves_out_markers: false, told, is_queued: false };
                self.readers.insert(channel, reader);
                // A new reader counts as awake: it polls before it waits (I3).
                self.on_ready(channel);
            }
            Err(error) => self.refuse(channel, error),
        }
    }

    fn on_credit(&mut self, channel: ChannelId, credit: Credit) -> Result<(), ProtocolError> {
        let credited = if let Some(reader) = self.readers.get_mut(&channel) {
            reader.credit.grant(credit)
        } else if let Some(parked) = self.parked.get_mut(&channel) {
            parked.credit.grant(credit)
        } else {
            return self.check_known(channel);
        };
        credited.map_err(|violation| ProtocolError::Peer { channel, violation })?;
        self.on_ready(channel);
        Ok(())
    }

    /// Sets a channel's fill limit. No wake-up: it applies to buffers that the task begins later.
    fn on_fill_limit(&mut self, channel: ChannelId, limit: FillLimit) -> Result<(), ProtocolError> {
        if let Some(reader) = self.readers.get(&channel) {
            reader.cell.set_fill_limit(limit);
        } else if let Some(parked) = self.parked.get_mut(&channel) {
            parked.fill_limit = Some(limit);
        } else {
            return self.check_known(channel);
        }
        Ok(())
    }

    fn on_events_read(&mut self, channel: ChannelId, read: EventsRead) -> Result<(), ProtocolError> {
        let Some(reader) = self.readers.get_mut(&channel) else { return self.check_known(channel) };
        reader.events.reopen(read).map_err(|violation| ProtocolError::Peer { channel, violation })?;
        self.on_ready(channel);
        Ok(())
    }

    fn on_resume(&mut self, channel: ChannelId) -> Result<(), ProtocolError> {
        let Some(reader) = self.readers.get_mut(&channel) else { return self.check_known(channel) };
        // The blocked peer gave our segments to other channels, and announces its credit anew with the resume.
        if !reader.credit.is_unlimited() && !planted!(CreditOutlivesBlock) {
            reader.credit = Credit::ZERO;
        }
        reader.told = Backlog::ZERO;
        reader.cell.resume().map_err(|violation| ProtocolError::Peer { channel, violation })
    }

    /// Runs one turn of a reader that was taken off the queue. Returns the number of elements sent; at most `room` of
    /// them are data.
    fn serve(&mut self, channel: ChannelId, room: usize, out: &mut Outbox) -> usize {
        let Some(reader) = self.readers.get_mut(&channel) else { return 0 };
        // Clear the flag before the poll, so that a later change queues the reader again.
        reader.is_queued = planted!(ClearedAfterLooking);
        // One buffer per turn if other readers are ready; otherwise as many as may be sent.
        let share = if self.ready.is_empty() && !self.water_mark.is_on() { room } else { 1 };
        let max_data = share.min(reader.credit.get() as usize + usize::from(planted!(Overdraft)));
        if max_data == 0 && !reader.cell.is_available(false) {
            self.on_starved(channel);
            return 0;
        }
        let max_elements = ELEMENTS_PER_TURN.max(share).min(reader.events.get() as usize);
        if max_elements == 0 {
            // I7: wait until the peer reports that it has read events.
            self.on_found_nothing(channel);
            return 0;
        }
        reader.spare_events();
        let checksums = self.settings.checksums;
        let mut is_end = false;
        let sent = reader.cell.poll_each(max_data, max_elements, |polled| {
            if matches!(polled.element, Element::Data(_)) {
                // `poll_each` returns no more data than there is credit.
                let is_paid = reader.credit.spend_one().is_ok();
                debug_assert!(is_paid, "I2: no data without credit");
            } else {
                reader.events.spend_one();
            }
            is_end |= matches!(polled.element, Element::Event(Event::EndOfPartition));
            reader.told = polled.backlog;
            push_element(channel, polled, checksums, out);
        });
        if is_end {
            self.remove(channel);
        } else if sent > 0 {
            self.on_ready(channel);
        } else {
            self.on_found_nothing(channel);
        }
        sent
    }

    /// Handles a reader without credit and without events, which sleeps until one arrives. Reports its backlog to the
    /// peer, so that the peer knows of the demand (I5).
    fn on_starved(&mut self, channel: ChannelId) {
        let Some(reader) = self.readers.get_mut(&channel) else { return };
        let backlog = reader.cell.backlog();
        if backlog.is_zero() {
            self.on_found_nothing(channel);
        } else if reader.told.is_zero() && !planted!(SilentBacklog) {
            reader.told = backlog;
            self.backlogs.push((channel, backlog));
        }
    }

    /// Handles a reader with no element to send. Refuses the channel if its subpartition has failed.
    fn on_found_nothing(&mut self, channel: ChannelId) {
        if let Some(failure) = self.readers.get(&channel).and_then(|reader| reader.cell.failure()) {
            self.remove(channel);
            self.refuse(channel, failure);
        }
    }

    fn remove(&mut self, channel: ChannelId) {
        if let Some(reader) = self.readers.remove(&channel) {
            // If the reader is still in the queue, its turn finds no reader.
            reader.cell.release();
        }
    }

    fn refuse(&mut self, channel: ChannelId, error: ExchangeError) {
        self.refusals.push_back(Refusal { channel, error });
    }

    /// Checks a new channel id (I4) and the number of unanswered requests (I6).
    fn check_new(&self, channel: ChannelId) -> Result<(), ProtocolError> {
        let violation = if u64::from(channel.get()) < self.next_id {
            PeerViolation::ChannelReopened
        } else if self.parked.len() + self.refusals.len() >= MAX_UNANSWERED_REQUESTS {
            PeerViolation::TooManyRequests { limit: MAX_UNANSWERED_REQUESTS as u32 }
        } else {
            return Ok(());
        };
        Err(ProtocolError::Peer { channel, violation })
    }

    /// Checks an id that is not open: it must have been open before (I4).
    fn check_known(&self, channel: ChannelId) -> Result<(), ProtocolError> {
        if u64::from(channel.get()) < self.next_id {
            return Ok(());
        }
        Err(ProtocolError::Peer { channel, violation: PeerViolation::UnknownChannel })
    }
}

impl Reader {
    /// Stops markers while few events are left in the window (I7).
    fn spare_events(&mut self) {
        if self.events.is_short() != self.leaves_out_markers {
            self.leaves_out_markers = self.events.is_short();
            self.cell.leave_out_markers(self.leaves_out_markers);
        }
    }
}

impl Drop for ProducerConnection {
    fn drop(&mut self) {
        self.connection_lost();
    }
}

/// Most requests of one peer that wait for an answer. A request takes some 100 bytes here, so all of them take 26 MB.
/// Two tasks of a parallelism of 500 each, one here and one at the peer, have as many channels between them.
pub const MAX_UNANSWERED_REQUESTS: usize = 1 << 18;

/// Refusals per transmit, of up to 4 KiB each; further ones follow when these are written.
const REFUSALS_PER_TRANSMIT: usize = 16;

/// Most elements per turn. More events wait for the next turn, so that a burst does not delay other channels.
const ELEMENTS_PER_TURN: usize = 16;
