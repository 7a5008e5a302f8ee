//! The buffers a partition has open: at most one for each subpartition, in the order in which they were opened.
//!
//! # Invariants
//! - I1: every open buffer has one entry in `order` that bears its stamp. Entries of buffers closed since are passed
//!   over, and cleared away before they are more than the open ones.
//! - I2: at most `booked` buffers are open, or one: as many as the pool knows to stand.

use std::collections::VecDeque;

use flownet_memory::{BufferBuilder, BufferPool};

/// Builders by subpartition.
#[derive(Debug)]
pub(super) struct OpenBuffers {
    builders: Box<[Option<BufferBuilder>]>,
    /// By subpartition: which of its entries in `order` counts.
    stamps: Box<[u32]>,
    order: VecDeque<(u32, u32)>,
    open: usize,
    booked: usize,
}

impl OpenBuffers {
    pub(super) fn new(subpartitions: u32) -> Self {
        Self {
            builders: (0..subpartitions).map(|_| None).collect(),
            stamps: (0..subpartitions).map(|_| 0).collect(),
            order: VecDeque::new(),
            open: 0,
            booked: 0,
        }
    }

    /// The open buffer of a subpartition, for writing.
    #[inline]
    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut BufferBuilder> {
        self.builders[index].as_mut()
    }

    /// Buffers that are open.
    pub(super) fn len(&self) -> usize {
        self.open
    }

    pub(super) fn subpartitions(&self) -> usize {
        self.builders.len()
    }

    /// How many must be closed before one more is opened. What is booked stays booked, unless the pool has become too
    /// small for it.
    pub(super) fn make_room(&mut self, pool: &BufferPool) -> usize {
        if pool.claims_standing() && self.booked > 1 {
            self.booked -= 1;
            pool.end_standing(1);
        } else if self.open == self.booked && pool.try_stand() {
            self.booked += 1;
        }
        (self.open + 1).saturating_sub(self.booked.max(1))
    }

    pub(super) fn insert(&mut self, index: usize, builder: BufferBuilder) {
        debug_assert!(self.builders[index].is_none(), "the buffer before it is finished");
        self.builders[index] = Some(builder);
        self.open += 1;
        if self.order.len() > 2 * self.open + SPARE_ENTRIES {
            let (builders, stamps) = (&self.builders, &self.stamps);
            self.order.retain(|&(at, stamp)| is_current(builders, stamps, at, stamp));
        }
        let stamp = self.stamps[index].wrapping_add(1);
        self.stamps[index] = stamp;
        // A partition has at most 2^32 subpartitions.
        self.order.push_back((index as u32, stamp));
    }

    pub(super) fn take(&mut self, index: usize) -> Option<BufferBuilder> {
        let taken = self.builders[index].take();
        self.open -= usize::from(taken.is_some());
        taken
    }

    /// The subpartitions with an open buffer, those first whose buffer has been open for longest.
    pub(super) fn oldest_first(&self) -> impl Iterator<Item = usize> {
        let current =
            self.order.iter().filter(|&&(index, stamp)| is_current(&self.builders, &self.stamps, index, stamp));
        current.map(|&(index, _)| index as usize)
    }

    /// The subpartition whose buffer has been open for longest.
    pub(super) fn oldest(&mut self) -> Option<usize> {
        while let Some(&(index, stamp)) = self.order.front() {
            if is_current(&self.builders, &self.stamps, index, stamp) {
                return Some(index as usize);
            }
            self.order.pop_front();
        }
        None
    }
}

fn is_current(builders: &[Option<BufferBuilder>], stamps: &[u32], index: u32, stamp: u32) -> bool {
    let index = index as usize;
    stamps[index] == stamp && builders[index].is_some()
}

/// Entries of closed buffers that are not worth clearing away.
const SPARE_ENTRIES: usize = 64;
