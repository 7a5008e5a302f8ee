//! The threads of a process' planes. Where the system gives none, that is an error to be told, never a panic: tokio
//! panics when one of its own cannot be started, so these are ours.

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

/// The runtime of a data plane: one thread moves the bytes of a process. Dropping it ends both, and waits for that at
/// most [`SHUTDOWN_LIMIT`].
#[derive(Debug)]
pub(crate) struct NetworkThread {
    handle: Handle,
    /// Dropped to end it.
    stop: Option<oneshot::Sender<()>>,
    /// Disconnected by its end.
    ended: mpsc::Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl NetworkThread {
    /// Starts it.
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

    /// Where its tasks are spawned.
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
            // A panic in it was printed, and there is nobody to tell.
            let _ = thread.join();
        }
    }
}

/// The runtime of a control plane, on the thread that runs it.
pub(crate) fn control_runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Runs user code that builds, on a thread of its own: it may take long, and recurse as deep as what it reads.
///
/// # Errors
/// If there is no thread to be had, or `work` panics: what to tell.
pub(crate) async fn on_build_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    let (sender, receiver) = oneshot::channel();
    let body = move || {
        // Nobody waits any more if the job has ended meanwhile.
        let _ = sender.send(catch_unwind(AssertUnwindSafe(work)));
    };
    let named = thread::Builder::new().name("flownet-build".to_owned()).stack_size(BUILD_STACK_BYTES);
    let thread = named.spawn(body).map_err(|error| format!("cannot start a thread: {error}"))?;
    let answer = receiver.await;
    // It has answered and has nothing left to do; a job that has ended leaves none. A panic in it is in the answer.
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

/// How long the threads of a job are waited for.
pub(crate) const SHUTDOWN_LIMIT: Duration = Duration::from_secs(1);
/// As large as the stack of a main thread; untouched pages cost nothing.
const BUILD_STACK_BYTES: usize = 8 << 20;
