//! Workers that something else started: the worker pool in the submitting process, and the member in each
//! worker process.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use flownet_cluster::{Enlistment, Launcher, MemberEnd, PoolWorker, Probe, Refill, Tls, WorkerPool, serve_pool};
use flownet_net::Credentials;
use pyo3::prelude::*;

use crate::chain::{Objects, PythonChainFactory};
use crate::door::{Origin, enter, enter_until};
use crate::leave::leave_soon;
use crate::worker::apply_init;
use crate::{errors, garbage, logging};

/// Workers that came by themselves and serve one job after the other. When it is closed or collected, they are let go.
#[pyclass(frozen, name = "WorkerPool", module = "flownet._flownet")]
pub(crate) struct PyWorkerPool {
    pool: Arc<WorkerPool>,
    origin: Origin,
}

impl PyWorkerPool {
    /// A launcher of a job that uses this pool.
    pub(crate) fn launcher(&self, init: Vec<u8>) -> Launcher {
        Launcher::WorkerPool { pool: Arc::clone(&self.pool), init }
    }
}

#[pymethods]
impl PyWorkerPool {
    /// Listens on a port of `host`, a numeric address of this machine. `tls` is as in the setting. A job that
    /// restarts waits for others in the place of members that have left, so many milliseconds; with None nobody will come. With
    /// `each_attempt` it lets all members go before it restarts.
    #[new]
    #[pyo3(signature = (host, tls, refill_ms=None, each_attempt=false))]
    fn new(py: Python<'_>, host: &str, tls: &str, refill_ms: Option<u64>, each_attempt: bool) -> PyResult<Self> {
        logging::install();
        let host: IpAddr = parse(py, "address", host)?;
        let refill = refill_ms.map(|ms| Refill { patience: Duration::from_millis(ms), each_attempt });
        let opened = py
            .detach(|| WorkerPool::open(host, Tls::from_text(tls), refill))
            .map_err(|error| errors::cluster(py, error))?;
        Ok(Self { pool: Arc::new(opened), origin: Origin::here() })
    }

    /// Where members dial, `host:port`.
    #[getter]
    fn address(&self) -> String {
        self.pool.address().to_string()
    }

    /// What members prove themselves with, as text.
    fn credentials(&self) -> String {
        self.pool.credentials().to_text()
    }

    /// Number, process id and place of each member that is there.
    fn members(&self, py: Python<'_>) -> PyResult<Vec<(u32, u32, String)>> {
        let members = enter(py, self.origin, || self.pool.members())?.into_iter();
        Ok(members.map(|PoolWorker { worker, pid, place, .. }| (worker, pid, place.to_string())).collect())
    }

    /// Of each number that was ever taken, which attempt of the host has it, gone or not.
    fn attempts(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        enter(py, self.origin, || self.pool.attempts())
    }

    /// Wait until `count` members are there; whether they are when the time is over.
    fn wait_for(&self, py: Python<'_>, count: usize, timeout_ms: u64) -> PyResult<bool> {
        let timeout = Duration::from_millis(timeout_ms);
        let came = enter_until(py, self.origin, timeout, |slice| self.pool.wait_for(count, slice).then_some(()))?;
        Ok(came.is_some())
    }

    /// Let everybody go and close the port.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        enter(py, self.origin, || self.pool.close())
    }
}

impl Drop for PyWorkerPool {
    fn drop(&mut self) {
        if !self.origin.is_here() {
            // After a fork, the thread to wait for belongs to the parent, and so do the members.
            std::mem::forget(Arc::clone(&self.pool));
        }
    }
}

/// A process that is to be a member of a worker pool. Until its first job, its peers can find out whether they reach it.
#[pyclass(frozen, name = "Member", module = "flownet._flownet")]
pub(crate) struct PyMember {
    host: IpAddr,
    credentials: Credentials,
    probe: Mutex<Option<Probe>>,
}

#[pymethods]
impl PyMember {
    /// Opens a port on `host`, a numeric address of this machine that the other members reach.
    #[new]
    fn new(py: Python<'_>, host: &str, credentials: &str) -> PyResult<Self> {
        logging::install();
        garbage::install(py)?;
        let host = parse(py, "host", host)?;
        let credentials = Credentials::from_text(credentials);
        let credentials = credentials.map_err(|error| errors::flownet(py, &error.to_string()))?;
        let opened = py.detach(|| Probe::open(host, credentials.clone()));
        let probe = opened.map_err(|error| errors::flownet(py, &format!("cannot listen on {host}: {error}")))?;
        Ok(Self { host, credentials, probe: Mutex::new(Some(probe)) })
    }

    /// Where it answers its peers, `host:port`.
    #[getter]
    fn address(&self) -> Option<String> {
        self.lock().as_ref().map(|probe| probe.address().to_string())
    }

    /// Dial all peers at once; for each that cannot be reached, its position and why.
    fn probe(&self, py: Python<'_>, peers: Vec<String>, timeout_ms: u64) -> PyResult<Vec<(usize, String)>> {
        let peers: PyResult<Vec<SocketAddr>> = peers.iter().map(|peer| parse(py, "peer", peer)).collect();
        let (peers, limit) = (peers?, Duration::from_millis(timeout_ms));
        Ok(py.detach(|| self.lock().as_ref().map_or_else(Vec::new, |probe| probe.dial_all(&peers, limit))))
    }

    /// Join the worker pool at `address` as `worker`, in the place of earlier attempts, and serve its jobs until it goes. Returns how
    /// that ended, and of how many jobs: "dismissed", with all others; "expelled", alone; "tasks left", if those of the last
    /// job ignore being cancelled: then the process should end at once.
    fn serve(
        &self,
        py: Python<'_>,
        address: &str,
        worker: u32,
        attempt: u64,
        place: String,
    ) -> PyResult<(&'static str, u64)> {
        let pool = parse(py, "address", address)?;
        let enlistment =
            Enlistment { pool, credentials: self.credentials.clone(), worker, attempt, place, host: self.host };
        let served = py.detach(|| {
            let served = serve_pool(&enlistment, &|init| {
                // A job exists only after all members have registered, and each registers after it has dialed
                // its peers.
                drop(self.lock().take());
                apply_init("apply_init_as_guest", init)?;
                Ok(Arc::new(PythonChainFactory::new(Arc::new(Objects::default()))))
            });
            if matches!(served, Ok(MemberEnd::TasksLeft { .. })) {
                // A remaining task may hold the interpreter, and prevent our caller from ending the process.
                leave_soon();
            }
            drop(self.lock().take());
            served
        });
        match served {
            Ok(MemberEnd::Dismissed { jobs }) => Ok(("dismissed", jobs)),
            Ok(MemberEnd::Expelled { jobs }) => Ok(("expelled", jobs)),
            Ok(MemberEnd::TasksLeft { jobs }) => Ok(("tasks left", jobs)),
            Err(error) => Err(errors::flownet(py, &error.to_string())),
        }
    }
}

impl PyMember {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Probe>> {
        self.probe.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn parse<T: std::str::FromStr>(py: Python<'_>, what: &str, text: &str) -> PyResult<T> {
    text.parse().map_err(|_| errors::config(py, what, &format!("{what} is {text:?}, must be numeric")))
}
