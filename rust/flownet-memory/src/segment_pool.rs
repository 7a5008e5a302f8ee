//! All segments of a process, and the guarantees on them.
//!
//! Two locks. The registry guards the list of pools and their sizes. The free list guards the segments that no pool
//! holds. Taking and returning a segment never lock the registry.
//!
//! # Invariants
//! - I10: every live pool holds the segments it is guaranteed: its minimum, and enough for its standing segments. A
//!   guarantee is given after its segments were taken, or not at all. It is raised only under the registry's lock, and
//!   lowered to the need when another pool wants the segments. So segments promised to a pool are there whenever it
//!   asks, whatever others took beyond their own. Others may have taken overdraft or their share of the spare segments,
//!   or a shrunken or destroyed pool may still use segments.
//! - I11: every live pool's size is between its guarantee and its maximum, and the sizes together are at most `total`.
//!   So a pool below its size gets a segment once the segments of overdraft and of shrunken and destroyed pools come
//!   back. Progress must not depend on that: the holder of such a segment may itself wait for the pool that wants it.

use std::fmt;
use std::sync::Arc;

use crate::buffer_pool::at_least;
use crate::free_list::FreeList;
use crate::pool_core::{Effects, PoolCore};
use crate::region::Region;
use crate::share::{Bounds, share};
use crate::sync::{Mutex, lock};
use crate::{BufferPool, BufferPoolSettings, MemoryError};

/// A fixed number of equal segments in one allocation: the hard limit on the buffered bytes of a process. Shared as
/// `Arc<SegmentPool>`.
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

/// Effects per pool, to run once the registry is unlocked.
type DueEffects = Vec<(Arc<PoolCore>, Effects)>;

impl SegmentPool {
    /// Allocates `segments` zeroed segments of `segment_bytes` each. Memory is used only when a segment is first
    /// written.
    pub fn new(segments: usize, segment_bytes: usize) -> Result<Arc<Self>, MemoryError> {
        at_least("segments", segments, 1)?;
        at_least("segment_bytes", segment_bytes, 1)?;
        let free = FreeList::new(Region::allocate(segments, segment_bytes)?);
        let registry = Mutex::new(Registry { pools: Vec::new(), closed: false });
        Ok(Arc::new(Self { segment_bytes, total: segments, registry, free }))
    }

    /// Creates a pool with `settings.min` segments of its own and a share of the spare ones. Other pools may shrink for
    /// it.
    ///
    /// Fails with [`MemoryError::Insufficient`] if the minimum is not available now: others are guaranteed these
    /// segments, or use them. So create the pools of a dataflow before it runs, including the consumers' pools. A
    /// running producer may have taken all spare segments, and returns them only when they are read.
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

    /// Registers a pool with its minimum, taken from free segments and from segments that other pools give up for it.
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
            // The pool is not created: restore the sizes of the others.
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

    /// Destroys every pool and refuses new ones. Waiting tasks are woken and get [`MemoryError::Closed`]. Segments in
    /// use stay valid until they are dropped.
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
            // Sizes are set under this lock, so none is set below the new guarantee.
            let _registry = lock(&self.registry);
            core.stand_with_higher_guarantee()
        };
        core.run(effects);
        stands
    }

    /// Returns the length of each segment in bytes.
    pub fn segment_bytes(&self) -> usize {
        self.segment_bytes
    }

    /// Returns the number of segments.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Returns the number of segments that no pool holds now. Equal to [`total`](Self::total) when all have been
    /// returned.
    pub fn available(&self) -> usize {
        self.free.len()
    }

    /// Returns the sum of the guarantees of live pools: their minimums and standing segments.
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
    /// Returns the guarantees that the pools need now.
    fn guaranteed(&self) -> usize {
        self.pools.iter().map(|pool| pool.settle_guarantee()).sum()
    }

    /// Recomputes every pool's size.
    fn redistribute(&self, total: usize) -> DueEffects {
        self.set_sizes(&self.sizes(total, None))
    }

    /// Recomputes every pool's size, with a new pool. Returns the size of the new one.
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
