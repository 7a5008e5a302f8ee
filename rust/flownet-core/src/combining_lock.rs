//! A lock that nobody has to wait for: who finds it taken leaves a note, and who lets go of it reads the notes.
//!
//! For drivers, whose machines are driven by whoever has time. It stands here because its models do.
//!
//! # Invariants
//! - N1: a note is lost by nobody: whoever left it and did not get the lock has it read by the holder, after that one
//!   has let go of the lock.

use std::sync::{PoisonError, TryLockError};

use crate::sync::{AtomicU8, Mutex, MutexGuard, Ordering, fence};

/// Notes for the holder of a lock: bits, so that each is left any number of times and read once.
pub type PendingFlags = u8;

/// See the [module docs](self). Whoever unlocks it calls [`CombiningLock::take_notes`] and does what they ask for.
#[derive(Debug)]
pub struct CombiningLock<T> {
    value: Mutex<T>,
    notes: AtomicU8,
}

impl<T> CombiningLock<T> {
    /// Unlocked, without notes.
    pub fn new(value: T) -> Self {
        Self { value: Mutex::new(value), notes: AtomicU8::new(0) }
    }

    /// The value, after a wait if need be: holders do a bounded amount of work and wait for nothing.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value, or nothing: then its holder finds `note`.
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

    /// After an unlock: what was asked for meanwhile.
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
