//! What the operators on tumbling windows share.

use flownet_runtime::TaskError;
use flownet_runtime::window::{Fired, Tumbling, WindowState};

use super::state::Held;
use crate::chain::record::KeyedRecord;

/// How a windowed operator cuts time.
#[derive(Clone, Copy, Debug)]
pub(in crate::chain) struct WindowSettings {
    /// Length of a window.
    pub(in crate::chain) size_ms: i64,
}

/// One value for each key and open window.
pub(super) struct Windows<V>(WindowState<Held<V>>);

impl<V> Windows<V> {
    pub(super) fn new(settings: WindowSettings) -> Result<Self, TaskError> {
        Ok(Self(WindowState::new(Tumbling::new(settings.size_ms, 0)?)))
    }

    /// The value of the record's key in the window of `now_ms`.
    #[inline]
    pub(super) fn entry(&mut self, record: &KeyedRecord<'_>, now_ms: i64, default: impl FnOnce() -> V) -> &mut V {
        &mut self.0.add(record.key, record.hash, now_ms, || Held::new(record, default())).value
    }

    pub(super) fn next_timer_ms(&self) -> Option<i64> {
        self.0.next_fire_ms()
    }

    pub(super) fn fire_due(&mut self, now_ms: i64) -> Fired<Held<V>> {
        self.0.fire_due(now_ms)
    }

    pub(super) fn fire_all(&mut self) -> Fired<Held<V>> {
        self.0.fire_all()
    }
}
