//! Runs a worker process.

use std::{
    collections::BTreeMap,
    fmt,
    future::ready,
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    agent::Agent,
    launcher::{Greeting, Orders},
    port::{self, DialError},
    rpc::{self, Attempt, Deployment, Inspection, Introduction, StatusReport, Worker, WorkerFault},
    threads::{NetworkThread, SHUTDOWN_LIMIT, control_runtime},
};
use flownet_net::{Credentials, CredentialsError};
use flownet_runtime::{
    ChainFactory, CheckpointOrder,
    flame::{Flame, FlameOrder},
    inspection::TaskChannels,
    log::{self, Log},
    source::SourceOrder,
};
use futures::StreamExt;
use tarpc::{
    context::Context,
    server::{BaseChannel, Channel},
};

/// Reason why a worker process could not start its work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// The parent process sent no usable greeting.
    #[error("no usable greeting on the standard input: {0}")]
    Greeting(#[source] io::Error),
    /// The credentials of the greeting are invalid.
    #[error("the greeting holds no credentials: {0}")]
    Credentials(#[from] CredentialsError),
    /// The coordinator could not be reached, or one of the two could not authenticate.
    #[error("cannot register with the coordinator: {0}")]
    Register(#[from] DialError),
    /// The worker pool was reached, and disconnected before the worker was registered.
    #[error("cannot join the worker pool: {0}")]
    Enlist(#[source] io::Error),
    /// The system provided no thread or no timer.
    #[error("cannot start a runtime: {0}")]
    Runtime(#[source] io::Error),
}

/// Creates the chain factory from the init bytes of a job. Not generic: otherwise its callers and their encoding would
/// be compiled again in the crate that provides it.
pub type FactoryBuilder<'a> = dyn Fn(&[u8]) -> Result<Arc<dyn ChainFactory>, String> + 'a;

/// Runs a worker until its coordinator releases it, ends, or becomes silent.
///
/// `greeting` is the standard input, and `farewell` is the way back to the process at its other end. The farewell
/// contains the reason why the worker leaves, in case that process still relies on it. `build` gets the init bytes of
/// the [`WorkerCommand`](crate::WorkerCommand). If it fails, its message becomes the error of the job. The calling
/// thread serves the coordinator: nothing that tasks do may block it, not even holding the interpreter lock.
///
/// The caller should end the process right afterwards, without waiting for other threads: a task that ignores its
/// cancellation may still occupy one.
///
/// # Errors
/// Fails if the worker could not register. The coordinator handles failures of tasks; they are no error here.
pub fn run_worker(
    greeting: &mut dyn Read,
    farewell: &mut dyn Write,
    build: &FactoryBuilder<'_>,
) -> Result<(), WorkerError> {
    let Greeting { credentials, orders } = Greeting::read(greeting).map_err(WorkerError::Greeting)?;
    let credentials = Credentials::from_text(&credentials)?;
    let part = take_part(&orders, &credentials, Ipv4Addr::LOCALHOST.into(), build);
    let reason = match &part {
        Ok(part) => part.end.to_string(),
        Err(error @ WorkerError::Register(_)) => error.to_string(),
        Err(_) => String::new(),
    };
    // The process at the other end may be gone. Then the reason is not needed.
    let _ = farewell.write_all(reason.as_bytes());
    part.map(drop)
}

/// Result of a worker's part in a job.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct PartInJob {
    pub(crate) end: ConnectionEnd,
    /// Whether tasks ignored their cancellation, so that their threads still run.
    pub(crate) has_tasks_left: bool,
}

/// End of a worker's connection as the worker sees it. A release by the coordinator looks like a broken connection:
/// only the coordinator can distinguish the two.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ConnectionEnd {
    Closed,
    Silent { limit: Duration },
}

impl fmt::Display for ConnectionEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str(
                "the connection was closed or reset, but not by the driver; look for a firewall, a proxy or a tool that ends \
                 connections",
            ),
            Self::Silent { limit } => {
                write!(f, "it heard nothing of the driver for {limit:?}; if that was only slow, raise heartbeat_timeout")
            }
        }
    }
}

