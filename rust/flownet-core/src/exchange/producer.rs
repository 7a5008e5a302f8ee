//! The producer's end of a connection: one reader for each subpartition the peer opened.
//!
//! The driver hands in decoded frames and the channels of the [`ReadyList`], and writes the [`Outbox`] that
//! [`ProducerConnection::poll_transmit`] fills, which it should call only while the socket takes bytes.
//!
//! # Invariants
//! - I1: a reader is in the queue of ready ones at most once, and sends one buffer per turn, so channels share the
//!   connection buffer by buffer.
//! - I2: a data buffer costs one credit and none is sent without; events are free.
//! - I3: a reader that is not queued sleeps: its subpartition, a credit or a resume queues it again.
//! - I4: ids are opened in rising order. A frame for a lower id that is not open crossed our end of partition or the
//!   peer's own cancel and is ignored; one for a higher id ends the connection.
//! - I5: a reader that sleeps without credit though it has data has told the peer of it, by its last frame or by a
//!   BACKLOG; the peer then owes it a credit.
//! - I6: what a peer that does not read makes us keep is bounded: of its PINGs the newest is answered, its requests that
//!   wait, for their partition or for their refusal to be written, are at most [`MAX_UNANSWERED_REQUESTS`], and what a
//!   refusal says is encoded when the socket has room for it.
//! - I7: of a channel at most [`EVENT_WINDOW`](crate::credit::EVENT_WINDOW) events are under way or unread. What is behind
//!   the last of them waits here, data too; the peer has something to read then, and says that it did. Markers of latency
//!   do not use them up: where few are left, the subpartition takes no markers.
//!
//! Channels without credit ([`Credit::UNLIMITED`]) are no business of it, but for a `WriteBufferWaterMark` between its queue and the
//! socket.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use flownet_memory::planted;

use super::consumer::wrong_side;
use super::frames::{encode_refusal, push_element};
use super::outbox::Outbox;
use super::ready::ReadyList;
pub use super::write_buffer_water_mark::Watermarks;
use super::write_buffer_water_mark::WriteBufferWaterMark;
use crate::credit::{Backlog, Credit, EventWindow, EventsRead};
use crate::debloat::FillLimit;
use crate::error::{ExchangeError, PeerViolation, ProtocolError};
use crate::event::Event;
use crate::ids::{ChannelId, PartitionId, SubpartitionIndex};
use crate::partition::{PartitionHandle, SubpartitionCell};
use crate::subpartition::Element;
use crate::wire::{ControlFrame, ErrorCode, ErrorScope, encode_backlogs};

/// Where a connection finds the partitions of its process.
pub trait PartitionLookup {
    /// The partition, if it is registered.
    fn find(&self, partition: PartitionId) -> Option<PartitionHandle>;
}

/// How a [`ProducerConnection`] behaves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ProducerSettings {
    /// Adds a CRC32C to every DATA frame. Default: no; TCP has a checksum of its own, if a weak one.
    pub checksums: bool,
    /// How long a request waits for a partition that is not registered yet. Default: 10,000.
    pub request_timeout_ms: u64,
    /// Bytes that may wait for the socket of a connection without credit before it takes no more, and the bytes it must
    /// come down to before it takes more again. Flink before 1.5 set Netty's watermarks to two segments, and one segment
    /// and a byte; so are the defaults, of segments of 32 KiB.
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
    /// Readers that may have something to send, in the order of their turns.
    ready: VecDeque<ChannelId>,
    parked: BTreeMap<ChannelId, ParkedRequest>,
    /// The lowest id the peer may open next: beyond all of them, none.
    next_id: u64,
    /// Channels whose end the peer is to be told of, encoded when the socket takes them.
    refusals: VecDeque<Refusal>,
    /// Encoded frames of our own that are not bound to a place among the elements.
    control: Vec<u8>,
    /// I6: the newest PING that was not answered.
    unanswered_ping: Option<u64>,
    backlogs: Vec<(ChannelId, Backlog)>,
    brake: WriteBufferWaterMark,
    is_closed: bool,
}

