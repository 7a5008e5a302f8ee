//! Which subpartitions were written since the last flush.

use crate::sync::{AtomicU64, Ordering};

const BITS: usize = u64::BITS as usize;

/// One bit a subpartition, set by the writer a record at a time and taken by the flusher.
///
/// The writer only reads a bit that is set already, without a fence, so it may see a bit that the flusher is just
/// taking while the flusher does not see the writer's last commit. Therefore a bit that was taken is given once more
/// by the next [`Self::take`]: by then the commit is visible, and a flush that finds nothing is cheap. The price is
/// paid per flush and subpartition; a fence would be paid per record.
#[derive(Debug)]
pub(super) struct DirtyBits {
    now: Box<[AtomicU64]>,
    before: Box<[AtomicU64]>,
    len: usize,
}

impl DirtyBits {
    pub(super) fn new(len: usize) -> Self {
        let words = || (0..len.div_ceil(BITS)).map(|_| AtomicU64::new(0)).collect();
        Self { now: words(), before: words(), len }
    }

    #[inline]
    pub(super) fn mark(&self, index: usize) {
        set(&self.now[index / BITS], 1 << (index % BITS));
    }

    pub(super) fn mark_all(&self) {
        let mut left = self.len;
        for word in &self.now {
            set(word, if left >= BITS { u64::MAX } else { (1 << left) - 1 });
            left = left.saturating_sub(BITS);
        }
    }

    /// Clears and gives all marks, and once more those the last call gave.
    pub(super) fn take(&self, mut each: impl FnMut(usize)) {
        for (place, (now, before)) in self.now.iter().zip(&self.before).enumerate() {
            let current = if now.load(Ordering::Relaxed) == 0 { 0 } else { now.swap(0, Ordering::AcqRel) };
            let mut marks = current | before.swap(current, Ordering::Relaxed);
            while marks != 0 {
                each(place * BITS + marks.trailing_zeros() as usize);
                marks &= marks - 1;
            }
        }
    }

    pub(super) fn any(&self) -> bool {
        self.now.iter().chain(&self.before).any(|word| word.load(Ordering::Relaxed) != 0)
    }
}

#[inline]
fn set(word: &AtomicU64, marks: u64) {
    if word.load(Ordering::Relaxed) & marks != marks {
        word.fetch_or(marks, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(bits: &DirtyBits) -> Vec<usize> {
        let mut indices = Vec::new();
        bits.take(|index| indices.push(index));
        indices
    }

    #[test]
    fn a_mark_is_given_by_two_takes_and_then_forgotten() {
        let bits = DirtyBits::new(130);
        bits.mark(129);
        bits.mark(0);
        assert_eq!(taken(&bits), [0, 129]);
        bits.mark(64);
        assert_eq!(taken(&bits), [0, 64, 129]);
        assert!(bits.any());
        assert_eq!(taken(&bits), [64]);
        assert!(!bits.any());
        assert_eq!(taken(&bits), []);
    }

    #[test]
    fn marking_all_marks_only_what_exists() {
        for len in [1, 63, 64, 65, 128] {
            let bits = DirtyBits::new(len);
            bits.mark_all();
            assert_eq!(taken(&bits), (0..len).collect::<Vec<_>>());
        }
    }
}
