//! Synchronisation primitives of this crate: `std`'s, or loom's in its models.
//!
//! Only the primitives that the models must see are switched. Handles of the public API stay `std::sync::Arc`, which
//! loom could not coerce to `dyn` anyway.

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

/// Locks `mutex` and ignores poison. No foreign code runs under these locks. The only possible panic there is a failed
/// invariant of a debug build, which was already reported.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
