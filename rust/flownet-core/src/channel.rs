//! Remote channel: holds segments for one producer and grants it credit for them.
//!
//! A channel *owns* its free segments and the segments that its task still reads. Up to `exclusive` of them are
//! *standing*: the channel grants credit for them while the producer has nothing to send, so the next buffer finds its
//! credit there. All others are *floating*. The channel takes them from the gate's pool while the producer has a
//! backlog, and returns each one when the task has read it. The pool serves waiting channels in the order in which they
//! began to wait.
//!
//! The pool books standing segments. Its size bounds them, not the number of channels. If the pool has enough segments,
//! each channel keeps all its exclusive ones. If it is short, channels open with equal shares of the segments that may
//! stand, or with none. A channel that was active keeps a segment as long as no other channel waits for one. As soon as
//! one waits, segments that the task has read go to the waiting channels. A channel without standing credit relies on
//! its producer's announcements of backlog.
//!
//! # Invariants
//! - I1: `announced + unannounced == free`. A channel promises no more than it holds, so a payload always finds its
//!   segment. It holds no segment that it does not promise.
//! - I2: `free <= owned`, and a released channel owns only segments that its task still reads.
//! - I3: a channel with `free < standing + wanted` waits in the pool's queue, or one thread is serving it right now.
//! - I4: credit that may starve the producer is announced without delay. The channel passes credit to the connection
//!   once it is at least as much as the producer still has, or [`CREDIT_BATCH`]. The rest is sent along with it, or
//!   waits for the next segment. The connection is not woken for it while the producer has credit left, as far as its
//!   headers were read, and the new credit is less than half a batch. Such credit is sent when another channel wakes
//!   the connection. At the latest it is sent when the header arrives with which the producer has used its credit.
//! - I5: `standing <= exclusive`, and the pool has booked every standing segment. All other segments that a channel
//!   requests have data that waits at the producer, so they are used and come back. Their number is at most the pool's
//!   limit for one channel, which is less than the whole pool. A producer that announces a backlog it does not have
//!   stops its own channel and no other. Several such producers can hold the whole pool, because promised credit is
//!   never revoked. Peers belong to one job and know its secret.
//! - I6: a blocking event voids all credit, on both sides. The channel returns its segments except the standing ones,
//!   so that other channels reach their barriers. It promises the standing ones again with the resume. Until the resume
//!   is announced, no other element may arrive.
//!
//! # Progress
//! The pool has at least one segment that does not stand (I12 of the pool). By I5 and I6 such a segment is in one of
//! three states, so it comes back. It is idle, it is promised to a producer that has data for it and may send, or it is
//! full and to be read. The pool serves waiting channels in turn. A channel that was served and wants more goes to the
//! end of the queue. Hence every channel with data gets a segment, whatever the number of channels. Segments promised
//! to a channel are never revoked. [`crate::sizing`] shows that the task reads, even if it also writes.
//!
//! # Threads
//! The driver receives, the task returns segments, and tasks of other channels pass segments on. One lock guards the
//! state. It is never held during a call to the pool, the gate or a waker.

mod receive;
mod segments;
mod state;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

use std::fmt;
use std::sync::{Arc, Weak};

use flownet_memory::BufferPool;

use self::state::{Phase, State};
pub use crate::alternatives::ChannelControl;
use crate::alternatives::ReceivePolicy;
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

/// Most credit that waits at the consumer before it is announced. Only a long link has many buffers in transit. On such
/// a link, gathering half of them before announcing any would leave the link empty in between.
pub const CREDIT_BATCH: u32 = 8;

/// See the [module docs](self).
pub struct RemoteChannel {
    me: Weak<Self>,
    gate: Weak<InputGate>,
    index: ChannelIndex,
    pool: Arc<BufferPool>,
    /// Limit of the gate.
    fill_limit: Arc<SharedFillLimit>,
    exclusive: u32,
    control: ChannelControl,
    /// Handles payloads that have no credit; `None` under credit, where every payload has a segment.
    policy: Option<Box<dyn ReceivePolicy>>,
    state: Lock<State>,
}

/// Messages from a channel to its producer.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Announcement {
    /// The consumer reads no more. All other fields are then irrelevant.
    pub cancel: bool,
    /// The consumer has handled the blocking event. Applies before the credit.
    pub resume: bool,
    /// New credit.
    pub credit: Credit,
    /// How far the producer fills buffers from now on, if that has changed.
    pub fill_limit: Option<FillLimit>,
    /// Events that the task has read.
    pub events_read: EventsRead,
}

impl RemoteChannel {
    /// Creates channel `index` of `gate`, with up to `exclusive` standing segments from the gate's pool.
    #[must_use]
    pub fn new(gate: Arc<InputGate>, index: ChannelIndex, pool: Arc<BufferPool>, exclusive: u32) -> Arc<Self> {
        Self::with_control(gate, index, pool, exclusive, ChannelControl::Credit)
    }

    /// Creates channel `index` of `gate` under any control. The `exclusive` segments stand only under credit.
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

