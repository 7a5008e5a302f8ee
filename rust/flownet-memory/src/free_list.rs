//! The segments no buffer pool holds, and the pools that wait for one.
//!
//! # Invariants
//! - I1: while a pool waits, no segment is free. A segment that comes back is
//!   handed to the pool that has waited longest, so that all of them get on.
//! - I2: a pool waits at most once (its own state remembers that it does).

use std::collections::VecDeque;
use std::sync::Arc;

use crate::pool_core::{Effects, PoolCore};
use crate::region::Slot;
use crate::sync::{Mutex, lock};

pub(crate) struct FreeList {
    state: Mutex<FreeState>,
}

struct FreeState {
    free: Vec<Slot>,
    waiting: VecDeque<Arc<PoolCore>>,
}

impl FreeList {
    pub(crate) fn new(free: Vec<Slot>) -> Self {
        Self { state: Mutex::new(FreeState { free, waiting: VecDeque::new() }) }
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.state).free.len()
    }

    /// The pools that wait, first come first: where they are in memory, which is who they are.
    pub(crate) fn waiting(&self) -> Vec<*const PoolCore> {
        lock(&self.state).waiting.iter().map(Arc::as_ptr).collect()
    }

    /// A free segment, if there is one.
    pub(crate) fn take(&self) -> Option<Slot> {
        lock(&self.state).free.pop()
    }

    /// A free segment, or a place in the queue for `pool`, which does not wait yet.
    pub(crate) fn take_or_wait(&self, pool: &Arc<PoolCore>) -> Option<Slot> {
        let mut state = lock(&self.state);
        let slot = state.free.pop();
        if slot.is_none() {
            state.waiting.push_back(Arc::clone(pool));
        }
        state.assert_invariants();
        slot
    }

    /// Takes `pool` out of the queue.
    pub(crate) fn stop_waiting(&self, pool: &Arc<PoolCore>) {
        lock(&self.state).waiting.retain(|waiting| !Arc::ptr_eq(waiting, pool));
    }

    /// Takes a segment back and gives it to the next waiting pool that wants it.
    ///
    /// Call with no lock held. What accepting or refusing made due is done last:
    /// a task woken for overdraft must find the segment where it will look for it.
    pub(crate) fn give_back(&self, mut slot: Slot) {
        let mut due: Vec<(Arc<PoolCore>, Effects)> = Vec::new();
        while let Some((pool, handed)) = self.put(slot) {
            let (refused, effects) = pool.deliver(handed);
            due.push((pool, effects));
            match refused {
                Some(again) => slot = again,
                None => break,
            }
        }
        due.into_iter().for_each(|(pool, effects)| pool.run(effects));
    }

    /// Stores the segment, or returns it with the pool to hand it to.
    fn put(&self, slot: Slot) -> Option<(Arc<PoolCore>, Slot)> {
        let mut state = lock(&self.state);
        if let Some(pool) = state.waiting.pop_front() {
            return Some((pool, slot));
        }
        state.free.push(slot);
        None
    }
}

impl FreeState {
    fn assert_invariants(&self) {
        if !cfg!(any(debug_assertions, loom)) {
            return;
        }
        assert!(self.waiting.is_empty() || self.free.is_empty(), "I1: no segment is free while a pool waits");
        let twice = |(at, pool)| self.waiting.iter().skip(at + 1).any(|other| Arc::ptr_eq(pool, other));
        assert!(!self.waiting.iter().enumerate().any(twice), "I2: a pool waits at most once");
    }
}
