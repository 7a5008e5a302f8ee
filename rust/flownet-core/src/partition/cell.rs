//! Subpartition shared between its writer and its reader.

use std::task::Waker;

use flownet_memory::BufferConsumer;

use crate::credit::{Backlog, EVENT_WINDOW};
use crate::debloat::{FillLimit, SharedFillLimit};
use crate::error::{ExchangeError, PeerViolation};
use crate::event::Event;
use crate::fence;
use crate::ids::{CheckpointId, SubpartitionIndex};
use crate::lock::Lock;
use crate::subpartition::{
    Element, NextElement, Notify, OvertakenData, PolledElement, QueuedData, RefusedEvent, Subpartition,
};
use crate::sync::{AtomicBool, Ordering};

/// A [`Subpartition`] between its writer (a task) and its one reader (a connection or the gate of a local task).
///
/// The cell has one lock, held for a few statements. The reader's waker is called after the unlock, and only if the
/// reader sleeps. A reader sleeps once a poll returned `None` or `is_available` returned `false`, and not before. A
/// reader therefore polls until it gets `None`, and never needs to poll again without a wake-up.
///
/// # Flush without the lock
/// A writer that flushes after every record would contend with the reader for the lock. `is_watched` mirrors the
/// machine. While it is set, the reader checks the open buffer again before it sleeps, and sees the bytes just
/// committed. This is the store-then-load pattern on both sides: the writer commits, then reads the flag; the reader
/// clears the flag, then reads the commit. Both sides have a fence (module `fence`) in between, so one of them sees the
/// other. The writer's fence is almost free. The reader pays for its own when it falls asleep on a buffer that it
/// watched.
#[derive(Debug)]
pub struct SubpartitionCell {
    index: SubpartitionIndex,
    is_watched: AtomicBool,
    /// Fill limit set by the reader, for buffers that the writer begins from now on. Models need not see it.
    fill_limit: SharedFillLimit,
    state: Lock<State>,
}

#[derive(Debug, Default)]
struct State {
    subpartition: Subpartition,
    waker: Option<Waker>,
    was_attached: bool,
    failure: Option<ExchangeError>,
}

impl SubpartitionCell {
    pub(super) fn new(index: SubpartitionIndex) -> Self {
        let (is_watched, fill_limit) = (AtomicBool::new(false), SharedFillLimit::default());
        Self { index, is_watched, fill_limit, state: Lock::new(State::default()) }
    }

    /// Makes the caller the reader, once and for ever. It counts as awake: it polls before it waits for `waker`.
    pub fn attach_reader(&self, waker: Waker) -> Result<(), ExchangeError> {
        let mut state = self.state.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        if std::mem::replace(&mut state.was_attached, true) {
            return Err(ExchangeError::AlreadyRead { subpartition: self.index });
        }
        state.waker = Some(waker);
        state.subpartition.attach_reader();
        Ok(())
    }

    /// Returns the next element. `None` if there is none now, and the reader will be woken, or if there will be none
    /// any more (see [`Self::failure`]).
    pub fn poll(&self) -> Option<PolledElement> {
        let mut polled = None;
        self.poll_each(1, 1, |element| polled = Some(element));
        polled
    }

    /// Passes up to `max_elements` elements to `sink` under one lock; at most `max_data` of them are data. `sink` must
    /// only store them. Returns their number. Zero for a positive limit means that the reader sleeps.
    pub(crate) fn poll_each(&self, max_data: usize, max_elements: usize, mut sink: impl FnMut(PolledElement)) -> usize {
        self.read(|subpartition| {
            let mut taken = 0;
            let mut data = 0;
            while taken < max_elements && !(data == max_data && subpartition.next() == NextElement::Data) {
                let Some(polled) = subpartition.poll() else { break };
                taken += 1;
                data += usize::from(matches!(polled.element, Element::Data(_)));
                let is_last = polled.next == NextElement::None;
                sink(polled);
                if is_last {
                    break;
                }
            }
            taken
        })
    }

