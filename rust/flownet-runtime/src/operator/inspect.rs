//! What operators keep, for who looks at them from outside, between two records: tests.

use crate::time::Clock;
use crate::window::Window;

/// What an operator keeps. `K` is a key: its bytes as it was given, or the key itself.
#[derive(Debug)]
pub struct Inspection<K, R> {
    /// Values, in no particular order.
    pub kept: Vec<StateEntry<K, R>>,
    /// Timers of either clock that are set.
    pub timers: Vec<PendingTimer<K>>,
}

/// What [`Operator::inspect`](super::Operator::inspect) fills: with keys as their bytes.
#[derive(Debug)]
pub struct InspectedState<R> {
    looked: Inspection<Vec<u8>, R>,
    /// Records as their bytes, with their keys.
    encoded: Vec<(StateKind, Vec<u8>, Vec<u8>)>,
}

/// One value that an operator keeps.
#[derive(Debug)]
pub struct StateEntry<K, R> {
    /// What it is of.
    pub what: StateKind,
    /// Of which key; none for what all keys share.
    pub key: Option<K>,
    /// Of which window, if it is of one.
    pub window: Option<Window>,
    /// The value.
    pub value: R,
}

/// Who keeps a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateKind {
    /// A function of the user.
    State,
    /// A fold, of all records of a key so far.
    Value,
    /// A join, of its first input: a record for which others may come.
    Left,
    /// A join, of its second input.
    Right,
    /// A function of the user, for all keys.
    BroadcastState,
    /// The records of a window, or what became of them.
    Window,
    /// A function over windows, for one of them.
    WindowState,
    /// A function over windows, for a key.
    GlobalState,
    /// A trigger of the user, for a window.
    TriggerState,
}

/// A timer that is set.
#[derive(Debug)]
pub struct PendingTimer<K> {
    /// By which clock.
    pub clock: Clock,
    /// When it is due.
    pub timestamp_ms: i64,
    /// Whose; none where all keys share it.
    pub key: Option<K>,
    /// For which window, if for one.
    pub window: Option<Window>,
}

impl<R> InspectedState<R> {
    pub(super) fn new() -> Self {
        Self { looked: Inspection { kept: Vec::new(), timers: Vec::new() }, encoded: Vec::new() }
    }

    /// Adds a value. `key` decodes to the key as it was given.
    pub fn add(&mut self, what: StateKind, key: Option<&[u8]>, window: Option<Window>, value: R) {
        self.looked.kept.push(StateEntry { what, key: key.map(<[u8]>::to_vec), window, value });
    }

    /// Adds a record that is kept as its bytes.
    pub fn add_encoded(&mut self, what: StateKind, key: &[u8], record: &[u8]) {
        self.encoded.push((what, key.to_vec(), record.to_vec()));
    }

    /// Adds a timer.
    pub fn add_timer(&mut self, clock: Clock, timestamp_ms: i64, key: Option<&[u8]>, window: Option<Window>) {
        self.looked.timers.push(PendingTimer { clock, timestamp_ms, key: key.map(<[u8]>::to_vec), window });
    }

    /// With its bytes made into what they stand for.
    pub(super) fn decoded<E>(self, mut decode: impl FnMut(&[u8]) -> Result<R, E>) -> Result<Inspection<R, R>, E> {
        let Inspection { kept, timers } = self.looked;
        let mut all = Vec::with_capacity(kept.len() + self.encoded.len());
        for StateEntry { what, key, window, value } in kept {
            all.push(StateEntry { what, key: key.map(|key| decode(&key)).transpose()?, window, value });
        }
        for (what, key, record) in self.encoded {
            all.push(StateEntry { what, key: Some(decode(&key)?), window: None, value: decode(&record)? });
        }
        let mut set = Vec::with_capacity(timers.len());
        for PendingTimer { clock, timestamp_ms, key, window } in timers {
            set.push(PendingTimer { clock, timestamp_ms, key: key.map(|key| decode(&key)).transpose()?, window });
        }
        Ok(Inspection { kept: all, timers: set })
    }
}
