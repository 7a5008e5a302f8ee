//! A remote channel: the segments a consumer has promised to one producer, and the credit that says so.
//!
//! A channel *owns* its free segments and those its task still reads. Up to `exclusive` of them are *standing*: promised
//! while the producer has nothing to send, so that what it sends next finds its credit there. The others are *floating*:
//! taken from the gate's pool while the producer has a backlog and given back one by one as the task is done with them.
//! The pool hands them to waiting channels in the order in which they began to wait.
//!
//! Standing segments are booked with the pool, which bounds them by what it has, not by the number of channels. Where it
//! has enough, each channel keeps all its exclusive segments. Where it is short, channels open with equal parts of what
//! may stand, or with nothing; one that was active keeps a segment while nobody waits for it; and as soon as somebody
//! does, what the task is done with goes to those who wait. A channel without standing credit lives by its producer's
//! announcements of backlog.
//!
//! # Invariants
//! - I1: `announced + unannounced == free`. A channel promises no more than it holds, so a payload always finds its
//!   segment, and holds nothing that it does not promise.
//! - I2: `free <= owned`, and a released channel owns only what its task still reads.
//! - I3: a channel with `free < standing + wanted` waits in the pool's queue, or is just being served by one thread.
//! - I4: credit that may starve the producer is announced without delay. Credit is handed to the connection once it is
//!   at least as much as the producer still has, or [`CREDIT_BATCH`]; the rest rides along or waits for the next segment.
//!   While the producer has some, as far as its headers were read, and it is less than half a batch, the connection is
//!   not woken for it: it goes out with what others are woken for, at the latest when the header is read with which the
//!   producer has used what it had.
//! - I5: `standing <= exclusive`, and every one of them is booked with the pool. What a channel asks for beyond them
//!   waits at the producer, so it is used and comes back; and it is no more than the pool lends to one channel.
//! - I6: a blocking event voids all credit, on both sides. What the channel had beyond its standing segments goes back,
//!   so that others get to their barriers; the standing ones are promised anew with the resume.
//!
//! # Progress
//! The pool keeps at least one segment that does not stand (I12 of the pool). By I5 and I6 a segment that does not stand
//! is idle, promised to a producer that has data for it and may send, or full and to be read; so it comes back. Those
//! who wait are served in turn, and a channel that is served and wants more goes to the end of the queue: hence every
//! channel with data gets a segment, whatever the number of channels. What a channel was promised is never taken back.
//!
//! # Threads
//! The driver receives, the task gives back, other channels' tasks pass segments on. One lock, never held while the
//! pool, the gate or a waker is called.

mod uncontrolled;

use std::fmt;
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};

use flownet_memory::{Buffer, BufferPool, MemorySegment, Recycler, SegmentListener};

use crate::credit::{Backlog, Credit};
use crate::error::{ExchangeError, PeerViolation};
use crate::event::Event;
use crate::exchange::ready::Listing;
use crate::gate::InputGate;
use crate::ids::ChannelIndex;
use crate::lock::Lock;
use crate::record::cutter::RecordCutter;
use crate::subpartition::Element;
use crate::sync::MutexGuard;

/// Credit that waits at the consumer, at most. Many buffers are on their way on a long link only: to gather half of them
/// before any is announced would leave the link empty in between.
pub const CREDIT_BATCH: u32 = 8;

/// See the [module docs](self).
pub struct RemoteChannel {
    me: Weak<Self>,
    gate: Weak<InputGate>,
    index: ChannelIndex,
    pool: Arc<BufferPool>,
    exclusive: u32,
    control: ChannelControl,
    state: Lock<State>,
}

