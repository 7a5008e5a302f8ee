//! Retains the aligned window that fired last. The next window adds the new slices and subtracts the expired ones. So a
//! firing costs only the changes, and not all slices of the window.
//!
//! # Invariants
//! - R1: the value of a key equals its slices in the window, merged in order of time. If a part cannot be subtracted
//!   exactly, the key is merged again from its slices.
//! - R2: a key is held as long as one of the slices has it.

use std::collections::VecDeque;

use super::assign::Window;
use super::pane::Pane;

/// Adds and subtracts the values of slices.
pub trait Sums<V> {
    /// The error of an addition.
    type Error;

    /// The value of a key before its first part. `part` is a value of the same key.
    fn empty(&self, part: &V) -> V;

    /// Adds a later part.
    fn add(&mut self, to: &mut V, part: &V) -> Result<(), Self::Error>;

    /// Subtracts the earliest part, if all parts were [exact](SliceRole::Exact). Returns false, with `from` unchanged,
    /// if the rest cannot be computed.
    fn take_out(&self, from: &mut V, part: &V) -> bool;

    /// The role of a value.
    fn part(&self, value: &V) -> SliceRole;
}

/// The role of a slice's value as a part of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SliceRole {
    /// A number that can be subtracted exactly.
    Exact,
    /// Any other value that does not change.
    Fixed,
    /// A value that downstream operators may change after it was emitted.
    Shared,
}

/// The values of one window, by key.
#[derive(Debug)]
pub struct RollingWindow<V> {
    /// Start of the first slice in the window; slices before `end_ms` are in it.
    from_ms: i64,
    end_ms: i64,
    keys: Pane<WindowTotal<V>>,
    /// Keys to merge again from their slices.
    stale: Pane<()>,
}

#[derive(Debug)]
struct WindowTotal<V> {
    value: V,
    /// Number of slices with the key, and how many of them are not exact.
    slices: u32,
    inexact: u32,
    is_stale: bool,
}

type Slices<V> = VecDeque<(i64, Pane<V>)>;

impl<V> RollingWindow<V> {
    /// Before the first window.
    pub fn new() -> Self {
        Self { from_ms: i64::MIN, end_ms: i64::MIN, keys: Pane::default(), stale: Pane::default() }
    }

    /// Marks the key of a record as stale, if its slice is in the window.
    #[inline]
    pub fn touch(&mut self, key: &[u8], hash: u32, timestamp_ms: i64) {
        if timestamp_ms < self.end_ms && timestamp_ms >= self.from_ms {
            self.mark(key, hash);
        }
    }

    /// Subtracts a slice that is about to be deleted.
    pub fn leave<S: Sums<V>>(&mut self, start_ms: i64, slice: &Pane<V>, sums: &mut S) {
        if start_ms >= self.from_ms && start_ms < self.end_ms {
            self.take_out(slice, sums);
            self.from_ms = start_ms + 1;
        }
    }

    /// Moves on to a later window.
    pub fn roll_to<S: Sums<V>>(&mut self, window: Window, slices: &Slices<V>, sums: &mut S) -> Result<(), S::Error> {
        if window.start_ms >= self.end_ms {
            self.clear();
            (self.from_ms, self.end_ms) = (window.start_ms, window.start_ms);
        }
        for (_, slice) in within(slices, self.from_ms, window.start_ms) {
            self.take_out(slice, sums);
        }
        self.from_ms = self.from_ms.max(window.start_ms);
        for (_, slice) in within(slices, self.end_ms.max(self.from_ms), window.end_ms) {
            self.take_in(slice, sums)?;
        }
        self.end_ms = window.end_ms;
        self.renew(slices, sums)?;
        self.keys.shrink();
        Ok(())
    }

    /// Visits all keys with their values, in an order that depends only on the keys and their arrival. `give` returns
    /// the role of the value after it was emitted.
    pub fn each<E>(&mut self, mut give: impl FnMut(&[u8], &mut V) -> Result<SliceRole, E>) -> Result<(), E> {
        for (key, hash, whole) in self.keys.entries_mut() {
            if give(key, &mut whole.value)? == SliceRole::Shared && !std::mem::replace(&mut whole.is_stale, true) {
                self.stale.value_of(key, hash, || ());
            }
        }
        Ok(())
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns true if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Deletes everything.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    fn take_in<S: Sums<V>>(&mut self, slice: &Pane<V>, sums: &mut S) -> Result<(), S::Error> {
        for (key, hash, part) in slice.entries() {
            let whole = self.keys.value_of(key, hash, || WindowTotal::new(sums.empty(part)));
            if !whole.is_stale {
                whole.add(part, sums)?;
            }
        }
        Ok(())
    }

    fn take_out<S: Sums<V>>(&mut self, slice: &Pane<V>, sums: &mut S) {
        for (key, hash, part) in slice.entries() {
            let Some(whole) = self.keys.get_mut(key, hash).filter(|whole| !whole.is_stale) else { continue };
            let was_exact = whole.inexact == 0;
            whole.slices -= 1;
            whole.inexact -= u32::from(sums.part(part) != SliceRole::Exact);
            if whole.slices == 0 {
                self.keys.remove(key, hash);
            } else if !(was_exact && sums.take_out(&mut whole.value, part)) {
                whole.is_stale = true;
                self.stale.value_of(key, hash, || ());
            }
        }
    }

    /// Merges stale keys again from their slices.
    fn renew<S: Sums<V>>(&mut self, slices: &Slices<V>, sums: &mut S) -> Result<(), S::Error> {
        for (key, hash, ()) in std::mem::take(&mut self.stale).entries() {
            self.keys.remove(key, hash);
            for (_, slice) in within(slices, self.from_ms, self.end_ms) {
                let Some(part) = slice.get(key, hash) else { continue };
                self.keys.value_of(key, hash, || WindowTotal::new(sums.empty(part))).add(part, sums)?;
            }
        }
        Ok(())
    }

    #[cold]
    fn mark(&mut self, key: &[u8], hash: u32) {
        match self.keys.get_mut(key, hash) {
            Some(whole) if whole.is_stale => {}
            whole => {
                // A key without a value needs no mark.
                whole.into_iter().for_each(|whole| whole.is_stale = true);
                self.stale.value_of(key, hash, || ());
            }
        }
    }
}

impl<V> Default for RollingWindow<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V> WindowTotal<V> {
    fn new(value: V) -> Self {
        Self { value, slices: 0, inexact: 0, is_stale: false }
    }