    /// Passes the waiting priority events to `sink`, which must only store them.
    pub(crate) fn poll_priority(&self, mut sink: impl FnMut(Event)) {
        self.read(|subpartition| {
            while subpartition.has_priority()
                && let Some(PolledElement { element: Element::Event(event), .. }) = subpartition.poll()
            {
                sink(event);
            }
        });
    }

    /// Returns true if a priority event waits and may be read.
    pub(crate) fn has_priority(&self) -> bool {
        self.state.lock().subpartition.has_priority()
    }

    /// Returns whether a reader with or without credit can take an element. If not, it is woken as soon as it can.
    pub fn is_available(&self, has_credit: bool) -> bool {
        self.read(|subpartition| subpartition.is_available(has_credit))
    }

    /// Returns the number of data buffers that a reader with credit could take now.
    pub fn backlog(&self) -> Backlog {
        self.state.lock().subpartition.backlog()
    }

    /// Sets how far the writer fills the buffers that it begins from now on.
    pub fn set_fill_limit(&self, limit: FillLimit) {
        self.fill_limit.set(limit);
    }

    /// Returns how far the next buffer is filled.
    pub fn fill_limit(&self) -> FillLimit {
        self.fill_limit.get().unwrap_or(FillLimit::NONE)
    }

    /// Resumes the subpartition after a blocking event. Wakes the reader if there is an element for it.
    pub fn resume(&self) -> Result<(), PeerViolation> {
        self.write(|subpartition| match subpartition.resume() {
            Ok(notify) => (Ok(()), notify),
            Err(violation) => (Err(violation), Notify::Nobody),
        })
    }

    /// Releases the subpartition for its reader. Drops the queued elements, and those that the task writes later.
    pub fn release(&self) {
        let mut state = self.state.lock();
        // The caller is the reader, so it needs no wake-up.
        let _ = state.subpartition.release();
        let waker = state.waker.take();
        let discarded = state.subpartition.take_discarded();
        self.is_watched.store(false, Ordering::Relaxed);
        drop(state);
        drop((waker, discarded));
    }

    /// Returns why no element will follow, if the producer failed or was released early.
    pub fn failure(&self) -> Option<ExchangeError> {
        self.state.lock().failure.clone()
    }

    /// Returns the number of elements that a reader with enough credit could take now.
    pub fn readable(&self) -> usize {
        self.state.lock().subpartition.readable()
    }

    /// Returns the number of data buffers in the queue, readable or not.
    pub fn queued_buffers(&self) -> u32 {
        self.state.lock().subpartition.queued_buffers()
    }

    /// Returns the queued data buffers and their bytes. Visits each buffer.
    pub(super) fn queued(&self) -> QueuedData {
        self.state.lock().subpartition.queued()
    }

    /// Returns true if the end of the partition was read or the subpartition was released.
    pub fn is_consumed(&self) -> bool {
        self.state.lock().subpartition.is_consumed()
    }

    /// Returns true if the writer's last buffer is open and all its committed bytes were read. Finishing it returns its
    /// segment.
    pub(super) fn is_open_and_drained(&self) -> bool {
        self.state.lock().subpartition.is_open_and_drained()
    }

    pub(super) fn add_buffer(&self, buffer: BufferConsumer) {
        // A refused buffer is dropped here, outside of the lock. Its reader is gone, so its bytes are not needed.
        let _refused = self.write(|subpartition| match subpartition.add_buffer(buffer) {
            Ok(notify) => (None, notify),
            Err(refused) => (Some(refused), Notify::Nobody),
        });
    }

    pub(super) fn add_event(&self, event: Event) -> Result<(), ExchangeError> {
        let refused = self.write(|subpartition| match subpartition.add_event(event) {
            Ok(notify) => (None, notify),
            Err(refused) => (Some(refused), Notify::Nobody),
        });
        refused.map_or(Ok(()), |refused| self.refused(refused))
    }

    /// Sets whether markers are left out for now.
    pub(crate) fn leave_out_markers(&self, leaves_out: bool) {
        self.state.lock().subpartition.leave_out_markers(leaves_out);
    }

