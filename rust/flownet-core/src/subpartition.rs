//! State machine of one subpartition: the elements that a writer queued and those its single reader may see.
//!
//! A buffer is queued when its builder is created, so that a flush shows committed bytes without closing the buffer.
//! The reader sees a buffer once it is *closed* (finished, and the writer said so) or *flushed*. It sees events at
//! once. [`SubpartitionCell`](crate::partition::SubpartitionCell) shares this machine between two threads.
//!
//! # Invariants
//! - I1: only the last queued element may be open, that is, still being filled.
//! - I2: a closed buffer in the queue has unread bytes. An empty one is dropped when it is closed. A reported backlog
//!   is thus a promise: each of its buffers costs one credit, and no credit stays without a buffer. (Flink sends empty
//!   buffers to channels without exclusive buffers for that purpose; here there are none.)
//! - I3: the reader continues to see the visible bytes of an open buffer until it has taken them. A flush ends with the
//!   next poll. A watch ends when the reader has found the buffer drained and goes to sleep. Both end when the buffer
//!   is closed.
//! - I4: the first `priority` elements are the priority events, in order of arrival.
//! - I5: no element is accepted after the end of the partition or after release; after release the queue is empty.
//! - I6: a reader that found no element is woken once, by the first change that gives it one.
//! - I7: at most [`EVENT_WINDOW`] events are queued, plus the two of the end and [`MOST_MARKERS`] latency markers.
//!   Markers do not count against the window.

use std::collections::VecDeque;

use flownet_memory::{Buffer, BufferConsumer};

use crate::credit::{Backlog, EVENT_WINDOW};
use crate::error::PeerViolation;
use crate::event::{Barrier, BarrierKind, Event};
use crate::ids::CheckpointId;

/// Element of a channel: data or an event.
#[derive(Clone, Debug)]
pub enum Element {
    /// Bytes of records; costs the sender one credit.
    Data(Buffer),
    /// An event; free.
    Event(Event),
}

/// In-flight data that a priority event overtook in a subpartition.
#[derive(Clone, Debug, Default)]
pub struct OvertakenData {
    /// Last watermark that the reader received before; timestamps may refer to it.
    pub watermark_ms: Option<i64>,
    /// All elements queued after the event, in order.
    pub elements: Vec<Element>,
}

/// Amount of data in a subpartition's queue.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct QueuedData {
    /// Buffers, including the one being filled.
    pub buffers: u64,
    /// Bytes committed to these buffers and not read.
    pub bytes: u64,
    /// These bytes plus all bytes that have left the queue.
    pub bytes_so_far: u64,
}

/// Element that was polled from a subpartition.
#[derive(Clone, Debug)]
pub struct PolledElement {
    /// The element.
    pub element: Element,
    /// Data buffers that wait after this element.
    pub backlog: Backlog,
    /// Sequence number of the element in the subpartition; events count too. Wraps around.
    pub sequence: u32,
    /// Kind of the element that could be polled next.
    pub next: NextElement,
}

/// Kind of element that the next poll would return.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NextElement {
    /// No element.
    None,
    /// A data buffer, which costs a credit.
    Data,
    /// An event.
    Event,
}

/// An event that was not queued.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RefusedEvent {
    /// The subpartition has ended or was released.
    Closed(Event),
    /// The queue already holds the maximum number of events.
    TooMany(Event),
}

/// Thread to wake after a change.
#[must_use]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Notify {
    /// The reader, which sleeps and has an element to read.
    Reader,
    /// No thread.
    Nobody,
}

/// See the [module docs](self).
#[derive(Debug)]
pub struct Subpartition {
    queue: VecDeque<QueuedElement>,
    /// Data buffers in the queue, including the open one.
    buffers: Backlog,
    /// Events in the queue, except markers.
    events: u32,
    /// Latency markers in the queue.
    markers: u32,
    /// Leave out markers: the reader has few events left in its window.
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
    /// The reader went to sleep on a buffer that it watched.
    has_ended_watch: bool,
    /// Consumers whose drop may return a segment. The caller drops them outside of any lock.
    discarded: Vec<BufferConsumer>,
}

#[derive(Debug)]
enum QueuedElement {
    Data(BufferConsumer),
    Event(Event),
}

impl QueuedElement {
    /// Returns a copy that shares the bytes, or `None` if there are no bytes to read.
    fn copy(&self) -> Option<Element> {
        match self {
            Self::Data(buffer) => buffer.copy().poll().map(Element::Data),
            Self::Event(event) => Some(Element::Event(event.clone())),
        }
    }
}

/// State of the last element, which may be an open buffer.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Tail {
    /// No buffer is open.
    Closed,
    /// The reader may not see the open buffer yet.
    Hidden,
    /// The next poll takes the bytes committed by then.
    Flushed,
    /// The reader takes committed bytes, poll by poll, until it finds none.
    Watched,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Reader {
    Absent,
    Awake,
    /// Found no element at all.
    AwaitsAny,
    /// Found data but has no credit for it: more data is no reason to wake it.
    AwaitsEvent,
}

impl Default for Subpartition {
    fn default() -> Self {
        Self::new()
    }
}

impl Subpartition {
    /// Creates an empty subpartition without a reader.
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

