//! All segments of a process, and the guarantees given on them.
//!
//! Two locks: the registry guards which pools there are and their sizes; the free
//! list guards the segments no pool holds. Taking and giving back never touch the
//! registry.
//!
//! # Invariants
//! - I10: every live pool holds what it is guaranteed: its minimum, and room for what
//!   stands in it. A guarantee is given with the segments for it in hand, or not at all;
//!   it is raised only with the registry locked, and lowered to what is needed when
//!   somebody else wants it. So what a pool was promised is there whenever it asks,
//!   whatever others took beyond their own: overdraft, their part of the spare ones, or
//!   what a shrunken or destroyed pool has still in use.
//! - I11: every live pool's size is between its guarantee and its maximum, and the
//!   sizes together are at most `total`. So a pool below its size gets a segment once
//!   overdraft, shrunken and destroyed pools' segments come back. Nobody may depend on
//!   that to get on: who holds them may himself wait for who wants them.

use std::fmt;
use std::sync::Arc;

use crate::buffer_pool::at_least;
use crate::free_list::FreeList;
use crate::pool_core::{Effects, PoolCore};
use crate::region::Region;
use crate::share::{Bounds, share};
use crate::sync::{Mutex, lock};
use crate::{BufferPool, BufferPoolSettings, MemoryError};

/// A fixed number of equal segments in one allocation: the hard ceiling of what a
/// process buffers. Shared as `Arc<SegmentPool>`.
pub struct SegmentPool {
    segment_bytes: usize,
    total: usize,
    registry: Mutex<Registry>,
    pub(crate) free: FreeList,
}

struct Registry {
    /// Live pools in order of creation, which makes sharing deterministic.
    pools: Vec<Arc<PoolCore>>,
    closed: bool,
}

/// What is due in which pool once the registry is unlocked.
type DueEffects = Vec<(Arc<PoolCore>, Effects)>;

impl SegmentPool {
    /// Allocates `segments` zeroed segments of `segment_bytes` each. Memory is used
    /// only as segments are first written.
    pub fn new(segments: usize, segment_bytes: usize) -> Result<Arc<Self>, MemoryError> {
        at_least("segments", segments, 1)?;
        at_least("segment_bytes", segment_bytes, 1)?;
        let free = FreeList::new(Region::allocate(segments, segment_bytes)?);
        let registry = Mutex::new(Registry { pools: Vec::new(), closed: false });
        Ok(Arc::new(Self { segment_bytes, total: segments, registry, free }))
    }

    /// Makes a pool that has `settings.min` segments for itself and gets a part of the
    /// spare ones. Other pools may shrink for it.
    ///
    /// Fails with [`MemoryError::Insufficient`] if the minimum is not to be had now:
    /// others are guaranteed it, or have it in use. So make the pools of a dataflow
    /// before it runs, the consumers' too: a producer that has begun may have taken all
    /// that was spare, and give it back only when it is read.
    pub fn create_buffer_pool(self: &Arc<Self>, settings: BufferPoolSettings) -> Result<Arc<BufferPool>, MemoryError> {
        settings.check()?;
        let core = PoolCore::new(Arc::clone(self), settings);
        let (made, due) = {
            let mut registry = lock(&self.registry);
            if registry.closed {
                return Err(MemoryError::Closed);
            }
            self.begin(&mut registry, &core)
        };
        run_all(due);
        made.map(|()| Arc::new(BufferPool::new(core)))
    }

    /// Enters a pool with its minimum, which is taken from what is free and what others give up for it.
    fn begin(&self, registry: &mut Registry, core: &Arc<PoolCore>) -> (Result<(), MemoryError>, DueEffects) {
        let (required, total) = (core.settings.min, self.total);
        let insufficient = |available| MemoryError::Insufficient { required, available, total };
        let available = total - registry.guaranteed();
        if required > available {
            return (Err(insufficient(available)), DueEffects::new());
        }
        let (size, mut due) = registry.make_room(total, Bounds { min: required, max: core.settings.max });
        let mut minimum = Vec::with_capacity(required);
        for (_, effects) in &mut due {
            minimum.append(&mut effects.intercept(required - minimum.len()));
        }
        minimum.extend(std::iter::from_fn(|| self.free.take()).take(required - minimum.len()));
        if minimum.len() < required {
            let available = minimum.len();
            due.push((Arc::clone(core), Effects::send_home(minimum)));
            due.append(&mut registry.redistribute(total));
            return (Err(insufficient(available)), due);
        }
        registry.pools.push(Arc::clone(core));
        if planted!(LazyPromise) {
            due.push((Arc::clone(core), Effects::send_home(minimum.split_off(required.min(1)))));
        }
        due.push((Arc::clone(core), core.begin(minimum, size)));
        (Ok(()), due)
    }

