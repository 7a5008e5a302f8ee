//! The writing half of a connection: whoever has news writes it, if nobody else is at it.
//!
//! A task that made a buffer visible wakes the connection. If that sleeps, the task's own thread writes: handing the
//! buffer to the connection's task would cost a wake-up, which is dearer than the write and often on another core.
//! Where a thread finds the connection at work, it leaves a note, and who is at work writes for both.
//!
//! # Invariants
//! - D1: what [`ownership`](super::ownership) orders is carried out under the lock. No thread that brings news tries while
//!   bytes wait for room.
//! - D2: news is lost by nobody: a thread that cannot get the lock leaves a note, and a thread that has it looks for
//!   news once more after its last write, leaving its waker if there is none.
//! - D3: a thread that came to bring news writes for a bounded number of rounds, however much there is.
//! - D4: news that nobody is woken for goes out with other news, with the next round of the connection's task, or once
//!   there is as much of it as is worth a write. It is the machine's to see that nobody waits for it.
//! - D5: a connection that has ended holds nothing, whoever holds it: no segment, no channel, no open link. Its sleepers
//!   are woken by their channels and pools, and by the link.

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Wake, Waker};

use flownet_core::ChannelId;
use flownet_core::combining_lock::{CombiningLock, PendingFlags};
use flownet_core::exchange::ready::ReadyList;

use super::link::{Event, Link, WriteOutcome};
use super::ownership::WriteHalf;
use crate::counters::{NetCounters, SharedCounters};

/// What a connection machine has to send, and how it learns that there is more.
pub(crate) trait Transmit: Send + 'static {
    /// A channel has news.
    fn on_ready(&mut self, channel: ChannelId);

    /// Points `slices` at what to write next, encoding more if little is left; says how many it filled.
    fn fill<'a>(&'a mut self, slices: &mut [IoSlice<'a>]) -> usize;

    /// The next `bytes` bytes are written.
    fn advance(&mut self, bytes: usize);

    /// How much news that nobody was woken for is worth a write.
    fn patience(&self) -> usize;

    /// Asks the peer for a sign of life.
    fn ping(&mut self, token: u64);

    /// Gives it one, unasked.
    fn pong(&mut self, token: u64);

    /// Whether the peer may leave unread what it asked for, for as long as it likes.
    fn may_be_stopped(&self) -> bool;

    /// Nothing is written any more: lets go of everything, though others may still hold the connection.
    fn end(&mut self);
}

/// Shared by the connection's task, the threads that read for it, and the wakers of its channels.
pub(crate) struct Sender<L, M> {
    pub(crate) link: L,
    pub(crate) counters: Arc<SharedCounters>,
    ready: Arc<ReadyList>,
    state: CombiningLock<State<M>>,
    /// As [`WriteHalf`] has it, but read without the lock.
    is_full: AtomicBool,
    /// The connection's task, to be woken when a thread leaves work behind.
    task: Mutex<Waker>,
    waker: Waker,
}

/// Under the lock; see [`Sender::with`].
struct State<M> {
    machine: M,
    drained: Vec<ChannelId>,
    /// What a thread met that had no means to end the connection.
    error: Option<io::Error>,
    /// Bytes, of the whole life.
    written: u64,
    writing: WriteHalf,
}

/// Called by the ready list on the thread that brings the news.
struct SenderWaker<L, M>(Weak<Sender<L, M>>);

