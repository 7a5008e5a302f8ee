//! Writing half of a connection: any thread with something to send writes it, unless another thread is writing.
//!
//! *News* here means a ready channel: one with data or credit to send. A task that makes a buffer visible wakes the
//! connection. If the connection is idle, the task's own thread writes. Handing the buffer to the connection's task
//! would cost a wake-up, which is more expensive than the write and often runs on another core. If another thread holds
//! the lock, the thread sets a pending flag, and the holder writes for both.
//!
//! # Invariants
//! - D1: orders of [`ownership`](super::ownership) are carried out under the lock. While bytes wait for room, no thread
//!   that brings news tries to write.
//! - D2: no news is lost. A thread that cannot get the lock sets a pending flag. A thread that has the lock checks for
//!   news once more after its last write, and leaves its waker if there is none.
//! - D3: a thread that brings news writes for a bounded number of rounds, however much there is to write.
//! - D4: quiet news, which wakes no thread, is sent with other news, in the next round of the connection's task, or
//!   once enough of it justifies a write. The machine ensures that no peer waits for it.
//! - D5: an ended connection holds no segment, no channel and no open link, even if other owners remain. Channels,
//!   pools and the link wake the threads that sleep for it.

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

/// Connection machine that produces bytes to send.
pub(crate) trait Transmit: Send + 'static {
    /// Registers that a channel has news.
    fn on_ready(&mut self, channel: ChannelId);

    /// Points `slices` at the next bytes to write and encodes more if few are left. Returns the number of slices
    /// filled.
    fn fill<'a>(&'a mut self, slices: &mut [IoSlice<'a>]) -> usize;

    /// Marks the next `bytes` bytes as written.
    fn advance(&mut self, bytes: usize);

    /// Number of quietly listed channels that justify a write.
    fn patience(&self) -> usize;

    /// Sends a PING, which asks the peer for a sign of life.
    fn ping(&mut self, token: u64);

    /// Sends an unsolicited PONG.
    fn pong(&mut self, token: u64);

    /// Returns true if the peer may leave requested data unread for any length of time.
    fn may_be_stopped(&self) -> bool;

    /// Releases everything, because writing has ended. Other threads may still hold the connection.
    fn end(&mut self);
}

/// Sending state shared by the connection's task, threads that read for it, and the wakers of its channels.
pub(crate) struct Sender<L, M> {
    pub(crate) link: L,
    pub(crate) counters: Arc<SharedCounters>,
    ready: Arc<ReadyList>,
    state: CombiningLock<State<M>>,
    /// Copy of [`WriteHalf::is_full`] that is read without the lock.
    is_full: AtomicBool,
    /// Waker of the connection's task, used when a thread leaves work to it.
    task: Mutex<Waker>,
    waker: Waker,
}

/// State under the lock; see [`Sender::with`].
struct State<M> {
    machine: M,
    drained: Vec<ChannelId>,
    /// Error observed by a thread that could not end the connection.
    error: Option<io::Error>,
    /// Bytes written over the connection's lifetime.
    written: u64,
    writing: WriteHalf,
}

/// Waker that the ready list calls on the thread that brings news.
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

    /// Calls `work` with the machine, then does the work that other threads flagged meanwhile.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut M) -> R) -> R {
        let result = work(&mut self.state.lock().machine);
        self.read_notes();
        result
    }

    /// Calls `work` like [`with`](Self::with), then sends the machine's output and quiet news according to D4.
    pub(crate) fn feed<R>(&self, work: impl FnOnce(&mut M) -> R) -> R {
        let mut state = self.state.lock();
        let result = work(&mut state.machine);
        self.write_news(&mut state, Patience::Some);
        drop(state);
        self.read_notes();
        result
    }

    /// Stores the waker of the connection's task for all threads that may have to wake it.
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

    /// Runs one round of the connection's task: takes the news and writes once. Returns `false` if nothing moved. If
    /// the reason was a thread that holds the lock, that thread then wakes the task.
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

    /// Ends the connection (D5). Only the first call has an effect. `last_words` runs on the machine first, and its
    /// output is sent as far as the socket has room for it now.
    pub(crate) fn end(&self, last_words: impl FnOnce(&mut M)) {
        let mut state = self.state.lock();
        if state.writing.may_write() {
            last_words(&mut state.machine);
            // If the socket does not accept the last frames, the peer still sees the closed connection.
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

    /// Returns the bytes written so far, and whether more bytes wait for a peer that always should read but does not.
    pub(crate) fn progress(&self) -> (u64, bool) {
        let state = self.state.lock();
        let progress = (state.written, state.writing.is_full() && !state.machine.may_be_stopped());
        drop(state);
        self.read_notes();
        progress
    }

    /// Returns true if bytes wait for room. The caller then watches for room instead of the connection's task, until
    /// [`leave_room`](Self::leave_room).
    pub(crate) fn take_room(&self) -> bool {
        self.is_full.load(Ordering::Acquire) && self.watch_room(WriteHalf::on_park)
    }

    /// Sends quiet news if there is enough of it. Called by a thread before a possibly long sleep.
    pub(crate) fn bring_quiet_news(&self) {
        if self.ready.has_any() {
            self.feed(|_| ());
        }
    }

    /// Reverts [`take_room`](Self::take_room).
    pub(crate) fn leave_room(&self) {
        if self.is_full.load(Ordering::Acquire) {
            self.watch_room(WriteHalf::on_leave);
        }
    }

    /// Writes bytes that waited for room, if there is room now. Returns `false` if nothing moved.
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

    /// Carries out the order of `ordered` and returns true on success. If watching fails, the connection's task runs
    /// into the same error and handles it.
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
        // The kernel has copied these bytes, so their segments return to the pool here.
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

    /// Sends news on this thread, or leaves that to the thread that holds the lock.
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

    /// Runs a bounded number of write rounds (D3) and leaves the rest to the connection's task. Returns `false` if
    /// nothing moved.
    fn write_rounds(&self, state: &mut State<M>, patience: Patience) -> bool {
        let mut has_moved = false;
        for _ in 0..ROUNDS_PER_NEWS {
            match self.round(state, patience) {
                Ok(WriteProgress::Something) => has_moved = true,
                Ok(WriteProgress::Nothing) => return has_moved,
                Err(error) => {
                    // Only the connection's task can end the connection, so leave the error to it.
                    state.error = Some(error);
                    break;
                }
            }
        }
        self.wake_task();
        has_moved
    }

    /// Does the work that other threads flagged. Called after each unlock.
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
        // D3: the task takes news in each of its rounds.
        self.wake_task();
    }

    fn lock_task(&self) -> MutexGuard<'_, Waker> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Treatment of quiet news: a thread that comes to read sends it only if there is enough (`Some`).
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

/// Flag: channels have news.
const NEWS: PendingFlags = 1;
/// Flag: the connection's task wants a round.
const TASK: PendingFlags = 2;
const SLICES_PER_WRITE: usize = 64;
/// One round to write, one to find nothing more, and one in between for news that arrived meanwhile.
const ROUNDS_PER_NEWS: usize = 3;
