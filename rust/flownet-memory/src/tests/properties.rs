//! Pools keep their promises under any sequence of operations.

use std::sync::Arc;
use std::task::Poll;

use proptest::prelude::*;

use super::support::{CountingWaker, Listener, assert_all_home, segments};
use crate::{BufferPool, BufferPoolSettings, MemorySegment, SegmentPool};

#[derive(Clone, Debug)]
enum Op {
    Create(BufferPoolSettings),
    Destroy(usize),
    Take { pool: usize, lane: usize },
    WaitForOne { pool: usize, lane: usize },
    WaitForAvailable { pool: usize },
    Offer { pool: usize, accepts: bool },
    GiveBack(usize),
    Stand(usize),
    EndStanding(usize),
}

/// A live pool and its user's knowledge of it.
struct KnownState {
    id: usize,
    pool: Arc<BufferPool>,
    settings: BufferPoolSettings,
    standing: usize,
    /// Its lanes use all they may, overdraft included.
    is_at_limit: bool,
    listeners: Vec<Arc<Listener>>,
    waits_for_one: Vec<Arc<CountingWaker>>,
    waits_for_available: Vec<Arc<CountingWaker>>,
}

struct Model {
    segments: Arc<SegmentPool>,
    pools: Vec<KnownState>,
    created: usize,
    /// Pool id, lane and segment.
    taken: Vec<(usize, usize, MemorySegment)>,
    /// Listeners of destroyed pools; they may hold segments.
    old_listeners: Vec<Arc<Listener>>,
}

fn op() -> impl Strategy<Value = Op> {
    let (pool, lane) = (0..4_usize, 0..3_usize);
    prop_oneof![
        2 => settings().prop_map(Op::Create),
        1 => pool.clone().prop_map(Op::Destroy),
        6 => (pool.clone(), lane.clone()).prop_map(|(pool, lane)| Op::Take { pool, lane }),
        3 => (pool.clone(), lane).prop_map(|(pool, lane)| Op::WaitForOne { pool, lane }),
        3 => pool.clone().prop_map(|pool| Op::WaitForAvailable { pool }),
        3 => pool.clone().prop_map(Op::Stand),
        1 => pool.clone().prop_map(Op::EndStanding),
        2 => (pool, any::<bool>()).prop_map(|(pool, accepts)| Op::Offer { pool, accepts }),
        7 => any::<usize>().prop_map(Op::GiveBack),
    ]
}

fn settings() -> impl Strategy<Value = BufferPoolSettings> {
    (0..4_usize, prop::option::of(0..6_usize), 1..4_usize, 1..5_usize, 0..4_usize).prop_map(
        |(min, head_room, lanes, max_per_lane, max_overdraft)| BufferPoolSettings {
            min,
            max: head_room.map(|head_room| (min + head_room).max(1)),
            lanes,
            max_per_lane,
            max_overdraft,
        },
    )
}

