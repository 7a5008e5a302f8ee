//! Which subpartitions were written since the last flush.

use std::sync::Arc;
use std::task::Waker;

use crate::fence;
use crate::lock::Lock;
use crate::sync::{AtomicBool, AtomicU8, Ordering};

/// One mark a subpartition, set by the writer a record at a time and taken by the flusher. Clones are one.
///
/// The writer only reads a mark that is set already, without a fence, so it may see a mark that the flusher is just
/// taking while the flusher does not see the writer's last commit. Therefore a mark that was taken is given once more
/// by the next [`Self::take`]: by then the commit is visible, and a flush that finds nothing is cheap. The price is
/// paid per flush and subpartition; a fence would be paid per record. For the writer's sake, too, a mark is a byte: it
/// has to find it and to compare, and neither to shift nor to share it with a neighbour.
///
/// # Where nothing is written
/// the flusher need not look again and again: it [dozes](Self::doze), and the writer wakes it when it sets a mark. Who
/// sets one looks whether the flusher dozes, who begins to doze looks for marks, both with a fence (module
/// [`fence`](crate::fence)) in between, so that one sees the other.
#[derive(Clone, Debug)]
pub(crate) struct DirtyMarks {
    each: Arc<[DirtyMark]>,
    common: Arc<Common>,
}

#[derive(Debug)]
struct Common {
    /// For what is written to all at once.
    all: DirtyMark,
    flusher: Flusher,
}

/// The flusher, as the writer knows it.
#[derive(Debug, Default)]
pub(super) struct Flusher {
    is_dozing: AtomicBool,
    waker: Lock<Option<Waker>>,
}

/// Of one subpartition, or of all together.
#[derive(Debug)]
pub(super) struct DirtyMark(AtomicU8);

impl DirtyMarks {
    pub(crate) fn new(len: usize) -> Self {
        let clean = || DirtyMark(AtomicU8::new(CLEAN));
        let common = Common { all: clean(), flusher: Flusher::default() };
        Self { each: (0..len).map(|_| clean()).collect(), common: Arc::new(common) }
    }

    /// The marks of all subpartitions.
    #[inline]
    pub(super) fn each(&self) -> &[DirtyMark] {
        &self.each
    }

    /// To be told of marks.
    #[inline]
    pub(super) fn flusher(&self) -> &Flusher {
        &self.common.flusher
    }

    #[inline]
    pub(crate) fn mark(&self, index: usize) {
        self.each[index].set(self.flusher());
    }

    #[inline]
    pub(super) fn mark_all(&self) {
        self.common.all.set(self.flusher());
    }

    /// Gives all that are marked, and once more those the last call gave.
    pub(crate) fn take(&self, mut give: impl FnMut(usize)) {
        let gives_all = self.common.all.take();
        for (index, mark) in self.each.iter().enumerate() {
            if mark.take() | gives_all {
                give(index);
            }
        }
    }

    pub(crate) fn any(&self) -> bool {
        self.common.all.is_set() || self.each.iter().any(DirtyMark::is_set)
    }

    /// Has the next mark of each of `all` wake `waker`, once; where there is a mark already, nobody dozes.
    pub(crate) fn doze<'a>(all: impl Iterator<Item = &'a Self> + Clone, waker: &Waker) {
        all.clone().for_each(|marks| marks.flusher().lie_down(waker));
        fence::heavy();
        for marks in all.filter(|marks| marks.any()) {
            // Whoever set it finds nobody to wake, or has found somebody: then that is one look too many.
            marks.flusher().rouse();
        }
    }

    pub(crate) fn is_dozing(&self) -> bool {
        self.flusher().is_dozing.load(Ordering::Acquire)
    }
}

impl DirtyMark {
    #[inline]
    pub(super) fn set(&self, flusher: &Flusher) {
        if self.0.load(Ordering::Relaxed) != WRITTEN {
            self.set_anew(flusher);
        }
    }

    #[cold]
    #[inline(never)]
    fn set_anew(&self, flusher: &Flusher) {
        // Release: who takes the mark sees what was committed before it.
        self.0.store(WRITTEN, Ordering::Release);
        fence::light();
        if flusher.is_dozing.load(Ordering::Relaxed)
            && let Some(waker) = flusher.rouse()
        {
            waker.wake();
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

impl Flusher {
    fn lie_down(&self, waker: &Waker) {
        let mut known = self.waker.lock();
        *known = Some(waker.clone());
        self.is_dozing.store(true, Ordering::Relaxed);
    }

    /// It dozes no more. Gives what wakes it, once. Flag and waker change together: between the two, it could fall asleep
    /// anew, and lose the waker of that sleep.
    fn rouse(&self) -> Option<Waker> {
        let mut known = self.waker.lock();
        self.is_dozing.store(false, Ordering::Release);
        known.take()
    }
}

/// Not written since the flush before the last.
const CLEAN: u8 = 0;
/// Given by the last flush.
const TAKEN: u8 = 1;
/// Written since the last flush, or while it went on.
const WRITTEN: u8 = 2;

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::tests::CountingWaker;

    fn taken(marks: &DirtyMarks) -> Vec<usize> {
        let mut indices = Vec::new();
        marks.take(|index| indices.push(index));
        indices
    }

    #[test]
    fn a_mark_is_given_by_two_takes_and_then_forgotten() {
        let marks = DirtyMarks::new(130);
        marks.mark(129);
        marks.mark(0);
        assert_eq!(taken(&marks), [0, 129]);
        marks.mark(64);
        assert_eq!(taken(&marks), [0, 64, 129]);
        assert!(marks.any());
        assert_eq!(taken(&marks), [64]);
        assert!(!marks.any());
        assert_eq!(taken(&marks), []);
    }

    #[test]
    fn a_flusher_that_dozes_is_woken_once_by_the_next_mark() {
        let marks = DirtyMarks::new(3);
        let (waker, wakes) = CountingWaker::new();
        marks.mark(1);
        let doze = || DirtyMarks::doze([&marks].into_iter(), &waker);
        doze();
        assert!(!marks.is_dozing(), "there is a mark");
        assert_eq!((taken(&marks), taken(&marks)), (vec![1], vec![1]));
        for mark in [|marks: &DirtyMarks| marks.mark(2), DirtyMarks::mark_all] {
            let before = wakes.count();
            doze();
            assert!(marks.is_dozing());
            mark(&marks);
            marks.mark(0);
            assert_eq!((wakes.count(), marks.is_dozing()), (before + 1, false));
            while marks.any() {
                taken(&marks);
            }
        }
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

    #[test]
    fn who_is_marked_alone_and_with_all_is_given() {
        let marks = DirtyMarks::new(2);
        marks.mark(1);
        marks.mark_all();
        assert_eq!(taken(&marks), [0, 1]);
    }
}