    /// Destroys every pool and refuses new ones. Whoever waits is woken and finds
    /// [`MemoryError::Closed`]. Segments in use stay valid until they are dropped.
    pub fn close(&self) {
        let due: DueEffects = {
            let mut registry = lock(&self.registry);
            registry.closed = true;
            registry.pools.drain(..).map(retire).collect()
        };
        run_all(due);
    }

    /// Destroys one pool, once.
    pub(crate) fn destroy(&self, core: &Arc<PoolCore>) {
        let due = {
            let mut registry = lock(&self.registry);
            let Some(at) = registry.pools.iter().position(|pool| Arc::ptr_eq(pool, core)) else { return };
            let pool = registry.pools.remove(at);
            let mut due = vec![retire(pool)];
            due.append(&mut registry.redistribute(self.total));
            due
        };
        run_all(due);
    }

    /// Books a standing segment of a pool whose guarantee must grow for it.
    pub(crate) fn stand_with_higher_guarantee(&self, core: &Arc<PoolCore>) -> bool {
        let (stands, effects) = {
            // Sizes are shared out with this lock held: none is set below the new guarantee.
            let _registry = lock(&self.registry);
            core.stand_with_higher_guarantee()
        };
        core.run(effects);
        stands
    }

    /// Length of each segment in bytes.
    pub fn segment_bytes(&self) -> usize {
        self.segment_bytes
    }

    /// Segments there are.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Segments no pool holds right now. Equal to [`total`](Self::total) when all are home.
    pub fn available(&self) -> usize {
        self.free.len()
    }

    /// What live pools are guaranteed: their minimums and what stands in them.
    pub fn guaranteed(&self) -> usize {
        lock(&self.registry).guaranteed()
    }
}

impl fmt::Debug for SegmentPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SegmentPool")
            .field("segment_bytes", &self.segment_bytes)
            .field("total", &self.total)
            .field("available", &self.available())
            .field("waiting", &self.free.waiting())
            .field("guaranteed", &self.guaranteed())
            .finish_non_exhaustive()
    }
}

impl Registry {
    /// What the pools need to be guaranteed as of now.
    fn guaranteed(&self) -> usize {
        self.pools.iter().map(|pool| pool.settle_guarantee()).sum()
    }

    /// Sets every pool's size anew.
    fn redistribute(&self, total: usize) -> DueEffects {
        self.set_sizes(&self.sizes(total, None))
    }

    /// Sets every pool's size anew, with one more that is to come. Gives the size of that one.
    fn make_room(&self, total: usize, newcomer: Bounds) -> (usize, DueEffects) {
        let sizes = self.sizes(total, Some(newcomer));
        (sizes[self.pools.len()], self.set_sizes(&sizes))
    }

    fn sizes(&self, total: usize, newcomer: Option<Bounds>) -> Vec<usize> {
        let bounds = |pool: &Arc<PoolCore>| Bounds { min: pool.settle_guarantee(), max: pool.settings.max };
        let bounds: Vec<Bounds> = self.pools.iter().map(bounds).chain(newcomer).collect();
        let sizes = share(total, &bounds);
        assert_invariants(total, &bounds, &sizes);
        sizes
    }

    fn set_sizes(&self, sizes: &[usize]) -> DueEffects {
        self.pools.iter().zip(sizes).map(|(pool, &size)| (Arc::clone(pool), pool.resize(size))).collect()
    }
}

fn assert_invariants(total: usize, bounds: &[Bounds], sizes: &[usize]) {
    if !cfg!(any(debug_assertions, loom)) {
        return;
    }
    let guaranteed: usize = bounds.iter().map(|bounds| bounds.min).sum();
    assert!(guaranteed <= total, "I10: no more is guaranteed than there is");
    let within = |(b, size): (&Bounds, &usize)| *size >= b.min && b.max.is_none_or(|max| *size <= max);
    assert!(bounds.iter().zip(sizes).all(within), "I11: sizes are between guarantee and maximum");
    assert!(sizes.iter().sum::<usize>() <= total, "I11: sizes together fit");
}

fn retire(pool: Arc<PoolCore>) -> (Arc<PoolCore>, Effects) {
    let effects = pool.retire();
    (pool, effects)
}

fn run_all(due: DueEffects) {
    due.into_iter().for_each(|(pool, effects)| pool.run(effects));
}
