//! One subpartition as a plain machine: what a writer queued and what its one reader may see of it.
//!
//! A buffer is queued when its builder is created, so that a flush shows committed bytes without closing the buffer.
//! The reader sees a buffer once it is *closed* (finished, and the writer said so) or *flushed*; events at once.
//! [`SubpartitionCell`](crate::partition::SubpartitionCell) shares this machine between two threads.
//!
//! # Invariants
//! - I1: only the last queued element may be open, that is, still being filled.
//! - I2: a closed buffer in the queue has unread bytes. An empty one is dropped when it is closed, so a backlog once
//!   reported is a promise: each buffer of it costs one credit and no credit is left without a buffer. (Flink sends
//!   empty buffers to channels without exclusive buffers for that purpose; here none exist.)
//! - I3: what the reader sees of an open buffer, it sees until it has taken it: a flush ends with the next poll, a watch
//!   when the reader has found the buffer drained and goes to sleep, and both when the buffer is closed.
//! - I4: the first `priority` elements are the priority events, in order of arrival.
//! - I5: nothing is accepted behind the end of the partition or after release; after release the queue is empty.
//! - I6: a reader that was told that nothing is there is woken once, by the first change that gives it something.
//! - I7: at most [`EVENT_WINDOW`] events are queued, and the two of the end; and [`MOST_MARKERS`] of latency, which take no
//!   room of theirs.

use std::collections::VecDeque;

use flownet_memory::{Buffer, BufferConsumer};

use crate::credit::{Backlog, EVENT_WINDOW};
use crate::error::PeerViolation;
use crate::event::{Barrier, BarrierKind, Event};
use crate::ids::CheckpointId;

/// What travels on a channel.
#[derive(Clone, Debug)]
pub enum Element {
    /// Bytes of records; costs the sender one credit.
    Data(Buffer),
    /// An event; free.
    Event(Event),
}

/// What a priority event has overtaken in a subpartition.
#[derive(Clone, Debug, Default)]
pub struct OvertakenData {
    /// The last watermark that the reader was given before: timestamps may refer to it.
    pub watermark_ms: Option<i64>,
    /// All that is queued behind the event, in order.
    pub elements: Vec<Element>,
}

/// Data in a subpartition's queue.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct QueuedData {
    /// Buffers, the one being filled included.
    pub buffers: u64,
    /// Bytes committed to them and not read.
    pub bytes: u64,
    /// These, and all that were in the queue before.
    pub bytes_so_far: u64,
}

/// One element on its way out of a subpartition.
#[derive(Clone, Debug)]
pub struct PolledElement {
    /// The element.
    pub element: Element,
    /// Data buffers that wait behind it.
    pub backlog: Backlog,
    /// Its place among the elements of the subpartition, events included. Wraps around.
    pub sequence: u32,
    /// What could be polled now.
    pub next: NextElement,
}

/// What the next poll would give.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NextElement {
    /// Nothing.
    None,
    /// A data buffer: takes a credit.
    Data,
    /// An event.
    Event,
}

/// An event that was not queued.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RefusedEvent {
    /// Nobody reads it any more.
    Closed(Event),
    /// As many wait as may.
    TooMany(Event),
}

/// Whom to wake after a change.
#[must_use]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Notify {
    /// The reader: it sleeps and there is something for it.
    Reader,
    /// Nobody.
    Nobody,
}

/// See the [module docs](self).
#[derive(Debug)]
pub struct Subpartition {
    queue: VecDeque<QueuedElement>,
    /// Data buffers in the queue, the open one included.
    buffers: Backlog,
    /// Events in the queue, but for markers.
    events: u32,
    /// Markers of latency in the queue.
    markers: u32,
    /// The reader has as many events to read as it may: markers are left out.
    leaves_out_markers: bool,
    priority: usize,
    tail: Tail,
    is_blocked: bool,
    is_ended: bool,
    is_consumed: bool,
    is_released: bool,
    sequence: u32,
    reader: Reader,
    /// The last watermark that was polled.
    watermark_ms: Option<i64>,
    /// Bytes that left the queue: polled, or dropped by a release.
    bytes_gone: u64,
    /// The reader went to sleep on a buffer that it had watched.
    has_ended_watch: bool,
    /// Consumers whose drop may send a segment home: dropped by the caller, outside of any lock.
    discarded: Vec<BufferConsumer>,
}