impl<L: Link, M: Transmit> Sender<L, M> {
    pub(crate) fn new(link: L, machine: M, ready: Arc<ReadyList>, counters: Arc<SharedCounters>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            link,
            counters,
            ready,
            state: CombiningLock::new(State {
                machine,
                drained: Vec::new(),
                error: None,
                written: 0,
                writing: WriteHalf::default(),
            }),
            is_full: AtomicBool::new(false),
            task: Mutex::new(Waker::noop().clone()),
            waker: Waker::from(Arc::new(SenderWaker(Weak::clone(me)))),
        })
    }

    /// Calls `work` with the machine. What others wanted of it meanwhile is done afterwards.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut M) -> R) -> R {
        let result = work(&mut self.state.lock().machine);
        self.read_notes();
        result
    }

    /// As [`with`](Self::with), then sends what the machine has to say to that, and news by D4.
    pub(crate) fn feed<R>(&self, work: impl FnOnce(&mut M) -> R) -> R {
        let mut state = self.state.lock();
        let result = work(&mut state.machine);
        self.write_news(&mut state, Patience::Some);
        drop(state);
        self.read_notes();
        result
    }

    /// Leaves the waker of the connection's task with everybody who may have to wake it.
    pub(crate) fn attend(&self, task: &Waker) {
        let mut known = self.lock_task();
        if !known.will_wake(task) {
            known.clone_from(task);
        }
    }

    pub(crate) fn wake_task(&self) {
        let task = self.lock_task().clone();
        task.wake();
    }

    /// One round of the connection's task: takes the news and writes once. `false` when nothing moved; the task is
    /// woken when that was because a thread is at it.
    pub(crate) fn poll_round(&self) -> io::Result<bool> {
        let Some(mut state) = self.state.lock_or_leave(TASK) else { return Ok(false) };
        let moved = match state.error.take() {
            Some(error) => Err(error),
            None => self.round(&mut state, Patience::None),
        };
        drop(state);
        self.read_notes();
        Ok(moved? != WriteProgress::Nothing)
    }

    /// D5. The first call ends it: `last_words` is what the machine still does and says, and the peer hears what the
    /// socket takes of that at once.
    pub(crate) fn end(&self, last_words: impl FnOnce(&mut M)) {
        let mut state = self.state.lock();
        if state.writing.may_write() {
            last_words(&mut state.machine);
            // The closed connection says the same, if less well.
            for _ in 0..ROUNDS_PER_NEWS {
                if !matches!(self.round(&mut state, Patience::None), Ok(WriteProgress::Something)) {
                    break;
                }
            }
            state.machine.end();
            state.writing.on_end();
            self.is_full.store(false, Ordering::Release);
            self.link.close();
        }
        drop(state);
        self.read_notes();
    }

    /// Bytes written so far, and whether there are more for a peer that does not take them though it always should.
    pub(crate) fn progress(&self) -> (u64, bool) {
        let state = self.state.lock();
        let progress = (state.written, state.writing.is_full() && !state.machine.may_be_stopped());
        drop(state);
        self.read_notes();
        progress
    }

    /// Whether bytes wait for room. Then the caller is the one to be told of it, and not the connection's task, until
    /// [`leave_room`](Self::leave_room).
    pub(crate) fn take_room(&self) -> bool {
        self.is_full.load(Ordering::Acquire) && self.watch_room(WriteHalf::on_park)
    }

    /// Brings the news that nobody was woken for, where that is worth it. For a thread that is about to sleep, which it
    /// may be for long.
    pub(crate) fn bring_quiet_news(&self) {
        if self.ready.has_any() {
            self.feed(|_| ());
        }
    }

    /// Undoes [`take_room`](Self::take_room).
    pub(crate) fn leave_room(&self) {
        if self.is_full.load(Ordering::Acquire) {
            self.watch_room(WriteHalf::on_leave);
        }
    }

    /// Writes what waited for room, if there is some now. `false` when nothing moved.
    pub(crate) fn write_waiting(&self) -> bool {
        if !self.is_full.load(Ordering::Acquire) {
            return false;
        }
        let mut state = self.state.lock();
        let has_moved = self.write_rounds(&mut state, Patience::None);
        drop(state);
        self.read_notes();
        has_moved
    }

    /// As ordered. A socket that cannot be watched is seen to by the task, which finds the same.
    fn watch_room(&self, ordered: impl FnOnce(&WriteHalf) -> Option<bool>) -> bool {
        let state = self.state.lock();
        let is_done =
            ordered(&state.writing).is_some_and(|is_watched| self.link.watch(Event::Room, is_watched).is_ok());
        drop(state);
        self.read_notes();
        is_done
    }

    fn round(&self, state: &mut State<M>, patience: Patience) -> io::Result<WriteProgress> {
        if !state.writing.may_write() {
            return Ok(WriteProgress::Nothing);
        }
        let is_due = patience == Patience::None || self.ready.is_pressing(state.machine.patience());
        let has_news = is_due && self.ready.poll_drain(&mut state.drained, &self.waker).is_ready();
        for channel in state.drained.drain(..) {
            state.machine.on_ready(channel);
        }
        let mut slices = [IoSlice::new(&[]); SLICES_PER_WRITE];
        let filled = state.machine.fill(&mut slices);
        if filled == 0 && !self.link.has_unsent() {
            return Ok(if has_news { WriteProgress::Something } else { WriteProgress::Nothing });
        }
        let written = match self.link.write(&slices[..filled])? {
            WriteOutcome::Accepted(written) => written,
            WriteOutcome::WantsRoom => {
                return self.note_sent(&mut state.writing, true).map(|()| WriteProgress::Nothing);
            }
        };
        self.note_sent(&mut state.writing, false)?;
        // Segments go home here, as soon as the kernel has their bytes.
        state.machine.advance(written);
        state.written += written as u64;
        let mut turn = NetCounters { writes: 1, bytes_out: written as u64, ..NetCounters::default() };
        self.counters.add(&mut turn);
        Ok(WriteProgress::Something)
    }

    fn note_sent(&self, writing: &mut WriteHalf, wants_room: bool) -> io::Result<()> {
        if let Some(is_watched) = writing.on_sent(wants_room) {
            self.link.watch(Event::Room, is_watched)?;
            self.is_full.store(wants_room, Ordering::Release);
        }
        Ok(())
    }

    /// Brings the news oneself, or leaves it to who is at work.
    fn bring_news(&self) {
        if let Some(mut state) = self.state.lock_or_leave(NEWS) {
            self.write_news(&mut state, Patience::None);
            drop(state);
            self.read_notes();
        }
    }

    fn write_news(&self, state: &mut State<M>, patience: Patience) {
        if state.writing.may_bring_news() {
            self.write_rounds(state, patience);
        }
    }

    /// D3. Leaves the rest to the connection's task. `false` when nothing moved.
    fn write_rounds(&self, state: &mut State<M>, patience: Patience) -> bool {
        let mut has_moved = false;
        for _ in 0..ROUNDS_PER_NEWS {
            match self.round(state, patience) {
                Ok(WriteProgress::Something) => has_moved = true,
                Ok(WriteProgress::Nothing) => return has_moved,
                Err(error) => {
                    state.error = Some(error);
                    break;
                }
            }
        }
        self.wake_task();
        has_moved
    }

    /// After each unlock: does what others left for us to do.
    fn read_notes(&self) {
        for _ in 0..ROUNDS_PER_NEWS {
            let notes = self.state.take_notes();
            if notes & TASK != 0 {
                self.wake_task();
            }
            if notes & NEWS == 0 {
                return;
            }
            let Some(mut state) = self.state.lock_or_leave(NEWS) else { return };
            self.write_news(&mut state, Patience::None);
        }
        // D3: the task takes the news in each of its rounds.
        self.wake_task();
    }

    fn lock_task(&self) -> MutexGuard<'_, Waker> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// With news that nobody was woken for: whoever comes to read brings it only where there is much.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Patience {
    None,
    Some,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum WriteProgress {
    Something,
    Nothing,
}

impl<L: Link, M: Transmit> Wake for SenderWaker<L, M> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(sender) = self.0.upgrade() {
            sender.bring_news();
        }
    }
}

/// Channels have news.
const NEWS: PendingFlags = 1;
/// The connection's task wants a round.
const TASK: PendingFlags = 2;
const SLICES_PER_WRITE: usize = 64;
/// One to write, one to find nothing more, and one in between for what came meanwhile.
const ROUNDS_PER_NEWS: usize = 3;
