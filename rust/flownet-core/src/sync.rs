//! Synchronisation primitives of this crate: `std`'s, or loom's in its models.
//!
//! Only the primitives that the models must see are switched: reference counts are `std`'s. flownet-memory switches
//! too. Otherwise a model would not know that a writer's commits and a reader's view of them depend on each other.

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU8, Ordering, fence},
};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU8, Ordering, fence},
};
