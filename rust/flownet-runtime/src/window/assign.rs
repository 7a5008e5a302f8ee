//! Assigns windows and slices to timestamps.

use chrono_tz::Tz;

use super::calendar::{Calendar, CalendarUnit};
use crate::error::TaskError;

/// A span of time from `start_ms`, included, to `end_ms`, excluded, in milliseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Window {
    /// First millisecond inside.
    pub start_ms: i64,
    /// First millisecond after.
    pub end_ms: i64,
}

impl Window {
    /// The window of all time.
    pub const GLOBAL: Self = Self { start_ms: i64::MIN, end_ms: i64::MAX };

    /// The last millisecond inside. For a window without end, the last of all time.
    pub fn max_ms(self) -> i64 {
        if self.end_ms == i64::MAX { i64::MAX } else { self.end_ms - 1 }
    }

    /// Returns true if they share a millisecond. A window that begins at the other's end does not overlap it. At the
    /// watermark of the other's last millisecond, the other has fired, while a record of the next one may still be on
    /// time.
    pub fn overlaps(self, other: Self) -> bool {
        self.start_ms < other.end_ms && other.start_ms < self.end_ms
    }

    /// Returns the smallest window that covers both.
    pub fn cover(self, other: Self) -> Self {
        Self { start_ms: self.start_ms.min(other.start_ms), end_ms: self.end_ms.max(other.end_ms) }
    }
}

/// Windows of one size, one beginning every `slide_ms`; or calendar windows, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlignedWindows {
    size_ms: i64,
    slide_ms: i64,
    offset_ms: i64,
    slice_ms: i64,
    /// For calendar windows; the sizes are then the usual ones.
    calendar: Option<Calendar<Tz>>,
}

impl AlignedWindows {
    /// Windows of `size_ms` that begin at `offset_ms` after each multiple of `slide_ms`.
    pub fn new(size_ms: i64, slide_ms: i64, offset_ms: i64) -> Result<Self, TaskError> {
        if size_ms <= 0 || slide_ms <= 0 || offset_ms.checked_abs().is_none_or(|offset| offset >= slide_ms) {
            return Err(TaskError::Config(format!(
                "windows need a size and a slide above 0 and an offset below the slide, not {size_ms}, {slide_ms} and \
                 {offset_ms} ms"
            )));
        }
        let slice_ms = greatest_common_divisor(size_ms, slide_ms);
        Ok(Self { size_ms, slide_ms, offset_ms, slice_ms, calendar: None })
    }

    /// Windows of `count` days, weeks or months in a time zone, which begin when its clocks show `offset_ms` after
    /// midnight.
    pub fn of_calendar(zone: Tz, unit: CalendarUnit, count: u32, offset_ms: i64) -> Result<Self, TaskError> {
        let size_ms = unit.usual_ms().saturating_mul(i64::from(count));
        if count == 0 || offset_ms < 0 || offset_ms >= size_ms {
            return Err(TaskError::Config(format!(
                "windows of a calendar need a size of at least one {unit:?} and an offset below it, not {count} and \
                 {offset_ms} ms"
            )));
        }
        let calendar = Some(Calendar::new(zone, (unit, count), offset_ms));
        Ok(Self { size_ms, slide_ms: size_ms, offset_ms: 0, slice_ms: size_ms, calendar })
    }

    /// Returns true if each window is one slice, and each slice is in at most one window.
    pub(super) fn is_tumbling(&self) -> bool {
        self.slice_ms == self.size_ms
    }

    /// Returns true if one window holds all records, whatever their timestamps.
    pub fn spans_all_time(&self) -> bool {
        self.size_ms == i64::MAX
    }

    /// The most slices in a window.
    pub fn slices_a_window(&self) -> i64 {
        self.size_ms / self.slice_ms
    }

