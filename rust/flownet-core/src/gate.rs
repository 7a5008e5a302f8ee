//! Consumer side of an exchange: one [`InputGate`] per task input.
//!
//! A gate returns one element at a time to its task and treats its channels fairly. The connection's driver queues the
//! elements of a remote channel here. A local channel has no queue: the gate polls the producer's [`SubpartitionCell`].
//! A buffer thus passes from task to task without a copy, credit or a second queue.
//!
//! # Invariants
//! - I1: a channel is in the ready list at most once. It is in the list if its queue has an element, or if its local
//!   producer has woken it and a poll has not found it empty since.
//! - I2: a channel yields no element after its end of partition.
//! - I3: the first change after the task found no element calls the task's waker, once.
//! - I4: a remote channel queues at most [`EVENT_WINDOW`](crate::credit::EVENT_WINDOW) events, because the gate reports
//!   to its producer how many events the task has read. Credit bounds the data; [`ReceiveQueueLimits`] bound it if a
//!   channel has no credit.
//!
//! # Lock
//! The gate has one lock. The driver and the task hold it for a few statements; the task takes it once per batch. The
//! gate polls local producers without the lock. Local producers hold no lock when they wake this gate. The gate holds
//! no lock when it drops their buffers.

mod inspection;
mod queue;
mod source;
mod state;

use std::sync::{Arc, OnceLock, Weak};
use std::task::{Poll, Waker};

use flownet_memory::BufferPool;

pub use self::inspection::ChannelInspection;
use self::queue::ChannelQueue;
use self::source::{LocalWaker, Source};
use self::state::{State, Step};

use crate::alternatives::receive_queue::ReceiveQueue;
pub use crate::alternatives::receive_queue::{HIGH_WATERMARK, LOW_WATERMARK, ReceiveQueueCounters, ReceiveQueueLimits};
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
    /// Woken by priority events, even if the task does not wait for this gate.
    urgent: OnceLock<Waker>,
    /// Shared by all channels: remote channels read it whenever they take an announcement.
    fill_limit: Arc<SharedFillLimit>,
    state: Lock<State>,
}

