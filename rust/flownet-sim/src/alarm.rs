//! Who is awake. Nobody in a world is given a turn unless something woke it, so a wake-up that is lost is data that is
//! never delivered.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

use crate::action::Turn;

/// The turns that are due, in the order in which they became so. May name some that are over already.
#[derive(Default)]
pub(crate) struct DueTurns(Mutex<VecDeque<Turn>>);

/// Wakes one turn.
pub(crate) struct Alarm {
    turn: Turn,
    is_set: AtomicBool,
    awake: Arc<DueTurns>,
}

impl DueTurns {
    pub(crate) fn with<R>(&self, look: impl FnOnce(&mut VecDeque<Turn>) -> R) -> R {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Alarm {
    pub(crate) fn new(turn: Turn, awake: &Arc<DueTurns>) -> Arc<Self> {
        Arc::new(Self { turn, is_set: AtomicBool::new(false), awake: Arc::clone(awake) })
    }

    pub(crate) fn waker(self: &Arc<Self>) -> Waker {
        Arc::clone(self).into()
    }

    pub(crate) fn set(&self) {
        if !self.is_set.swap(true, Ordering::Relaxed) {
            self.awake.with(|turns| turns.push_back(self.turn));
        }
    }

    /// Ends the turn. False if it was not due.
    pub(crate) fn take(&self) -> bool {
        self.is_set.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.set();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.set();
    }
}

impl fmt::Debug for Alarm {
    /// Where it is too, as wakers show no more of themselves than that.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Alarm({:p}, {})", self, self.is_set())
    }
}
