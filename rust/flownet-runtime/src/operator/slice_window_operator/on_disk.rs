//! Spills slices of aligned windows to disk and reads them back.
//!
//! # Invariants
//! - I1: while the window that fired last is retained, none of its slices has left memory since.
//! - I2: the on-disk values of a slice are deleted with the slice.

use super::{BREATH_RECORDS, STATE, SliceWindowOperator, has_fired};
use crate::chain::TaskContext;
use crate::error::TaskError;
use crate::operator::fold::FoldValues;
use crate::operator::{Collector, Fold, KeyedRecord, RecordFormat};
use crate::snapshot::RestoredState;
use crate::state::{Base, DiskPlace, KeyEntry, Room, Spill, Values};
use crate::window::{Merge, Pane, PartOf, RollingWindow, SliceEntry, SlicedWindows, Window, key_of};

/// Returns the values in memory that were touched since `base`. Returns `None` if more than half of all values were
/// touched.
pub(super) fn few_touched_since<'a, V>(
    windows: &'a SlicedWindows<KeyEntry<V>>,
    spill: Option<&Spill>,
    base: Base,
) -> Option<Vec<SliceEntry<'a, KeyEntry<V>>>> {
    let half = (windows.len() + windows.on_disk()) / 2;
    let touched = windows.touched_since(base, half)?;
    let is_few = |on_disk: usize| touched.len() + on_disk <= half;
    let is_held =
        |place: &DiskPlace<'_>| place.slice_ms.is_some_and(|start_ms| windows.is_held(start_ms, place.key, place.hash));
    spill.is_none_or(|spill| spill.are_few_since(base, &is_held, is_few)).then_some(touched)
}

impl<F, V: Default + Send> SliceWindowOperator<F, V> {
    pub(super) fn open_on_disk(&mut self, cx: &TaskContext) -> Result<(), TaskError> {
        self.spill = Spill::open((STATE, true), cx.key_group_range, Room::All, cx)?;
        Ok(())
    }

    /// Returns true if the value of a record need not be read from disk, and there is room for it.
    #[inline]
    pub(super) fn is_at_hand(&self, record: &KeyedRecord<'_>) -> bool {
        self.spill.as_ref().is_none_or(|spill| {
            let is_held = self.windows.missing(record.key, record.hash, record.timestamp_ms).is_none();
            is_held && !spill.is_to_look(self.windows.len())
        })
    }

    /// Reads the value of a record into memory, if it is on disk.
    #[inline]
    pub(super) fn bring<M>(&mut self, record: &KeyedRecord<'_>, token: M::Token<'_>) -> Result<(), TaskError>
    where
        M: RecordFormat,
        F: Fold<M, Value = V>,
    {
        if self.is_at_hand(record) { Ok(()) } else { self.bring_back(record, token) }
    }

    #[cold]
    fn bring_back<M>(&mut self, record: &KeyedRecord<'_>, token: M::Token<'_>) -> Result<(), TaskError>
    where
        M: RecordFormat,
        F: Fold<M, Value = V>,
    {
        self.make_room::<M>(token)?;
        let KeyedRecord { key, hash, timestamp_ms, .. } = *record;
        if let Some(spill) = &mut self.spill
            && let Some(start_ms) = self.windows.missing(key, hash, timestamp_ms)
        {
            let values = FoldValues::<M, F> { fold: &self.fold, token };
            if let Some(held) = spill.give_back((Some(start_ms), key, hash), &values)? {
                self.windows.give_back(start_ms);
                self.windows.put_back(start_ms, key, hash, held);
            }
        }
        Ok(())
    }