impl Model {
    fn apply(&mut self, op: Op) {
        let count = self.pools.len().max(1);
        match op {
            Op::Create(settings) => self.create(settings),
            Op::Destroy(at) => {
                if at < self.pools.len() {
                    let gone = self.pools.remove(at);
                    gone.pool.destroy();
                    let woken = |waits: &Vec<Arc<CountingWaker>>| waits.iter().all(|counter| counter.wakes() > 0);
                    assert!(woken(&gone.waits_for_one) && woken(&gone.waits_for_available), "destroy wakes everybody");
                    self.old_listeners.extend(gone.listeners);
                }
            }
            Op::Take { pool, lane } => {
                if let Some(known) = self.pools.get(pool % count) {
                    let was_available = known.pool.is_available();
                    let is_promised = known.pool.in_use() < known.pool.guaranteed();
                    let segment = known.pool.try_take(lane);
                    assert!(segment.is_some() || !is_promised || known.is_at_limit, "what is promised is there");
                    assert!(segment.is_some() || !was_available, "available means that a take succeeds");
                    assert!(!was_available || known.pool.held() <= known.pool.size(), "and needs no overdraft");
                    self.taken.extend(segment.map(|segment| (known.id, lane, segment)));
                }
            }
            Op::WaitForOne { pool, lane } => {
                if let Some(known) = self.pools.get_mut(pool % count) {
                    let (counter, waker) = CountingWaker::pair();
                    match known.pool.poll_take(lane, &waker) {
                        Poll::Ready(segment) => self.taken.push((known.id, lane, segment.unwrap())),
                        Poll::Pending => known.waits_for_one.push(counter),
                    }
                }
            }
            Op::WaitForAvailable { pool } => {
                if let Some(known) = self.pools.get_mut(pool % count) {
                    let (counter, waker) = CountingWaker::pair();
                    if known.pool.poll_available(&waker).is_pending() {
                        known.waits_for_available.push(counter);
                    }
                }
            }
            Op::Offer { pool, accepts } => {
                if let Some(known) = self.pools.get_mut(pool % count) {
                    let listener = Listener::new(accepts);
                    let idle = known.pool.held() > known.pool.in_use();
                    assert_eq!(known.pool.offer_to(listener.clone()), !idle, "refused if and only if one is idle");
                    known.listeners.push(listener);
                }
            }
            Op::Stand(pool) => {
                if let Some(known) = self.pools.get_mut(pool % count) {
                    let (before, stands) = (known.pool.guaranteed(), known.pool.try_stand());
                    known.standing += usize::from(stands);
                    assert!(stands || known.pool.guaranteed() == before, "who gets nothing costs nothing");
                }
            }
            Op::EndStanding(pool) => {
                if let Some(known) = self.pools.get_mut(pool % count) {
                    known.pool.end_standing(known.standing.min(1));
                    known.standing = known.standing.saturating_sub(1);
                }
            }
            Op::GiveBack(at) => {
                if !self.taken.is_empty() {
                    drop(self.taken.swap_remove(at % self.taken.len()));
                }
            }
        }
    }

    fn create(&mut self, settings: BufferPoolSettings) {
        let (required, guaranteed) = (settings.min, self.segments.guaranteed());
        let fits = guaranteed + required <= self.segments.total();
        let unpromised = |known: &KnownState| known.pool.in_use().saturating_sub(known.pool.guaranteed());
        let in_the_way = self.pools.iter().map(unpromised).sum::<usize>() + self.late();
        let created = self.segments.create_buffer_pool(settings.clone());
        assert!(created.is_err() || fits, "a pool is made only if its minimum can be guaranteed");
        assert!(created.is_ok() || !fits || in_the_way > 0, "it is made if nobody uses what is not promised to him");
        assert_eq!(self.segments.guaranteed(), guaranteed + if created.is_ok() { required } else { 0 });
        let Ok(pool) = created else { return };
        assert!(pool.held() >= required, "it has its minimum in hand");
        self.created += 1;
        let (listeners, waits_for_one, waits_for_available) = Default::default();
        let id = self.created;
        let known = KnownState {
            id,
            pool,
            settings,
            standing: 0,
            is_at_limit: false,
            listeners,
            waits_for_one,
            waits_for_available,
        };
        self.pools.push(known);
    }

    /// Returns the number of segments of destroyed pools that are still in use.
    fn late(&self) -> usize {
        let live = |id: usize| self.pools.iter().any(|known| known.id == id);
        let taken = self.taken.iter().filter(|(id, ..)| !live(*id)).count();
        taken + self.old_listeners.iter().map(|listener| listener.kept()).sum::<usize>()
    }