    /// The latest window that contains `timestamp_ms`; `None` in a gap between windows.
    #[inline]
    pub fn last_window_of(&self, timestamp_ms: i64) -> Option<Window> {
        if let Some(calendar) = &self.calendar {
            return Some(piece(calendar, timestamp_ms));
        }
        let window = self.window_from(self.start_of(timestamp_ms, self.slide_ms));
        (timestamp_ms < window.end_ms || window.end_ms == i64::MAX).then_some(window)
    }

    /// All windows that contain `timestamp_ms`, the earliest first.
    pub fn windows_of(&self, timestamp_ms: i64) -> impl Iterator<Item = Window> + use<> {
        let grid = *self;
        let last = self.last_window_of(timestamp_ms);
        let before = last.filter(|_| grid.calendar.is_none()).map_or(0, |last| {
            let earliest = timestamp_ms.saturating_sub(grid.size_ms).saturating_add(1);
            last.start_ms.saturating_sub(earliest).max(0) / grid.slide_ms
        });
        last.into_iter().flat_map(move |last| {
            (0..=before).rev().map(move |back| grid.window_from(last.start_ms.saturating_sub(back * grid.slide_ms)))
        })
    }

    /// The window that begins at `start_ms`.
    #[inline]
    pub(super) fn window_from(&self, start_ms: i64) -> Window {
        if let Some(calendar) = &self.calendar {
            return piece(calendar, start_ms);
        }
        Window { start_ms, end_ms: start_ms.saturating_add(self.size_ms) }
    }

    /// The first window that begins at `start_ms` or later.
    pub(super) fn window_at_or_after(&self, start_ms: i64) -> Window {
        if let Some(calendar) = &self.calendar {
            let window = piece(calendar, start_ms);
            return if window.start_ms < start_ms { piece(calendar, window.end_ms) } else { window };
        }
        let start = self.start_of(start_ms, self.slide_ms);
        self.window_from(if start < start_ms { start.saturating_add(self.slide_ms) } else { start })
    }

    /// The first window that ends after `timestamp_ms`.
    pub(super) fn first_window_around_or_after(&self, timestamp_ms: i64) -> Window {
        // A window without end contains the last millisecond, and ends after it.
        let timestamp_ms = timestamp_ms.min(i64::MAX - 1);
        if let Some(calendar) = &self.calendar {
            return piece(calendar, timestamp_ms);
        }
        self.window_at_or_after(timestamp_ms.saturating_sub(self.size_ms).saturating_add(1))
    }

    /// The start of the slice of `timestamp_ms`. Slices are the largest spans of which all windows are composed.
    #[inline]
    pub fn slice_of(&self, timestamp_ms: i64) -> i64 {
        self.start_of(timestamp_ms, self.slice_ms)
    }

    /// The end of the slice that begins at `start_ms`.
    pub fn slice_end_ms(&self, start_ms: i64) -> i64 {
        if let Some(calendar) = &self.calendar {
            return piece(calendar, start_ms).end_ms;
        }
        start_ms.saturating_add(self.slice_ms)
    }

    /// Returns true if the slice that begins at `start_ms` contains `timestamp_ms`. Needs no division. Always returns
    /// false for the slice that is cut off by the beginning of time.
    #[inline]
    pub fn is_in_slice(&self, timestamp_ms: i64, start_ms: i64) -> bool {
        if let Some(calendar) = &self.calendar {
            return calendar.is_in_piece(timestamp_ms, start_ms);
        }
        let into = timestamp_ms.wrapping_sub(start_ms).cast_unsigned();
        timestamp_ms >= start_ms && into < self.slice_ms.cast_unsigned() && start_ms != i64::MIN
    }

