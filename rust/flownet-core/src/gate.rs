//! Consumer side of an exchange: one [`InputGate`] per task input.
//!
//! A gate hands its task one element at a time, fairly over its channels. A remote channel's elements are queued here
//! by the connection's driver. A local channel has no queue: the gate polls the producer's [`SubpartitionCell`], so a
//! buffer passes from task to task without copy, credit or a second queue.
//!
//! # Invariants
//! - I1: a channel is in the ready list at most once, and is in it when its queue has an element, or when its local
//!   producer has woken it and was not found empty since.
//! - I2: a channel gives nothing behind its end of partition.
//! - I3: the task's waker is called once, by the first change after the task found nothing.
//! - I4: a remote channel queues at most [`EVENT_WINDOW`](crate::credit::EVENT_WINDOW) events, as its producer is told how
//!   many were read; data is bounded by credit, or by [`ReceiveQueueLimits`] where a channel has none.
//!
//! # Lock
//! One, held for a few statements by the driver and by the task; taken once a batch by the task. Local producers are
//! polled while it is not held: they wake this gate from under no lock of theirs, and their buffers go home from under
//! no lock of ours.

mod inspection;
mod queue;
mod receive_queue;
mod source;
mod state;

use std::sync::{Arc, OnceLock, Weak};
use std::task::{Poll, Waker};

use flownet_memory::BufferPool;

pub use self::inspection::ChannelInspection;
use self::queue::ChannelQueue;
pub use self::receive_queue::{HIGH_WATERMARK, IntakeCounters, LOW_WATERMARK, ReceiveQueueLimits};
use self::source::{LocalWaker, Source};
use self::state::{State, Step};

use crate::channel::RemoteChannel;
use crate::credit::EventsRead;
use crate::debloat::{FillLimit, SharedFillLimit};
use crate::error::{ExchangeError, PeerViolation};
use crate::event::Event;
use crate::ids::{ChannelIndex, CheckpointId};
use crate::lock::Lock;
use crate::partition::SubpartitionCell;
use crate::subpartition::Element;

/// See the [module docs](self).
#[derive(Debug)]
pub struct InputGate {
    me: Weak<Self>,
    /// Woken by priority events, whatever the task waits for.
    urgent: OnceLock<Waker>,
    /// For all channels: those of producers elsewhere look it up whenever they tell something.
    fill_limit: Arc<SharedFillLimit>,
    state: Lock<State>,
}

