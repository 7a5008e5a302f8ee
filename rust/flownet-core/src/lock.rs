//! Mutex without poisoning, the only lock type of this crate except the combining lock.
//!
//! The guarded state is consistent between statements. A panic elsewhere in the holder's thread (an operator, a failed
//! debug assertion) must therefore not turn every later release of segments into a second panic.
//!
//! Rule for all users: hold it for a few statements, and never call a waker, a pool or the owner of another lock under
//! it.

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
