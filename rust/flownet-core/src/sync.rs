//! The synchronisation primitives of this crate: `std`'s, or loom's in its models.
//!
//! Only what the models must see is switched: reference counts are `std`'s. flownet-memory is switched along, or a model
//! would not know that what a writer commits and what a reader sees of it depend on each other.

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
