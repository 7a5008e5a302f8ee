//! What operators keep, for who looks at them from outside, between two records: tests.

use super::Medium;
use crate::time::Clock;
use crate::window::Window;

/// What an operator keeps. `K` is a key: its bytes as it was given, or the key itself.
#[derive(Debug)]
pub struct Inspection<K, R> {
    /// Values, in no particular order.
    pub kept: Vec<Kept<K, R>>,
    /// Timers of either clock that are set.
    pub timers: Vec<PendingTimer<K>>,
}

/// What [`Operator::inspect`](super::Operator::inspect) fills.
pub type Found<'m, M> = Inspection<Vec<u8>, <M as Medium>::Record<'m>>;

/// One value that an operator keeps.
#[derive(Debug)]
pub struct Kept<K, R> {
    /// What it is of.
    pub what: What,
    /// Of which key; none for what all keys share.
    pub key: Option<K>,
    /// Of which window, if it is of one.
    pub window: Option<Window>,
    /// The value.
    pub value: R,
}

/// Who keeps a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A function of the user.
    State,
    /// A fold, of all records of a key so far.
    Value,
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

impl<K, R> Inspection<K, R> {
    pub(super) fn new() -> Self {
        Self { kept: Vec::new(), timers: Vec::new() }
    }

    /// With its keys made into others.
    pub(super) fn with_keys<L, E>(self, mut make: impl FnMut(K) -> Result<L, E>) -> Result<Inspection<L, R>, E> {
        let mut of = |key: Option<K>| key.map(&mut make).transpose();
        let kept = self
            .kept
            .into_iter()
            .map(|Kept { what, key, window, value }| Ok(Kept { what, key: of(key)?, window, value }));
        let kept = kept.collect::<Result<_, E>>()?;
        let timers = self.timers.into_iter().map(|PendingTimer { clock, timestamp_ms, key, window }| {
            Ok(PendingTimer { clock, timestamp_ms, key: of(key)?, window })
        });
        Ok(Inspection { kept, timers: timers.collect::<Result<_, E>>()? })
    }
}

impl<R> Inspection<Vec<u8>, R> {
    /// Adds a value. `key` decodes to the key as it was given.
    pub fn add(&mut self, what: What, key: Option<&[u8]>, window: Option<Window>, value: R) {
        self.kept.push(Kept { what, key: key.map(<[u8]>::to_vec), window, value });
    }

    /// Adds a timer.
    pub fn add_timer(&mut self, clock: Clock, timestamp_ms: i64, key: Option<&[u8]>, window: Option<Window>) {
        self.timers.push(PendingTimer { clock, timestamp_ms, key: key.map(<[u8]>::to_vec), window });
    }
}