    /// Checks the conditions between any two operations, and removes the waiters that were woken.
    fn check(&mut self) {
        let (total, free) = (self.segments.total(), self.segments.available());
        let held: usize = self.pools.iter().map(|known| known.pool.held()).sum();
        assert_eq!(held + self.late() + free, total, "every segment is held, on its way home, or free");

        let wanted: usize = self.pools.iter().map(|known| known.settings.max.unwrap_or(total)).sum();
        let sizes: usize = self.pools.iter().map(|known| known.pool.size()).sum();
        assert_eq!(sizes, total.min(wanted), "all that is spare and wanted is given out");
        let guaranteed: usize = self.pools.iter().map(|known| known.pool.guaranteed()).sum();
        assert!(self.segments.guaranteed() <= guaranteed && guaranteed <= total, "what is guaranteed is there");

        for known in &mut self.pools {
            let in_use = |lane| self.taken.iter().filter(|(id, at, _)| *id == known.id && *at == lane).count();
            let at_quota = (0..known.settings.lanes).any(|lane| in_use(lane) >= known.settings.max_per_lane);
            let kept: usize = known.listeners.iter().map(|listener| listener.kept()).sum();
            let taken = self.taken.iter().filter(|(id, ..)| *id == known.id).count();
            assert_eq!(known.pool.in_use(), taken + kept);
            let lanes_in_use = (0..known.settings.lanes).filter(|lane| in_use(*lane) > 0).count();
            let in_lanes: usize = (0..known.settings.lanes).map(in_use).sum();
            let BufferPoolSettings { max, lanes, max_per_lane, .. } = known.settings;
            let limit = max.map_or(usize::MAX, |max| max.div_ceil(lanes) * lanes_in_use + max_per_lane);
            known.check(free, at_quota, limit, in_lanes);
        }
    }

    fn finish(self) {
        let Self { segments, pools, taken, old_listeners, .. } = self;
        drop((pools, taken));
        old_listeners.iter().for_each(|listener| drop(listener.empty()));
        drop(old_listeners);
        assert_all_home(&segments);
    }
}

impl KnownState {
    /// Checks a pool whose lanes use `in_lanes` segments of the `limit` they may use without overdraft.
    fn check(&mut self, free: usize, at_quota: bool, limit: usize, in_lanes: usize) {
        let (size, held) = (self.pool.size(), self.pool.held());
        let idle = held - self.pool.in_use();
        assert!(size >= self.settings.min && self.settings.max.is_none_or(|max| size <= max));
        assert!(idle == 0 || held <= size, "excess is never idle");
        assert!(idle > 0 || held >= size || free == 0, "a short pool takes what is free");
        assert_eq!(self.pool.is_available(), idle > 0 && !at_quota && in_lanes < limit);
        assert_eq!(self.pool.standing(), self.standing);
        let backed = if self.standing == 0 { 0 } else { size.min(self.standing + 1) };
        let guaranteed = self.pool.guaranteed();
        assert!(self.settings.min.max(backed) <= guaranteed && guaranteed <= size, "what stands is guaranteed");
        assert!(guaranteed <= held, "what is guaranteed is in hand");
        let is_short = self.settings.max.is_none_or(|max| size < max);
        assert!(!is_short || self.standing < size.max(1), "a short pool keeps one that circulates");

        let overdraft = self.settings.max_overdraft;
        let may_use_more = in_lanes < limit.saturating_add(overdraft);
        self.is_at_limit = !may_use_more;
        let one_can_be_had = may_use_more && (idle > 0 || held < size + overdraft && free > 0);
        let all_woken = |waits: &[Arc<CountingWaker>]| waits.iter().all(|counter| counter.wakes() > 0);
        assert!(!one_can_be_had || all_woken(&self.waits_for_one), "a hard wait ends when one can be had");
        assert!(!self.pool.is_available() || all_woken(&self.waits_for_available), "a soft wait ends when available");
        self.waits_for_one.retain(|counter| counter.wakes() == 0);
        self.waits_for_available.retain(|counter| counter.wakes() == 0);
        assert!(self.listeners.iter().all(|listener| listener.calls() <= 1), "once per registration");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_operations_keeps_the_pools_promises(
        total in 1..12_usize,
        ops in prop::collection::vec(op(), 1..150),
    ) {
        let mut model =
            Model { segments: segments(total), pools: vec![], created: 0, taken: vec![], old_listeners: vec![] };
        for op in ops {
            model.apply(op);
            model.check();
        }
        model.finish();
    }
}
