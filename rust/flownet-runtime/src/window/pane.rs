//! What one stretch of time holds, by key.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::key::Key;
use crate::state::spread;

/// One value a key, in the order in which the keys came. The table holds the entries themselves: a record costs one look
/// at memory.
#[derive(Debug)]
pub struct Pane<V>(HashTable<PaneEntry<V>>);

#[derive(Debug)]
struct PaneEntry<V> {
    hash: u32,
    /// Entries that came before; they are told apart up to the first 2^32.
    order: u32,
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
        let order = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        let found = self.0.entry(spread(hash), |held| held.hash == hash && held.key.is(key), |held| spread(held.hash));
        match found {
            Entry::Occupied(held) => &mut held.into_mut().value,
            Entry::Vacant(free) => {
                &mut free.insert(PaneEntry { hash, order, key: key.into(), value: default() }).into_mut().value
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

    /// The same, in the order in which the keys came.
    pub fn ordered_entries(&self) -> impl Iterator<Item = (&[u8], u32, &V)> {
        let mut entries: Vec<_> = self.0.iter().collect();
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
