//! What a buffer pool knows about its segments. A plain machine: no lock, no
//! calls to the outside.
//!
//! # Invariants
//! - I3: a pool holds its idle segments and those in use, and nothing else.
//! - I4: idle segments are within the pool's size; excess is never idle.
//! - I5: a listener waits only while nothing is idle.
//! - I6: a pool below its size with nothing idle waits for the segment pool.
//!   Hence "nothing idle" means "nothing to be had without overdraft".
//! - I7: `lanes_at_quota` counts the lanes that use their quota or more.
//! - I8: a task waits for any one segment only while nothing is idle and, if the
//!   pool may hold more (overdraft included), the pool waits for the segment pool.
//! - I9: a destroyed pool has nothing idle and nobody waiting.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use crate::region::Slot;
use crate::{BufferPoolSettings, SegmentListener};

/// The lane of a segment that counts towards no quota.
pub(crate) const NO_LANE: usize = usize::MAX;

pub(crate) struct PoolState {
    /// Segments the pool may hold without overdraft.
    pub(crate) size: usize,
    /// Segments idle or in use. Above `size` by overdraft, or until a shrunken pool's segments come back.
    pub(crate) held: usize,
    pub(crate) idle: Vec<Slot>,
    pub(crate) listeners: VecDeque<Arc<dyn SegmentListener>>,
    /// Tasks that wait for the pool to be available.
    pub(crate) available_waiters: Vec<Waker>,
    /// Tasks that wait for any one segment.
    pub(crate) take_waiters: Vec<Waker>,
    /// The pool stands in the segment pool's queue, or a segment from there is on its way.
    pub(crate) awaits_global: bool,
    pub(crate) destroyed: bool,
    max_overdraft: usize,
    max_per_lane: usize,
    in_use_by_lane: Box<[usize]>,
    lanes_at_quota: usize,
}

impl PoolState {
    /// An empty pool of size 0.
    pub(crate) fn new(settings: &BufferPoolSettings) -> Self {
        Self {
            size: 0,
            held: 0,
            idle: Vec::new(),
            listeners: VecDeque::new(),
            available_waiters: Vec::new(),
            take_waiters: Vec::new(),
            awaits_global: false,
            destroyed: false,
            max_overdraft: settings.max_overdraft,
            max_per_lane: settings.max_per_lane,
            in_use_by_lane: vec![0; settings.lanes].into_boxed_slice(),
            lanes_at_quota: 0,
        }
    }

    /// Counts a segment that goes into use by `lane`.
    pub(crate) fn enter_lane(&mut self, lane: usize) {
        if let Some(in_use) = self.in_use_by_lane.get_mut(lane) {
            *in_use += 1;
            self.lanes_at_quota += usize::from(*in_use == self.max_per_lane);
        }
    }

    /// Counts a segment that `lane` no longer uses.
    pub(crate) fn leave_lane(&mut self, lane: usize) {
        if let Some(in_use) = self.in_use_by_lane.get_mut(lane) {
            self.lanes_at_quota -= usize::from(*in_use == self.max_per_lane);
            *in_use -= 1;
        }
    }

    /// Whether the next take needs no overdraft and no lane is at its quota.
    pub(crate) fn is_available(&self) -> bool {
        !self.idle.is_empty() && self.lanes_at_quota == 0
    }

    /// Whether a segment should be fetched ahead of the next take.
    pub(crate) fn wants_segment(&self) -> bool {
        !self.destroyed && self.idle.is_empty() && self.held < self.size
    }

    /// Whether another segment may be held, if need be as overdraft.
    pub(crate) fn may_hold_more(&self) -> bool {
        !self.destroyed && self.held < self.size.saturating_add(self.max_overdraft)
    }

    /// Whether somebody who waits for any one segment should ask again: there may be one.
    pub(crate) fn can_serve_hard_wait(&self) -> bool {
        !self.idle.is_empty() || self.may_hold_more() && !self.awaits_global
    }

    /// Whether a segment that comes back now must leave the pool.
    pub(crate) fn has_excess(&self) -> bool {
        self.destroyed || self.held > self.size
    }

    pub(crate) fn assert_invariants(&self) {
        if !cfg!(any(debug_assertions, loom)) {
            return;
        }
        assert!(self.idle.len() <= self.held, "I3: idle segments are held segments");
        assert!(self.idle.is_empty() || self.held <= self.size, "I4: excess segments are not kept idle");
        assert!(self.idle.is_empty() || self.listeners.is_empty(), "I5: a listener waits only while nothing is idle");
        assert!(!self.wants_segment() || self.awaits_global, "I6: a short pool waits for the segment pool");
        let at_quota = self.in_use_by_lane.iter().filter(|in_use| **in_use >= self.max_per_lane).count();
        assert_eq!(at_quota, self.lanes_at_quota, "I7: lanes at quota are counted");
        let in_use_by_lanes: usize = self.in_use_by_lane.iter().sum();
        assert!(in_use_by_lanes <= self.held - self.idle.len(), "I3: lanes use no more segments than are in use");
        assert!(
            self.take_waiters.is_empty() || !self.can_serve_hard_wait(),
            "I8: a hard wait is for what is not there"
        );
        let nobody_waits =
            self.listeners.is_empty() && self.available_waiters.is_empty() && self.take_waiters.is_empty();
        assert!(!self.destroyed || self.idle.is_empty() && nobody_waits, "I9: a destroyed pool keeps nothing");
    }
}
