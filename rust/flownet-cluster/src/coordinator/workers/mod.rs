//! Registers, calls, watches and releases the workers of a job.
//!
//! Every call to a worker is a tokio task that sends its answer to the driver as an [`Event`] of the attempt for which
//! the call was made. At most one call of a kind is under way per worker, so the queue of events stays short.

mod record;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use tarpc::client::RpcError;
use tokio::{net::TcpListener, runtime::Handle, sync::mpsc::UnboundedSender, task::AbortHandle};

use self::record::WorkerRecord;
use super::{
    admission::admit_workers,
    events::{Event, JobEvent, RegionEvent, WorkerEvent},
    job::Job,
    link::WorkerLink,
    status_store::StatusStore,
};
use crate::{
    agent::Agent,
    error::{ClusterError, WorkerExit, WorkerIdentity},
    launcher::Orders,
    machine::Input,
    rpc::{Attempt, Introduction, WorkerClient, WorkerFault},
};

/// Workers of a job. Dropping them kills and reaps every process.
pub(super) struct Workers {
    job: Arc<Job>,
    board: Arc<StatusStore>,
    /// Runtime of the data plane of this process.
    network: Handle,
    /// Address of the control port.
    coordinator: SocketAddr,
    records: BTreeMap<u32, WorkerRecord>,
    /// Attempt of the job for which workers are called.
    generation: u64,
    events: UnboundedSender<Event>,
    /// Task that serves the control port. It runs while more workers may join.
    admission: Option<AbortHandle>,
}

/// Result of launching a worker.
pub(super) enum Launch {
    /// It stayed from the previous attempt, or another region uses it.
    IsRegistered,
    /// It was started now or before, and will introduce itself.
    Starts,
    /// It is this process, which registers at once.
    Registers,
    /// It could not be started.
    Failed(WorkerExit),
}

impl Workers {
    /// Opens the control port. `network` runs the data plane of this process.
    pub(super) async fn open(
        job: Arc<Job>,
        board: Arc<StatusStore>,
        events: UnboundedSender<Event>,
        network: Handle,
    ) -> Result<Self, ClusterError> {
        let setup = |message: String| ClusterError::Setup { message };
        let listener = TcpListener::bind((job.launcher.host(), 0))
            .await
            .map_err(|error| setup(format!("cannot open the control port: {error}")))?;
        let coordinator = listener.local_addr().map_err(|error| setup(error.to_string()))?;
        let has_workers = job.settings.workers > 0;
        let admission = has_workers
            .then(|| tokio::spawn(admit_workers(listener, job.credentials.clone(), events.clone())).abort_handle());
        let records = job.participants().map(|worker| (worker, WorkerRecord::new(worker))).collect();
        Ok(Self { job, board, network, coordinator, records, generation: 0, events, admission })
    }

    /// Returns the number of the control port.
    pub(super) fn port(&self) -> u16 {
        self.coordinator.port()
    }

