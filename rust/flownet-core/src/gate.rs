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
//! - I4: a channel queues at most [`MAX_QUEUED_EVENTS`] events; data is bounded by credit, or by [`IntakeBounds`] where
//!   a channel has none.
//!
//! # Lock
//! One, held for a few statements by the driver and by the task; taken once a batch by the task. Local producers are
//! polled while it is not held: they wake this gate from under no lock of theirs, and their buffers go home from under
//! no lock of ours.

mod intake;

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::task::{Poll, Wake, Waker};

use flownet_memory::{Buffer, BufferPool};

use self::intake::Intake;
pub use self::intake::{HIGH_WATERMARK, IntakeBounds, IntakeCounters, LOW_WATERMARK};

use crate::channel::RemoteChannel;
use crate::error::{ExchangeError, PeerViolation};
use crate::event::Event;
use crate::ids::ChannelIndex;
use crate::lock::Lock;
use crate::partition::SubpartitionCell;
use crate::subpartition::Element;

/// Events one channel may queue. They cost no credit, so this is their bound: far more than a task falls behind while
/// no data stops them at the producer. Beyond it watermarks merge, and anything else is the peer's fault.
pub const MAX_QUEUED_EVENTS: usize = 16_384;

/// See the [module docs](self).
#[derive(Debug)]
pub struct InputGate {
    me: Weak<Self>,
    state: Lock<State>,
}

#[derive(Debug)]
struct State {
    channels: Box<[Channel]>,
    ready: VecDeque<ChannelIndex>,
    /// The task that found nothing.
    sleeper: Option<Waker>,
    failure: Option<ExchangeError>,
    unfinished: usize,
    is_closed: bool,
    /// Where the remote channels have their segments from.
    pool: Option<Arc<BufferPool>>,
    intake: Intake,
}

#[derive(Debug, Default)]
struct Channel {
    source: Source,
    queue: VecDeque<Element>,
    queued_events: usize,
    /// Leading elements of the queue that are priority events.
    priority: usize,
    is_ready: bool,
    /// Its end of partition arrived (remote) or was read (local).
    has_end: bool,
}

#[derive(Debug, Default)]
enum Source {
    #[default]
    Unset,
    Remote(Weak<RemoteChannel>),
    Local(Arc<SubpartitionCell>),
}

/// What the task has to do after looking at the queues.
enum Step {
    /// Poll this producer for up to so many elements.
    Local(ChannelIndex, Arc<SubpartitionCell>, usize),
    /// Nothing more now.
    Idle,
    /// Every channel ended.
    Ended,
    Failed(ExchangeError),
}

impl InputGate {
    /// A gate with this many channels, each to be connected by [`Self::set_local`] or by a [`RemoteChannel`].
    #[must_use]
    pub fn new(channels: u32) -> Arc<Self> {
        Arc::new_cyclic(|me| Self { me: Weak::clone(me), state: Lock::new(State::new(channels)) })
    }

    /// Bounds what channels without credit may queue. Before they open; without, nothing bounds them.
    pub fn set_bounds(&self, bounds: IntakeBounds) {
        self.state.lock().intake.set_bounds(bounds);
    }