/// What keeps a producer from sending more than its consumer can hold.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum ChannelControl {
    /// Credit: the producer sends only what the consumer has promised to hold.
    #[default]
    Credit,
    /// TCP alone: a payload that finds no segment stops the socket, and all channels of the exchange that share it.
    /// Exchanges have sockets of their own, as in Flink before 1.5: on one socket, an exchange could wait for another
    /// one downstream of it for ever.
    Tcp {
        /// The exchange whose channels share a socket.
        exchange: u32,
    },
    /// Nothing: records that do not fit into the gate's queue are thrown away, and counted.
    Drop,
    /// Nothing: the gate's queue grows on the heap, up to a limit at which the gate fails.
    Unbounded,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    free: Vec<MemorySegment>,
    owned: u32,
    /// Segments booked as standing.
    standing: u32,
    /// Segments the producer's backlog asks for, beyond the standing ones.
    wanted: u32,
    announced: Credit,
    unannounced: Credit,
    expected_sequence: u32,
    is_waiting: bool,
    /// A blocking event arrived and was not resumed.
    is_blocked: bool,
    wants_resume: bool,
    connection: Option<Listing>,
    /// U1: what a `Tcp` channel waited for, and who reads its socket once it is there.
    awaited: Option<MemorySegment>,
    reader: Option<Waker>,
    /// Where a `Drop` channel is in its stream of records.
    cutter: RecordCutter,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    New,
    Open,
    /// By its consumer; the producer must be told.
    Cancelled,
    /// By its end, or by an error the producer knows of.
    Ended,
}

/// What a channel wants its producer to know.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Announcement {
    /// The consumer wants no more. Nothing else matters then.
    pub cancel: bool,
    /// The consumer is done with the blocking event. Goes before the credit.
    pub resume: bool,
    /// New credit.
    pub credit: Credit,
}

impl RemoteChannel {
    /// Channel `index` of `gate`, with up to `exclusive` standing segments out of the gate's pool.
    #[must_use]
    pub fn new(gate: Arc<InputGate>, index: ChannelIndex, pool: Arc<BufferPool>, exclusive: u32) -> Arc<Self> {
        Self::with_control(gate, index, pool, exclusive, ChannelControl::Credit)
    }