    /// Counts the leading timestamps that are in the slice which begins at `start_ms`. The first of them has to be in
    /// it.
    pub fn count_in_slice(&self, timestamps: &[i64], start_ms: i64) -> usize {
        if self.calendar.is_some() || start_ms == i64::MIN {
            let end = timestamps.iter().position(|timestamp_ms| !self.is_in_slice(*timestamp_ms, start_ms));
            return end.unwrap_or(timestamps.len()).max(1);
        }
        let last_ms = start_ms.saturating_add(self.slice_ms - 1);
        let is_in = |timestamp_ms: &i64| (*timestamp_ms >= start_ms) & (*timestamp_ms <= last_ms);
        // Compares each chunk to its end, so that several timestamps are compared at a time.
        let chunks = timestamps.chunks_exact(TIMESTAMPS_AT_ONCE);
        let whole = chunks.take_while(|chunk| chunk.iter().fold(true, |all, at| all & is_in(at))).count();
        let rest = &timestamps[whole * TIMESTAMPS_AT_ONCE..];
        let left = rest.iter().position(|timestamp_ms| !is_in(timestamp_ms)).unwrap_or(rest.len());
        (whole * TIMESTAMPS_AT_ONCE + left).max(1)
    }

    #[inline]
    fn start_of(&self, timestamp_ms: i64, step_ms: i64) -> i64 {
        if let Some(calendar) = &self.calendar {
            return piece(calendar, timestamp_ms).start_ms;
        }
        let into = timestamp_ms.wrapping_sub(self.offset_ms).rem_euclid(step_ms);
        timestamp_ms.saturating_sub(into)
    }
}

const TIMESTAMPS_AT_ONCE: usize = 32;

fn piece(calendar: &Calendar<Tz>, at_ms: i64) -> Window {
    let (start_ms, end_ms) = calendar.piece_of(at_ms);
    Window { start_ms, end_ms }
}

