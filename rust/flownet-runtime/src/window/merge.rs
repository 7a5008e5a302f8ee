//! Merges several slices, some of them on disk, ordered by key group and key, and for each key by time. So a window is
//! computed with one of its keys in memory at a time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::vec::IntoIter;

use super::pane::Pane;
use crate::error::TaskError;
use crate::state::{KeyEntry, OfSlice, Spill, Values};

/// Iterates over the parts of a window.
pub(crate) struct Merge<'a, V> {
    spill: &'a Spill,
    slices: Vec<Slice<'a, V>>,
    /// The next part of each slice: its place, the slice's number, and true if it is on disk. Held parts sort first.
    next: BinaryHeap<Reverse<(Vec<u8>, usize, bool)>>,
    /// The place of the last returned part, and the number of its slice.
    last: Option<(Vec<u8>, usize)>,
}

struct Slice<'a, V> {
    held: IntoIter<(u16, &'a [u8], &'a KeyEntry<V>)>,
    on_disk: OfSlice<'a>,
    /// The values of the next parts, held and on disk.
    next: (Option<&'a KeyEntry<V>>, Option<KeyEntry<V>>),
}

/// The value of one slice for one key.
pub(crate) struct PartOf<'a, V> {
    /// Key group and key.
    pub(crate) place: Vec<u8>,
    value: Value<'a, V>,
}

enum Value<'a, V> {
    Held(&'a KeyEntry<V>),
    Read(KeyEntry<V>),
}

impl<V> PartOf<'_, V> {
    /// The value of the slice.
    pub(crate) fn held(&self) -> &KeyEntry<V> {
        match &self.value {
            Value::Held(held) => held,
            Value::Read(held) => held,
        }
    }
}

impl<'a, V> Merge<'a, V> {
    /// Merges these slices, which are in order of time.
    pub(crate) fn new(
        spill: &'a Spill,
        slices: impl Iterator<Item = &'a (i64, Pane<KeyEntry<V>>)>,
        values: &impl Values<V>,
    ) -> Result<Self, TaskError> {
        let mut merge = Self { spill, slices: Vec::new(), next: BinaryHeap::new(), last: None };
        for (number, (start_ms, pane)) in slices.enumerate() {
            let of = |(key, hash, held)| (spill.place(None, key, hash).group.get(), key, held);
            let mut held: Vec<_> = pane.entries().map(of).collect();
            held.sort_unstable_by_key(|(group, key, _)| (*group, *key));
            let on_disk = spill.disk().of_slice(*start_ms)?;
            merge.slices.push(Slice { held: held.into_iter(), on_disk, next: (None, None) });
            merge.go_on(number, false, values)?;
            merge.go_on(number, true, values)?;
        }
        Ok(merge)
    }

    /// Returns the next part.
    pub(crate) fn next(&mut self, values: &impl Values<V>) -> Result<Option<PartOf<'a, V>>, TaskError> {
        while let Some(Reverse((place, number, is_on_disk))) = self.next.pop() {
            let (held, read) = &mut self.slices[number].next;
            let value = if is_on_disk { read.take().map(Value::Read) } else { held.take().map(Value::Held) };
            self.go_on(number, is_on_disk, values)?;
            let is_out_of_date = self.last.as_ref().is_some_and(|last| (&last.0, last.1) == (&place, number));
            if let Some(value) = value.filter(|_| !is_out_of_date) {
                self.last = Some((place.clone(), number));
                return Ok(Some(PartOf { place, value }));
            }
        }
        Ok(None)
    }

    /// Finds the next part of a slice.
    fn go_on(&mut self, number: usize, is_on_disk: bool, values: &impl Values<V>) -> Result<(), TaskError> {
        let Self { spill, slices, next, .. } = self;
        let slice = &mut slices[number];
        let place = if is_on_disk {
            let entry = slice.on_disk.next(|place, lying| Ok((place.in_slice(), spill.read(&lying, values)?)))?;
            entry.map(|(place, held)| {
                slice.next.1 = Some(held);
                place
            })
        } else {
            slice.held.next().map(|(group, key, held)| {
                slice.next.0 = Some(held);
                [&group.to_be_bytes(), key].concat()
            })
        };
        next.extend(place.map(|place| Reverse((place, number, is_on_disk))));
        Ok(())
    }
}

/// The key of a place.
pub(crate) fn key_of(place: &[u8]) -> &[u8] {
    place.get(size_of::<u16>()..).unwrap_or_default()
}