    /// Registers the reader. It counts as awake: it polls once before it waits for a wake-up.
    pub fn attach_reader(&mut self) {
        self.reader = Reader::Awake;
    }

    /// Queues the buffer of a new builder; the previous builder must be finished. Returns the buffer after the end or
    /// release.
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

    /// Queues an event. A priority event goes before all data, any other event after it; the open builder must then be
    /// finished. Returns the event after the end or release, or if too many events wait. If too many wait, a watermark
    /// replaces a watermark at the end of the queue, because it supersedes it. The two events of the end are always
    /// accepted. A marker that finds others waiting may be dropped: it measures and must not delay other elements.
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

    /// Queues a marker, or drops it if many markers or events wait. No event thus lacks room because of markers.
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

    /// Sets whether markers are left out for now, because the reader has enough to read.
    pub fn leave_out_markers(&mut self, leaves_out: bool) {
        self.leaves_out_markers = leaves_out;
    }

    /// Queues a priority event like [`Self::add_event`] and returns the in-flight data that it overtook. These are
    /// copies that share the bytes. The open builder must be finished. The reader is woken in every state, because it
    /// may be busy with the data that the event overtakes.
    pub fn overtake(&mut self, event: Event) -> Result<(OvertakenData, Notify), RefusedEvent> {
        debug_assert!(event.is_priority(), "only priority events overtake");
        self.close_tail();
        let behind = self.queue.iter().skip(self.priority).filter_map(QueuedElement::copy);
        let overtaken = OvertakenData { watermark_ms: self.watermark_ms, elements: behind.collect() };
        let notify = self.add_event(event)?;
        let notify = if notify == Notify::Reader { notify } else { self.notify_of_priority() };
        Ok((overtaken, notify))
    }

    /// Moves the barrier of a late checkpoint ahead of the queued data. The barrier must be one that waits in line
    /// until it takes too long. Returns the data that it overtakes like [`Self::overtake`], or `None` if no such
    /// barrier is queued.
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

    /// Returns true if a priority event waits and may be read.
    #[must_use]
    pub fn has_priority(&self) -> bool {
        self.priority > 0 && !self.is_blocked
    }

    /// Closes the last buffer, whose builder was finished and has no successor yet: the reader may take it.
    pub fn finish_buffer(&mut self) -> Notify {
        self.close_tail();
        self.assert_invariants();
        self.notify()
    }

    /// Shows the bytes committed to the open buffer to the reader, once. The buffer stays open.
    pub fn flush(&mut self) -> Notify {
        self.show(Tail::Flushed)
    }

    /// Like [`Self::flush`], and also shows bytes committed from now on, until the reader has found no new bytes.
    pub fn watch(&mut self) -> Notify {
        self.show(Tail::Watched)
    }

    /// Returns the next element if the reader may see one. The caller pays the credit.
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

    /// Returns whether a reader with or without credit can take an element. If not, the reader is woken as soon as it
    /// can.
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

    /// Resumes the subpartition after a blocking event.
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

    /// Drops all queued elements and refuses further ones. Notifies the reader, if there is one.
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

    /// Takes the consumers that left the queue unread or empty. Drop them outside of any lock, because this returns
    /// their segments.
    #[must_use]
    pub fn take_discarded(&mut self) -> Vec<BufferConsumer> {
        std::mem::take(&mut self.discarded)
    }

    /// Returns the number of data buffers that a reader with credit could take now.
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

    /// Returns the number of elements, data and events, that a reader with enough credit could take now.
    #[must_use]
    pub fn readable(&self) -> usize {
        if self.is_blocked { 0 } else { self.queue.len() - usize::from(self.is_tail_hidden()) }
    }

    /// Returns the kind of element that the next poll would return.
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

    /// Returns true if the last buffer is open and has no unread bytes.
    #[must_use]
    pub fn is_open_and_drained(&self) -> bool {
        self.tail != Tail::Closed && !self.tail_has_data()
    }

    /// Returns true if the reader checks the open buffer once more before it sleeps: a further flush changes nothing.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.tail == Tail::Watched
    }

    /// Returns true, once, if the reader went to sleep on a buffer that it watched. A writer may have relied on the
    /// watch just now. The reader must call [`Self::watch`] itself before it really sleeps, and continue if that
    /// notifies it.
    #[must_use]
    pub fn take_ended_watch(&mut self) -> bool {
        std::mem::take(&mut self.has_ended_watch)
    }

    /// Returns true between a blocking event and its resume.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Returns true if the end of the partition was read or the subpartition was released.
    #[must_use]
    pub fn is_consumed(&self) -> bool {
        self.is_consumed || self.is_released
    }

    /// Returns the number of data buffers in the queue, readable or not.
    #[must_use]
    pub fn queued_buffers(&self) -> u32 {
        self.buffers.get()
    }

    /// Returns the amount of data in the queue, readable or not. Visits each element, so do not call it often.
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
        // A closed buffer is finished, so its first poll is also its last. An open one may have been finished
        // meanwhile.
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
        // End the watch even if there is data by now: there was none when the reader polled.
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

    /// Wakes the reader in every state, because it may be busy with the data that the event overtakes.
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

/// Most latency markers that may wait in a subpartition. The first of them show the longest wait.
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
