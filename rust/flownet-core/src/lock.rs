//! The one lock of this crate: a mutex without poisoning.
//!
//! What it guards is left consistent between statements, so a panic elsewhere in the holder's thread (an operator, a
//! failed debug assertion) must not turn every later release of segments into a second panic.
//!
//! Rule for all its users: hold it for a few statements, never call a waker, a pool or another lock's owner under it.

use std::sync::PoisonError;

use crate::sync::{Mutex, MutexGuard};

#[derive(Debug, Default)]
pub(crate) struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
