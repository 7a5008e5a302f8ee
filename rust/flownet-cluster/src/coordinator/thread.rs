//! The thread of a job, and who waits until it is gone.

use std::{
    io,
    sync::{Mutex, PoisonError},
    thread::{self, JoinHandle},
};

/// The thread "flownet-coordinator" of one job.
#[derive(Debug)]
pub(super) struct CoordinatorThread(Mutex<Option<JoinHandle<()>>>);

impl CoordinatorThread {
    pub(super) fn start(body: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let thread = thread::Builder::new().name("flownet-coordinator".to_owned()).spawn(body)?;
        Ok(Self(Mutex::new(Some(thread))))
    }

    /// Waits until it is gone, whoever else does. Never called on it.
    pub(super) fn join(&self) {
        // Held meanwhile: who comes second must not be told that it is gone before it is.
        let mut thread = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            // A panic in it has been reported as the job's result.
            let _ = thread.join();
        }
    }
}