impl InputGate {
    /// Creates a gate with `channels` channels. [`Self::set_local`] or a [`RemoteChannel`] connects each of them.
    #[must_use]
    pub fn new(channels: u32) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            urgent: OnceLock::new(),
            fill_limit: Arc::default(),
            state: Lock::new(State::new(channels)),
        })
    }

    /// Connects a channel to a producer of this process. The channel fails if the subpartition already has a reader or
    /// has failed.
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
                // The reader must poll once before the producer wakes it.
                state.enqueue(channel);
            }
            is_set
        });
        if !is_set {
            cell.release();
        }
    }

    /// Returns the next element, or `None` if all channels have ended. Takes one buffer from each ready channel in
    /// turn. The last element of a channel is its [`Event::EndOfPartition`]. If no element is ready, the next element,
    /// failure or close wakes `waker`.
    pub fn poll_next(&self, waker: &Waker) -> Poll<Result<Option<(ChannelIndex, Element)>, ExchangeError>> {
        let mut next = None;
        self.poll_each(1, waker, |channel, element| next = Some((channel, element))).map_ok(|_| next)
    }

    /// Appends up to `max` elements in the order of [`Self::poll_next`] and takes the lock once. Returns `Ok(0)` if all
    /// channels have ended.
    pub fn poll_batch(
        &self,
        max: usize,
        out: &mut Vec<(ChannelIndex, Element)>,
        waker: &Waker,
    ) -> Poll<Result<usize, ExchangeError>> {
        self.poll_each(max.max(1), waker, |channel, element| out.push((channel, element)))
    }

    /// Sets the waker of priority events, which wakes the task even if it does not wait for the gate. From then on the
    /// gate stores the in-flight data that such events overtook, for [`Self::take_overtaken`]. Takes effect once.
    pub fn set_urgent(&self, waker: Waker) {
        let _ = self.urgent.set(waker);
        self.state.lock().keeps_overtaken = true;
    }

    /// Takes all priority events that have arrived, ahead of all other elements.
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

    /// Marks a checkpoint as late. Its barriers on remote channels overtake the elements queued here, whether they are
    /// queued already or arrive later. This applies to unaligned barriers and to barriers aligned with a timeout. The
    /// barriers of local channels are queued at their producers and not here.
    pub fn expire(&self, checkpoint_id: CheckpointId) {
        self.change(|state| state.expire(checkpoint_id));
    }

    /// Returns the in-flight data of one priority event of this channel, as far as it had arrived at this gate. The
    /// producer knows the rest. Returns the data of the event that was read first and not asked for yet. The elements
    /// are copies that share the bytes.
    pub fn take_overtaken(&self, channel: ChannelIndex) -> Vec<Element> {
        let mut state = self.state.lock();
        let place = state.overtaken.iter().position(|(of, _)| *of == channel);
        place.map_or_else(Vec::new, |place| state.overtaken.remove(place).1)
    }

    /// Queues an element that arrived for a remote channel. Drops it if the gate is closed.
    pub fn on_element(&self, channel: ChannelIndex, element: Element) -> Result<(), PeerViolation> {
        self.queue_element(channel, element, |_| ())
    }

    /// The same. Changes the byte counts first, in one step with it.
    pub(crate) fn queue_element(
        &self,
        channel: ChannelIndex,
        element: Element,
        change_counts: impl FnOnce(&mut ReceiveQueue),
    ) -> Result<(), PeerViolation> {
        let mut element = Some(element);
        // An element that stays in the slot is dropped outside of the lock.
        self.change(|state| {
            change_counts(&mut state.receive_queue);
            state.push(channel, &mut element)
        })
    }

    /// Runs `work` on the byte counts and their limits.
    pub(crate) fn with_receive_queue<R>(&self, work: impl FnOnce(&mut ReceiveQueue) -> R) -> R {
        work(&mut self.state.lock().receive_queue)
    }

    /// Resumes the producer of a channel after the task has handled the channel's blocking event.
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

    /// Fails the gate because of one channel. Stores the first failure only. Ignored if the channel's end has arrived.
    pub fn fail_channel(&self, channel: ChannelIndex, error: ExchangeError) {
        self.change(|state| {
            if state.channels.get(channel.index()).is_some_and(|channel| !channel.has_end) {
                state.fail(error);
            }
        });
    }

    /// Fails the gate, unless the end of every channel has already arrived.
    pub fn fail_all(&self, error: ExchangeError) {
        self.change(|state| {
            if state.channels.iter().any(|channel| !channel.has_end) {
                state.fail(error);
            }
        });
    }

    /// Releases the queued elements, the local producers, the remote channels and their shared pool. From then on polls
    /// return [`ExchangeError::Closed`].
    pub fn close(&self) {
        let (channels, pool, _overtaken) = self.change(|state| {
            state.is_closed = true;
            state.ready.clear();
            state.receive_queue.clear();
            let empty = state.channels.iter().map(|_| ChannelQueue::default()).collect();
            let channels = std::mem::replace(&mut state.channels, empty);
            (channels, state.pool.take(), std::mem::take(&mut state.overtaken))
        });
        // Destroy the pool first: it drops its references to channels that wait for a segment. They would keep it alive
        // for ever.
        if let Some(pool) = pool {
            pool.destroy();
        }
        for channel in channels {
            channel.source.release();
        }
    }

    /// Sets how far producers fill buffers from now on, except the producers of channels without credit. A remote
    /// producer receives the limit with its next credit. It needs no wake-up: a producer without credit sends nothing.
    pub fn set_fill_limit(&self, limit: FillLimit) {
        self.fill_limit.set(limit);
        for channel in &self.state.lock().channels {
            if let Source::Local(cell) = &channel.source {
                cell.set_fill_limit(limit);
            }
        }
    }

    /// Returns the number of buffers that hold data for the task: buffers here, and buffers that producers have
    /// reported. A buffer that the task took counts until it is dropped if it came from another process, and not at all
    /// if it is local. Visits every channel, so do not call it often.
    #[must_use]
    pub fn buffers_in_use(&self) -> usize {
        let sources: Vec<_> = self.state.lock().channels.iter().map(|channel| channel.source.share()).collect();
        sources.iter().map(Source::buffers_in_use).sum()
    }

    /// Returns the number of channels.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.state.lock().channels.len()
    }

    /// Returns the number of data buffers that arrived and were not read. Local producers count their own.
    #[must_use]
    pub fn queued_buffers(&self) -> usize {
        self.state.lock().channels.iter().map(|channel| channel.queue.len() - channel.queued_events).sum()
    }

    /// Returns true if every channel has ended and the task has read all elements.
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
                (step, state.receive_queue.take_flip(), std::mem::take(&mut state.events_read))
            };
            // Outside of the lock: both may wake a thread that calls this gate.
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

    /// Takes up to `share` elements from a local producer that is no longer in the ready list. Adds it to the list
    /// again unless the poll found it empty. An empty producer wakes this gate later.
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
            // No element follows: release the producer's cell and the waker in it.
            cell.release();
            self.change(|state| state.end_local(channel));
        } else if taken > 0 {
            self.on_local_ready(channel);
        } else if let Some(failure) = cell.failure() {
            self.fail_channel(channel, failure);
        }
        taken
    }

    /// Changes the state. Then wakes the task if it sleeps and the change concerns it.
    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock();
        let result = change(&mut state);
        let is_news = !state.ready.is_empty() || state.failure.is_some() || state.is_closed || state.unfinished == 0;
        let sleeper = if is_news { state.sleeper.take() } else { None };
        let monitor = state.receive_queue.take_flip();
        let is_urgent = std::mem::take(&mut state.is_urgent);
        state.assert_invariants();
        drop(state);
        // Wake after the unlock: wakers may call back into this gate.
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
