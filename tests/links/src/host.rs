//! A host: a network namespace.

use std::io;
use std::process::{Child, Command};
use std::sync::mpsc;
use std::thread;

use nix::sched::{CloneFlags, unshare};

/// A network namespace. It lives in a thread, and in the processes started from it.
#[derive(Debug)]
pub struct Host {
    jobs: mpsc::Sender<Job>,
}

type Job = Box<dyn FnOnce() + Send>;

impl Host {
    /// A host without any network. An error where namespaces are not permitted.
    pub fn new() -> io::Result<Self> {
        let (jobs, received) = mpsc::channel::<Job>();
        let (report, entered) = mpsc::channel();
        let enter = move || {
            let is_in = unshare(CloneFlags::CLONE_NEWNET).map_err(io::Error::from);
            let goes_on = is_in.is_ok();
            let _ = report.send(is_in);
            if goes_on {
                received.into_iter().for_each(|job| job());
            }
        };
        thread::Builder::new().name("host".to_owned()).spawn(enter)?;
        entered.recv().map_err(io::Error::other)??;
        Ok(Self { jobs })
    }

    /// Does something on this host.
    ///
    /// # Panics
    /// If it does.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (report, result) = mpsc::channel();
        let job = move || {
            let _ = report.send(work());
        };
        self.jobs.send(Box::new(job)).expect("the host's thread lives as long as the host");
        result.recv().expect("the work panicked")
    }

    /// Starts a process on this host.
    pub fn start(&self, mut command: Command) -> io::Result<Child> {
        self.run(move || command.spawn())
    }
}
