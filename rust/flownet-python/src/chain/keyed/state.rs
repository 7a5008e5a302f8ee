//! A value of state together with the form its key was given in.

use flownet_runtime::TaskError;
use flownet_runtime::state::{KeyGroupRange, KeyedState};

use crate::chain::record::KeyedRecord;

/// What is kept for one key.
#[derive(Debug)]
pub(super) struct Held<V> {
    given: Option<Box<[u8]>>,
    pub(super) value: V,
}

impl<V> Held<V> {
    pub(super) fn new(record: &KeyedRecord<'_>, value: V) -> Self {
        Self { given: record.given(), value }
    }

    /// Bytes of the key as it was first given; `key` are its canonical ones.
    pub(super) fn key_value<'a>(&'a self, key: &'a [u8]) -> &'a [u8] {
        self.given.as_deref().unwrap_or(key)
    }

    /// The form the key was given in, where it was another than the canonical one, and the value.
    pub(super) fn into_parts(self) -> (Option<Box<[u8]>>, V) {
        (self.given, self.value)
    }
}

/// Keyed state that exists once its key groups are known.
pub(super) struct State<V>(Option<KeyedState<Held<V>>>);

impl<V> State<V> {
    pub(super) fn new() -> Self {
        Self(None)
    }

    pub(super) fn open(&mut self, range: KeyGroupRange) {
        self.0 = Some(KeyedState::new(range));
    }

    /// What is held for the record's key, made by `default` for its first record.
    #[inline]
    pub(super) fn entry(
        &mut self,
        record: &KeyedRecord<'_>,
        default: impl FnOnce() -> V,
    ) -> Result<&mut Held<V>, TaskError> {
        let state = self.0.as_mut().ok_or_else(|| TaskError::Config("keyed state was used before open()".into()))?;
        Ok(state.get_or_insert_with(record.key, record.hash, || Held::new(record, default()))?)
    }

    /// What is held for a key.
    pub(super) fn get(&mut self, key: &[u8], hash: u32) -> Option<&mut Held<V>> {
        self.0.as_mut()?.get_mut(key, hash)
    }

    /// Forgets a key.
    pub(super) fn remove(&mut self, key: &[u8], hash: u32) {
        if let Some(state) = &mut self.0 {
            state.remove(key, hash);
        }
    }
}