/// Takes part in one job, on the calling thread, until its coordinator releases the worker, ends, or becomes silent.
/// The data port is opened on `host`.
pub(crate) fn take_part(
    orders: &Orders,
    credentials: &Credentials,
    host: IpAddr,
    build: &FactoryBuilder<'_>,
) -> Result<PartInJob, WorkerError> {
    let log = Arc::new(Log::default());
    let _speaking = log::enter_process(Arc::clone(&log));
    let factory = build(&orders.init);
    let network = NetworkThread::start().map_err(WorkerError::Runtime)?;
    let control = control_runtime().map_err(WorkerError::Runtime)?;
    let agent = Agent::new(orders.worker, credentials.clone(), factory, host, network.handle().clone(), log);
    let result = control.block_on(serve(orders, credentials, agent));
    control.shutdown_timeout(SHUTDOWN_LIMIT);
    drop(network);
    result
}

async fn serve(orders: &Orders, credentials: &Credentials, agent: Arc<Agent>) -> Result<PartInJob, WorkerError> {
    let stream = port::dial(orders.coordinator, credentials).await?;
    let server = Server { agent: Arc::clone(&agent), last_heard: Arc::new(Mutex::new(Instant::now())) };
    let last_heard = Arc::clone(&server.last_heard);
    let requests = BaseChannel::with_defaults(rpc::transport(stream)).execute(server.serve());
    let answer_all = requests.for_each(|answer| {
        // Each call runs in its own task: a long deployment must not delay a poll.
        tokio::spawn(answer);
        ready(())
    });
    let end = tokio::select! {
        () = answer_all => {
            tracing::debug!(worker = orders.worker, "the connection to the coordinator ended");
            ConnectionEnd::Closed
        }
        () = silence(&last_heard, orders.silence_limit) => {
            tracing::warn!(worker = orders.worker, limit = ?orders.silence_limit, "the coordinator fell silent");
            ConnectionEnd::Silent { limit: orders.silence_limit }
        }
    };
    // After a stop call nothing is left to stop. Otherwise this ends the tasks of the job.
    let stopped = tokio::time::timeout(orders.cancel_timeout, agent.stop_all()).await;
    if stopped.is_err() {
        tracing::warn!(worker = orders.worker, limit = ?orders.cancel_timeout, "tasks did not end in time");
    }
    Ok(PartInJob { end, has_tasks_left: stopped.is_err() })
}

/// Returns when no call has arrived for `limit`.
async fn silence(last_heard: &Mutex<Instant>, limit: Duration) {
    loop {
        let deadline = *last_heard.lock().unwrap_or_else(PoisonError::into_inner) + limit;
        if Instant::now() >= deadline {
            return;
        }
        tokio::time::sleep_until(deadline.into()).await;
    }
}

/// Server of the coordinator's calls: records their time and passes them to the agent.
#[derive(Clone)]
struct Server {
    agent: Arc<Agent>,
    last_heard: Arc<Mutex<Instant>>,
}

impl Server {
    fn heard(self) -> Arc<Agent> {
        *self.last_heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.agent
    }
}

impl Worker for Server {
    async fn introduce(self, _: Context) -> Introduction {
        Introduction { worker: self.heard().worker(), pid: std::process::id() }
    }

    async fn deploy(self, _: Context, request: Deployment) -> Result<SocketAddr, WorkerFault> {
        self.heard().deploy(request).await
    }

    async fn start(self, _: Context, attempt: Attempt, peers: BTreeMap<u32, SocketAddr>) -> Result<(), WorkerFault> {
        self.heard().start(attempt, &peers).await
    }

    async fn poll(self, _: Context, wait: Duration, log_room: u64) -> StatusReport {
        self.heard().poll(wait, log_room).await
    }

    async fn order(self, _: Context, number: u64, order: SourceOrder) {
        self.heard().order(number, order);
    }

    async fn end_sources(self, _: Context, attempt: Attempt, drain: bool) {
        self.heard().end_sources(attempt, drain);
    }

    async fn add_splits(self, _: Context, generation: u64, operator: u32, splits: Vec<u8>) {
        self.heard().add_splits(generation, operator, splits);
    }

    async fn align(self, _: Context, generation: u64, number: u64, limits: Vec<(u32, i64)>) {
        self.heard().align(generation, number, limits);
    }

    async fn checkpoint(self, _: Context, generation: u64, latest: u64, order: CheckpointOrder) {
        self.heard().checkpoint(generation, latest, order);
    }

    async fn inspect(self, _: Context) -> Inspection {
        self.heard().inspect()
    }

    async fn channels(self, _: Context, task: u32) -> Option<TaskChannels> {
        self.heard().channels(task)
    }

    async fn flame(self, _: Context, task: u32, order: FlameOrder) -> Result<Option<Flame>, String> {
        self.heard().flame(task, order).await
    }

    async fn stop(self, _: Context, region: u32) -> StatusReport {
        self.heard().stop(region).await
    }
}
