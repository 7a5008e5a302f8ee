//! The server of the web UI.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use flownet_web::{ArchiveOptions, Options, Server};
use pyo3::prelude::*;

use crate::door::{Origin, enter};
use crate::errors;
use crate::job::PyJobHandle;

/// Listens at an address, until it is closed or collected.
#[pyclass(frozen, name = "WebServer", module = "flownet._flownet")]
pub(crate) struct PyWebServer {
    server: Mutex<Option<Server>>,
    address: SocketAddr,
    origin: Origin,
}

impl PyWebServer {
    fn lock(&self) -> MutexGuard<'_, Option<Server>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyWebServer {
    /// Listen at `ip` and `port`, or if it may `move` and that port is taken on one of those after it. With a folder and
    /// bytes for it as `archive`, jobs that have ended are kept there.
    #[new]
    #[pyo3(signature = (ip, port, *, may_move, token, actions, archive))]
    fn new(
        py: Python<'_>,
        ip: &str,
        port: u16,
        may_move: bool,
        token: Option<String>,
        actions: bool,
        archive: Option<(PathBuf, u64)>,
    ) -> PyResult<Self> {
        let ip = ip.parse().map_err(|_| errors::config(py, "ui", &format!("{ip:?} is not an address")))?;
        let archive = archive.map(|(folder, most_bytes)| ArchiveOptions { folder, most_bytes });
        let address = SocketAddr::new(ip, port);
        let options = Options { address, may_move, token, archive, allows_actions: actions };
        let started = py.detach(|| Server::start(options));
        let server = started.map_err(|error| errors::config(py, "ui", &error.to_string()))?;
        let address = server.address();
        Ok(Self { server: Mutex::new(Some(server)), address, origin: Origin::here() })
    }

    /// Port that it listens at.
    #[getter]
    fn port(&self) -> u16 {
        self.address.port()
    }

    /// Show a job, and say what it is asked for by; None when closed.
    fn show(&self, py: Python<'_>, job: &PyJobHandle) -> PyResult<Option<String>> {
        let view = job.view();
        enter(py, self.origin, || self.lock().as_ref().map(|server| server.show(view)))
    }

    /// Close the port and all connections.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        enter(py, self.origin, || {
            let server = self.lock().take();
            drop(server);
        })
    }
}

impl Drop for PyWebServer {
    fn drop(&mut self) {
        // After a fork, the thread belongs to the parent.
        if !self.origin.is_here() {
            std::mem::forget(self.lock().take());
        }
    }
}