    /// Returns the numbers of all workers of the job.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.records.keys().copied()
    }

    pub(super) fn identity(&self, worker: u32) -> WorkerIdentity {
        self.records.get(&worker).map_or_else(|| WorkerIdentity::unknown(worker), |record| record.identity().clone())
    }

    /// Returns the attempt of the job for which workers are called.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Calls workers for this attempt of the job from now on.
    pub(super) fn set_generation(&mut self, generation: u64) {
        self.generation = generation;
    }

    /// Launches a worker, unless it is there.
    pub(super) fn launch(&mut self, worker: u32) -> Launch {
        let record = self.record(worker);
        if record.link().is_some() {
            return Launch::IsRegistered;
        }
        if record.has_process() {
            return Launch::Starts;
        }
        if worker == 0 {
            self.register_this_process();
            return Launch::Registers;
        }
        let settings = &self.job.settings;
        let orders = Orders {
            coordinator: self.coordinator,
            worker,
            silence_limit: settings.heartbeat_timeout,
            cancel_timeout: settings.cancel_timeout,
            init: self.job.launcher.init().to_vec(),
        };
        match self.job.launcher.launch(orders, &self.job.credentials) {
            Ok(process) => {
                self.record(worker).set_process(process);
                Launch::Starts
            }
            Err(error) => Launch::Failed(WorkerExit::NotStarted { reason: error.to_string() }),
        }
    }

    fn register_this_process(&mut self) {
        let agent = Agent::new(
            0,
            self.job.credentials.clone(),
            Ok(Arc::clone(&self.job.factory)),
            self.job.launcher.host(),
            self.network.clone(),
            Arc::clone(&self.job.log),
        );
        self.register(0, std::process::id(), WorkerLink::Local(agent));
    }

    /// Registers a worker that has introduced itself. Returns false if it was not expected.
    pub(super) fn admit(&mut self, introduction: Introduction, client: WorkerClient) -> bool {
        let Introduction { worker, pid } = introduction;
        if !self.records.get(&worker).is_some_and(WorkerRecord::is_awaited) {
            // Dropping the client closes the connection.
            tracing::warn!(worker, pid, "a worker introduced itself that was not expected");
            return false;
        }
        self.register(worker, pid, WorkerLink::Remote(client));
        true
    }

    fn register(&mut self, worker: u32, pid: u32, link: WorkerLink) {
        let (wait, board, events) = (self.job.report_interval(), Arc::clone(&self.board), self.events.clone());
        let polling = tokio::spawn(poll_reports(worker, link.clone(), wait, board, events));
        let record = self.record(worker);
        record.set_pid(pid);
        record.set_link(link, polling.abort_handle());
        self.publish();
    }

    /// Closes the control port if all workers have joined.
    pub(super) fn close_port_if_complete(&mut self) {
        let mut records = self.records.iter();
        if records.all(|(worker, record)| record.link().is_some() || *worker == 0) {
            self.admission.take().iter().for_each(AbortHandle::abort);
        }
    }

    /// Records the address of a worker's data plane.
    pub(super) fn set_address(&mut self, worker: u32, address: SocketAddr) {
        self.record(worker).set_address(address);
        self.publish();
    }

    /// Ends a worker by force. Returns whether its process has yet to exit.
    pub(super) fn kill(&mut self, worker: u32) -> bool {
        let record = self.record(worker);
        record.kill();
        record.has_process()
    }

    /// Records that the connection of a worker has ended.
    pub(super) fn on_disconnect(&mut self, worker: u32, reason: String) {
        self.record(worker).on_disconnect(reason);
    }

    /// Returns the processes that have ended, and the connections that ended although their processes run.
    pub(super) fn poll_ends(&mut self) -> Vec<Input> {
        self.records.values_mut().filter_map(WorkerRecord::poll_end).collect()
    }

    /// Returns the time until [`Self::poll_ends`] should be called next.
    pub(super) fn poll_interval(&self) -> Duration {
        let has_processes = self.records.values().any(WorkerRecord::has_process);
        let is_ending = self.records.values().any(WorkerRecord::is_ending);
        match (has_processes, is_ending) {
            (false, _) => IDLE_LOOK,
            (true, false) => PROCESS_LOOK,
            (true, true) => ENDING_LOOK,
        }
    }

    /// Whether a worker's connection has ended while its process may still run.
    pub(super) fn is_in_doubt(&self, worker: u32) -> bool {
        self.records.get(&worker).is_some_and(WorkerRecord::is_in_doubt)
    }

    /// Prepares workers for a new attempt: those that are gone or cannot be called are launched again.
    pub(super) fn settle(&mut self, workers: impl IntoIterator<Item = u32>) {
        workers.into_iter().for_each(|worker| self.record(worker).settle());
    }

    /// Prepares all workers for a new attempt.
    pub(super) fn settle_all(&mut self) {
        self.records.values_mut().for_each(WorkerRecord::settle);
    }

    /// Releases all workers, if the launcher gives each attempt new ones.
    pub(super) fn renew(&mut self) {
        if self.job.launcher.renews() {
            self.job.launcher.expel_used();
            self.records.iter_mut().filter(|(worker, _)| **worker != 0).for_each(|(_, record)| record.renew());
        }
    }

    /// Removes processes that have exited.
    pub(super) fn reap(&mut self) {
        self.records.values_mut().for_each(WorkerRecord::reap);
    }

    /// Releases the workers that stayed for another attempt, and waits for their end.
    pub(super) async fn release_all(&mut self) {
        let deadline = Instant::now() + self.job.settings.cancel_timeout;
        self.records.values_mut().for_each(WorkerRecord::leave);
        while self.records.values().any(WorkerRecord::has_process) && Instant::now() < deadline {
            tokio::time::sleep(ENDING_LOOK).await;
            self.reap();
        }
    }

    /// Calls a worker for the attempt of the job, if it is registered.
    pub(super) fn call<F>(&self, worker: u32, call: impl FnOnce(WorkerLink) -> F)
    where
        F: Future<Output = Result<Option<JobEvent>, RpcError>> + Send + 'static,
    {
        let generation = self.generation;
        let failed = move |message| JobEvent::CallFailed { worker, message };
        self.send_call(worker, call, failed, move |event| Event::Job { generation, event });
    }

    /// Calls all workers that are registered for the attempt of the job.
    pub(super) fn call_all<F>(&self, call: impl Fn(u32, WorkerLink) -> F)
    where
        F: Future<Output = Result<Option<JobEvent>, RpcError>> + Send + 'static,
    {
        self.numbers().for_each(|worker| self.call(worker, |link| call(worker, link)));
    }

    /// Calls a worker for the attempt of a region, if it is registered.
    pub(super) fn call_in<F>(&self, attempt: Attempt, worker: u32, call: impl FnOnce(WorkerLink) -> F)
    where
        F: Future<Output = Result<Option<RegionEvent>, RpcError>> + Send + 'static,
    {
        let failed = move |message| RegionEvent::Faulty { worker, fault: WorkerFault::Worker(message) };
        self.send_call(worker, call, failed, move |event| Event::Region { attempt, event });
    }

    fn send_call<F, E: Send + 'static>(
        &self,
        worker: u32,
        call: impl FnOnce(WorkerLink) -> F,
        failed: impl FnOnce(String) -> E + Send + 'static,
        event: impl FnOnce(E) -> Event + Send + 'static,
    ) where
        F: Future<Output = Result<Option<E>, RpcError>> + Send + 'static,
    {
        let Some(link) = self.records.get(&worker).and_then(WorkerRecord::link) else { return };
        let (call, events) = (call(link.clone()), self.events.clone());
        tokio::spawn(async move {
            // The call runs in its own task, so that a panic in it is also reported.
            let event = match tokio::spawn(call).await {
                Ok(Ok(None)) => return,
                Ok(Ok(Some(answer))) => event(answer),
                Ok(Err(error)) => disconnection(worker, &error),
                Err(error) => event(failed(format!("a bug: {error}"))),
            };
            // The driver may be gone. Then the job has ended.
            let _ = events.send(event);
        });
    }

    fn record(&mut self, worker: u32) -> &mut WorkerRecord {
        self.records.entry(worker).or_insert_with(|| WorkerRecord::new(worker))
    }

    /// Shows the registered workers to users.
    fn publish(&self) {
        let registered = self.records.values().filter(|record| record.link().is_some());
        self.board.set_workers(registered.map(|record| record.identity().clone()).collect());
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.admission.iter().for_each(AbortHandle::abort);
    }
}

/// Polls a worker for reports, one call after the other, until it cannot be reached.
async fn poll_reports(
    worker: u32,
    link: WorkerLink,
    wait: Duration,
    board: Arc<StatusStore>,
    events: UnboundedSender<Event>,
) {
    loop {
        let (event, is_last) = match link.poll(wait, board.log().room()).await {
            Ok(report) => (Event::Worker(WorkerEvent::Reported { worker, report: Box::new(report) }), false),
            Err(error) => (disconnection(worker, &error), true),
        };
        if events.send(event).is_err() || is_last {
            return;
        }
    }
}

fn disconnection(worker: u32, error: &RpcError) -> Event {
    Event::Worker(WorkerEvent::Disconnected { worker, reason: error.to_string() })
}

/// Interval at which running processes are checked.
const PROCESS_LOOK: Duration = Duration::from_millis(50);
/// Interval while a process is expected to end, so that a job does not wait for a check.
const ENDING_LOOK: Duration = Duration::from_millis(5);
/// Interval without processes: only the machine's own timeouts matter.
const IDLE_LOOK: Duration = Duration::from_secs(1);
