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
//!   waits at the producer, so it is used and comes back; and it is no more than the pool lends to one channel, which is
//!   not all of it: a producer that announces what it does not have stops its own channel and no other. Several that do
//!   can have it all: what was promised is never taken back. Peers are of one job and know its secret.
//! - I6: a blocking event voids all credit, on both sides. What the channel had beyond its standing segments goes back,
//!   so that others get to their barriers; the standing ones are promised anew with the resume. Until that is announced
//!   nothing else may come.
//!
//! # Progress
//! The pool keeps at least one segment that does not stand (I12 of the pool). By I5 and I6 a segment that does not stand
//! is idle, promised to a producer that has data for it and may send, or full and to be read; so it comes back. Those
//! who wait are served in turn, and a channel that is served and wants more goes to the end of the queue: hence every
//! channel with data gets a segment, whatever the number of channels. What a channel was promised is never taken back.
//! That the task reads, also where it writes on, is for [`crate::sizing`] to show.
//!
//! # Threads
//! The driver receives, the task gives back, other channels' tasks pass segments on. One lock, never held while the
//! pool, the gate or a waker is called.

mod policy;
mod receive;
mod segments;
mod state;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

use std::fmt;
use std::sync::{Arc, Weak};

use flownet_memory::BufferPool;

pub use self::policy::ChannelControl;
use self::policy::ReceivePolicy;
use self::state::{Phase, State};
use crate::credit::{Backlog, Credit, EventsRead};
use crate::debloat::{FillLimit, SharedFillLimit};
use crate::error::{ExchangeError, PeerViolation};
use crate::event::Event;
use crate::exchange::ready::Listing;
use crate::gate::InputGate;
use crate::ids::ChannelIndex;
use crate::lock::Lock;
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
    /// The gate's.
    fill_limit: Arc<SharedFillLimit>,
    exclusive: u32,
    control: ChannelControl,
    /// What becomes of payloads that no credit promised a place; under credit there are none.
    policy: Option<Box<dyn ReceivePolicy>>,
    state: Lock<State>,
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
    /// How far buffers are to be filled from now on, if that has changed.
    pub fill_limit: Option<FillLimit>,
    /// Events that the task has read.
    pub events_read: EventsRead,
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
            policy: control.policy(&pool),
            pool,
            fill_limit: gate.fill_limit(),
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
        if self.policy.is_some() {
            return Credit::UNLIMITED;
        }
        self.request_segments();
        self.state.lock().announce()
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
        if self.policy.is_some() {
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
                let fill_limit = self.fill_limit.get().filter(|limit| state.told_fill_limit != Some(*limit));
                // Without credit they are filled to their end, always.
                let fill_limit = fill_limit.filter(|_| self.policy.is_none());
                state.told_fill_limit = fill_limit.or(state.told_fill_limit);
                let events_read = state.events_read.take();
                Announcement { cancel: false, resume, credit: state.announce(), fill_limit, events_read }
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

    /// The task has read so many events: as many may follow.
    pub(crate) fn on_events_read(&self, read: EventsRead) {
        let mut state = self.state.lock();
        state.events_read.add(read);
        let is_open = state.phase == Phase::Open;
        self.finish_change(state, is_open);
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

    /// Buffers that hold data for the task, here or at the producer as far as that has told.
    #[must_use]
    pub fn buffers_in_use(&self) -> usize {
        let state = self.state.lock();
        state.owned as usize - state.free.len() + state.wanted as usize
    }

    /// Buffers promised to the producer and not yet come; none where no credit is given, or the channel is not open.
    #[must_use]
    pub fn credit_given(&self) -> Option<Credit> {
        let state = self.state.lock();
        (self.control == ChannelControl::Credit && state.phase == Phase::Open).then_some(state.announced)
    }

    /// Where announcements are collected from now on.
    pub(crate) fn connect(&self, connection: Listing) {
        self.state.lock().connection = Some(connection);
    }

    /// True if the channel was open or new.
    fn close(&self, phase: Phase) -> bool {
        let mut state = self.state.lock();
        if !matches!(state.phase, Phase::New | Phase::Open) {
            return false;
        }
        state.phase = phase;
        let (standing, free) = (std::mem::take(&mut state.standing), state.drain_free());
        self.finish_change(state, phase == Phase::Cancelled);
        drop(free);
        self.end_standing(standing);
        if let Some(policy) = &self.policy {
            policy.close();
        }
        true
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
