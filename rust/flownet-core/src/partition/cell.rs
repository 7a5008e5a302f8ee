//! The shared form of a subpartition.

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
/// One lock, held for a few statements. The reader's waker is called after the lock is released, and only when the
/// reader sleeps: a reader sleeps once a poll gave `None` or `is_available` said `false`, and not before. So a reader
/// polls until it gets `None`; it never needs to look again without having been woken.
///
/// # Flush without the lock
/// A writer that flushes after every record would fight with the reader for the lock. `is_watched` mirrors the
/// machine: while it is set, the reader looks at the open buffer again before it sleeps and will see what was just
/// committed. This is the store-then-load pattern on both sides (writer: commit, then read the flag; reader: clear the
/// flag, then read the commit), so both have a fence (module `fence`) in between: one of them sees the other. The
/// writer's is next to free; the reader pays, when it falls asleep on a buffer that it watched.
#[derive(Debug)]
pub struct SubpartitionCell {
    index: SubpartitionIndex,
    is_watched: AtomicBool,
    /// The reader's, for buffers that the writer begins from now on. No model need see it.
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

    /// The next element; `None` when there is none now (the reader will be woken) or never again (see
    /// [`Self::failure`]).
    pub fn poll(&self) -> Option<PolledElement> {
        let mut polled = None;
        self.poll_each(1, 1, |element| polled = Some(element));
        polled
    }

    /// Gives up to `max_elements` elements, of which `max_data` may be data, to `sink`, under one lock. `sink` must
    /// only store them. Returns how many there were; none for a positive limit means that the reader sleeps.
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

    /// Gives the priority events that wait to `sink`, which must only store them.
    pub(crate) fn poll_priority(&self, mut sink: impl FnMut(Event)) {
        self.read(|subpartition| {
            while subpartition.has_priority()
                && let Some(PolledElement { element: Element::Event(event), .. }) = subpartition.poll()
            {
                sink(event);
            }
        });
    }

    /// A priority event waits, and may be read.
    pub(crate) fn has_priority(&self) -> bool {
        self.state.lock().subpartition.has_priority()
    }

    /// Can a reader with or without credit take something? When not, it is woken as soon as that changes.
    pub fn is_available(&self, has_credit: bool) -> bool {
        self.read(|subpartition| subpartition.is_available(has_credit))
    }

    /// Data buffers a reader with credit could take now.
    pub fn backlog(&self) -> Backlog {
        self.state.lock().subpartition.backlog()
    }

    /// Buffers that the writer begins from now on are filled so far.
    pub fn set_fill_limit(&self, limit: FillLimit) {
        self.fill_limit.set(limit);
    }

    /// How far the next buffer is filled.
    pub fn fill_limit(&self) -> FillLimit {
        self.fill_limit.get().unwrap_or(FillLimit::NONE)
    }

    /// Ends the silence behind a blocking event; the reader is woken if there is something for it.
    pub fn resume(&self) -> Result<(), PeerViolation> {
        self.write(|subpartition| match subpartition.resume() {
            Ok(notify) => (Ok(()), notify),
            Err(violation) => (Err(violation), Notify::Nobody),
        })
    }

    /// The reader wants no more. What is queued goes home, what the task still writes is dropped.
    pub fn release(&self) {
        let mut state = self.state.lock();
        let _ = state.subpartition.release();
        let waker = state.waker.take();
        let discarded = state.subpartition.take_discarded();
        self.is_watched.store(false, Ordering::Relaxed);
        drop(state);
        drop((waker, discarded));
    }

    /// Why nothing will come any more, when the producer failed or was released early.
    pub fn failure(&self) -> Option<ExchangeError> {
        self.state.lock().failure.clone()
    }

    /// Elements a reader with credit enough could take now.
    pub fn readable(&self) -> usize {
        self.state.lock().subpartition.readable()
    }

    /// Data buffers in the queue, readable or not.
    pub fn queued_buffers(&self) -> u32 {
        self.state.lock().subpartition.queued_buffers()
    }

    /// The same with their bytes, by looking at each.
    pub(super) fn queued(&self) -> QueuedData {
        self.state.lock().subpartition.queued()
    }

    /// The end of the partition was read, or the subpartition released.
    pub fn is_consumed(&self) -> bool {
        self.state.lock().subpartition.is_consumed()
    }

    /// The writer's last buffer is open, and all that is committed to it was read: to finish it brings it home.
    pub(super) fn is_open_and_drained(&self) -> bool {
        self.state.lock().subpartition.is_open_and_drained()
    }

    pub(super) fn add_buffer(&self, buffer: BufferConsumer) {
        // A refused buffer is dropped here, outside of the lock: its reader is gone, its bytes go nowhere.
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

    /// Says whether markers are left out for now.
    pub(crate) fn leave_out_markers(&self, leaves_out: bool) {
        self.state.lock().subpartition.leave_out_markers(leaves_out);
    }

    /// Queues a priority event; says what it overtakes. The last builder is finished.
    pub(super) fn overtake(&self, event: Event) -> Result<OvertakenData, ExchangeError> {
        let overtaken = self.write(|subpartition| match subpartition.overtake(event) {
            Ok((overtaken, notify)) => (Ok(overtaken), notify),
            Err(refused) => (Err(refused), Notify::Nobody),
        });
        overtaken.or_else(|refused| self.refused(refused).map(|()| OvertakenData::default()))
    }

    /// Puts the barrier of a checkpoint that has taken too long ahead of what is queued; says what it overtakes, if it was
    /// queued.
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
            // Its reader is gone: it goes nowhere.
            RefusedEvent::Closed(_) => Ok(()),
        }
    }

    pub(super) fn finish_buffer(&self) {
        self.write(|subpartition| ((), subpartition.finish_buffer()));
    }

    /// Shows the reader what is committed, once.
    pub(super) fn flush(&self) {
        self.write(|subpartition| ((), subpartition.flush()));
    }

    /// Shows the reader what is committed, for a writer that does so after every record: the reader then looks on, and
    /// the writer need not come here while it does.
    #[inline]
    pub(super) fn flush_record(&self) {
        fence::light();
        if !self.is_watched.load(Ordering::Relaxed) {
            self.write(|subpartition| ((), subpartition.watch()));
        }
    }

    /// Ends the subpartition by the producer's fault, unless its reader came to the end or left.
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
        drop(discarded);
        if let Some(waker) = waker {
            waker.wake();
        }
        result
    }

    /// Looks as the reader, and once more where it fell asleep while the writer may have relied on it.
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

    /// The reader sleeps; is there something after all? Then it is awake again.
    #[cold]
    fn finds_more(&self) -> bool {
        fence::heavy();
        let mut state = self.state.lock();
        let notify = state.subpartition.watch();
        self.is_watched.store(state.subpartition.is_watched(), Ordering::Relaxed);
        notify == Notify::Reader
    }
}
