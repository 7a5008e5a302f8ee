//! Counters of the records written to each subpartition: the writing task counts, any thread reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One counter per subpartition and one for broadcast records. Clones share the counters.
#[derive(Clone, Debug)]
pub(super) struct RecordCounts {
    each: Arc<[RecordCount]>,
    all: Arc<RecordCount>,
}

/// Counter of one subpartition, or of broadcast records.
#[derive(Debug, Default)]
pub(super) struct RecordCount(AtomicU64);

impl RecordCounts {
    pub(super) fn new(len: usize) -> Self {
        Self { each: (0..len).map(|_| RecordCount::default()).collect(), all: Arc::default() }
    }

    /// Returns the counters of all subpartitions, without broadcast records.
    #[inline]
    pub(super) fn each(&self) -> &[RecordCount] {
        &self.each
    }

    /// Returns the counter of broadcast records.
    pub(super) fn all(&self) -> &RecordCount {
        &self.all
    }

    /// Returns the number of records written to each subpartition so far.
    pub(super) fn read(&self) -> impl Iterator<Item = u64> {
        let of_all = self.all.read();
        self.each.iter().map(move |each| each.read() + of_all)
    }
}

impl RecordCount {
    // A single writer: a plain load and store costs less than a locked add and loses no update.
    #[inline(always)] // for each record
    pub(super) fn add(&self, records: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(records), Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