    /// Channel `index` of `gate` under any control; `exclusive` segments stand only under credit.
    #[must_use]
    pub fn with_control(
        gate: Arc<InputGate>,
        index: ChannelIndex,
        pool: Arc<BufferPool>,
        exclusive: u32,
        control: ChannelControl,
    ) -> Arc<Self> {
        let exclusive = if control == ChannelControl::Credit { exclusive } else { 0 };
        let channel = Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            gate: Arc::downgrade(&gate),
            index,
            pool,
            exclusive,
            control,
            state: Lock::new(State::new()),
        });
        gate.set_remote(index, &channel, &channel.pool);
        channel
    }

    /// Opens the channel: takes its part of the segments that may stand and promises them. Those that are not there yet
    /// come later as credit.
    pub fn initial_credit(&self) -> Credit {
        if self.state.lock().phase != Phase::New {
            return Credit::ZERO;
        }
        let standing = self.book_standing();
        {
            let mut state = self.state.lock();
            if state.phase != Phase::New {
                drop(state);
                self.end_standing(standing);
                return Credit::ZERO;
            }
            state.phase = Phase::Open;
            state.standing = standing;
        }
        if self.control != ChannelControl::Credit {
            return Credit::UNLIMITED;
        }
        self.request_segments();
        self.state.lock().announce()
    }

    /// Takes the segment for a payload whose header arrived; `None` for a closed channel (skip the payload). Checks
    /// the sequence and the credit.
    pub fn take_for_receive(&self, sequence: u32) -> Result<Option<MemorySegment>, PeerViolation> {
        let mut state = self.state.lock();
        if state.phase != Phase::Open {
            return Ok(None);
        }
        state.expect_sequence(sequence)?;
        state.announced.spend_one()?;
        // Until the next backlog is known, what was asked for is now on its way.
        state.wanted = state.wanted.saturating_sub(1);
        let segment = state.free.pop();
        self.finish_change(state, false);
        Ok(Some(segment.expect("I1: every announced credit has its segment")))
    }

    /// Takes a payload that lies in the segment of [`Self::take_for_receive`].
    pub fn on_buffer(&self, segment: MemorySegment, len: usize, backlog: Backlog) -> Result<(), PeerViolation> {
        if self.control != ChannelControl::Credit {
            return self.on_uncontrolled(segment, len);
        }
        let is_open = self.state.lock().phase == Phase::Open;
        if let (true, Some(me), Some(gate)) = (is_open, self.me.upgrade(), self.gate.upgrade()) {
            let buffer = Buffer::with_recycler(segment, len, me);
            gate.on_element(self.index, Element::Data(buffer))?;
        } else {
            self.forfeit(segment);
        }
        self.on_backlog(backlog);
        Ok(())
    }

    /// Takes a data frame without payload: its credit comes straight back.
    pub fn on_empty_buffer(&self, sequence: u32, backlog: Backlog) -> Result<(), PeerViolation> {
        let mut state = self.state.lock();
        if state.phase == Phase::Open {
            state.expect_sequence(sequence)?;
            if self.control == ChannelControl::Credit {
                state.announced.spend_one()?;
                state.unannounced.earn_one();
            }
        }
        self.finish_change(state, false);
        self.on_backlog(backlog);
        Ok(())
    }

    /// Takes an event.
    pub fn on_event(&self, event: Event, sequence: u32, backlog: Backlog) -> Result<(), PeerViolation> {
        let (is_end, is_blocking) = (matches!(event, Event::EndOfPartition), event.is_blocking());
        let void = {
            let mut state = self.state.lock();
            if state.phase != Phase::Open {
                return Ok(());
            }
            state.expect_sequence(sequence)?;
            if is_blocking { state.block() } else { Vec::new() }
        };
        drop(void);
        if let Some(gate) = self.gate.upgrade() {
            gate.on_element(self.index, Element::Event(event))?;
        }
        if is_end {
            self.close(Phase::Ended);
        } else if !is_blocking {
            self.on_backlog(backlog);
        }
        Ok(())
    }

    /// The producer has this many buffers ready: asks the pool for as many segments beyond the standing ones.
    pub fn on_backlog(&self, backlog: Backlog) {
        if self.control != ChannelControl::Credit {
            return;
        }
        let limit = u32::try_from(self.pool.lend_limit()).unwrap_or(u32::MAX);
        {
            let mut state = self.state.lock();
            if !state.is_blocked {
                state.wanted = backlog.get().min(limit);
            }
        }
        self.request_segments();
    }

    /// What the producer must be told; credit given out here counts as announced.
    pub fn take_announcement(&self) -> Announcement {
        let mut state = self.state.lock();
        match state.phase {
            Phase::New | Phase::Ended => Announcement::default(),
            Phase::Cancelled => Announcement { cancel: true, ..Announcement::default() },
            Phase::Open => {
                let resume = std::mem::take(&mut state.wants_resume);
                Announcement { cancel: false, resume, credit: state.announce() }
            }
        }
    }

    /// The task is done with the blocking event it read: the producer may go on. False if there was none.
    pub fn resume(&self) -> bool {
        let mut state = self.state.lock();
        if state.phase != Phase::Open {
            return true;
        }
        if !std::mem::take(&mut state.is_blocked) {
            return false;
        }
        state.wants_resume = true;
        self.finish_change(state, true);
        // What stands and was not there yet.
        self.request_segments();
        true
    }

    /// The consumer wants no more: free segments go home now, those in use when the task drops them.
    pub fn release(&self) {
        self.close(Phase::Cancelled);
    }

    /// The channel failed and its producer knows or is gone: the gate gets the error, segments go home.
    pub fn fail(&self, error: ExchangeError) {
        if self.close(Phase::Ended)
            && let Some(gate) = self.gate.upgrade()
        {
            gate.fail_channel(self.index, error);
        }
    }

    /// Opened, and neither released nor ended.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.state.lock().phase == Phase::Open
    }

    /// What controls it.
    #[must_use]
    pub fn control(&self) -> ChannelControl {
        self.control
    }

    /// Its place in the gate.
    #[must_use]
    pub fn index(&self) -> ChannelIndex {
        self.index
    }

    /// Segments that wait for a payload.
    #[must_use]
    pub fn free_segments(&self) -> usize {
        self.state.lock().free.len()
    }

    /// Segments that wait for a payload or are read by the task.
    #[must_use]
    pub fn owned_segments(&self) -> u32 {
        self.state.lock().owned
    }

    /// Where announcements are collected from now on.
    pub(crate) fn connect(&self, connection: Listing) {
        self.state.lock().connection = Some(connection);
    }

    /// A segment taken for receive that nothing was received into.
    pub(crate) fn forfeit(&self, segment: MemorySegment) {
        if self.control == ChannelControl::Credit {
            self.state.lock().owned -= 1;
        }
        drop(segment);
    }

    /// I3: one thread at a time asks, until nothing is wanted or the channel waits in the pool's queue.
    fn request_segments(&self) {
        loop {
            {
                let mut state = self.state.lock();
                if !state.wants_segment() || state.is_waiting {
                    return;
                }
                state.is_waiting = true;
            }
            if let Some(segment) = self.pool.try_take(0) {
                drop(self.accept(segment));
                continue;
            }
            let Some(me) = self.me.upgrade() else { return };
            if self.pool.offer_to(me) {
                return;
            }
            self.state.lock().is_waiting = false;
            // Refused because a segment became idle: ask again. Or because the pool is gone: give up.
            if let Poll::Ready(Err(_)) = self.pool.poll_available(Waker::noop()) {
                return;
            }
        }
    }

    /// Ends the wait with this segment, or gives it back when nothing is wanted any more.
    fn accept(&self, segment: MemorySegment) -> Option<MemorySegment> {
        let mut state = self.state.lock();
        state.is_waiting = false;
        if !state.wants_segment() && !planted!(LentAfterRelease) {
            return Some(segment);
        }
        state.owned += 1;
        state.free.push(segment);
        state.unannounced.earn_one();
        self.finish_change(state, false);
        None
    }

    /// True if the channel was open or new.
    fn close(&self, phase: Phase) -> bool {
        let mut state = self.state.lock();
        if !matches!(state.phase, Phase::New | Phase::Open) {
            return false;
        }
        state.phase = phase;
        let (standing, free) = (std::mem::take(&mut state.standing), state.drain_free());
        let (awaited, reader) = (state.awaited.take(), state.reader.take());
        self.finish_change(state, phase == Phase::Cancelled);
        drop((free, awaited));
        self.end_standing(standing);
        if let Some(reader) = reader {
            // What follows on its socket is for others.
            reader.wake();
        }
        true
    }

    /// Books what the channel opens with. All channels ask for the same part, so none comes too late for it.
    fn book_standing(&self) -> u32 {
        let share = self.pool.standing_share(self.exclusive as usize);
        // No more than `exclusive`, which is a u32.
        (0..share).take_while(|_| self.pool.try_stand()).count() as u32
    }

    fn end_standing(&self, count: u32) {
        if count > 0 {
            self.pool.end_standing(count as usize);
        }
    }

    /// Finds a segment that the task is done with its place. What of it is to go to the pool is returned.
    fn keep_or_return(&self, segment: MemorySegment) -> Option<MemorySegment> {
        let is_claimed = self.pool.claims_standing();
        let mut state = self.state.lock();
        if state.phase == Phase::Open && state.owned <= state.standing && !is_claimed {
            state.keep(segment);
            self.finish_change(state, false);
            return None;
        }
        if state.phase == Phase::Open && state.owned <= state.standing {
            // Somebody waits for a segment, and this channel has no data for it.
            state.standing -= 1;
            state.owned -= 1;
            self.finish_change(state, false);
            self.end_standing(1);
            return Some(segment);
        }
        let may_grow = state.phase == Phase::Open && state.standing < self.exclusive && !is_claimed;
        if !may_grow {
            state.owned -= 1;
            self.finish_change(state, false);
            return Some(segment);
        }
        drop(state);
        self.keep_as_standing(segment)
    }

    /// A channel that was active keeps a segment beyond those it has, if the pool can spare it.
    fn keep_as_standing(&self, segment: MemorySegment) -> Option<MemorySegment> {
        let is_booked = self.pool.try_stand();
        let mut state = self.state.lock();
        let is_kept = is_booked && state.phase == Phase::Open && state.standing < self.exclusive;
        let surplus = if is_kept {
            state.standing += 1;
            state.keep(segment);
            None
        } else {
            state.owned -= 1;
            Some(segment)
        };
        self.finish_change(state, false);
        if is_booked && !is_kept {
            self.end_standing(1);
        }
        surplus
    }

    /// Lets go of the lock, then tells the connection if it must know or credit is due (I4).
    fn finish_change(&self, state: MutexGuard<'_, State>, must_tell: bool) {
        state.assert_invariants();
        let is_urgent = must_tell || state.is_credit_urgent();
        let connection = if is_urgent || state.is_credit_due() { state.connection.clone() } else { None };
        drop(state);
        match connection {
            Some(connection) if is_urgent => connection.wake(),
            Some(connection) => connection.list(),
            None => {}
        }
    }
}

