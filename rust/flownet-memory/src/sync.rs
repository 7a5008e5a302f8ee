//! The synchronisation primitives of this crate: `std`'s, or loom's in its models.
//!
//! Only what the models must see is switched. Handles that are part of the
//! public API stay `std::sync::Arc`, which loom could not coerce to `dyn` anyway.

use std::sync::PoisonError;

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc as LeaseArc, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Arc as LeaseArc, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

/// Locks `mutex`. Poison is ignored: nothing foreign runs under these locks, so
/// the only panic there is a failed invariant of a debug build, already reported.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
