//! Starts the threads of a process's data and control plane. A failed thread start is an error, never a panic. tokio
//! panics if it cannot start one of its own threads, so these threads are started here.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc,
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::oneshot,
};

/// Runtime of a data plane: one thread moves the bytes of a process. Dropping it ends both, and waits for at most
/// [`SHUTDOWN_LIMIT`].
#[derive(Debug)]
pub(crate) struct NetworkThread {
    handle: Handle,
    /// Dropped to end the thread.
    stop: Option<oneshot::Sender<()>>,
    /// Disconnected when the thread ends.
    ended: mpsc::Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl NetworkThread {
    /// Starts the thread and its runtime.
    pub(crate) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let (end, ended) = mpsc::channel();
        let body = move || {
            let _ = runtime.block_on(stopped);
            drop(runtime);
            drop(end);
        };
        let thread = thread::Builder::new().name("flownet-net".to_owned()).spawn(body)?;
        Ok(Self { handle, stop: Some(stop), ended, thread: Some(thread) })
    }

    /// Returns the handle for spawning tasks.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for NetworkThread {
    fn drop(&mut self) {
        self.stop = None;
        let has_ended = self.ended.recv_timeout(SHUTDOWN_LIMIT) == Err(mpsc::RecvTimeoutError::Disconnected);
        if let Some(thread) = self.thread.take()
            && has_ended
        {
            // A panic in the thread was printed, and no caller can handle it.
            let _ = thread.join();
        }
    }
}

/// Creates the runtime of a control plane on the calling thread.
pub(crate) fn control_runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Runs user code that builds chains on its own thread: it may take long, and recurse as deeply as the data that it
/// reads.
///
/// # Errors
/// Returns the message if no thread can be started, or if `work` panics.
pub(crate) async fn on_build_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    let (sender, receiver) = oneshot::channel();
    let body = move || {
        // The caller may have gone if the job has ended meanwhile.
        let _ = sender.send(catch_unwind(AssertUnwindSafe(work)));
    };
    let named = thread::Builder::new().name("flownet-build".to_owned()).stack_size(BUILD_STACK_BYTES);
    let thread = named.spawn(body).map_err(|error| format!("cannot start a thread: {error}"))?;
    let answer = receiver.await;
    // The thread has answered and does nothing more; a job that has ended leaves no thread. The answer contains any
    // panic.
    let _ = thread.join();
    match answer {
        Ok(Ok(built)) => Ok(built),
        Ok(Err(panic)) => Err(format!("it panicked: {}", panic_text(&*panic))),
        Err(_) => Err("its thread ended".to_owned()),
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

/// Longest wait for the threads of a job.
pub(crate) const SHUTDOWN_LIMIT: Duration = Duration::from_secs(1);
/// As large as the stack of a main thread. Untouched pages cost nothing.
const BUILD_STACK_BYTES: usize = 8 << 20;