impl InputGate {
    /// A gate with this many channels, each to be connected by [`Self::set_local`] or by a [`RemoteChannel`].
    #[must_use]
    pub fn new(channels: u32) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            urgent: OnceLock::new(),
            fill_limit: Arc::default(),
            state: Lock::new(State::new(channels)),
        })
    }

    /// Connects a channel to a producer of this process. A subpartition that has a reader already, or failed, fails
    /// the channel.
    pub fn set_local(&self, channel: ChannelIndex, cell: Arc<SubpartitionCell>) {
        let waker = Arc::new(LocalWaker { gate: Weak::clone(&self.me), channel }).into();
        if let Err(error) = cell.attach_reader(waker) {
            return self.fail_channel(channel, error);
        }
        let is_set = self.change(|state| {
            let is_set = state.set_source(channel, Source::Local(Arc::clone(&cell)));
            if is_set {
                if let Some(limit) = self.fill_limit.get() {
                    cell.set_fill_limit(limit);
                }
                // The reader looks once before it waits to be woken.
                state.enqueue(channel);
            }
            is_set
        });
        if !is_set {
            cell.release();
        }
    }

    /// The next element; `None` when all channels ended. Takes one buffer from each ready channel in turn. The last
    /// element of a channel is its [`Event::EndOfPartition`]. When nothing is there, `waker` is woken by the next
    /// element, failure or close.
    pub fn poll_next(&self, waker: &Waker) -> Poll<Result<Option<(ChannelIndex, Element)>, ExchangeError>> {
        let mut next = None;
        self.poll_each(1, waker, |channel, element| next = Some((channel, element))).map_ok(|_| next)
    }

    /// Appends up to `max` elements in the order of [`Self::poll_next`], taking the lock once. `Ok(0)` when all
    /// channels ended.
    pub fn poll_batch(
        &self,
        max: usize,
        out: &mut Vec<(ChannelIndex, Element)>,
        waker: &Waker,
    ) -> Poll<Result<usize, ExchangeError>> {
        self.poll_each(max.max(1), waker, |channel, element| out.push((channel, element)))
    }

    /// Wakes `waker` whenever a priority event has come, also while the task does not wait for the gate, and keeps what it
    /// overtook for [`Self::take_overtaken`]. Once.
    pub fn set_urgent(&self, waker: Waker) {
        let _ = self.urgent.set(waker);
        self.state.lock().keeps_overtaken = true;
    }

    /// Takes the priority events that have come, ahead of everything else.
    pub fn take_priority(&self, mut sink: impl FnMut(ChannelIndex, Event)) {
        let (local, events_read) = {
            let mut state = self.state.lock();
            (state.take_priority(&mut sink), std::mem::take(&mut state.events_read))
        };
        tell(events_read);
        for (channel, cell) in local {
            cell.poll_priority(|event| sink(channel, event));
        }
    }

    /// A checkpoint has taken too long: its barriers that come, or have come, by channels from other processes overtake what
    /// is queued here, of whatever kind they are. Those of this process are where their producers have them.
    pub fn expire(&self, checkpoint_id: CheckpointId) {
        self.change(|state| state.expire(checkpoint_id));
    }

    /// What the priority event of a channel overtook that was read first of those not asked for yet, as far as it had come
    /// to this gate: the producer knows the rest. Copies, which share the bytes.
    pub fn take_overtaken(&self, channel: ChannelIndex) -> Vec<Element> {
        let mut state = self.state.lock();
        let place = state.overtaken.iter().position(|(of, _)| *of == channel);
        place.map_or_else(Vec::new, |place| state.overtaken.remove(place).1)
    }

    /// Queues what arrived for a remote channel. Dropped if the gate is closed.
    pub fn on_element(&self, channel: ChannelIndex, element: Element) -> Result<(), PeerViolation> {
        let mut element = Some(element);
        // Whatever is left in `element` is dropped outside of the lock.
        self.change(|state| state.push(channel, &mut element))
    }

    /// The task is done with the blocking event of a channel: its producer may go on.
    pub fn resume(&self, channel: ChannelIndex) -> Result<(), ExchangeError> {
        let source = match self.state.lock().channels.get(channel.index()) {
            Some(found) => found.source.share(),
            None => Source::Unset,
        };
        match source {
            Source::Unset => Err(ExchangeError::Misuse("resumed a channel that is not connected")),
            Source::Remote(remote) => match remote.upgrade() {
                Some(remote) if !remote.resume() => Err(NOT_BLOCKED),
                _ => Ok(()),
            },
            Source::Local(cell) => cell.resume().map_err(|_| NOT_BLOCKED),
        }
    }

    /// Fails the gate because of one channel. The first failure stays. Ignored for a channel whose end arrived.
    pub fn fail_channel(&self, channel: ChannelIndex, error: ExchangeError) {
        self.change(|state| {
            if state.channels.get(channel.index()).is_some_and(|channel| !channel.has_end) {
                state.fail(error);
            }
        });
    }

    /// Fails the gate, unless the end of every channel arrived already.
    pub fn fail_all(&self, error: ExchangeError) {
        self.change(|state| {
            if state.channels.iter().any(|channel| !channel.has_end) {
                state.fail(error);
            }
        });
    }

    /// Releases everything: queued elements, local producers, remote channels and the pool they shared. Polls give
    /// [`ExchangeError::Closed`] from now on.
    pub fn close(&self) {
        let (channels, pool, _overtaken) = self.change(|state| {
            state.is_closed = true;
            state.ready.clear();
            state.intake.clear();
            let empty = state.channels.iter().map(|_| ChannelQueue::default()).collect();
            let channels = std::mem::replace(&mut state.channels, empty);
            (channels, state.pool.take(), std::mem::take(&mut state.overtaken))
        });
        // First the pool: it forgets channels that wait for a segment, which would keep it alive for ever.
        if let Some(pool) = pool {
            pool.destroy();
        }
        for channel in channels {
            channel.source.release();
        }
    }

    /// How far producers are to fill buffers from now on, those of channels without credit excepted. One elsewhere is told
    /// with its next credit: who gets none sends nothing, and nobody is woken for it.
    pub fn set_fill_limit(&self, limit: FillLimit) {
        self.fill_limit.set(limit);
        for channel in &self.state.lock().channels {
            if let Source::Local(cell) = &channel.source {
                cell.set_fill_limit(limit);
            }
        }
    }

    /// Buffers that hold data for the task, here or at its producers as far as they have told. What was taken from the
    /// gate counts until it is dropped if it came from another process, and not if it came from this one. Looks at each
    /// channel: for who looks now and then.
    #[must_use]
    pub fn buffers_in_use(&self) -> usize {
        let sources: Vec<_> = self.state.lock().channels.iter().map(|channel| channel.source.share()).collect();
        sources.iter().map(Source::buffers_in_use).sum()
    }

    /// Number of channels.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.state.lock().channels.len()
    }

    /// Data buffers that arrived and were not read. Those of local producers are counted there.
    #[must_use]
    pub fn queued_buffers(&self) -> usize {
        self.state.lock().channels.iter().map(|channel| channel.queue.len() - channel.queued_events).sum()
    }

    /// True when every channel ended and all was read.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let state = self.state.lock();
        state.unfinished == 0 && !state.is_closed
    }

    pub(crate) fn set_remote(&self, channel: ChannelIndex, remote: &Arc<RemoteChannel>, pool: &Arc<BufferPool>) {
        let is_set = self.change(|state| {
            state.pool.get_or_insert_with(|| Arc::clone(pool));
            state.set_source(channel, Source::Remote(Arc::downgrade(remote)))
        });
        if !is_set {
            remote.release();
        }
    }

    pub(crate) fn fill_limit(&self) -> Arc<SharedFillLimit> {
        Arc::clone(&self.fill_limit)
    }

    fn on_local_ready(&self, channel: ChannelIndex) {
        let is_urgent = self.urgent.get().is_some() && self.has_local_priority(channel);
        self.change(|state| {
            if is_urgent {
                state.enqueue_first(channel);
                state.is_urgent = true;
            } else {
                state.enqueue(channel);
            }
        });
    }

    fn has_local_priority(&self, channel: ChannelIndex) -> bool {
        let source = self.state.lock().channels.get(channel.index()).map(|channel| channel.source.share());
        matches!(source, Some(Source::Local(cell)) if cell.has_priority())
    }

    fn poll_each(
        &self,
        max: usize,
        waker: &Waker,
        mut sink: impl FnMut(ChannelIndex, Element),
    ) -> Poll<Result<usize, ExchangeError>> {
        let mut taken = 0;
        loop {
            let (step, monitor, events_read) = {
                let mut state = self.state.lock();
                let step = state.take_ready(max, &mut taken, waker, &mut sink);
                (step, state.intake.take_flip(), std::mem::take(&mut state.events_read))
            };
            tell(events_read);
            if let Some(monitor) = monitor {
                monitor.wake();
            }
            match step {
                Step::Local(channel, cell, share) => taken += self.poll_local(channel, &cell, share, &mut sink),
                Step::Idle if taken == 0 => return Poll::Pending,
                Step::Failed(error) if taken == 0 => return Poll::Ready(Err(error)),
                Step::Idle | Step::Failed(_) | Step::Ended => return Poll::Ready(Ok(taken)),
            }
        }
    }

    /// Takes up to `share` elements from a local producer that has been taken off the ready list, and puts it back
    /// unless it was found empty: then it wakes us.
    fn poll_local(
        &self,
        channel: ChannelIndex,
        cell: &SubpartitionCell,
        share: usize,
        sink: &mut impl FnMut(ChannelIndex, Element),
    ) -> usize {
        let mut is_end = false;
        let taken = cell.poll_each(share, share, |polled| {
            is_end = matches!(polled.element, Element::Event(Event::EndOfPartition));
            sink(channel, polled.element);
        });
        if is_end {
            // Nothing follows: let go of the producer's cell and of the waker in it.
            cell.release();
            self.change(|state| state.end_local(channel));
        } else if taken > 0 {
            self.on_local_ready(channel);
        } else if let Some(failure) = cell.failure() {
            self.fail_channel(channel, failure);
        }
        taken
    }

    /// Changes the state, then wakes the task if it sleeps and the change is of interest to it.
    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock();
        let result = change(&mut state);
        let is_news = !state.ready.is_empty() || state.failure.is_some() || state.is_closed || state.unfinished == 0;
        let sleeper = if is_news { state.sleeper.take() } else { None };
        let monitor = state.intake.take_flip();
        let is_urgent = std::mem::take(&mut state.is_urgent);
        state.assert_invariants();
        drop(state);
        for waker in [sleeper, monitor].into_iter().flatten() {
            waker.wake();
        }
        if is_urgent && let Some(urgent) = self.urgent.get() {
            urgent.wake_by_ref();
        }
        result
    }
}

fn tell(events_read: Vec<(Weak<RemoteChannel>, EventsRead)>) {
    for (remote, read) in events_read {
        if let Some(remote) = remote.upgrade() {
            remote.on_events_read(read);
        }
    }
}

impl Drop for InputGate {
    fn drop(&mut self) {
        self.close();
    }
}

const NOT_BLOCKED: ExchangeError = ExchangeError::Misuse("resumed a channel that is not blocked");
