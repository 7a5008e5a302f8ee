//! Free segments that no buffer pool holds, and the queue of pools that wait for one.
//!
//! # Invariants
//! - I1: while a pool waits, no segment is free. A returned segment goes to the pool that has waited longest, so that
//!   all pools make progress.
//! - I2: a pool waits at most once (its own state records that it does).

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

    /// Returns the waiting pools, first come first. Their addresses identify them.
    pub(crate) fn waiting(&self) -> Vec<*const PoolCore> {
        lock(&self.state).waiting.iter().map(Arc::as_ptr).collect()
    }

    /// Takes a free segment, if there is one.
    pub(crate) fn take(&self) -> Option<Slot> {
        lock(&self.state).free.pop()
    }

    /// Takes a free segment, or queues `pool`, which must not be waiting yet.
    pub(crate) fn take_or_wait(&self, pool: &Arc<PoolCore>) -> Option<Slot> {
        let mut state = lock(&self.state);
        let slot = state.free.pop();
        if slot.is_none() {
            state.waiting.push_back(Arc::clone(pool));
        }
        state.assert_invariants();
        slot
    }

    /// Removes `pool` from the queue.
    pub(crate) fn stop_waiting(&self, pool: &Arc<PoolCore>) {
        lock(&self.state).waiting.retain(|waiting| !Arc::ptr_eq(waiting, pool));
    }

    /// Takes a segment back and gives it to the next waiting pool that wants it.
    ///
    /// Call it without any lock. Effects of an acceptance or refusal run last: a task woken for overdraft must find the
    /// segment in the free list.
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

    /// Stores the segment, or returns it with the pool that gets it.
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