#[derive(Debug)]
enum QueuedElement {
    Data(BufferConsumer),
    Event(Event),
}

impl QueuedElement {
    /// The same once more, sharing its bytes; none if it has none to read.
    fn copy(&self) -> Option<Element> {
        match self {
            Self::Data(buffer) => buffer.copy().poll().map(Element::Data),
            Self::Event(event) => Some(Element::Event(event.clone())),
        }
    }
}

/// The last element, as far as it is still being filled.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Tail {
    /// It is not.
    Closed,
    /// The reader may not see it yet.
    Hidden,
    /// The next poll takes what is committed by then.
    Flushed,
    /// The reader takes what is committed, poll by poll, until it has found nothing new.
    Watched,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Reader {
    Absent,
    Awake,
    /// Found nothing at all.
    AwaitsAny,
    /// Found data it has no credit for; more data is no news.
    AwaitsEvent,
}

impl Default for Subpartition {
    fn default() -> Self {
        Self::new()
    }
}

impl Subpartition {
    /// An empty subpartition without a reader.
    #[must_use]
    pub fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            buffers: Backlog::ZERO,
            events: 0,
            markers: 0,
            leaves_out_markers: false,
            priority: 0,
            tail: Tail::Closed,
            is_blocked: false,
            is_ended: false,
            is_consumed: false,
            is_released: false,
            sequence: 0,
            reader: Reader::Absent,
            watermark_ms: None,
            bytes_gone: 0,
            has_ended_watch: false,
            discarded: Vec::new(),
        }
    }

    /// Notes that a reader is there. It is taken as awake: it looks once before it waits to be woken.
    pub fn attach_reader(&mut self) {
        self.reader = Reader::Awake;
    }

    /// Queues the buffer of a new builder; the one before it must be finished. Given back after the end or release.
    pub fn add_buffer(&mut self, buffer: BufferConsumer) -> Result<Notify, BufferConsumer> {
        if self.is_closed() {
            return Err(buffer);
        }
        self.close_tail();
        self.queue.push_back(QueuedElement::Data(buffer));
        self.buffers.grow();
        self.tail = Tail::Hidden;
        self.assert_invariants();
        Ok(self.notify())
    }

    /// Queues an event: a priority event before all data, any other behind it (the open builder must be finished
    /// then). Given back after the end or release, and where too many wait: then a watermark takes the place of the one
    /// in front of it, of which it says all, and only the end is always taken. A marker is taken and goes nowhere where
    /// others wait: it measures, and must not hold up.
    pub fn add_event(&mut self, event: Event) -> Result<Notify, RefusedEvent> {
        if self.is_closed() {
            return Err(RefusedEvent::Closed(event));
        }
        if event.is_marker() {
            return Ok(self.add_marker(event));
        }
        let is_end = matches!(event, Event::EndOfData { .. } | Event::EndOfPartition);
        if self.events >= EVENT_WINDOW && !is_end {
            return match (self.queue.back_mut(), event) {
                (Some(QueuedElement::Event(last @ Event::Watermark { .. })), event @ Event::Watermark { .. }) => {
                    *last = event;
                    Ok(Notify::Nobody)
                }
                (_, event) => Err(RefusedEvent::TooMany(event)),
            };
        }
        self.events += 1;
        if event.is_priority() {
            self.queue.insert(self.priority, QueuedElement::Event(event));
            self.priority += 1;
        } else {
            self.close_tail();
            self.is_ended = matches!(event, Event::EndOfPartition);
            self.queue.push_back(QueuedElement::Event(event));
        }
        self.assert_invariants();
        Ok(self.notify())
    }

    /// So few may wait, and so few others with them, that none of these finds no room because of it.
    fn add_marker(&mut self, marker: Event) -> Notify {
        if self.leaves_out_markers || self.markers >= MOST_MARKERS || self.events >= EVENT_WINDOW / 2 {
            return Notify::Nobody;
        }
        self.markers += 1;
        self.close_tail();
        self.queue.push_back(QueuedElement::Event(marker));
        self.assert_invariants();
        self.notify()
    }

    /// Says whether markers are left out for now, because the reader has enough to read.
    pub fn leave_out_markers(&mut self, leaves_out: bool) {
        self.leaves_out_markers = leaves_out;
    }

    /// Queues a priority event as [`Self::add_event`] does, and says what it overtakes: copies, which share the bytes. The
    /// open builder must be finished. The reader is woken whatever it waits for, as it may be busy with what is overtaken.
    pub fn overtake(&mut self, event: Event) -> Result<(OvertakenData, Notify), RefusedEvent> {
        debug_assert!(event.is_priority(), "only priority events overtake");
        self.close_tail();
        let behind = self.queue.iter().skip(self.priority).filter_map(QueuedElement::copy);
        let overtaken = OvertakenData { watermark_ms: self.watermark_ms, elements: behind.collect() };
        let notify = self.add_event(event)?;
        let notify = if notify == Notify::Reader { notify } else { self.notify_of_priority() };
        Ok((overtaken, notify))
    }

    /// Puts the barrier of this checkpoint, if it is queued in line until it takes too long, ahead of what is queued, and
    /// says what it overtakes as [`Self::overtake`] does. None if no such barrier is queued.
    pub fn expire(&mut self, checkpoint_id: CheckpointId) -> Option<(OvertakenData, Notify)> {
        let is_late = |queued: &QueuedElement| matches!(queued, QueuedElement::Event(event) if event.is_late_barrier(checkpoint_id));
        let place = self.queue.iter().position(is_late)?;
        let Some(QueuedElement::Event(Event::Barrier(barrier))) = self.queue.remove(place) else { return None };
        let behind = self.queue.range(self.priority..place).filter_map(QueuedElement::copy);
        let overtaken = OvertakenData { watermark_ms: self.watermark_ms, elements: behind.collect() };
        let ahead = Event::Barrier(Barrier { kind: BarrierKind::Unaligned, ..barrier });
        self.queue.insert(self.priority, QueuedElement::Event(ahead));
        self.priority += 1;
        self.assert_invariants();
        Some((overtaken, self.notify_of_priority()))
    }

    /// A priority event waits, and may be read.
    #[must_use]
    pub fn has_priority(&self) -> bool {
        self.priority > 0 && !self.is_blocked
    }

    /// The last builder was finished and no other follows now: what it holds may go.
    pub fn finish_buffer(&mut self) -> Notify {
        self.close_tail();
        self.assert_invariants();
        self.notify()
    }

    /// Lets the reader see what is committed to the open buffer, once. The buffer stays open.
    pub fn flush(&mut self) -> Notify {
        self.show(Tail::Flushed)
    }

    /// As [`Self::flush`], and what is committed from now on too, until the reader has found nothing new.
    pub fn watch(&mut self) -> Notify {
        self.show(Tail::Watched)
    }

    /// The next element, if the reader may see one. The caller pays the credit.
    pub fn poll(&mut self) -> Option<PolledElement> {
        loop {
            let element = match self.next() {
                NextElement::None => break,
                NextElement::Event => self.pop_event().map(Element::Event),
                NextElement::Data => self.pop_data().map(Element::Data),
            };
            let Some(element) = element else { continue };
            self.reader = Reader::Awake;
            let sequence = self.sequence;
            self.sequence = sequence.wrapping_add(1);
            self.assert_invariants();
            return Some(PolledElement { element, backlog: self.backlog(), sequence, next: self.next() });
        }
        self.fall_asleep(Reader::AwaitsAny);
        None
    }

    /// Can a reader with or without credit take something? When not, it is woken as soon as that changes.
    pub fn is_available(&mut self, has_credit: bool) -> bool {
        match self.next() {
            NextElement::Event => true,
            NextElement::Data if has_credit => true,
            NextElement::Data => {
                self.fall_asleep(Reader::AwaitsEvent);
                false
            }
            NextElement::None => {
                self.fall_asleep(Reader::AwaitsAny);
                false
            }
        }
    }

    /// Ends the silence behind a blocking event.
    pub fn resume(&mut self) -> Result<Notify, PeerViolation> {
        if self.is_released {
            return Ok(Notify::Nobody);
        }
        if !self.is_blocked {
            return Err(PeerViolation::NotBlocked);
        }
        self.is_blocked = false;
        Ok(self.notify())
    }

    /// Drops all that is queued and refuses more. Tells the reader, if there is one.
    pub fn release(&mut self) -> Notify {
        self.is_released = true;
        self.tail = Tail::Closed;
        self.priority = 0;
        (self.events, self.markers) = (0, 0);
        self.buffers = Backlog::ZERO;
        for queued in self.queue.drain(..) {
            if let QueuedElement::Data(buffer) = queued {
                self.bytes_gone += buffer.unread_bytes() as u64;
                self.discarded.push(buffer);
            }
        }
        self.assert_invariants();
        if self.reader == Reader::Absent { Notify::Nobody } else { Notify::Reader }
    }

    /// Consumers that left the queue unread or empty. Drop them outside of any lock: their segments go home.
    #[must_use]
    pub fn take_discarded(&mut self) -> Vec<BufferConsumer> {
        std::mem::take(&mut self.discarded)
    }

    /// Data buffers a reader with credit could take now.
    #[must_use]
    pub fn backlog(&self) -> Backlog {
        if self.is_blocked {
            Backlog::ZERO
        } else if self.is_tail_hidden() {
            self.buffers.without_open_tail()
        } else {
            self.buffers
        }
    }

    /// Elements, data and events, that a reader with credit enough could take now.
    #[must_use]
    pub fn readable(&self) -> usize {
        if self.is_blocked { 0 } else { self.queue.len() - usize::from(self.is_tail_hidden()) }
    }

    /// What the next poll would give.
    #[must_use]
    pub fn next(&self) -> NextElement {
        match self.queue.front() {
            _ if self.is_blocked => NextElement::None,
            None => NextElement::None,
            Some(QueuedElement::Event(_)) => NextElement::Event,
            Some(QueuedElement::Data(_)) if self.queue.len() == 1 && self.is_tail_hidden() => NextElement::None,
            Some(QueuedElement::Data(_)) => NextElement::Data,
        }
    }

    /// The last buffer is open and has no unread bytes.
    #[must_use]
    pub fn is_open_and_drained(&self) -> bool {
        self.tail != Tail::Closed && !self.tail_has_data()
    }

    /// The reader looks at the open buffer once more before it sleeps: a further flush changes nothing.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.tail == Tail::Watched
    }

    /// The reader went to sleep on a buffer it had watched, and a writer may just have relied on it: it must call
    /// [`Self::watch`] for itself before it really sleeps, and go on if that notifies it. Asked once.
    #[must_use]
    pub fn take_ended_watch(&mut self) -> bool {
        std::mem::take(&mut self.has_ended_watch)
    }

    /// True between a blocking event and its resume.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// The end of the partition was read, or the subpartition released.
    #[must_use]
    pub fn is_consumed(&self) -> bool {
        self.is_consumed || self.is_released
    }

    /// Data buffers in the queue, readable or not.
    #[must_use]
    pub fn queued_buffers(&self) -> u32 {
        self.buffers.get()
    }

    /// What is in the queue, readable or not. Looks at each element: for who looks now and then.
    #[must_use]
    pub fn queued(&self) -> QueuedData {
        let mut queued = QueuedData::default();
        for element in &self.queue {
            if let QueuedElement::Data(buffer) = element {
                queued.buffers += 1;
                queued.bytes += buffer.unread_bytes() as u64;
            }
        }
        queued.bytes_so_far = self.bytes_gone + queued.bytes;
        queued
    }

    fn is_closed(&self) -> bool {
        self.is_ended || self.is_released
    }

    fn show(&mut self, how: Tail) -> Notify {
        if self.tail != Tail::Closed && self.tail < how && self.tail_has_data() {
            self.tail = how;
        }
        self.assert_invariants();
        self.notify()
    }

    fn tail_has_data(&self) -> bool {
        matches!(self.queue.back(), Some(QueuedElement::Data(tail)) if tail.has_data())
    }

    fn is_tail_hidden(&self) -> bool {
        match self.tail {
            Tail::Closed | Tail::Flushed => false,
            Tail::Hidden => true,
            Tail::Watched => !self.tail_has_data(),
        }
    }

    fn close_tail(&mut self) {
        if std::mem::replace(&mut self.tail, Tail::Closed) == Tail::Closed {
            return;
        }
        if let Some(QueuedElement::Data(tail)) = self.queue.back_mut()
            && tail.is_drained()
            && let Some(QueuedElement::Data(empty)) = self.queue.pop_back()
        {
            self.buffers.shrink();
            self.discarded.push(empty);
        }
    }

    fn pop_event(&mut self) -> Option<Event> {
        let Some(QueuedElement::Event(event)) = self.queue.pop_front() else { return None };
        match event.is_marker() {
            true => self.markers -= 1,
            false => self.events -= 1,
        }
        self.priority = self.priority.saturating_sub(1);
        self.is_blocked = event.is_blocking();
        if let Event::Watermark { timestamp_ms } = event {
            self.watermark_ms = Some(timestamp_ms);
        }
        self.is_consumed |= matches!(event, Event::EndOfPartition);
        Some(event)
    }

    fn pop_data(&mut self) -> Option<Buffer> {
        let is_open_tail = self.tail != Tail::Closed && self.queue.len() == 1;
        if is_open_tail && self.tail == Tail::Flushed {
            self.tail = Tail::Hidden;
        }
        let Some(QueuedElement::Data(consumer)) = self.queue.front_mut() else { return None };
        let buffer = consumer.poll();
        self.bytes_gone += buffer.as_ref().map_or(0, |buffer| buffer.len() as u64);
        // A closed buffer is finished, so its first poll is also its last. An open one may have been finished since.
        if !is_open_tail || consumer.is_finished() {
            if is_open_tail {
                self.tail = Tail::Closed;
            }
            self.buffers.shrink();
            if let Some(QueuedElement::Data(read)) = self.queue.pop_front()
                && buffer.is_none()
            {
                self.discarded.push(read);
            }
        }
        buffer
    }

    fn fall_asleep(&mut self, how: Reader) {
        if self.reader != Reader::Absent {
            self.reader = how;
        }
        // Whether or not there is data by now: there was none when the reader looked.
        if how == Reader::AwaitsAny && self.tail == Tail::Watched {
            self.tail = Tail::Hidden;
            self.has_ended_watch = true;
        }
    }

    fn notify(&mut self) -> Notify {
        let is_due = match self.reader {
            Reader::Absent | Reader::Awake => false,
            Reader::AwaitsAny => self.next() != NextElement::None,
            Reader::AwaitsEvent => self.next() == NextElement::Event,
        };
        if is_due {
            self.reader = Reader::Awake;
            return Notify::Reader;
        }
        Notify::Nobody
    }

    /// The reader is woken whatever it waits for, as it may be busy with what is overtaken.
    fn notify_of_priority(&mut self) -> Notify {
        if self.reader == Reader::Absent || self.is_blocked {
            return self.notify();
        }
        self.reader = Reader::Awake;
        Notify::Reader
    }

    fn assert_invariants(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        let data = self.queue.iter().filter(|queued| matches!(queued, QueuedElement::Data(_))).count();
        assert_eq!(data, self.buffers.get() as usize, "the backlog counts every queued data buffer");
        assert_eq!(self.queue.len() - data, (self.events + self.markers) as usize, "every queued event is counted");
        assert!(self.events <= EVENT_WINDOW + 2 && self.markers <= MOST_MARKERS, "I7: queued events are bounded");
        assert!(
            self.tail == Tail::Closed || matches!(self.queue.back(), Some(QueuedElement::Data(_))),
            "I1: what is open is the last element"
        );
        assert!(self.tail != Tail::Flushed || self.tail_has_data(), "I3: what is flushed has unread bytes");
        assert!(
            self.queue.iter().take(self.priority).all(|queued| match queued {
                QueuedElement::Event(event) => event.is_priority(),
                QueuedElement::Data(_) => false,
            }),
            "I4: priority events come first"
        );
        assert!(!self.is_released || self.queue.is_empty(), "I5: nothing is queued after release");
    }
}

/// Markers of latency that may wait in a subpartition. The first of them tell of the longest wait.
pub const MOST_MARKERS: u32 = 16;

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_wrap_around() {
        let mut subpartition = Subpartition { sequence: u32::MAX, ..Subpartition::new() };
        for timestamp_ms in 0..2 {
            assert_eq!(subpartition.add_event(Event::Watermark { timestamp_ms }), Ok(Notify::Nobody));
        }
        let sequences = [(); 2].map(|()| subpartition.poll().map(|polled| polled.sequence));
        assert_eq!(sequences, [Some(u32::MAX), Some(0)]);
    }
}
