//! What one stretch of time holds, by key.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::key::Key;
use crate::state::{Base, Stamp, spread};

/// One value a key, in the order in which the keys came. The table holds the entries themselves: a record costs one look
/// at memory.
#[derive(Debug)]
pub struct Pane<V> {
    entries: HashTable<PaneEntry<V>>,
    /// Keys more that lie on disk and not here.
    on_disk: usize,
    /// The place in the table to take idle entries from next.
    hand: usize,
}

#[derive(Debug)]
struct PaneEntry<V> {
    hash: u32,
    /// Entries that came before; they are told apart up to the first 2^32.
    order: u32,
    /// When it was last touched.
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
    /// What a key takes in the table.
    pub(super) const ENTRY_BYTES: usize = size_of::<PaneEntry<V>>();

    /// The value of a key, made by `default` if there is none.
    #[inline]
    pub fn value_of(&mut self, key: &[u8], hash: u32, default: impl FnOnce() -> V) -> &mut V {
        self.touch(key, hash, Stamp::default(), default)
    }

    /// The same, which was touched now.
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

    /// The value of a key.
    #[inline]
    pub fn get(&self, key: &[u8], hash: u32) -> Option<&V> {
        self.entries.find(spread(hash), |held| held.hash == hash && held.key.is(key)).map(|held| &held.value)
    }

    /// The value of a key, to change.
    #[inline]
    pub fn get_mut(&mut self, key: &[u8], hash: u32) -> Option<&mut V> {
        self.entries.find_mut(spread(hash), |held| held.hash == hash && held.key.is(key)).map(|held| &mut held.value)
    }

    /// Forgets a key.
    pub fn remove(&mut self, key: &[u8], hash: u32) {
        if let Ok(held) = self.entries.find_entry(spread(hash), |held| held.hash == hash && held.key.is(key)) {
            held.remove();
        }
    }

    /// So many keys that lay on disk are here.
    pub(super) fn give_back(&mut self, keys: usize) {
        self.on_disk -= keys;
    }

    /// A key more lies on disk.
    pub(super) fn lies_on_disk(&mut self) {
        self.on_disk += 1;
    }

    /// Takes out up to so many entries that were not touched since they were last passed by here, and that lie on disk from
    /// now on. It goes round the table once at most.
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
        // What comes next is held by another slice, as a rule.
        if taken > 0 && self.entries.len() < self.entries.capacity() / 4 {
            self.entries.shrink_to_fit(|held| spread(held.hash));
        }
        taken
    }

    /// Gives memory back that keys took which are gone, once most of them are.
    pub fn shrink(&mut self) {
        if self.entries.len() < self.entries.capacity() / 16 {
            self.entries.shrink_to_fit(|held| spread(held.hash));
        }
    }

    /// The same as [`entries`](Self::entries), with values to change.
    pub fn entries_mut(&mut self) -> impl Iterator<Item = (&[u8], u32, &mut V)> {
        self.entries.iter_mut().map(|entry| (entry.key.as_slice(), entry.hash, &mut entry.value))
    }

    /// Keys with their hashes and values, in an order that depends on nothing but the keys and how they came.
    pub fn entries(&self) -> impl Iterator<Item = (&[u8], u32, &V)> {
        self.entries.iter().map(|entry| (entry.key.as_slice(), entry.hash, &entry.value))
    }

    /// The same as [`entries`](Self::entries), of those that were touched since a snapshot.
    pub(crate) fn touched_since(&self, base: Base) -> impl Iterator<Item = (&[u8], u32, &V)> {
        let touched = self.entries.iter().filter(move |entry| base.is_before(entry.touched.taken()));
        touched.map(|entry| (entry.key.as_slice(), entry.hash, &entry.value))
    }

    /// Keys with their values, taken out in the order in which they came.
    pub(crate) fn into_entries(self) -> impl Iterator<Item = (Key, V)> {
        let mut entries: Vec<_> = self.entries.into_iter().map(Some).collect();
        // Entries are large: only where they are is sorted.
        let places = entries.iter().enumerate().filter_map(|(place, entry)| Some((entry.as_ref()?.order, place)));
        let places = in_order(places.collect());
        places.filter_map(move |place| entries[place].take()).map(|entry| (entry.key, entry.value))
    }

    /// Keys that lie on disk and not here.
    pub(crate) fn on_disk(&self) -> usize {
        self.on_disk
    }

    /// Keys held.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no key is held.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// What has these orders, by them.
fn in_order<T>(mut items: Vec<(u32, T)>) -> impl Iterator<Item = T> {
    items.sort_unstable_by_key(|(order, _)| *order);
    items.into_iter().map(|(_, item)| item)
}
