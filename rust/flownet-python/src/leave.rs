//! Ends this process without the interpreter, which a function may hold indefinitely.

use std::thread;
use std::time::Duration;

use rustix::process::{Signal, getpgrp, getpid, kill_current_process_group, kill_process};

/// How long the interpreter may take to end a process that has no more work.
const LIMIT: Duration = Duration::from_secs(2);

/// Ends this process after [`LIMIT`], unless it has ended by then.
pub(crate) fn leave_soon() {
    let body = || {
        thread::sleep(LIMIT);
        leave_now();
    };
    if thread::Builder::new().name("flownet-leave".to_owned()).spawn(body).is_err() {
        leave_now();
    }
}

/// Ends this process. If it leads a process group of its own, as our workers do, this also ends processes
/// that its functions have started.
pub(crate) fn leave_now() {
    // Neither can fail: a process may always send a signal to itself.
    let _ = if getpgrp() == getpid() {
        kill_current_process_group(Signal::KILL)
    } else {
        kill_process(getpid(), Signal::KILL)
    };
}