impl Recycler for RemoteChannel {
    fn recycle(&self, segment: MemorySegment) {
        drop(self.keep_or_return(segment));
    }
}

impl SegmentListener for RemoteChannel {
    fn on_segment(&self, segment: MemorySegment) -> Option<MemorySegment> {
        if self.control != ChannelControl::Credit {
            return self.on_awaited(segment);
        }
        let refused = self.accept(segment);
        if refused.is_none() {
            self.request_segments();
        }
        refused
    }
}

impl Drop for RemoteChannel {
    fn drop(&mut self) {
        self.close(Phase::Ended);
    }
}

impl fmt::Debug for RemoteChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteChannel").field("index", &self.index).field("state", &self.state).finish_non_exhaustive()
    }
}

impl State {
    fn new() -> Self {
        Self {
            phase: Phase::New,
            free: Vec::new(),
            owned: 0,
            standing: 0,
            wanted: 0,
            announced: Credit::ZERO,
            unannounced: Credit::ZERO,
            expected_sequence: 0,
            is_waiting: false,
            is_blocked: false,
            wants_resume: false,
            connection: None,
            awaited: None,
            reader: None,
            cutter: RecordCutter::default(),
        }
    }

    fn wants_segment(&self) -> bool {
        self.phase == Phase::Open && self.free.len() < self.wanted as usize + self.standing as usize
    }