    /// Queues a priority event and returns the in-flight data that it overtook. The last builder must be finished.
    pub(super) fn overtake(&self, event: Event) -> Result<OvertakenData, ExchangeError> {
        let overtaken = self.write(|subpartition| match subpartition.overtake(event) {
            Ok((overtaken, notify)) => (Ok(overtaken), notify),
            Err(refused) => (Err(refused), Notify::Nobody),
        });
        overtaken.or_else(|refused| self.refused(refused).map(|()| OvertakenData::default()))
    }

    /// Moves the barrier of a late checkpoint ahead of the queued data. Returns the in-flight data that it overtook, or
    /// `None` if it was not queued.
    pub(super) fn expire(&self, checkpoint_id: CheckpointId) -> Option<OvertakenData> {
        self.write(|subpartition| match subpartition.expire(checkpoint_id) {
            Some((overtaken, notify)) => (Some(overtaken), notify),
            None => (None, Notify::Nobody),
        })
    }

    fn refused(&self, refused: RefusedEvent) -> Result<(), ExchangeError> {
        match refused {
            RefusedEvent::TooMany(_) => {
                Err(ExchangeError::TooManyEvents { subpartition: self.index, limit: EVENT_WINDOW })
            }
            // The reader is gone, so the event is not needed.
            RefusedEvent::Closed(_) => Ok(()),
        }
    }

    pub(super) fn finish_buffer(&self) {
        self.write(|subpartition| ((), subpartition.finish_buffer()));
    }

    /// Shows the committed bytes to the reader, once.
    pub(super) fn flush(&self) {
        self.write(|subpartition| ((), subpartition.flush()));
    }

    /// Shows the committed bytes to the reader, for a writer that flushes after every record. The reader then continues
    /// to check the buffer, and the writer skips the lock while it does.
    #[inline]
    pub(super) fn flush_record(&self) {
        fence::light();
        if !self.is_watched.load(Ordering::Relaxed) {
            self.write(|subpartition| ((), subpartition.watch()));
        }
    }

    /// Ends the subpartition with the producer's failure, unless its reader has reached the end or left.
    pub(super) fn fail(&self, failure: ExchangeError) {
        self.write_state(|state| {
            if state.subpartition.is_consumed() {
                return ((), Notify::Nobody);
            }
            state.failure.get_or_insert(failure);
            ((), state.subpartition.release())
        });
    }

    fn write<R>(&self, change: impl FnOnce(&mut Subpartition) -> (R, Notify)) -> R {
        self.write_state(|state| change(&mut state.subpartition))
    }

    fn write_state<R>(&self, change: impl FnOnce(&mut State) -> (R, Notify)) -> R {
        let mut state = self.state.lock();
        let (result, notify) = change(&mut state);
        self.is_watched.store(state.subpartition.is_watched(), Ordering::Relaxed);
        let discarded = state.subpartition.take_discarded();
        let waker = match notify {
            Notify::Reader => state.waker.clone(),
            Notify::Nobody => None,
        };
        drop(state);
        // Outside of the lock: dropping consumers returns segments to their pool.
        drop(discarded);
        if let Some(waker) = waker {
            waker.wake();
        }
        result
    }

    /// Runs a read, and repeats it if the reader fell asleep while the writer may have relied on the watch.
    fn read<R>(&self, mut look: impl FnMut(&mut Subpartition) -> R) -> R {
        loop {
            let mut state = self.state.lock();
            let result = look(&mut state.subpartition);
            let has_ended_watch = state.subpartition.take_ended_watch();
            self.is_watched.store(state.subpartition.is_watched(), Ordering::Relaxed);
            let discarded = state.subpartition.take_discarded();
            drop(state);
            drop(discarded);
            if !has_ended_watch || !self.finds_more() {
                return result;
            }
        }
    }

    /// Checks for new bytes after the reader fell asleep. If there are any, it is awake again.
    #[cold]
    fn finds_more(&self) -> bool {
        fence::heavy();
        let mut state = self.state.lock();
        let notify = state.subpartition.watch();
        self.is_watched.store(state.subpartition.is_watched(), Ordering::Relaxed);
        notify == Notify::Reader
    }
}
