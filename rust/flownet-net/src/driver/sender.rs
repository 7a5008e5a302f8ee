//! The writing half of a connection: whoever has news writes it, if nobody else is at it.
//!
//! A task that made a buffer visible wakes the connection. If that sleeps, the task's own thread writes: handing the
//! buffer to the connection's task would cost a wake-up, which is dearer than the write and often on another core.
//! Where a thread finds the connection at work, or the socket full, it leaves the rest to the connection's task.
//!
//! # Invariants
//! - D1: unwritten bytes are the connection's task's: a thread that leaves some behind wakes it, and no other thread
//!   touches the socket before they are out.
//! - D2: news is lost by nobody: a thread that cannot get the lock wakes the connection's task, and a thread that has
//!   it looks for news once more after its last write, leaving its waker if there is none.
//! - D3: a thread that came to bring news writes for a bounded number of rounds, however much there is.

use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::task::{Context, Poll, Wake, Waker};

use flownet_core::ChannelId;
use flownet_core::exchange::ready::ReadyList;

use super::link::Link;
use crate::counters::{NetCounters, SharedCounters};

/// What a connection machine has to send, and how it learns that there is more.
pub(crate) trait Transmit: Send + 'static {
    /// A channel has news.
    fn on_ready(&mut self, channel: ChannelId);

    /// Points `slices` at what to write next, encoding more if little is left; says how many it filled.
    fn fill<'a>(&'a mut self, slices: &mut [IoSlice<'a>]) -> usize;

    /// The next `bytes` bytes are written.
    fn advance(&mut self, bytes: usize);

    /// Nothing encoded waits to be written.
    fn is_flushed(&self) -> bool;
}

/// Shared by the connection's task and the wakers of its channels.
pub(crate) struct Sender<L, M> {
    pub(crate) link: L,
    ready: Arc<ReadyList>,
    counters: Arc<SharedCounters>,
    state: Mutex<State<M>>,
    /// The connection's task, to be woken when a thread leaves work behind.
    task: Mutex<Waker>,
    waker: Waker,
}

/// Under the lock; see [`Sender::lock`].
pub(crate) struct State<M> {
    pub(crate) machine: M,
    drained: Vec<ChannelId>,
    /// What a thread met that had no means to end the connection.
    error: Option<io::Error>,
}

/// Called by the ready list on the thread that brings the news.
struct News<L, M>(Weak<Sender<L, M>>);

impl<L: Link, M: Transmit> Sender<L, M> {
    pub(crate) fn new(link: L, machine: M, ready: Arc<ReadyList>, counters: Arc<SharedCounters>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            link,
            ready,
            counters,
            state: Mutex::new(State { machine, drained: Vec::new(), error: None }),
            task: Mutex::new(Waker::noop().clone()),
            waker: Waker::from(Arc::new(News(Weak::clone(me)))),
        })
    }

    /// The machine, for the connection's task. Threads hold the lock no longer than for a few writes that never wait.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State<M>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves the waker of the connection's task with everybody who may have to wake it.
    pub(crate) fn attend(&self, task: &Waker) {
        let mut known = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.will_wake(task) {
            known.clone_from(task);
        }
    }

    /// One round of the connection's task: takes the news and writes once. `false` when nothing moved.
    pub(crate) fn poll_round(&self, cx: &mut Context<'_>) -> io::Result<bool> {
        let mut state = self.lock();
        match state.error.take() {
            Some(error) => Err(error),
            None => Ok(self.round(&mut state, cx)? != Moved::Nothing),
        }
    }

    /// Tells the peer what the machine has to say in the end, if the socket takes it at once.
    pub(crate) fn say_goodbye(&self, prepare: impl FnOnce(&mut M)) {
        let mut state = self.lock();
        prepare(&mut state.machine);
        // The closed connection says the same.
        let _ = self.round(&mut state, &mut Context::from_waker(Waker::noop()));
    }

    fn round(&self, state: &mut State<M>, cx: &mut Context<'_>) -> io::Result<Moved> {
        let has_news = self.ready.poll_drain(&mut state.drained, &self.waker).is_ready();
        for channel in state.drained.drain(..) {
            state.machine.on_ready(channel);
        }
        let mut slices = [IoSlice::new(&[]); SLICES_PER_WRITE];
        let filled = state.machine.fill(&mut slices);
        if filled == 0 {
            return Ok(if has_news { Moved::Something } else { Moved::Nothing });
        }
        let written = match self.link.poll_write(cx, &slices[..filled]) {
            Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
            Poll::Ready(written) => written?,
            Poll::Pending => return Ok(Moved::Nothing),
        };
        // Segments go home here, as soon as the kernel has their bytes.
        state.machine.advance(written);
        let mut turn = NetCounters { writes: 1, bytes_out: written as u64, ..NetCounters::default() };
        self.counters.add(&mut turn);
        Ok(Moved::Something)
    }

    /// Brings the news oneself, or wakes the connection's task.
    fn write_here(&self) {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return self.wake_task(),
        };
        if !state.machine.is_flushed() {
            // D1: the task waits for the socket and looks for news when it has written.
            return;
        }
        for _ in 0..ROUNDS_PER_NEWS {
            match self.round(&mut state, &mut Context::from_waker(Waker::noop())) {
                Ok(Moved::Something) => {}
                Ok(Moved::Nothing) if state.machine.is_flushed() => return,
                Ok(Moved::Nothing) => break,
                Err(error) => {
                    state.error = Some(error);
                    break;
                }
            }
        }
        drop(state);
        self.wake_task();
    }

    fn wake_task(&self) {
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).clone();
        task.wake();
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Moved {
    Something,
    Nothing,
}

impl<L: Link, M: Transmit> Wake for News<L, M> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(sender) = self.0.upgrade() {
            sender.write_here();
        }
    }
}

const SLICES_PER_WRITE: usize = 64;
/// One to write, one to find nothing more, and one in between for what came meanwhile.
const ROUNDS_PER_NEWS: usize = 3;
