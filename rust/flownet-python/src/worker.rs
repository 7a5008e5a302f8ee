//! The body of a worker process.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use flownet_runtime::ChainFactory;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::chain::{Objects, PythonChainFactory};
use crate::leave::{leave_now, leave_soon};
use crate::{errors, garbage, logging};

/// Serve the coordinator named on standard input until it is gone, then end the process.
///
/// The process ends here, with what its functions have started, and without the interpreter's own ending: a user's function
/// that ignores being cancelled may hold a thread, or the interpreter, and must not hold the process.
#[pyfunction]
pub(crate) fn run_worker(py: Python<'_>) -> PyResult<()> {
    logging::install();
    garbage::install(py)?;
    let launcher = take_stdin()?;
    let served = py.detach(|| {
        let served = flownet_cluster::run_worker(&mut &launcher, &mut &launcher, &chain_factory);
        if served.is_ok() {
            leave_soon();
        }
        // Otherwise no function has run. Then there is an error to report, however long that takes.
        served
    });
    served.map_err(|error| errors::flownet(py, &format!("this worker cannot serve: {error}")))?;
    let sys = py.import("sys")?;
    for stream in ["stdout", "stderr"] {
        let stream = sys.getattr(stream)?;
        // A closed reader is no reason to fail now.
        if !stream.is_none() {
            let _ = stream.call_method0("flush");
        }
    }
    leave_now();
    Ok(())
}

/// Takes the socket to the process that started this one. Functions, and processes that they start, find an
/// empty standard input.
fn take_stdin() -> io::Result<UnixStream> {
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    Ok(UnixStream::from(socket))
}

/// Puts the process into the state that users' functions need, before any of them is loaded.
fn chain_factory(init: &[u8]) -> Result<Arc<dyn ChainFactory>, String> {
    apply_init("apply_init", init)?;
    Ok(Arc::new(PythonChainFactory::new(Arc::new(Objects::default()))))
}

/// Passes the init bytes of a job to a function of `flownet.internal.serialise`.
pub(crate) fn apply_init(function: &str, init: &[u8]) -> Result<(), String> {
    Python::attach(|py| {
        let apply = || py.import("flownet.internal.serialise")?.call_method1(function, (PyBytes::new(py, init),));
        apply().map(drop).map_err(|error: PyErr| error.to_string())
    })
}