    fn is_credit_due(&self) -> bool {
        let may_announce = self.phase == Phase::Open && !self.is_blocked;
        may_announce && !self.unannounced.is_zero() && self.unannounced >= self.announced.min(Credit::new(CREDIT_BATCH))
    }

    fn is_credit_urgent(&self) -> bool {
        self.is_credit_due() && (self.announced.is_zero() || self.unannounced.get() >= CREDIT_BATCH / 2)
    }

    fn expect_sequence(&mut self, got: u32) -> Result<(), PeerViolation> {
        let expected = self.expected_sequence;
        if got != expected {
            return Err(PeerViolation::Reordered { expected, got });
        }
        self.expected_sequence = expected.wrapping_add(1);
        Ok(())
    }

    /// The task is done with a segment that stays.
    fn keep(&mut self, segment: MemorySegment) {
        self.free.push(segment);
        self.unannounced.earn_one();
    }

    /// I6: voids all credit and gives what is beyond the standing segments.
    fn block(&mut self) -> Vec<MemorySegment> {
        self.is_blocked = true;
        self.wanted = 0;
        let kept = self.free.len().min(self.standing as usize);
        let surplus = self.free.split_off(kept);
        // Both fit: a channel owns fewer than 2^32 segments.
        self.owned -= surplus.len() as u32;
        self.announced = Credit::ZERO;
        self.unannounced = Credit::new(kept as u32);
        self.assert_invariants();
        surplus
    }

    fn announce(&mut self) -> Credit {
        if self.is_blocked {
            return Credit::ZERO;
        }
        let credit = self.unannounced.take();
        self.announced = Credit::new(self.announced.get() + credit.get());
        self.assert_invariants();
        credit
    }

    fn drain_free(&mut self) -> Vec<MemorySegment> {
        let free = std::mem::take(&mut self.free);
        self.owned -= free.len() as u32;
        self.wanted = 0;
        self.announced = Credit::ZERO;
        self.unannounced = Credit::ZERO;
        self.assert_invariants();
        free
    }

    fn assert_invariants(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        let promised = self.announced.get() as usize + self.unannounced.get() as usize;
        assert_eq!(promised, self.free.len(), "I1: a channel promises exactly the segments it holds");
        assert!(self.free.len() <= self.owned as usize, "I2: a free segment is an owned one");
        let is_open = matches!(self.phase, Phase::Open);
        assert!(is_open || self.free.is_empty(), "I2: only an open channel holds segments");
        assert!(is_open || self.standing == 0, "I5: only in an open channel a segment stands");
        assert!(!self.is_blocked || !is_open || self.announced.is_zero(), "I6: a blocked channel has promised nothing");
    }
}

#[cfg(test)]
mod tests {
    use flownet_memory::{BufferPoolSettings, SegmentPool};

    use super::*;
    use crate::exchange::ready::ReadyList;
    use crate::ids::ChannelId;
    use crate::tests::CountingWaker;

