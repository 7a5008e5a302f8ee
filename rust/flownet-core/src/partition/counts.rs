//! Records written to each subpartition of a partition: counted by the writing task, read by anyone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One count a subpartition, and one of what is written to all at once. Clones are one.
#[derive(Clone, Debug)]
pub(super) struct RecordCounts {
    each: Arc<[RecordCount]>,
    all: Arc<RecordCount>,
}

/// Of one subpartition, or of all together.
#[derive(Debug, Default)]
pub(super) struct RecordCount(AtomicU64);

impl RecordCounts {
    pub(super) fn new(len: usize) -> Self {
        Self { each: (0..len).map(|_| RecordCount::default()).collect(), all: Arc::default() }
    }

    /// The counts of all subpartitions, without what is written to all at once.
    #[inline]
    pub(super) fn each(&self) -> &[RecordCount] {
        &self.each
    }

    /// That of what is written to all at once.
    pub(super) fn all(&self) -> &RecordCount {
        &self.all
    }

    /// Records written to each subpartition so far.
    pub(super) fn read(&self) -> impl Iterator<Item = u64> {
        let of_all = self.all.read();
        self.each.iter().map(move |each| each.read() + of_all)
    }
}

impl RecordCount {
    // One writer: a plain load and store costs less than a locked add and loses nothing.
    #[inline(always)] // for each record
    pub(super) fn add(&self, records: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(records), Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