    /// Opens the channel: takes its share of the standing segments and promises them. Segments that the pool does not
    /// have yet follow as credit.
    pub fn initial_credit(&self) -> Credit {
        if self.state.lock().phase != Phase::New {
            return Credit::ZERO;
        }
        let standing = self.book_standing();
        {
            let mut state = self.state.lock();
            // The channel may have been released while the pool booked the segments.
            if state.phase != Phase::New {
                drop(state);
                self.end_standing(standing);
                return Credit::ZERO;
            }
            state.phase = Phase::Open;
            state.standing = standing;
        }
        if !self.has_credit() {
            return Credit::UNLIMITED;
        }
        self.request_segments();
        self.state.lock().announce()
    }

    /// Receives an event.
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
        // Outside of the lock: dropping a segment calls the pool.
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

    /// Receives the number of buffers that are ready at the producer. Requests as many segments from the pool, beyond
    /// the standing ones.
    pub fn on_backlog(&self, backlog: Backlog) {
        if !self.has_credit() {
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

    /// Takes the messages for the producer. Credit returned here counts as announced.
    pub fn take_announcement(&self) -> Announcement {
        let mut state = self.state.lock();
        match state.phase {
            Phase::New | Phase::Ended => Announcement::default(),
            Phase::Cancelled => Announcement { cancel: true, ..Announcement::default() },
            Phase::Open => {
                let resume = std::mem::take(&mut state.wants_resume);
                let fill_limit = self.fill_limit.get().filter(|limit| state.told_fill_limit != Some(*limit));
                // Without credit, producers always fill buffers completely.
                let fill_limit = fill_limit.filter(|_| self.has_credit());
                state.told_fill_limit = fill_limit.or(state.told_fill_limit);
                let events_read = state.events_read.take();
                Announcement { cancel: false, resume, credit: state.announce(), fill_limit, events_read }
            }
        }
    }

    /// Resumes the producer after the task has handled the blocking event. Returns false if the channel was not
    /// blocked.
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
        // Request the standing segments that have not come from the pool yet.
        self.request_segments();
        true
    }

    /// Reports that the task has read `read` events: the producer may send as many more.
    pub(crate) fn on_events_read(&self, read: EventsRead) {
        let mut state = self.state.lock();
        state.events_read.add(read);
        let is_open = state.phase == Phase::Open;
        self.finish_change(state, is_open);
    }

    /// Cancels the channel for the consumer. Free segments return to the pool now, the others when the task drops them.
    pub fn release(&self) {
        self.close(Phase::Cancelled);
    }

    /// Fails a channel whose producer is gone or knows of the failure. Passes the error to the gate and returns the
    /// segments.
    pub fn fail(&self, error: ExchangeError) {
        if self.close(Phase::Ended)
            && let Some(gate) = self.gate.upgrade()
        {
            gate.fail_channel(self.index, error);
        }
    }

    /// Returns true if the channel was opened and neither released nor ended.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.state.lock().phase == Phase::Open
    }

    /// Returns true if credit controls the channel, so that each payload finds a reserved segment.
    pub(crate) fn has_credit(&self) -> bool {
        self.policy.is_none()
    }

    /// Returns the policy of a channel without credit.
    pub(crate) fn policy(&self) -> Option<&dyn ReceivePolicy> {
        self.policy.as_deref()
    }

    /// Returns the gate while the channel is open.
    pub(crate) fn open_gate(&self) -> Option<Arc<InputGate>> {
        self.gate.upgrade().filter(|_| self.is_open())
    }

    /// Returns the control of the channel.
    #[must_use]
    pub fn control(&self) -> ChannelControl {
        self.control
    }

    /// Returns the index of the channel in its gate.
    #[must_use]
    pub fn index(&self) -> ChannelIndex {
        self.index
    }

    /// Returns the number of segments that wait for a payload.
    #[must_use]
    pub fn free_segments(&self) -> usize {
        self.state.lock().free.len()
    }

    /// Returns the number of segments that wait for a payload or that the task reads.
    #[must_use]
    pub fn owned_segments(&self) -> u32 {
        self.state.lock().owned
    }

    /// Returns the number of buffers that hold data for the task: buffers here, and buffers that the producer has
    /// reported.
    #[must_use]
    pub fn buffers_in_use(&self) -> usize {
        let state = self.state.lock();
        state.owned as usize - state.free.len() + state.wanted as usize
    }

    /// Returns the buffers promised to the producer that have not arrived. `None` without credit, or if the channel is
    /// not open.
    #[must_use]
    pub fn credit_given(&self) -> Option<Credit> {
        let state = self.state.lock();
        (self.has_credit() && state.phase == Phase::Open).then_some(state.announced)
    }

    /// Sets the connection that collects announcements from now on.
    pub(crate) fn connect(&self, connection: Listing) {
        self.state.lock().connection = Some(connection);
    }

    /// Closes the channel. Returns true if it was open or new.
    fn close(&self, phase: Phase) -> bool {
        let mut state = self.state.lock();
        if !matches!(state.phase, Phase::New | Phase::Open) {
            return false;
        }
        state.phase = phase;
        let (standing, free) = (std::mem::take(&mut state.standing), state.drain_free());
        self.finish_change(state, phase == Phase::Cancelled);
        // Outside of the lock: dropping a segment calls the pool.
        drop(free);
        self.end_standing(standing);
        if let Some(policy) = &self.policy {
            policy.close();
        }
        true
    }

    /// Unlocks the state. Then lists or wakes the connection if it must announce something or credit is due (I4).
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