fn greatest_common_divisor(mut one: i64, mut other: i64) -> i64 {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn window(start_ms: i64, end_ms: i64) -> Window {
        Window { start_ms, end_ms }
    }

    #[test]
    fn windows_are_aligned_to_the_epoch_also_before_it() {
        let five = AlignedWindows::new(5, 5, 0).unwrap();
        for (at, expected) in [(0, window(0, 5)), (4, window(0, 5)), (5, window(5, 10)), (-1, window(-5, 0))] {
            assert_eq!(five.last_window_of(at), Some(expected));
        }
        assert_eq!(AlignedWindows::new(5, 5, 2).unwrap().last_window_of(1), Some(window(-3, 2)));
        assert_eq!(AlignedWindows::new(5, 5, -1).unwrap().last_window_of(4), Some(window(4, 9)));
    }

    #[test]
    fn a_time_is_in_all_windows_that_overlap_there_and_in_none_between_windows_with_gaps() {
        let overlapping = AlignedWindows::new(10, 4, 0).unwrap();
        assert_eq!(overlapping.windows_of(9).collect::<Vec<_>>(), [window(0, 10), window(4, 14), window(8, 18)]);
        assert_eq!(overlapping.windows_of(10).collect::<Vec<_>>(), [window(4, 14), window(8, 18)]);
        let with_gaps = AlignedWindows::new(2, 5, 0).unwrap();
        assert_eq!(with_gaps.windows_of(6).collect::<Vec<_>>(), [window(5, 7)]);
        assert_eq!(with_gaps.windows_of(7).count(), 0);
    }

    #[test]
    fn windows_of_a_calendar_with_too_large_an_offset_are_refused() {
        for (count, offset_ms) in [(0, 0), (1, 86_400_000), (1, -1)] {
            let refused = AlignedWindows::of_calendar(Tz::UTC, CalendarUnit::Day, count, offset_ms);
            assert!(matches!(refused, Err(TaskError::Config(_))), "{count} {offset_ms}");
        }
    }

    #[test]
    fn a_window_without_size_or_with_too_large_an_offset_is_refused() {
        for (size, slide, offset) in [(0, 1, 0), (-1, 1, 0), (5, 0, 0), (5, 5, 5), (5, 5, -5), (5, 5, i64::MIN)] {
            assert!(
                matches!(AlignedWindows::new(size, slide, offset), Err(TaskError::Config(_))),
                "{size} {slide} {offset}"
            );
        }
    }

    proptest! {
        /// Calendar windows of constant length give the stores of windows the same answers as fixed ones.
        #[test]
        fn windows_of_days_in_utc_are_those_of_24_hours(
            at in -4_000_000_000_000i64..4_000_000_000_000, near in -200_000_000i64..200_000_000, hour in 0i64..24, count in 1u32..4,
        ) {
            let (hour_ms, day_ms) = (3_600_000, 86_400_000);
            let days = AlignedWindows::of_calendar(Tz::UTC, CalendarUnit::Day, count, hour * hour_ms).unwrap();
            let fixed = AlignedWindows::new(day_ms * i64::from(count), day_ms * i64::from(count), hour * hour_ms).unwrap();
            prop_assert_eq!(days.last_window_of(at), fixed.last_window_of(at));
            prop_assert_eq!(days.windows_of(at).collect::<Vec<_>>(), fixed.windows_of(at).collect::<Vec<_>>());
            prop_assert_eq!(days.window_at_or_after(at), fixed.window_at_or_after(at));
            prop_assert_eq!(days.first_window_around_or_after(at), fixed.first_window_around_or_after(at));
            let slice = days.slice_of(at);
            prop_assert_eq!(slice, fixed.slice_of(at));
            prop_assert_eq!(days.slice_end_ms(slice), fixed.slice_end_ms(slice));
            prop_assert_eq!(days.is_in_slice(at + near, slice), fixed.is_in_slice(at + near, slice));
            prop_assert_eq!(days.slices_a_window(), fixed.slices_a_window());
        }

        #[test]
        fn windows_of_a_time_are_those_that_have_it(at in -1000i64..1000, size in 1i64..50, slide in 1i64..50, offset in 0i64..50) {
            let grid = AlignedWindows::new(size, slide, offset % slide).unwrap();
            let expected: Vec<_> = (-2000i64..2000)
                .filter(|start| (start - offset % slide).rem_euclid(slide) == 0 && (*start..start + size).contains(&at))
                .map(|start| window(start, start + size))
                .collect();
            prop_assert_eq!(grid.windows_of(at).collect::<Vec<_>>(), expected);
            let slice = grid.slice_of(at);
            for window in grid.windows_of(at) {
                prop_assert!(window.start_ms <= slice && slice + grid.slice_ms <= window.end_ms);
            }
        }

        #[test]
        fn whether_a_slice_has_a_time_in_it_needs_no_division(
            (at, near) in (any::<i64>(), -100i64..100), size in prop_oneof![1i64..60, 1..i64::MAX], offset in 0i64..50,
        ) {
            let grid = AlignedWindows::new(size, size, offset % size).unwrap();
            let other = at.saturating_add(near);
            let slice = grid.slice_of(at);
            prop_assert!(!grid.is_in_slice(other, slice) || grid.slice_of(other) == slice);
            prop_assert!(grid.is_in_slice(other, slice) || grid.slice_of(other) != slice || slice == i64::MIN);
        }

        #[test]
        fn the_first_timestamps_of_a_slice_are_counted(
            start in any::<i64>(), steps in prop::collection::vec(-3i64..40, 1..200), size in prop_oneof![1i64..5000, 1..i64::MAX],
            in_days in any::<bool>(),
        ) {
            let days = AlignedWindows::of_calendar(Tz::UTC, CalendarUnit::Day, 1, 0).unwrap();
            let grid = if in_days { days } else { AlignedWindows::new(size, size, 0).unwrap() };
            let times: Vec<i64> = steps.iter().scan(start, |at, step| { *at = at.saturating_add(*step); Some(*at) }).collect();
            let slice = grid.slice_of(times[0]);
            let expected = times.iter().take_while(|at| grid.is_in_slice(**at, slice)).count();
            prop_assert_eq!(grid.count_in_slice(&times, slice), expected.max(1));
        }

        #[test]
        fn no_time_is_beyond_the_grid(at in any::<i64>(), size in 1..i64::MAX, slide in 1..i64::MAX) {
            let grid = AlignedWindows::new(size, slide, 0).unwrap();
            for window in grid.windows_of(at).take(3) {
                prop_assert!(window.start_ms <= at && at <= window.max_ms());
            }
        }
    }
}
