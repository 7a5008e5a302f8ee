//! Shared core of a buffer pool: its locked state, and the effects of a change.
//!
//! Every operation has the same steps. It changes the state under the lock and settles the consequences: fetch ahead,
//! publish availability, collect wakers. Then it unlocks and runs the collected [`Effects`]. No foreign code is thus
//! called under a lock. A waiter that registers under the lock cannot miss the change it waits for.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::pool_state::{NO_LANE, PoolState};
use crate::region::Slot;
use crate::sync::{AtomicBool, AtomicUsize, Mutex, Ordering, lock};
use crate::{BufferPoolSettings, MemoryError, MemorySegment, SegmentListener, SegmentPool};

pub(crate) struct PoolCore {
    pub(crate) settings: BufferPoolSettings,
    pub(crate) global: Arc<SegmentPool>,
    /// `PoolState::is_available` as of the last change.
    available: AtomicBool,
    /// `PoolState::claims_standing` and `lend_limit` as of the last change. Hints: acting on an outdated one is
    /// harmless.
    claims_standing: AtomicBool,
    lend_limit: AtomicUsize,
    state: Mutex<PoolState>,
}

/// Effects of a state change, to run after the unlock.
#[derive(Default)]
#[must_use = "segments and wake-ups in here would be lost"]
pub(crate) struct Effects {
    /// Segments for the segment pool.
    home: Vec<Slot>,
    wakers: Vec<Waker>,
    offers: VecDeque<(Arc<dyn SegmentListener>, MemorySegment)>,
    /// Listeners of a destroyed pool; their drop may run foreign code.
    released: VecDeque<Arc<dyn SegmentListener>>,
}

impl Effects {
    /// Takes up to `most` of the segments that would return to the segment pool.
    pub(crate) fn intercept(&mut self, most: usize) -> Vec<Slot> {
        self.home.split_off(self.home.len().saturating_sub(most))
    }

    /// Returns segments to the segment pool.
    pub(crate) fn send_home(slots: Vec<Slot>) -> Self {
        Self { home: slots, ..Self::default() }
    }
}

impl PoolCore {
    pub(crate) fn new(global: Arc<SegmentPool>, settings: BufferPoolSettings) -> Arc<Self> {
        let state = Mutex::new(PoolState::new(&settings));
        Arc::new(Self {
            settings,
            global,
            available: AtomicBool::new(false),
            claims_standing: AtomicBool::new(false),
            lend_limit: AtomicUsize::new(1),
            state,
        })
    }

    pub(crate) fn try_take(self: &Arc<Self>, lane: usize) -> Option<MemorySegment> {
        self.update(|state, _| self.take(state, lane))
    }

    pub(crate) fn poll_take(self: &Arc<Self>, lane: usize, waker: &Waker) -> Poll<Result<MemorySegment, MemoryError>> {
        self.update(|state, _| {
            if state.destroyed {
                return Poll::Ready(Err(MemoryError::Closed));
            }
            if let Some(segment) = self.take(state, lane).or_else(|| self.take_or_wait(state, lane)) {
                return Poll::Ready(Ok(segment));
            }
            register(&mut state.take_waiters, waker);
            Poll::Pending
        })
    }

    pub(crate) fn poll_available(self: &Arc<Self>, waker: &Waker) -> Poll<Result<(), MemoryError>> {
        self.update(|state, _| {
            if state.destroyed {
                return Poll::Ready(Err(MemoryError::Closed));
            }
            if state.is_available() {
                return Poll::Ready(Ok(()));
            }
            register(&mut state.available_waiters, waker);
            Poll::Pending
        })
    }

    pub(crate) fn offer_to(self: &Arc<Self>, listener: Arc<dyn SegmentListener>) -> bool {
        // Without an idle segment, the pool already waits for all segments that it may still get (I6).
        let refused = self.update(|state, _| {
            if state.destroyed || !state.idle.is_empty() {
                return Some(listener);
            }
            state.listeners.push_back(listener);
            None
        });
        refused.is_none()
    }

    /// Books a standing segment, if the pool can spare it.
    pub(crate) fn try_stand(self: &Arc<Self>) -> bool {
        let stands = self.update(|state, _| {
            let can_stand = state.can_stand();
            let is_guaranteed = state.guarantee_for(state.standing + 1) <= state.guarantee;
            state.standing += usize::from(can_stand && is_guaranteed);
            // `None` if the guarantee must be raised first.
            (!can_stand || is_guaranteed).then_some(can_stand)
        });
        stands.unwrap_or_else(|| self.global.stand_with_higher_guarantee(self))
    }