    fn add<S: Sums<V>>(&mut self, part: &V, sums: &mut S) -> Result<(), S::Error> {
        sums.add(&mut self.value, part)?;
        self.slices += 1;
        self.inexact += u32::from(sums.part(part) != SliceRole::Exact);
        Ok(())
    }
}

/// The slices that begin in a range of time.
fn within<V>(slices: &Slices<V>, from_ms: i64, before_ms: i64) -> impl Iterator<Item = &(i64, Pane<V>)> {
    let first = slices.partition_point(|(start_ms, _)| *start_ms < from_ms);
    slices.range(first..).take_while(move |(start_ms, _)| *start_ms < before_ms)
}

#[cfg(test)]
mod tests {
    use flownet_core::keygroup::hash_key;
    use proptest::prelude::*;

    use super::super::assign::AlignedWindows;
    use super::super::sliced::{SlicePlacement, SlicedWindows};
    use super::*;

    /// Strings, which show the order in which they were merged. Those that end in `!` are not exact, those in `?` are
    /// shared.
    struct Texts;

    impl Sums<String> for Texts {
        type Error = ();

        fn empty(&self, _: &String) -> String {
            String::new()
        }

        fn add(&mut self, to: &mut String, part: &String) -> Result<(), ()> {
            to.push_str(part);
            Ok(())
        }

        fn take_out(&self, from: &mut String, part: &String) -> bool {
            // Some strings cannot be subtracted though they are exact.
            if part.starts_with('a') {
                return false;
            }
            let rest = from.strip_prefix(part.as_str()).expect("the earliest part comes first").to_owned();
            *from = rest;
            true
        }

        fn part(&self, value: &String) -> SliceRole {
            match value.chars().last() {
                Some('!') => SliceRole::Fixed,
                Some('?') => SliceRole::Shared,
                _ => SliceRole::Exact,
            }
        }
    }

    type ShownValue = (i64, String, String);

    fn anew(windows: &SlicedWindows<String>, window: Window) -> Vec<ShownValue> {
        let mut whole: std::collections::BTreeMap<String, String> = std::collections::BTreeMap::new();
        for (_, slice) in windows.slices_of(window) {
            for (key, _, part) in slice.entries() {
                let key = String::from_utf8(key.to_vec()).expect("a key of the test");
                whole.entry(key).or_default().push_str(part);
            }
        }
        whole.into_iter().map(|(key, value)| (window.start_ms, key, value)).collect()
    }

    fn rolled(rolling: &mut RollingWindow<String>, windows: &SlicedWindows<String>, window: Window) -> Vec<ShownValue> {
        rolling.roll_to(window, windows.slices(), &mut Texts).expect("texts can be put together");
        let mut shown = Vec::new();
        let given = rolling.each(|key, value| {
            shown.push((window.start_ms, String::from_utf8(key.to_vec()).expect("a key of the test"), value.clone()));
            let part = Texts.part(value);
            if part == SliceRole::Shared {
                // The receiver changes it.
                value.insert_str(0, "changed");
            }
            Ok::<_, ()>(part)
        });
        given.expect("nothing fails");
        shown.sort();
        shown
    }

    proptest! {
        #[test]
        fn each_window_is_what_its_slices_give(
            steps in proptest::collection::vec((0u8..4, 0i64..200, "[abc][!?]?", any::<bool>()), 0..250),
            (size, slide, lateness) in (1i64..40, 1i64..20, prop_oneof![Just(0i64), 0i64..60]),
        ) {
            let mut windows = SlicedWindows::new(AlignedWindows::new(size, slide, 0).expect("a grid"), lateness);
            let mut rolling = RollingWindow::new();
            for (key, at, text, is_time) in steps {
                if !is_time {
                    let key = key.to_string();
                    let hash = hash_key(key.as_bytes());
                    if let SlicePlacement::Open(value) | SlicePlacement::FiredBefore(value) = windows.add(key.as_bytes(), hash, at, String::new) {
                        value.insert_str(0, &text);
                        rolling.touch(key.as_bytes(), hash, at);
                    }
                    continue;
                }
                windows.advance(at);
                while let Some(window) = windows.next_due() {
                    prop_assert_eq!(rolled(&mut rolling, &windows, window), anew(&windows, window));
                }
                while let Some((start_ms, slice)) = windows.pop_expired() {
                    rolling.leave(start_ms, &slice, &mut Texts);
                }
            }
        }
    }
}
