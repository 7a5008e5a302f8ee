//! Which subpartitions were written since the last flush.

use std::sync::Arc;

use crate::sync::{AtomicU8, Ordering};

/// One mark a subpartition, set by the writer a record at a time and taken by the flusher. Clones are one.
///
/// The writer only reads a mark that is set already, without a fence, so it may see a mark that the flusher is just
/// taking while the flusher does not see the writer's last commit. Therefore a mark that was taken is given once more
/// by the next [`Self::take`]: by then the commit is visible, and a flush that finds nothing is cheap. The price is
/// paid per flush and subpartition; a fence would be paid per record. For the writer's sake, too, a mark is a byte: it
/// has to find it and to compare, and neither to shift nor to share it with a neighbour.
#[derive(Clone, Debug)]
pub(super) struct DirtyMarks {
    each: Arc<[DirtyMark]>,
    /// For what is written to all at once.
    all: Arc<DirtyMark>,
}

/// Of one subpartition, or of all together.
#[derive(Debug)]
pub(super) struct DirtyMark(AtomicU8);

impl DirtyMarks {
    pub(super) fn new(len: usize) -> Self {
        let clean = || DirtyMark(AtomicU8::new(CLEAN));
        Self { each: (0..len).map(|_| clean()).collect(), all: Arc::new(clean()) }
    }

    /// The marks of all subpartitions.
    #[inline]
    pub(super) fn each(&self) -> &[DirtyMark] {
        &self.each
    }

    pub(super) fn mark_all(&self) {
        self.all.set();
    }

    /// Gives all that are marked, and once more those the last call gave.
    pub(super) fn take(&self, mut give: impl FnMut(usize)) {
        let gives_all = self.all.take();
        for (index, mark) in self.each.iter().enumerate() {
            if mark.take() | gives_all {
                give(index);
            }
        }
    }

    pub(super) fn any(&self) -> bool {
        self.all.is_set() || self.each.iter().any(DirtyMark::is_set)
    }
}

impl DirtyMark {
    #[inline]
    pub(super) fn set(&self) {
        if self.0.load(Ordering::Relaxed) != WRITTEN {
            // Release: who takes the mark sees what was committed before it.
            self.0.store(WRITTEN, Ordering::Release);
        }
    }

    /// Whether it is to be given.
    fn take(&self) -> bool {
        let seen = self.0.load(Ordering::Relaxed);
        if seen != CLEAN {
            let left = if seen == WRITTEN { TAKEN } else { CLEAN };
            // If it fails, the writer has just marked it again, for the next call.
            let _ = self.0.compare_exchange(seen, left, Ordering::AcqRel, Ordering::Relaxed);
        }
        seen != CLEAN
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) != CLEAN
    }
}

/// Not written since the flush before the last.
const CLEAN: u8 = 0;
/// Given by the last flush.
const TAKEN: u8 = 1;
/// Written since the last flush, or while it went on.
const WRITTEN: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(marks: &DirtyMarks) -> Vec<usize> {
        let mut indices = Vec::new();
        marks.take(|index| indices.push(index));
        indices
    }

    #[test]
    fn a_mark_is_given_by_two_takes_and_then_forgotten() {
        let marks = DirtyMarks::new(130);
        marks.each()[129].set();
        marks.each()[0].set();
        assert_eq!(taken(&marks), [0, 129]);
        marks.each()[64].set();
        assert_eq!(taken(&marks), [0, 64, 129]);
        assert!(marks.any());
        assert_eq!(taken(&marks), [64]);
        assert!(!marks.any());
        assert_eq!(taken(&marks), []);
    }

    #[test]
    fn marking_all_marks_only_what_exists() {
        for len in [1, 63, 64, 65, 128] {
            let marks = DirtyMarks::new(len);
            marks.mark_all();
            for _ in 0..2 {
                assert_eq!(taken(&marks), (0..len).collect::<Vec<_>>());
            }
            assert!(!marks.any());
        }
    }
}