    /// Wakes `monitor` whenever [`Self::is_congested`] changes.
    pub fn set_monitor(&self, monitor: Waker) {
        self.state.lock().intake.set_monitor(monitor);
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
        let (channels, pool) = self.change(|state| {
            state.is_closed = true;
            state.ready.clear();
            state.intake.clear();
            let empty = state.channels.iter().map(|_| Channel::default()).collect();
            (std::mem::replace(&mut state.channels, empty), state.pool.take())
        });
        // First the pool: it forgets channels that wait for a segment, which would keep it alive for ever.
        if let Some(pool) = pool {
            pool.destroy();
        }
        for channel in channels {
            channel.source.release();
        }
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

    /// The queue passed [`HIGH_WATERMARK`] of its bound and has not come down to [`LOW_WATERMARK`] since. Only told while
    /// there is a monitor.
    #[must_use]
    pub fn is_congested(&self) -> bool {
        self.state.lock().intake.is_congested()
    }

    /// Bytes of remote channels that are queued, and records that were dropped.
    #[must_use]
    pub fn intake(&self) -> IntakeCounters {
        self.state.lock().intake.counters()
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

    /// Lets a channel decide which of the records that arrived come in. One lock a buffer.
    pub(crate) fn admit<R>(&self, decide: impl FnOnce(&mut Intake) -> R) -> R {
        decide(&mut self.state.lock().intake)
    }

    /// Queues bytes of records that were admitted.
    pub(crate) fn on_admitted(&self, channel: ChannelIndex, buffer: Buffer) -> Result<(), PeerViolation> {
        let bytes = buffer.len();
        let mut element = Some(Element::Data(buffer));
        self.change(|state| {
            state.intake.redeem(bytes);
            state.push(channel, &mut element)
        })
    }

    fn on_local_ready(&self, channel: ChannelIndex) {
        self.change(|state| state.enqueue(channel));
    }

    fn poll_each(
        &self,
        max: usize,
        waker: &Waker,
        mut sink: impl FnMut(ChannelIndex, Element),
    ) -> Poll<Result<usize, ExchangeError>> {
        let mut taken = 0;
        loop {
            let (step, monitor) = {
                let mut state = self.state.lock();
                (state.take_ready(max, &mut taken, waker, &mut sink), state.intake.take_flip())
            };
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
        state.assert_invariants();
        drop(state);
        for waker in [sleeper, monitor].into_iter().flatten() {
            waker.wake();
        }
        result
    }
}

impl Drop for InputGate {
    fn drop(&mut self) {
        self.close();
    }
}

impl State {
    fn new(channels: u32) -> Self {
        Self {
            channels: (0..channels).map(|_| Channel::default()).collect(),
            ready: VecDeque::new(),
            sleeper: None,
            failure: None,
            unfinished: channels as usize,
            is_closed: false,
            pool: None,
            intake: Intake::new(),
        }
    }

    fn set_source(&mut self, index: ChannelIndex, source: Source) -> bool {
        if self.is_closed {
            return false;
        }
        match self.channels.get_mut(index.index()) {
            Some(channel) if matches!(channel.source, Source::Unset) => {
                channel.source = source;
                true
            }
            Some(_) => {
                self.fail(ExchangeError::Misuse("connected a channel twice"));
                false
            }
            None => {
                self.fail(ExchangeError::Misuse("connected a channel that the gate does not have"));
                false
            }
        }
    }

    fn push(&mut self, index: ChannelIndex, slot: &mut Option<Element>) -> Result<(), PeerViolation> {
        let Some(channel) = self.channels.get_mut(index.index()) else { return Ok(()) };
        if self.is_closed {
            return Ok(());
        }
        if channel.has_end {
            return Err(PeerViolation::AfterEnd);
        }
        if let Some(Element::Event(event)) = slot
            && channel.queued_events >= MAX_QUEUED_EVENTS
        {
            return channel.merge_watermark(event);
        }
        if let Some(Element::Data(buffer)) = slot {
            if self.intake.excess().is_some() {
                // The gate has failed for it: what still comes must not make it worse.
                return Ok(());
            }
            self.intake.arrive(buffer.len());
        }
        if let Some(element) = slot.take()
            && channel.push(element)
        {
            // Ahead of the channels that only have data.
            self.enqueue_first(index);
        } else {
            self.enqueue(index);
        }
        if let Some((queued_bytes, limit_bytes)) = self.intake.excess() {
            self.fail(ExchangeError::ReceiveLimit { channel: index, queued_bytes, limit_bytes });
        }
        Ok(())
    }

    fn enqueue(&mut self, index: ChannelIndex) {
        if let Some(channel) = self.channels.get_mut(index.index())
            && !self.is_closed
            && (!channel.has_end || !channel.queue.is_empty())
            && !std::mem::replace(&mut channel.is_ready, true)
        {
            self.ready.push_back(index);
        }
    }

    fn enqueue_first(&mut self, index: ChannelIndex) {
        if let Some(channel) = self.channels.get_mut(index.index())
            && std::mem::replace(&mut channel.is_ready, true)
        {
            self.ready.retain(|&ready| ready != index);
        }
        self.ready.push_front(index);
    }

    fn take_ready(
        &mut self,
        max: usize,
        taken: &mut usize,
        waker: &Waker,
        sink: &mut impl FnMut(ChannelIndex, Element),
    ) -> Step {
        if self.is_closed {
            return Step::Failed(ExchangeError::Closed);
        }
        if let Some(failure) = &self.failure {
            return Step::Failed(failure.clone());
        }
        while *taken < max {
            let Some(index) = self.ready.pop_front() else { break };
            let channel = &mut self.channels[index.index()];
            channel.is_ready = false;
            if let Source::Local(cell) = &channel.source {
                // In turn with others, one buffer each; alone, all that is asked for.
                let share = if self.ready.is_empty() { max - *taken } else { 1 };
                return Step::Local(index, Arc::clone(cell), share);
            }
            if let Some(element) = channel.pop() {
                if let Element::Data(buffer) = &element {
                    self.intake.leave(buffer.len());
                }
                self.unfinished -= usize::from(matches!(element, Element::Event(Event::EndOfPartition)));
                *taken += 1;
                sink(index, element);
            }
            self.requeue(index);
        }
        if self.unfinished == 0 {
            return Step::Ended;
        }
        if *taken == 0 {
            self.sleeper = Some(waker.clone());
        }
        Step::Idle
    }

    fn requeue(&mut self, index: ChannelIndex) {
        let channel = &self.channels[index.index()];
        match (channel.queue.is_empty(), channel.priority) {
            (true, _) => {}
            (false, 0) => self.enqueue(index),
            (false, _) => self.enqueue_first(index),
        }
    }

    fn end_local(&mut self, index: ChannelIndex) {
        if let Some(channel) = self.channels.get_mut(index.index())
            && !self.is_closed
        {
            channel.has_end = true;
            self.unfinished -= 1;
        }
    }

    fn fail(&mut self, error: ExchangeError) {
        if !self.is_closed {
            self.failure.get_or_insert(error);
        }
    }

    fn assert_invariants(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        let ready = self.channels.iter().filter(|channel| channel.is_ready).count();
        assert_eq!(ready, self.ready.len(), "I1: a channel is in the ready list once, and only if it says so");
        assert!(
            self.channels.iter().all(|channel| channel.is_ready || channel.queue.is_empty()),
            "I1: a channel with elements is in the ready list"
        );
        assert!(
            self.channels.iter().all(|channel| channel.queued_events <= MAX_QUEUED_EVENTS),
            "I4: a channel's queued events are bounded"
        );
    }
}

impl Channel {
    /// True if the element is a priority event, and the first.
    fn push(&mut self, element: Element) -> bool {
        let Element::Event(event) = &element else {
            self.queue.push_back(element);
            return false;
        };
        self.queued_events += 1;
        self.has_end = matches!(event, Event::EndOfPartition);
        if !event.is_priority() {
            self.queue.push_back(element);
            return false;
        }
        self.queue.insert(self.priority, element);
        self.priority += 1;
        self.priority == 1
    }

    fn pop(&mut self) -> Option<Element> {
        let element = self.queue.pop_front()?;
        self.queued_events -= usize::from(matches!(element, Element::Event(_)));
        self.priority = self.priority.saturating_sub(1);
        Some(element)
    }

    /// A watermark directly behind a watermark says all that the first one said.
    fn merge_watermark(&mut self, event: &Event) -> Result<(), PeerViolation> {
        match (self.queue.back_mut(), event) {
            (Some(Element::Event(last @ Event::Watermark { .. })), Event::Watermark { .. }) => {
                *last = event.clone();
                Ok(())
            }
            _ => Err(PeerViolation::TooManyEvents { limit: MAX_QUEUED_EVENTS as u32 }),
        }
    }
}

impl Source {
    fn share(&self) -> Self {
        match self {
            Self::Unset => Self::Unset,
            Self::Remote(remote) => Self::Remote(Weak::clone(remote)),
            Self::Local(cell) => Self::Local(Arc::clone(cell)),
        }
    }

    fn release(self) {
        match self {
            Self::Unset => {}
            Self::Remote(remote) => {
                if let Some(remote) = remote.upgrade() {
                    remote.release();
                }
            }
            Self::Local(cell) => cell.release(),
        }
    }
}

const NOT_BLOCKED: ExchangeError = ExchangeError::Misuse("resumed a channel that is not blocked");

/// Called by a local producer that has something for a gate that found nothing.
struct LocalWaker {
    gate: Weak<InputGate>,
    channel: ChannelIndex,
}

impl Wake for LocalWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(gate) = self.gate.upgrade() {
            gate.on_local_ready(self.channel);
        }
    }
}