#[derive(Debug)]
struct Reader {
    cell: Arc<SubpartitionCell>,
    credit: Credit,
    events: EventWindow,
    /// The subpartition knows that no markers are wanted.
    leaves_out_markers: bool,
    /// What the peer was last told of our backlog. If that is nothing, it owes us nothing: a reader without credit has
    /// to tell of what came since, or it waits for ever.
    told: Backlog,
    is_queued: bool,
}

/// What an ERROR frame of a channel says.
#[derive(Debug)]
struct Refusal {
    channel: ChannelId,
    error: ExchangeError,
}

/// A request for a partition that is not registered yet.
#[derive(Debug)]
struct ParkedRequest {
    partition: PartitionId,
    subpartition: SubpartitionIndex,
    credit: Credit,
    fill_limit: Option<FillLimit>,
    /// Set by the first tick that sees it.
    since_ms: Option<u64>,
}

impl ProducerConnection {
    /// The producer's end of a connection. Its subpartitions announce themselves on `ready`; the driver hands what it
    /// drains there to [`Self::on_ready`].
    #[must_use]
    pub fn new(ready: Arc<ReadyList>, settings: ProducerSettings) -> Self {
        Self {
            brake: WriteBufferWaterMark::new(settings.watermarks),
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

    /// Takes a frame of the peer. An `Err` ends the connection.
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

    /// A channel's subpartition has something new: it came from the [`ReadyList`].
    pub fn on_ready(&mut self, channel: ChannelId) {
        if let Some(reader) = self.readers.get_mut(&channel)
            && !std::mem::replace(&mut reader.is_queued, true)
        {
            self.ready.push_back(channel);
        }
    }

    /// Serves the requests whose partition was registered meanwhile. Call it after each registration.
    pub fn retry_parked(&mut self, lookup: &impl PartitionLookup) {
        for (channel, request) in std::mem::take(&mut self.parked) {
            self.open(channel, request, lookup);
        }
    }

    /// Answers requests that waited too long. Call it now and then, a few times within the timeout; the clock may
    /// start anywhere. A request begins to wait with the first call after it came.
    pub fn expire_parked(&mut self, now_ms: u64) {
        // They came in the order of their ids: the new ones are the last, those that expire the first.
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

    /// Queues frames until about `max_buffers` elements were queued or nothing can be sent. True if there may be more:
    /// call again when the outbox is written.
    pub fn poll_transmit(&mut self, out: &mut Outbox, max_buffers: usize) -> bool {
        let mut room = max_buffers;
        while room > 0
            && self.brake.may_queue(out.queued_bytes())
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

    /// I6.
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
        // As a rule there are none, and each transmit comes by here.
        for _ in 0..REFUSALS_PER_TRANSMIT {
            let Some(Refusal { channel, error }) = self.refusals.pop_front() else { break };
            out.push_control(|run| encode_refusal(channel, &error, run));
        }
    }

    /// Asks for a sign of life. The peer's PONG needs no handling.
    pub fn ping(&mut self, token: u64) {
        ControlFrame::Ping { token }.encode(&mut self.control);
    }

    /// Gives a sign of life unasked.
    pub fn pong(&mut self, token: u64) {
        ControlFrame::Pong { token }.encode(&mut self.control);
    }

    /// Tells the peer, with the next transmit, that this process leaves, or ends the connection for another cause. Its
    /// channels fail.
    pub fn leave(&mut self, code: ErrorCode, reason: &str) {
        self.connection_lost();
        ControlFrame::Error { scope: ErrorScope::Connection, code, message: reason }.encode(&mut self.control);
    }

    /// The connection is gone: every subpartition it read is released.
    pub fn connection_lost(&mut self) {
        self.ready.clear();
        self.parked.clear();
        self.refusals.clear();
        for reader in std::mem::take(&mut self.readers).into_values() {
            reader.cell.release();
        }
    }

    /// The peer said that it leaves: the driver closes the connection.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Channels without credit were opened: the peer may leave unread what it asked for.
    #[must_use]
    pub fn is_uncontrolled(&self) -> bool {
        self.brake.is_on()
    }

    /// Subpartitions being read.
    #[must_use]
    pub fn open_channels(&self) -> usize {
        self.readers.len()
    }

    /// Requests that wait for their partition. While there are any, the driver ticks [`Self::expire_parked`].
    #[must_use]
    pub fn parked_requests(&self) -> usize {
        self.parked.len()
    }

    /// Data buffers the peer takes on this channel, if it is open.
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
                self.brake.on_open(credit);
                // Who does not control us by credit does not measure for us either.
                if let Some(limit) = fill_limit.or(credit.is_unlimited().then_some(FillLimit::NONE)) {
                    cell.set_fill_limit(limit);
                }
                let (events, told) = (EventWindow::default(), Backlog::ZERO);
                let reader = Reader { cell, credit, events, leaves_out_markers: false, told, is_queued: false };
                self.readers.insert(channel, reader);
                // A new reader counts as awake: it looks before it waits (I3).
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

    /// Nobody is woken: it is for buffers that the task begins later.
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
        // The peer gave our segments to others while it was blocked: what it has for us now, it says anew.
        if !reader.credit.is_unlimited() && !planted!(CreditOutlivesBlock) {
            reader.credit = Credit::ZERO;
        }
        reader.told = Backlog::ZERO;
        reader.cell.resume().map_err(|violation| ProtocolError::Peer { channel, violation })
    }

    /// One turn of a reader that was taken off the queue. Returns the elements it sent, data at most `room` of them.
    fn serve(&mut self, channel: ChannelId, room: usize, out: &mut Outbox) -> usize {
        let Some(reader) = self.readers.get_mut(&channel) else { return 0 };
        reader.is_queued = planted!(ClearedAfterLooking);
        // In turn with others, one buffer each; alone, all it may send.
        let share = if self.ready.is_empty() && !self.brake.is_on() { room } else { 1 };
        let max_data = share.min(reader.credit.get() as usize + usize::from(planted!(Overdraft)));
        if max_data == 0 && !reader.cell.is_available(false) {
            self.on_starved(channel);
            return 0;
        }
        let max_elements = ELEMENTS_PER_TURN.max(share).min(reader.events.get() as usize);
        if max_elements == 0 {
            // I7: what it sent is read first, and that is told.
            self.on_found_nothing(channel);
            return 0;
        }
        reader.spare_events();
        let checksums = self.settings.checksums;
        let mut is_end = false;
        let sent = reader.cell.poll_each(max_data, max_elements, |polled| {
            if matches!(polled.element, Element::Data(_)) {
                // `poll_each` gives no more data than there is credit.
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

    /// The reader has no credit and no event: it sleeps until one comes. The peer must know that there is demand (I5).
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

    /// Nothing to send now, or never again.
    fn on_found_nothing(&mut self, channel: ChannelId) {
        if let Some(failure) = self.readers.get(&channel).and_then(|reader| reader.cell.failure()) {
            self.remove(channel);
            self.refuse(channel, failure);
        }
    }

    fn remove(&mut self, channel: ChannelId) {
        if let Some(reader) = self.readers.remove(&channel) {
            // Its turn, if it has one, finds nobody.
            reader.cell.release();
        }
    }

    fn refuse(&mut self, channel: ChannelId, error: ExchangeError) {
        self.refusals.push_back(Refusal { channel, error });
    }

    /// I4, I6.
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

    /// I4: an id that is not open must at least have been.
    fn check_known(&self, channel: ChannelId) -> Result<(), ProtocolError> {
        if u64::from(channel.get()) < self.next_id {
            return Ok(());
        }
        Err(ProtocolError::Peer { channel, violation: PeerViolation::UnknownChannel })
    }
}

impl Reader {
    /// I7: what is left of the events is not for markers where it is little.
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

/// Requests of one peer that wait for an answer. A request takes some 100 bytes here, so all of them take 26 MB; two
/// tasks of a parallelism of 500 each, one here and one there, are connected by as many channels.
pub const MAX_UNANSWERED_REQUESTS: usize = 1 << 18;

/// Of up to 4 KiB each; more are asked for when these are written.
const REFUSALS_PER_TRANSMIT: usize = 16;

/// Elements of one turn; events beyond it wait for the next, so that a burst of them does not hold up the others.
const ELEMENTS_PER_TURN: usize = 16;
