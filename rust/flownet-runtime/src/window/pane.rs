//! Stores the values of one time slice, by key.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::key::Key;
use crate::state::{Base, Stamp, spread};

/// One value per key, in the order in which the keys arrived. The table holds the entries themselves, so a record costs
/// one access to memory.
#[derive(Debug)]
pub struct Pane<V> {
    entries: HashTable<PaneEntry<V>>,
    /// Number of further keys that are only on disk.
    on_disk: usize,
    /// The next position in the table to take idle entries from.
    hand: usize,
}

#[derive(Debug)]
struct PaneEntry<V> {
    hash: u32,
    /// Number of entries that came before; exact up to the first 2^32.
    order: u32,
    /// The last touch.
    touched: Stamp,
    key: Key,
    value: V,
}

impl<V> Default for Pane<V> {
    fn default() -> Self {
        Self { entries: HashTable::new(), on_disk: 0, hand: 0 }
    }
}

impl<V> Pane<V> {
    /// Bytes of a key in the table.
    pub(super) const ENTRY_BYTES: usize = size_of::<PaneEntry<V>>();

    /// Returns the value of a key, and creates it with `default` if there is none.
    #[inline]
    pub fn value_of(&mut self, key: &[u8], hash: u32, default: impl FnOnce() -> V) -> &mut V {
        self.touch(key, hash, Stamp::default(), default)
    }

    /// The same, and marks it as touched now.
    #[inline]
    pub(super) fn touch(&mut self, key: &[u8], hash: u32, now: Stamp, default: impl FnOnce() -> V) -> &mut V {
        let order = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        let found =
            self.entries.entry(spread(hash), |held| held.hash == hash && held.key.is(key), |held| spread(held.hash));
        match found {
            Entry::Occupied(held) => {
                let held = held.into_mut();
                held.touched = now;
                &mut held.value
            }
            Entry::Vacant(free) => {
                let entry = PaneEntry { hash, order, touched: now.of_new(), key: key.into(), value: default() };
                &mut free.insert(entry).into_mut().value
            }
        }
    }

    /// Returns the value of a key.
    #[inline]
    pub fn get(&self, key: &[u8], hash: u32) -> Option<&V> {
        self.entries.find(spread(hash), |held| held.hash == hash && held.key.is(key)).map(|held| &held.value)
    }

    /// Returns the value of a key, for changes.
    #[inline]
    pub fn get_mut(&mut self, key: &[u8], hash: u32) -> Option<&mut V> {
        self.entries.find_mut(spread(hash), |held| held.hash == hash && held.key.is(key)).map(|held| &mut held.value)
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &[u8], hash: u32) {
        if let Ok(held) = self.entries.find_entry(spread(hash), |held| held.hash == hash && held.key.is(key)) {
            held.remove();
        }
    }

    /// Counts keys that moved from disk to here.
    pub(super) fn give_back(&mut self, keys: usize) {
        self.on_disk -= keys;
    }

    /// Counts one more key on disk.
    pub(super) fn lies_on_disk(&mut self) {
        self.on_disk += 1;
    }

    /// Removes up to `most` entries that were not touched since the last pass, and counts them as on disk. Goes round
    /// the table at most once.
    pub(super) fn take_idle(&mut self, most: usize, mut take: impl FnMut(u32, Stamp, Key, V)) -> usize {
        let (buckets, mut taken) = (self.entries.num_buckets(), 0);
        for _ in 0..buckets {
            if taken == most {
                break;
            }
            self.hand = (self.hand + 1) % buckets;
            let is_idle = self.entries.get_bucket_mut(self.hand).is_some_and(|entry| !entry.touched.take_is_recent());
            if is_idle && let Ok(entry) = self.entries.get_bucket_entry(self.hand) {
                let PaneEntry { hash, touched, key, value, .. } = entry.remove().0;
                take(hash, touched, key, value);
                taken += 1;
            }
        }
        self.on_disk += taken;
        // Usually, later keys belong to another slice.
        if taken > 0 && self.entries.len() < self.entries.capacity() / 4 {
            self.entries.shrink_to_fit(|held| spread(held.hash));
        }
        taken
    }

    /// Releases memory of removed keys, once most keys are removed.
    pub fn shrink(&mut self) {
        if self.entries.len() < self.entries.capacity() / 16 {
            self.entries.shrink_to_fit(|held| spread(held.hash));
        }
    }

    /// The same as [`entries`](Self::entries), with values to change.
    pub fn entries_mut(&mut self) -> impl Iterator<Item = (&[u8], u32, &mut V)> {
        self.entries.iter_mut().map(|entry| (entry.key.as_slice(), entry.hash, &mut entry.value))
    }

    /// Keys with their hashes and values, in an order that depends only on the keys and their arrival.
    pub fn entries(&self) -> impl Iterator<Item = (&[u8], u32, &V)> {
        self.entries.iter().map(|entry| (entry.key.as_slice(), entry.hash, &entry.value))
    }

    /// The same as [`entries`](Self::entries), for entries that were touched since a snapshot.
    pub(crate) fn touched_since(&self, base: Base) -> impl Iterator<Item = (&[u8], u32, &V)> {
        let touched = self.entries.iter().filter(move |entry| base.is_before(entry.touched.taken()));
        touched.map(|entry| (entry.key.as_slice(), entry.hash, &entry.value))
    }

    /// Keys with their values, in the order in which they arrived.
    pub(crate) fn into_entries(self) -> impl Iterator<Item = (Key, V)> {
        let mut entries: Vec<_> = self.entries.into_iter().map(Some).collect();
        // Entries are large, so only their positions are sorted.
        let places = entries.iter().enumerate().filter_map(|(place, entry)| Some((entry.as_ref()?.order, place)));
        let places = in_order(places.collect());
        places.filter_map(move |place| entries[place].take()).map(|entry| (entry.key, entry.value))
    }

    /// Number of keys that are only on disk.
    pub(crate) fn on_disk(&self) -> usize {
        self.on_disk
    }

    /// Number of keys held.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if no key is held.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// The items, sorted by these orders.
fn in_order<T>(mut items: Vec<(u32, T)>) -> impl Iterator<Item = T> {
    items.sort_unstable_by_key(|(order, _)| *order);
    items.into_iter().map(|(_, item)| item)
}
