//! What one stretch of time holds, by key.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::key::Key;
use crate::state::{Base, spread};

/// One value a key, in the order in which the keys came. The table holds the entries themselves: a record costs one look
/// at memory.
#[derive(Debug)]
pub struct Pane<V>(HashTable<PaneEntry<V>>);

#[derive(Debug)]
struct PaneEntry<V> {
    hash: u32,
    /// Entries that came before; they are told apart up to the first 2^32.
    order: u32,
    /// After how many snapshots it was last touched, where there are any.
    touched: u32,
    key: Key,
    value: V,
}

impl<V> Default for Pane<V> {
    fn default() -> Self {
        Self(HashTable::new())
    }
}

impl<V> Pane<V> {
    /// The value of a key, made by `default` if there is none.
    #[inline]
    pub fn value_of(&mut self, key: &[u8], hash: u32, default: impl FnOnce() -> V) -> &mut V {
        self.touch(key, hash, 0, default)
    }

    /// The same, which was touched now: after so many snapshots.
    #[inline]
    pub(super) fn touch(&mut self, key: &[u8], hash: u32, now: u32, default: impl FnOnce() -> V) -> &mut V {
        let order = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        let found = self.0.entry(spread(hash), |held| held.hash == hash && held.key.is(key), |held| spread(held.hash));
        match found {
            Entry::Occupied(held) => {
                let held = held.into_mut();
                held.touched = now;
                &mut held.value
            }
            Entry::Vacant(free) => {
                let entry = PaneEntry { hash, order, touched: now, key: key.into(), value: default() };
                &mut free.insert(entry).into_mut().value
            }
        }
    }

    /// The value of a key.
    #[inline]
    pub fn get(&self, key: &[u8], hash: u32) -> Option<&V> {
        self.0.find(spread(hash), |held| held.hash == hash && held.key.is(key)).map(|held| &held.value)
    }

    /// The value of a key, to change.
    #[inline]
    pub fn get_mut(&mut self, key: &[u8], hash: u32) -> Option<&mut V> {
        self.0.find_mut(spread(hash), |held| held.hash == hash && held.key.is(key)).map(|held| &mut held.value)
    }

    /// Forgets a key.
    pub fn remove(&mut self, key: &[u8], hash: u32) {
        if let Ok(held) = self.0.find_entry(spread(hash), |held| held.hash == hash && held.key.is(key)) {
            held.remove();
        }
    }

    /// Gives memory back that keys took which are gone, once most of them are.
    pub fn shrink(&mut self) {
        if self.0.len() < self.0.capacity() / 16 {
            self.0.shrink_to_fit(|held| spread(held.hash));
        }
    }

    /// The same as [`entries`](Self::entries), with values to change.
    pub fn entries_mut(&mut self) -> impl Iterator<Item = (&[u8], u32, &mut V)> {
        self.0.iter_mut().map(|entry| (entry.key.as_slice(), entry.hash, &mut entry.value))
    }

    /// Keys with their hashes and values, in an order that depends on nothing but the keys and how they came.
    pub fn entries(&self) -> impl Iterator<Item = (&[u8], u32, &V)> {
        self.0.iter().map(|entry| (entry.key.as_slice(), entry.hash, &entry.value))
    }

    /// How many keys were touched since a snapshot.
    pub(crate) fn touched_since(&self, base: Base) -> usize {
        self.0.iter().filter(|entry| base.is_before(entry.touched)).count()
    }

    /// The same as [`entries`](Self::entries), of all keys or of those that were touched since a snapshot, in the order in
    /// which they came.
    pub(crate) fn ordered_entries(&self, base: Option<Base>) -> impl Iterator<Item = (&[u8], u32, &V)> {
        let is_wanted = |entry: &&PaneEntry<V>| base.is_none_or(|base| base.is_before(entry.touched));
        let mut entries: Vec<_> = self.0.iter().filter(is_wanted).collect();
        entries.sort_unstable_by_key(|entry| entry.order);
        entries.into_iter().map(|entry| (entry.key.as_slice(), entry.hash, &entry.value))
    }

    /// Keys with their values, taken out in the order in which they came.
    pub fn into_entries(self) -> impl Iterator<Item = (Box<[u8]>, V)> {
        let mut entries: Vec<_> = self.0.into_iter().collect();
        entries.sort_unstable_by_key(|entry| entry.order);
        entries.into_iter().map(|entry| (entry.key.into(), entry.value))
    }

    /// Keys held.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no key is held.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
