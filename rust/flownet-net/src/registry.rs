//! The partitions of this process, by id, and who waits for one that is not there yet.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;

use flownet_core::PartitionId;
use flownet_core::partition::PartitionHandle;

use crate::inlets::ConnectedInlets;

/// Where producer connections look for what a consumer asks for.
///
/// A consumer may ask before the producing task exists. Its connection then parks the request and leaves its waker
/// here; a registration wakes everyone who waits, which is rare enough not to need a list by partition.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    partitions: HashMap<PartitionId, (PartitionHandle, Weak<ConnectedInlets>)>,
    waiting: Vec<Waker>,
    registrations: u64,
}

impl Registry {
    pub(crate) fn insert(&self, partition: PartitionHandle, inlets: Weak<ConnectedInlets>) {
        let waiting = {
            let mut state = self.lock();
            state.partitions.insert(partition.id(), (partition, inlets));
            state.registrations += 1;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn remove(&self, id: PartitionId) {
        // Dropped after the lock is gone: a handle's end may free buffers, which wakes others.
        let _removed = self.lock().partitions.remove(&id);
    }

    pub(crate) fn clear(&self) {
        let _removed = std::mem::take(&mut self.lock().partitions);
    }

    /// The partition, and what its writer waits at.
    pub(crate) fn find(&self, id: PartitionId) -> Option<(PartitionHandle, Weak<ConnectedInlets>)> {
        self.lock().partitions.get(&id).cloned()
    }

    /// Whether something was registered since `seen`, which is brought up to date. If not, `waker` is woken once by the
    /// next registration.
    pub(crate) fn has_changed(&self, seen: &mut u64, waker: &Waker) -> bool {
        let mut state = self.lock();
        if *seen != state.registrations {
            *seen = state.registrations;
            return true;
        }
        if !state.waiting.iter().any(|waiting| waiting.will_wake(waker)) {
            state.waiting.push(waker.clone());
        }
        false
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code of others runs under this lock: a poisoned map is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