    /// A channel of a gate that has `segments` segments for it.
    fn channel_of(segments: usize, exclusive: u32) -> (Arc<SegmentPool>, Arc<InputGate>, Arc<RemoteChannel>) {
        let all = SegmentPool::new(segments, 8).unwrap();
        let settings =
            BufferPoolSettings { min: 1, max: Some(segments), lanes: 1, max_per_lane: usize::MAX, max_overdraft: 0 };
        let (gate, pool) = (InputGate::new(1), all.create_buffer_pool(settings).unwrap());
        let channel = RemoteChannel::new(Arc::clone(&gate), ChannelIndex::new(0), pool, exclusive);
        (all, gate, channel)
    }

    /// Connects it to a driver that sleeps.
    fn connect(channel: &RemoteChannel) -> (Arc<ReadyList>, Arc<CountingWaker>) {
        let (ready, (driver, wakes)) = (ReadyList::new(), CountingWaker::new());
        assert!(ready.poll_drain(&mut Vec::new(), &driver).is_pending());
        channel.connect(ready.listing_for(ChannelId::new(0)));
        (ready, wakes)
    }

    #[test]
    fn sequence_numbers_wrap_around() {
        let (segments, gate, channel) = channel_of(2, 2);
        assert_eq!(channel.initial_credit(), Credit::new(2));
        channel.state.lock().expected_sequence = u32::MAX;
        assert!(channel.take_for_receive(0).is_err());
        let last = channel.take_for_receive(u32::MAX).unwrap().unwrap();
        channel.on_buffer(last, 1, Backlog::ZERO).unwrap();
        channel.on_event(Event::EndOfPartition, 0, Backlog::ZERO).unwrap();
        assert_eq!((gate.queued_buffers(), channel.free_segments()), (1, 0), "its end gives the segments back");
        drop((channel, gate));
        assert_eq!(segments.available(), segments.total());
    }

    #[test]
    fn a_channel_with_much_credit_hands_it_back_in_batches_that_keep_a_long_link_busy() {
        let (segments, gate, channel) = channel_of(40, 40);
        assert_eq!(channel.initial_credit(), Credit::new(40));
        let (_ready, wakes) = connect(&channel);
        for sequence in 0..CREDIT_BATCH {
            assert_eq!(wakes.count(), 0, "{sequence} are not a batch");
            let segment = channel.take_for_receive(sequence).unwrap().unwrap();
            channel.on_buffer(segment, 1, Backlog::ZERO).unwrap();
            assert!(gate.poll_next(Waker::noop()).is_ready(), "read and dropped");
        }
        assert_eq!((wakes.count(), channel.take_announcement().credit), (1, Credit::new(CREDIT_BATCH)));
        drop((channel, gate));
        assert_eq!(segments.available(), segments.total());
    }

    #[test]
    fn nobody_is_woken_for_a_little_credit_while_the_producer_has_some() {
        let (segments, gate, channel) = channel_of(4, 2);
        assert_eq!(channel.initial_credit(), Credit::new(2));
        let (ready, wakes) = connect(&channel);

        let receive = |sequence| {
            let segment = channel.take_for_receive(sequence).unwrap().unwrap();
            channel.on_buffer(segment, 1, Backlog::ZERO).unwrap();
        };
        receive(0);
        assert!(gate.poll_next(Waker::noop()).is_ready(), "read and dropped");
        assert_eq!(
            (wakes.count(), ready.has_any()),
            (0, true),
            "it has one more, so that this one may wait for company"
        );
        receive(1);
        assert_eq!(wakes.count(), 1, "it has none: what waits is announced before the task has read");
        assert!(!channel.take_announcement().credit.is_zero());
        drop((channel, gate));
        assert_eq!(segments.available(), segments.total());
    }

    #[test]
    fn an_announcement_between_header_and_payload_promises_nothing_twice() {
        let (segments, gate, channel) = channel_of(3, 1);
        let _ = channel.initial_credit();
        channel.on_backlog(Backlog::new(1));
        assert_eq!(channel.take_announcement().credit, Credit::new(1));
        let segment = channel.take_for_receive(0).unwrap().unwrap();
        channel.request_segments();
        assert_eq!((channel.owned_segments(), channel.take_announcement().credit), (2, Credit::ZERO));
        channel.forfeit(segment);
        drop((channel, gate));
        assert_eq!(segments.available(), segments.total());
    }
}