    /// Like `try_stand`, but raises the guarantee if its segments are available now. Call with the registry locked.
    pub(crate) fn stand_with_higher_guarantee(self: &Arc<Self>) -> (bool, Effects) {
        self.change(|state, effects| {
            let guarantee = state.guarantee_for(state.standing + 1);
            let stands = state.can_stand() && self.hold(state, guarantee, effects);
            if stands {
                state.guarantee = state.guarantee.max(guarantee);
                state.standing += 1;
            }
            stands
        })
    }

    /// Ends the booking of standing segments that were returned, or hold data now.
    pub(crate) fn end_standing(self: &Arc<Self>, count: usize) {
        self.update(|state, _| {
            debug_assert!(count <= state.standing, "what was booked once ends once");
            state.standing = state.standing.saturating_sub(count);
        });
    }

    /// Lowers the guarantee to the current need and returns it. Call with the registry locked.
    pub(crate) fn settle_guarantee(&self) -> usize {
        let mut state = lock(&self.state);
        state.guarantee = state.guarantee.min(state.guarantee_for(state.standing));
        state.guarantee
    }

    /// Starts the pool with its minimum. Call with the registry locked.
    pub(crate) fn begin(self: &Arc<Self>, minimum: Vec<Slot>, size: usize) -> Effects {
        let ((), effects) = self.change(|state, _| {
            state.guarantee = self.settings.min;
            state.held = minimum.len();
            state.idle = minimum;
            state.size = size;
        });
        effects
    }

    /// Takes back a segment of this pool.
    pub(crate) fn recycle(self: &Arc<Self>, slot: Slot, lane: usize) {
        self.update(|state, effects| self.take_back(state, slot, lane, effects));
    }

    /// Accepts or refuses a segment of the segment pool, in whose queue this pool waited.
    pub(crate) fn deliver(self: &Arc<Self>, slot: Slot) -> (Option<Slot>, Effects) {
        self.change(|state, effects| {
            state.awaits_global = false;
            if state.wants_segment() {
                state.held += 1;
                self.place(state, slot, effects);
                return None;
            }
            // Settling wakes tasks that wait for overdraft: the pool takes it only on request.
            Some(slot)
        })
    }

    /// Sets the size. Idle excess leaves at once, excess in use when it comes back.
    pub(crate) fn resize(self: &Arc<Self>, size: usize) -> Effects {
        let ((), effects) = self.change(|state, effects| {
            if state.destroyed || state.size == size {
                return;
            }
            state.size = size;
            while state.held > size {
                let Some(slot) = state.idle.pop() else { break };
                state.held -= 1;
                effects.home.push(slot);
            }
        });
        effects
    }

    /// Retires the pool: idle segments leave now, segments in use when they come back.
    pub(crate) fn retire(self: &Arc<Self>) -> Effects {
        let ((), effects) = self.change(|state, effects| {
            state.destroyed = true;
            state.held -= state.idle.len();
            effects.home.append(&mut state.idle);
            effects.wakers.append(&mut state.available_waiters);
            effects.wakers.append(&mut state.take_waiters);
            effects.released = mem::take(&mut state.listeners);
            if mem::take(&mut state.awaits_global) {
                self.global.free.stop_waiting(self);
            }
        });
        effects
    }

    /// Runs the effects of a change. Call it without any lock.
    pub(crate) fn run(self: &Arc<Self>, effects: Effects) {
        let mut offers = self.run_all_but_offers(effects);
        while let Some((listener, segment)) = offers.pop_front() {
            let Some((slot, lane)) = listener.on_segment(segment).and_then(|refused| refused.into_slot_of(self)) else {
                continue;
            };
            // A loop instead of a drop, which would recurse into this function.
            let ((), effects) = self.change(|state, effects| self.take_back(state, slot, lane, effects));
            offers.append(&mut self.run_all_but_offers(effects));
        }
    }

