//! Registers the partitions of this process by id, and wakes connections that wait for one.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;

use flownet_core::PartitionId;
use flownet_core::partition::PartitionHandle;

use crate::inlets::ConnectedInlets;

/// Table in which producer connections find requested partitions.
///
/// A consumer may request a partition before its producing task exists. Its connection then parks the request and
/// leaves its waker here. A registration wakes all waiting connections. Registrations are rare enough not to need a
/// list per partition.
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
        // Dropped after the lock is released: dropping a handle may free buffers, which wakes tasks.
        let _removed = self.lock().partitions.remove(&id);
    }

    pub(crate) fn clear(&self) {
        let _removed = std::mem::take(&mut self.lock().partitions);
    }

    /// Returns the partition and the inlets that its writer waits at.
    pub(crate) fn find(&self, id: PartitionId) -> Option<(PartitionHandle, Weak<ConnectedInlets>)> {
        self.lock().partitions.get(&id).cloned()
    }

    /// Returns true if partitions were registered since `seen`, and updates `seen`. Otherwise the next registration
    /// wakes `waker` once.
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
        // No foreign code runs under this lock, so a poisoned map is still consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
