//! Joins the thread of a job.

use std::{
    io,
    sync::{Mutex, PoisonError},
    thread::{self, JoinHandle},
};

/// Thread "flownet-coordinator" of one job.
#[derive(Debug)]
pub(super) struct CoordinatorThread(Mutex<Option<JoinHandle<()>>>);

impl CoordinatorThread {
    pub(super) fn start(body: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let thread = thread::Builder::new().name("flownet-coordinator".to_owned()).spawn(body)?;
        Ok(Self(Mutex::new(Some(thread))))
    }

    /// Waits until the thread is gone, from any number of threads. Never called on the thread itself.
    pub(super) fn join(&self) {
        // The lock is held during the join: a second caller must not return before the thread is gone.
        let mut thread = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            // A panic in the thread has been reported as the job's result.
            let _ = thread.join();
        }
    }
}
