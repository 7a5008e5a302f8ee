//! A mutex with deferred work: if another thread holds the lock, the caller sets a flag and returns. The holder reads
//! the flags after it unlocks.
//!
//! The drivers use it: any thread with time to spare drives their state machines. It is in this crate because its loom
//! models are.
//!
//! # Invariants
//! - N1: no flag is lost. If a caller sets a flag and does not get the lock, the holder reads the flag after its
//!   unlock.

use std::sync::{PoisonError, TryLockError};

use crate::sync::{AtomicU8, Mutex, MutexGuard, Ordering, fence};

/// Flags for the holder of a lock. Each is a bit, so it may be set any number of times and is read once.
pub type PendingFlags = u8;

/// See the [module docs](self). After each unlock, call [`CombiningLock::take_notes`] and do the work that the flags
/// request.
#[derive(Debug)]
pub struct CombiningLock<T> {
    value: Mutex<T>,
    notes: AtomicU8,
}

impl<T> CombiningLock<T> {
    /// Creates an unlocked lock without flags.
    pub fn new(value: T) -> Self {
        Self { value: Mutex::new(value), notes: AtomicU8::new(0) }
    }

    /// Locks the value. May wait, but not for long: holders do a bounded amount of work and wait for nothing.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the value, or sets the flag `note` for the holder and returns `None`.
    pub fn lock_or_leave(&self, note: PendingFlags) -> Option<MutexGuard<'_, T>> {
        if let Some(value) = self.try_lock() {
            return Some(value);
        }
        self.notes.fetch_or(note, Ordering::Release);
        // N1: either the holder sees the note after its unlock, or we see that unlock. See `take_notes`.
        fence(Ordering::SeqCst);
        let value = self.try_lock()?;
        self.notes.fetch_and(!note, Ordering::Acquire);
        Some(value)
    }

    /// Takes the flags that were set meanwhile. Call it after each unlock.
    pub fn take_notes(&self) -> PendingFlags {
        fence(Ordering::SeqCst);
        if self.notes.load(Ordering::Relaxed) == 0 { 0 } else { self.notes.swap(0, Ordering::Acquire) }
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.value.try_lock() {
            Ok(value) => Some(value),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn who_finds_it_locked_leaves_a_note_to_its_holder_once() {
        let noted = CombiningLock::new(7);
        let held = noted.lock();
        assert!(noted.lock_or_leave(1).is_none() && noted.lock_or_leave(4).is_none());
        drop(held);
        assert_eq!([noted.take_notes(), noted.take_notes()], [5, 0]);
        assert_eq!(noted.lock_or_leave(2).as_deref(), Some(&7), "it is free");
        assert_eq!(noted.take_notes(), 0, "and then nobody is asked");
    }
}
