//! Dirty marks: the subpartitions written since the last flush.

use std::sync::Arc;
use std::task::Waker;

use crate::fence;
use crate::lock::Lock;
use crate::sync::{AtomicBool, AtomicU8, Ordering};

/// One mark per subpartition. The writer sets it for each record and the flusher takes it. Clones share the marks.
///
/// The writer only reads a mark that is already set, without a fence. It may thus see a mark that the flusher is just
/// taking, while the flusher does not see the writer's last commit. Therefore the next [`Self::take`] reports a taken
/// mark once more. By then the commit is visible, and a flush that finds no bytes is cheap. The cost is paid per flush
/// and subpartition; a fence would be paid per record. A mark is a byte, also for the writer's sake: the writer loads
/// and compares it. It neither shifts nor shares a byte with a neighbour.
///
/// # Idle flusher
/// If no records are written, the flusher need not poll. It [dozes](Self::doze), and the writer wakes it when it sets a
/// mark. The writer sets a mark and then checks whether the flusher dozes. The flusher begins to doze and then checks
/// for marks. Both have a fence (module [`fence`](crate::fence)) in between, so one sees the other.
#[derive(Clone, Debug)]
pub(crate) struct DirtyMarks {
    each: Arc<[DirtyMark]>,
    common: Arc<Common>,
}

#[derive(Debug)]
struct Common {
    /// Mark for broadcast records.
    all: DirtyMark,
    flusher: Flusher,
}

/// State of the flusher as the writer sees it.
#[derive(Debug, Default)]
pub(super) struct Flusher {
    is_dozing: AtomicBool,
    waker: Lock<Option<Waker>>,
}

/// Mark of one subpartition, or of broadcast records.
#[derive(Debug)]
pub(super) struct DirtyMark(AtomicU8);

impl DirtyMarks {
    pub(crate) fn new(len: usize) -> Self {
        let clean = || DirtyMark(AtomicU8::new(CLEAN));
        let common = Common { all: clean(), flusher: Flusher::default() };
        Self { each: (0..len).map(|_| clean()).collect(), common: Arc::new(common) }
    }

    /// Returns the marks of all subpartitions.
    #[inline]
    pub(super) fn each(&self) -> &[DirtyMark] {
        &self.each
    }

    /// Returns the flusher, which is woken when a mark is set.
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

    /// Passes all marked subpartitions to `give`, and once more those of the last call.
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

    /// Makes the next mark of each of `all` wake `waker`, once. Marks that are already set end the doze at once.
    pub(crate) fn doze<'a>(all: impl Iterator<Item = &'a Self> + Clone, waker: &Waker) {
        all.clone().for_each(|marks| marks.flusher().lie_down(waker));
        fence::heavy();
        for marks in all.filter(|marks| marks.any()) {
            // The writer that set the mark finds no dozing flusher. If it has already found one, it wakes the flusher
            // once too often.
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
        // Release: a thread that takes the mark sees the bytes committed before it.
        self.0.store(WRITTEN, Ordering::Release);
        fence::light();
        if flusher.is_dozing.load(Ordering::Relaxed)
            && let Some(waker) = flusher.rouse()
        {
            waker.wake();
        }
    }

    /// Takes the mark. Returns whether to report it.
    fn take(&self) -> bool {
        let seen = self.0.load(Ordering::Relaxed);
        if seen != CLEAN {
            let left = if seen == WRITTEN { TAKEN } else { CLEAN };
            // If it fails, the writer has just set the mark again, for the next call.
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

    /// Ends the doze and returns the waker, once. Flag and waker change together under the lock. Otherwise the flusher
    /// could fall asleep again between the two changes and lose the waker of that sleep.
    fn rouse(&self) -> Option<Waker> {
        let mut known = self.waker.lock();
        self.is_dozing.store(false, Ordering::Release);
        known.take()
    }
}

/// Not written since the last flush but one.
const CLEAN: u8 = 0;
/// Reported by the last flush.
const TAKEN: u8 = 1;
/// Written since the last flush, or during it.
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