    #[inline]
    pub(crate) fn is_available(&self) -> bool {
        self.available.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn claims_standing(&self) -> bool {
        self.claims_standing.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn lend_limit(&self) -> usize {
        self.lend_limit.load(Ordering::Relaxed)
    }

    /// Returns the listeners that wait here, first come first. Their addresses identify them.
    pub(crate) fn waiting(&self) -> Vec<*const ()> {
        self.inspect(|state| state.listeners.iter().map(|waiting| Arc::as_ptr(waiting).cast()).collect())
    }

    /// Reads the state.
    pub(crate) fn inspect<R>(&self, read: impl FnOnce(&PoolState) -> R) -> R {
        read(&lock(&self.state))
    }

    fn update<R>(self: &Arc<Self>, f: impl FnOnce(&mut PoolState, &mut Effects) -> R) -> R {
        let (result, effects) = self.change(f);
        self.run(effects);
        result
    }

    fn change<R>(self: &Arc<Self>, f: impl FnOnce(&mut PoolState, &mut Effects) -> R) -> (R, Effects) {
        let mut effects = Effects::default();
        let result;
        let mut state = lock(&self.state);
        // `result` is declared before the guard, so that it is dropped later. If an assertion fails, a segment in it
        // returns to its pool, which needs the lock.
        result = f(&mut state, &mut effects);
        self.settle(&mut state, &mut effects);
        (result, effects)
    }

    /// Restores I6 and I8 and publishes availability.
    fn settle(self: &Arc<Self>, state: &mut PoolState, effects: &mut Effects) {
        while state.wants_segment() && !state.awaits_global {
            match self.global.free.take_or_wait(self) {
                Some(slot) => {
                    state.held += 1;
                    self.place(state, slot, effects);
                }
                None => state.awaits_global = true,
            }
        }
        let available = state.is_available();
        self.available.store(available, Ordering::Release);
        self.claims_standing.store(state.claims_standing(), Ordering::Relaxed);
        self.lend_limit.store(state.lend_limit(), Ordering::Relaxed);
        if available {
            effects.wakers.append(&mut state.available_waiters);
        }
        if state.can_serve_hard_wait() {
            effects.wakers.append(&mut state.take_waiters);
        }
        state.assert_invariants();
    }

    fn take(self: &Arc<Self>, state: &mut PoolState, lane: usize) -> Option<MemorySegment> {
        if !state.may_use_more() {
            return None;
        }
        if let Some(slot) = state.idle.pop() {
            return Some(self.hand_out(state, slot, lane));
        }
        let slot = if state.may_hold_more() { self.global.free.take() } else { None }?;
        state.held += 1;
        Some(self.hand_out(state, slot, lane))
    }

    /// Like `take`, but waits in the segment pool's queue if only that pool has no segment.
    fn take_or_wait(self: &Arc<Self>, state: &mut PoolState, lane: usize) -> Option<MemorySegment> {
        if !state.may_use_more() || !state.may_hold_more() || state.awaits_global {
            return None;
        }
        let Some(slot) = self.global.free.take_or_wait(self) else {
            state.awaits_global = true;
            return None;
        };
        state.held += 1;
        Some(self.hand_out(state, slot, lane))
    }

    /// Takes free segments until the pool holds `count`. Returns false if there are too few.
    fn hold(self: &Arc<Self>, state: &mut PoolState, count: usize, effects: &mut Effects) -> bool {
        while state.held < count {
            let Some(slot) = self.global.free.take() else { return false };
            state.held += 1;
            self.place(state, slot, effects);
        }
        true
    }

    fn hand_out(self: &Arc<Self>, state: &mut PoolState, slot: Slot, lane: usize) -> MemorySegment {
        state.enter_lane(lane);
        MemorySegment::new(slot, lane, Arc::clone(self))
    }

    fn take_back(self: &Arc<Self>, state: &mut PoolState, slot: Slot, lane: usize, effects: &mut Effects) {
        state.leave_lane(lane);
        if !state.has_excess() {
            self.place(state, slot, effects);
            return;
        }
        state.held -= 1;
        effects.home.push(slot);
    }

    /// Gives a held segment to the first listener, or makes it idle.
    fn place(self: &Arc<Self>, state: &mut PoolState, slot: Slot, effects: &mut Effects) {
        match state.listeners.pop_front() {
            Some(listener) => {
                effects.offers.push_back((listener, MemorySegment::new(slot, NO_LANE, Arc::clone(self))));
            }
            None => state.idle.push(slot),
        }
    }

    /// Returns segments before it wakes waiters, so that a woken task finds them.
    fn run_all_but_offers(&self, effects: Effects) -> VecDeque<(Arc<dyn SegmentListener>, MemorySegment)> {
        effects.home.into_iter().for_each(|slot| self.global.free.give_back(slot));
        effects.wakers.into_iter().for_each(Waker::wake);
        effects.offers
    }
}

fn register(waiters: &mut Vec<Waker>, waker: &Waker) {
    if !waiters.iter().any(|waiting| waiting.will_wake(waker)) {
        waiters.push(waker.clone());
    }
}