    /// Spills values that do not fit in memory. The window that fired last is then dropped (I1), and also if there is
    /// no room for it.
    pub(super) fn make_room<M>(&mut self, token: M::Token<'_>) -> Result<(), TaskError>
    where
        M: RecordFormat,
        F: Fold<M, Value = V>,
    {
        let is_to_look = self.spill.as_ref().is_some_and(|spill| spill.is_to_look(self.held()));
        if is_to_look { self.look::<M>(token) } else { Ok(()) }
    }

    /// Number of values in memory, including those of the window that fired last.
    fn held(&self) -> usize {
        self.windows.len() + self.rolling.as_ref().map_or(0, RollingWindow::len)
    }

    #[cold]
    fn look<M>(&mut self, token: M::Token<'_>) -> Result<(), TaskError>
    where
        M: RecordFormat,
        F: Fold<M, Value = V>,
    {
        let held = self.held();
        let Some(spill) = &mut self.spill else { return Ok(()) };
        spill.look(&mut self.windows, &FoldValues::<M, F> { fold: &self.fold, token })?;
        if self.windows.on_disk() > 0 || spill.is_full(held) {
            self.rolling.iter_mut().for_each(RollingWindow::clear);
        }
        Ok(())
    }

    /// The same at the end of a batch. From time to time it measures whether the values in memory have grown.
    pub(super) fn make_room_behind_batch<M>(&mut self, token: M::Token<'_>) -> Result<(), TaskError>
    where
        M: RecordFormat,
        F: Fold<M, Value = V>,
    {
        let has_come_round = self.spill.as_mut().is_some_and(|spill| spill.has_come_round());
        if has_come_round { self.look::<M>(token) } else { self.make_room::<M>(token) }
    }

    /// Returns true if part of a window is on disk.
    pub(super) fn is_in_part_on_disk(&self, window: Window) -> bool {
        self.spill.is_some() && self.windows.slices_of(window).any(|(_, pane)| pane.on_disk() > 0)
    }

    /// Emits the on-disk values of a window that was taken, and deletes them.
    pub(super) fn give_out_taken<M>(
        &mut self,
        window: Window,
        taken: &Pane<KeyEntry<V>>,
        collector: &mut Collector<'_, '_, M>,
    ) -> Result<(), TaskError>
    where
        M: RecordFormat,
        F: Fold<M, Value = V>,
    {
        let Some(spill) = &mut self.spill else { return Ok(()) };
        if taken.on_disk() > 0 {
            let mut on_disk = spill.disk().of_slice(window.start_ms)?;
            for number in 1_usize.. {
                let values = FoldValues::<M, F> { fold: &self.fold, token: collector.token };
                let next = on_disk.next(|place, lying| {
                    if taken.get(place.key, place.hash).is_some() || has_fired(window, &self.time, place.key) {
                        return Ok(None);
                    }
                    Ok(Some((place.key.to_vec(), spill.read(&lying, &values)?)))
                })?;
                let Some(next) = next else { break };
                collector.cancel().check()?;
                if number.is_multiple_of(BREATH_RECORDS) {
                    collector.yield_token();
                }
                if let Some((key, held)) = next {
                    let (given, mut value) = held.into_parts();
                    self.fold.emit(window, given.as_deref().unwrap_or(&key), &mut value, collector)?;
                }
            }
        }
        spill.disk_mut().forget_slice(window.start_ms, taken.on_disk());
        Ok(())
    }

    /// Emits a window that is partly on disk, key by key.
    pub(super) fn give_out_merged<M>(
        &mut self,
        window: Window,
        collector: &mut Collector<'_, '_, M>,
    ) -> Result<(), TaskError>
    where
        M: RecordFormat,
        F: Fold<M, Value = V>,
    {
        let Some(spill) = &self.spill else { return Ok(()) };
        let mut wholes = WindowEntries::<V>::new::<M, F>(spill, (&self.windows, window), &self.fold, collector.token)?;
        for number in 1_usize.. {
            let Some((place, mut whole)) = wholes.next::<M, F>(&self.fold, collector.token)? else { break };
            collector.cancel().check()?;
            if number.is_multiple_of(BREATH_RECORDS) {
                collector.yield_token();
            }
            let key = key_of(&place);
            if !has_fired(window, &self.time, key) {
                let (key, value) = whole.shown(key);
                self.fold.emit(window, key, value, collector)?;
            }
        }
        Ok(())
    }

    /// Visits each key of a window that is partly on disk.
    pub(super) fn each_merged<M>(
        &self,
        window: Window,
        token: M::Token<'_>,
        mut each: impl FnMut(&[u8], &KeyEntry<V>) -> Result<(), TaskError>,
    ) -> Result<(), TaskError>
    where
        M: RecordFormat,
        F: Fold<M, Value = V>,
    {
        let Some(spill) = &self.spill else { return Ok(()) };
        let mut wholes = WindowEntries::<V>::new::<M, F>(spill, (&self.windows, window), &self.fold, token)?;
        while let Some((place, whole)) = wholes.next::<M, F>(&self.fold, token)? {
            each(key_of(&place), &whole)?;
        }
        Ok(())
    }

    /// Restores slices, into memory while there is room and then to disk. Returns the clock, and the time up to which
    /// windows have fired.
    pub(super) fn put_back<M>(
        &mut self,
        token: M::Token<'_>,
        from: &RestoredState<'_>,
    ) -> Result<Option<(i64, i64)>, TaskError>
    where
        M: RecordFormat,
        F: Fold<M, Value = V>,
    {
        let Self { fold, windows, spill, .. } = self;
        let values = FoldValues::<M, F> { fold, token };
        let time = from.read_slices(
            STATE,
            |input| values.pass(input),
            |start_ms, record, input| {
                let (key, hash) = (record.key, record.hash);
                if let Some(spill) = spill
                    && !windows.is_held(windows.grid().slice_of(start_ms), key, hash)
                    && !spill.has_room_for_one(windows, &values)?
                {
                    let start_ms = windows.grid().slice_of(start_ms);
                    let value = input.passed(|input| values.pass(input))?;
                    let mut on_new = |place: &[u8]| lies_on_disk(windows, place);
                    return spill.put_down((Some(start_ms), key, hash), record.given(), Some(value), &mut on_new);
                }
                windows.put_back(start_ms, key, hash, KeyEntry::new(record, values.read(input)?));
                Ok(())
            },
        )?;
        if let Some(spill) = spill {
            spill.end_putting_down(&mut |place| lies_on_disk(windows, place))?;
        }
        Ok(time)
    }
}

/// Marks the slice of a key that was spilled.
fn lies_on_disk<V>(windows: &mut SlicedWindows<V>, place: &[u8]) {
    let slice_ms = DiskPlace::of(place, true).and_then(|place| place.slice_ms);
    slice_ms.into_iter().for_each(|slice_ms| windows.lies_on_disk(slice_ms));
}

/// Key group and key, with the merged value of a window.
type WholeAt<V> = (Vec<u8>, KeyEntry<V>);

/// Iterates over the keys of a window, with their merged values.
struct WindowEntries<'a, V> {
    merge: Merge<'a, V>,
    /// The first part of the next key, if it was read already.
    part: Option<PartOf<'a, V>>,
}

impl<'a, V: Default> WindowEntries<'a, V> {
    fn new<M: RecordFormat, F: Fold<M, Value = V>>(
        spill: &'a Spill,
        (windows, window): (&'a SlicedWindows<KeyEntry<V>>, Window),
        fold: &F,
        token: M::Token<'_>,
    ) -> Result<Self, TaskError> {
        let merge = Merge::new(spill, windows.slices_of(window), &FoldValues::<M, F> { fold, token })?;
        Ok(Self { merge, part: None })
    }

    /// Returns the next key and its value, in the order of their place on disk.
    fn next<M: RecordFormat, F: Fold<M, Value = V>>(
        &mut self,
        fold: &F,
        token: M::Token<'_>,
    ) -> Result<Option<WholeAt<V>>, TaskError> {
        let values = FoldValues::<M, F> { fold, token };
        let first = match self.part.take() {
            None => self.merge.next(&values)?,
            first => first,
        };
        let Some(first) = first else { return Ok(None) };
        let mut whole = first.held().of_same_key(V::default());
        fold.merge(token, &mut whole.value, &first.held().value)?;
        loop {
            match self.merge.next(&values)? {
                Some(part) if part.place == first.place => {
                    fold.merge(token, &mut whole.value, &part.held().value)?;
                }
                next => {
                    self.part = next;
                    return Ok(Some((first.place, whole)));
                }
            }
        }
    }
}
