//! Shows the state of operators between two records, for tests.

use crate::time::Clock;
use crate::window::Window;

/// State of an operator. `K` is a key: its bytes as it was given, or the decoded key.
#[derive(Debug)]
pub struct Inspection<K, R> {
    /// Values, in no particular order.
    pub kept: Vec<StateEntry<K, R>>,
    /// Pending timers of either clock.
    pub timers: Vec<PendingTimer<K>>,
}

/// Collects the output of [`Operator::inspect`](super::Operator::inspect), with keys as their bytes.
#[derive(Debug)]
pub struct InspectedState<R> {
    looked: Inspection<Vec<u8>, R>,
    /// Encoded records, with their keys.
    encoded: Vec<(StateKind, Vec<u8>, Vec<u8>)>,
}

/// One value in the state of an operator.
#[derive(Debug)]
pub struct StateEntry<K, R> {
    /// The kind of state that it belongs to.
    pub what: StateKind,
    /// Its key; `None` if all keys share it.
    pub key: Option<K>,
    /// Its window, if it belongs to one.
    pub window: Option<Window>,
    /// The value.
    pub value: R,
}

/// The owner of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateKind {
    /// A function of the user.
    State,
    /// A fold, over all records of a key so far.
    Value,
    /// A join: a record of the first input that still awaits matches.
    Left,
    /// The same for the second input.
    Right,
    /// A function of the user, with state for all keys.
    BroadcastState,
    /// The records of a window, or their aggregate.
    Window,
    /// A window function, with state for one window.
    WindowState,
    /// A window function, with state for one key.
    GlobalState,
    /// A trigger of the user, with state for one window.
    TriggerState,
}

/// A pending timer.
#[derive(Debug)]
pub struct PendingTimer<K> {
    /// The clock that it follows.
    pub clock: Clock,
    /// Time at which it is due.
    pub timestamp_ms: i64,
    /// Its key; `None` if all keys share it.
    pub key: Option<K>,
    /// Its window, if it belongs to one.
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

    /// Adds a record that is stored as its bytes.
    pub fn add_encoded(&mut self, what: StateKind, key: &[u8], record: &[u8]) {
        self.encoded.push((what, key.to_vec(), record.to_vec()));
    }

    /// Adds a timer.
    pub fn add_timer(&mut self, clock: Clock, timestamp_ms: i64, key: Option<&[u8]>, window: Option<Window>) {
        self.looked.timers.push(PendingTimer { clock, timestamp_ms, key: key.map(<[u8]>::to_vec), window });
    }

    /// Decodes the keys and records.
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
