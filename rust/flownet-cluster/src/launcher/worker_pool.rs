//! Registers workers that were started elsewhere, and tracks the current job of each.
//!
//! A worker pool listens. Processes that were started elsewhere connect to it, prove that they belong to it
//! ([`serve_pool`](crate::serve_pool)) and wait there for jobs. A worker is registered as long as its connection is
//! open. When either end closes it, the worker is gone, and so is its part in a job. Another worker may take its
//! number.
//!
//! ```text
//! (no worker) --registers--> Idle --assign--> Working --reports the end--> Idle
//!                          \________________\--connection ends--> Gone --a later one registers--> Idle
//! ```
//!
//! # Invariants
//! - I1: a worker is part of one job at a time.
//! - I2: a dropped [`Assignment`] has ended, or its worker is gone.
//! - I3: a used number is given again only in a pool with refill, and only to a later attempt. From then on, messages
//!   and events of an earlier attempt have no effect: neither on the slot nor on the later attempt's part in a job.
//! - I4: when a [`WorkerPool`] is closed or dropped, its port, its connections and its thread are gone.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr, TcpListener},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use flownet_net::{Credentials, Secret};
use tokio::sync::{Notify, mpsc::UnboundedSender};

use super::{Orders, worker_pool_port};
use crate::{
    error::{ClusterError, WorkerExit},
    plan::PlanError,
    settings::MAX_WORKERS,
    threads::{SHUTDOWN_LIMIT, control_runtime},
    tls::Tls,
};

/// Pool of workers that were started elsewhere. See the module documentation.
#[derive(Debug)]
pub struct WorkerPool {
    registry: Arc<WorkerRegistry>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Registered worker process, with its identity for users.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PoolWorker {
    /// Number of the worker, from 1.
    pub worker: u32,
    /// Attempt to fill this number: see [`Enlistment::attempt`](crate::Enlistment::attempt).
    pub attempt: u64,
    /// Process id.
    pub pid: u32,
    /// Place where it runs, as the worker describes it.
    pub place: Arc<str>,
}

/// Registry of workers. The pool, its connections and its assignments share it.
#[derive(Debug)]
pub(super) struct WorkerRegistry {
    address: SocketAddr,
    pub(super) credentials: Credentials,
    tls: Tls,
    refill: Option<Refill>,
    pub(super) closing: Notify,
    is_closed: AtomicBool,
    slots: Mutex<BTreeMap<u32, WorkerSlot>>,
    changed: Condvar,
}

/// Rules for workers that replace those that have left.
#[derive(Clone, Copy, Debug)]
pub struct Refill {
    /// Time for which a restarted job waits for them.
    pub patience: Duration,
    /// Whether a restarted job first releases all workers. Workers that read their input from a stream that they cannot
    /// rewind need this.
    pub each_attempt: bool,
}

/// Slot of one worker and its state.
#[derive(Debug)]
struct WorkerSlot {
    member: PoolWorker,
    /// Number of assignments, so that an old assignment does not mistake the end of a new one for its own.
    assignments: u64,
    duty: Duty,
    /// Whether the worker has received orders.
    is_used: bool,
    /// Reason for the end of its last assignment, as the worker reported it.
    end: Option<String>,
}

#[derive(Debug)]
enum Duty {
    Idle(UnboundedSender<Orders>),
    Working(UnboundedSender<Orders>),
    Gone(String),
}

/// Part of a worker in one job.
#[derive(Debug)]
pub(crate) struct Assignment {
    registry: Arc<WorkerRegistry>,
    worker: u32,
    attempt: u64,
    number: u64,
    place: Arc<str>,
    exit: Option<WorkerExit>,
}

impl WorkerPool {
    /// Listens on a port of `host`, an address of this machine that the workers reach. `tls` controls encryption
    /// between the workers. `refill` controls whether others may replace workers that have left.
    ///
    /// # Errors
    /// [`ClusterError::Setup`] if the port cannot be opened, [`ClusterError::Plan`] if the certificates cannot be used.
    pub fn open(host: IpAddr, tls: Tls, refill: Option<Refill>) -> Result<Self, ClusterError> {
        let setup = |what: &str, error: &dyn std::fmt::Display| ClusterError::Setup {
            message: format!("cannot {what} on {host}: {error}"),
        };
        let secret = Secret::generate().map_err(|error| setup("make a secret", &error))?;
        let credentials = tls.credentials(secret, host).map_err(PlanError::from)?;
        let listener = TcpListener::bind((host, 0)).map_err(|error| setup("listen for workers", &error))?;
        // All workers may connect at once. The standard library lets only 128 wait.
        rustix::net::listen(&listener, MAX_WORKERS.cast_signed())
            .map_err(|error| setup("listen for workers", &error))?;
        listener.set_nonblocking(true).map_err(|error| setup("listen for workers", &error))?;
        let address = listener.local_addr().map_err(|error| setup("listen for workers", &error))?;
        let runtime = control_runtime().map_err(|error| setup("start a runtime", &error))?;
        let registry = Arc::new(WorkerRegistry {
            address,
            credentials,
            tls,
            refill,
            closing: Notify::new(),
            is_closed: AtomicBool::new(false),
            slots: Mutex::default(),
            changed: Condvar::new(),
        });
        let shared = Arc::clone(&registry);
        let body = move || {
            runtime.block_on(worker_pool_port::serve(listener, &shared));
            runtime.shutdown_timeout(SHUTDOWN_LIMIT);
            shared.all_left();
        };
        let thread = thread::Builder::new().name("flownet-pool".to_owned()).spawn(body);
        let thread = thread.map_err(|error| setup("start a thread", &error))?;
        Ok(Self { registry, thread: Mutex::new(Some(thread)) })
    }

    /// Returns the address that workers connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.registry.address
    }

    /// Returns the credentials of the pool's workers. Their owner can run code in the workers and join the pool.
    #[must_use]
    pub fn credentials(&self) -> &Credentials {
        &self.registry.credentials
    }

    /// Returns the TLS configuration of the pool.
    pub(crate) fn tls(&self) -> &Tls {
        &self.registry.tls
    }

    /// Returns the registered workers by number.
    #[must_use]
    pub fn members(&self) -> Vec<PoolWorker> {
        let slots = self.registry.slots();
        slots.values().filter(|slot| slot.is_there()).map(|slot| slot.member.clone()).collect()
    }

    /// Returns the last attempt of each number that was ever used, gone or not.
    #[must_use]
    pub fn attempts(&self) -> Vec<u64> {
        self.registry.slots().values().map(|slot| slot.member.attempt).collect()
    }

    /// Whether `count` workers are registered.
    pub(crate) fn has(&self, count: u32) -> bool {
        self.wait_for(count as usize, Duration::ZERO)
    }

    /// Returns how long to wait for replacements of workers that have left. `None`: there are no replacements.
    pub(crate) fn refill(&self) -> Option<Duration> {
        let refill = self.registry.refill.filter(|_| !self.registry.is_closed.load(Ordering::Relaxed));
        refill.map(|refill| refill.patience)
    }

    /// Whether each attempt of a job gets new workers.
    pub(crate) fn renews(&self) -> bool {
        self.registry.refill.is_some_and(|refill| refill.each_attempt)
    }

    /// Releases workers that have received orders. Workers that replaced lost ones stay.
    pub(crate) fn expel_used(&self) {
        for slot in self.registry.slots().values_mut().filter(|slot| slot.is_used && slot.is_there()) {
            // Dropping the sender ends the connection's task.
            slot.duty = Duty::Gone("the next attempt gets others".to_owned());
        }
        self.registry.changed.notify_all();
    }

    /// Waits until `count` workers are registered, at most `timeout`. Returns whether they are.
    #[must_use]
    pub fn wait_for(&self, count: usize, timeout: Duration) -> bool {
        let too_few =
            |slots: &mut BTreeMap<u32, WorkerSlot>| slots.values().filter(|slot| slot.is_there()).count() < count;
        let waited = self.registry.changed.wait_timeout_while(self.registry.slots(), timeout, too_few);
        let (mut slots, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !too_few(&mut slots)
    }

    /// Releases all workers and closes the port. Further calls have no effect.
    pub fn close(&self) {
        self.registry.is_closed.store(true, Ordering::Relaxed);
        self.registry.closing.notify_one();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // The thread runs no user code; a panic in it was printed.
            let _ = thread.join();
        }
    }

    pub(super) fn assign(&self, orders: Orders) -> io::Result<Assignment> {
        let worker = orders.worker;
        let mut slots = self.registry.slots();
        let refuse = |reason: String| Err(io::Error::other(reason));
        let Some(slot) = slots.get_mut(&worker) else {
            return refuse(format!("the worker pool has no worker {worker}"));
        };
        let place = Arc::clone(&slot.member.place);
        match &slot.duty {
            Duty::Idle(desk) => {
                let desk = desk.clone();
                // The connection may have ended just now. Then the exit reports it.
                let _ = desk.send(orders);
                slot.duty = Duty::Working(desk);
            }
            Duty::Working(_) => return refuse(format!("worker {worker} on {place} is at work for another job")),
            Duty::Gone(reason) => return refuse(format!("worker {worker} on {place} has left: {reason}")),
        }
        slot.end = None;
        slot.is_used = true;
        slot.assignments += 1;
        let (attempt, number) = (slot.member.attempt, slot.assignments);
        Ok(Assignment { registry: Arc::clone(&self.registry), worker, attempt, number, place, exit: None })
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        self.close();
    }
}

impl WorkerRegistry {
    /// Registers a worker under its number (I3). Returns false if the number is taken.
    pub(super) fn enlist(&self, member: PoolWorker, desk: UnboundedSender<Orders>) -> bool {
        let mut slots = self.slots();
        let assignments = match slots.get(&member.worker) {
            Some(slot) if self.refill.is_none() || slot.member.attempt >= member.attempt => return false,
            // The earlier worker's part in a job ends with it.
            Some(slot) => slot.assignments + 1,
            None => 0,
        };
        let slot = WorkerSlot { member, assignments, duty: Duty::Idle(desk), is_used: false, end: None };
        slots.insert(slot.member.worker, slot);
        drop(slots);
        self.changed.notify_all();
        true
    }

    /// Records that a worker's part in a job has ended.
    pub(super) fn done(&self, worker: u32, attempt: u64, reason: String) {
        if let Some(slot) = self.slots().get_mut(&worker)
            && slot.member.attempt == attempt
            && let Duty::Working(desk) = &slot.duty
        {
            slot.duty = Duty::Idle(desk.clone());
            slot.end = Some(reason);
        }
        self.changed.notify_all();
    }

    /// Records that the connection of a worker has ended.
    pub(super) fn left(&self, worker: u32, attempt: u64, reason: &str) {
        if let Some(slot) = self.slots().get_mut(&worker)
            && slot.member.attempt == attempt
            && slot.is_there()
        {
            slot.duty = Duty::Gone(reason.to_owned());
        }
        self.changed.notify_all();
    }

    fn all_left(&self) {
        let members: Vec<_> = self.slots().values().map(|slot| (slot.member.worker, slot.member.attempt)).collect();
        members.into_iter().for_each(|(worker, attempt)| self.left(worker, attempt, "the worker pool was dismissed"));
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<u32, WorkerSlot>> {
        // Each change is one assignment: consistent even after a panic.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WorkerSlot {
    fn is_there(&self) -> bool {
        !matches!(self.duty, Duty::Gone(_))
    }
}

impl Assignment {
    pub(super) fn place(&self) -> Arc<str> {
        Arc::clone(&self.place)
    }

    /// Returns how the worker's part ended, if it has.
    pub(super) fn try_exit(&mut self) -> Option<WorkerExit> {
        if self.exit.is_none() {
            self.exit = self.look();
        }
        self.exit.clone()
    }

    /// Closes the worker's connection, which ends its process.
    pub(super) fn dismiss(&mut self) {
        if self.try_exit().is_none() {
            // Dropping the sender ends the connection's task.
            self.registry.left(self.worker, self.attempt, "it was dismissed");
        }
    }

    fn look(&self) -> Option<WorkerExit> {
        let slots = self.registry.slots();
        let slot = slots.get(&self.worker)?;
        let ended = "its part in the job ended";
        let reason = match &slot.duty {
            _ if slot.assignments != self.number => ended.to_owned(),
            Duty::Working(_) => return None,
            Duty::Idle(_) => slot.end.clone().unwrap_or_else(|| ended.to_owned()),
            Duty::Gone(reason) => reason.clone(),
        };
        Some(WorkerExit::Disconnected { reason })
    }
}

impl Drop for Assignment {
    fn drop(&mut self) {
        self.dismiss();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::sync::mpsc;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn orders(worker: u32) -> Orders {
        Orders {
            coordinator: SocketAddr::from(([127, 0, 0, 1], 4000)),
            worker,
            silence_limit: PATIENCE,
            cancel_timeout: PATIENCE,
            init: Vec::new(),
        }
    }

    fn member(worker: u32) -> PoolWorker {
        PoolWorker { worker, attempt: 5, pid: 7, place: "a host".into() }
    }

    fn pool_of_one() -> (WorkerPool, mpsc::UnboundedReceiver<Orders>) {
        refilled_pool_of_one(None)
    }

    fn refilled_pool_of_one(refill: Option<Refill>) -> (WorkerPool, mpsc::UnboundedReceiver<Orders>) {
        let pool = WorkerPool::open(IpAddr::from([127, 0, 0, 1]), Tls::Auto, refill).unwrap();
        let (desk, received) = mpsc::unbounded_channel();
        assert!(pool.registry.enlist(member(1), desk));
        (pool, received)
    }

    #[test]
    fn a_member_takes_one_job_after_the_other_and_never_two_at_once() {
        let (pool, mut received) = pool_of_one();
        let mut first = pool.assign(orders(1)).unwrap();
        assert!(received.try_recv().is_ok());
        assert_eq!(first.try_exit(), None);
        assert!(pool.assign(orders(1)).unwrap_err().to_string().contains("at work for another job"));
        pool.registry.done(1, 5, "the connection ended".to_owned());
        let mut second = pool.assign(orders(1)).unwrap();
        // The first assignment was not checked in between, and must not mistake the second's state for its own.
        assert!(first.try_exit().is_some());
        drop(first);
        assert_eq!(second.try_exit(), None);
        pool.registry.done(1, 5, "cannot reach the coordinator".to_owned());
        let how = WorkerExit::Disconnected { reason: "cannot reach the coordinator".to_owned() };
        assert_eq!(second.try_exit(), Some(how));
    }

    #[test]
    fn a_dropped_assignment_ends_its_member_unless_it_had_ended() {
        let (pool, _received) = pool_of_one();
        let ended = pool.assign(orders(1)).unwrap();
        pool.registry.done(1, 5, "the connection ended".to_owned());
        drop(ended);
        assert_eq!(pool.members(), [member(1)]);
        drop(pool.assign(orders(1)).unwrap());
        assert_eq!(pool.members(), []);
        assert!(pool.assign(orders(1)).unwrap_err().to_string().ends_with("has left: it was dismissed"));
    }

    #[test]
    fn a_number_is_given_again_to_a_later_attempt_only_and_strange_numbers_are_refused() {
        let (pool, _received) = pool_of_one();
        pool.registry.left(1, 5, "it closed its connection");
        assert!(
            !pool.registry.enlist(PoolWorker { attempt: 6, ..member(1) }, mpsc::unbounded_channel().0),
            "not refilled"
        );
        let (pool, _received) = refilled_pool_of_one(Some(Refill { patience: PATIENCE, each_attempt: false }));
        assert!(!pool.registry.enlist(member(1), mpsc::unbounded_channel().0));
        pool.registry.left(1, 5, "it closed its connection");
        for attempt in [4, 5] {
            assert!(!pool.registry.enlist(PoolWorker { attempt, ..member(1) }, mpsc::unbounded_channel().0));
        }
        assert!(pool.assign(orders(2)).is_err());
        let (desk, mut received) = mpsc::unbounded_channel();
        assert!(pool.registry.enlist(PoolWorker { attempt: 6, ..member(1) }, desk));
        let _part = pool.assign(orders(1)).unwrap();
        assert!(received.try_recv().is_ok());
        assert_eq!(pool.attempts(), [6]);
    }

    #[test]
    fn who_comes_in_the_place_of_another_is_not_held_to_what_that_one_says() {
        let (pool, mut received) = refilled_pool_of_one(Some(Refill { patience: PATIENCE, each_attempt: false }));
        let mut before = pool.assign(orders(1)).unwrap();
        let later = PoolWorker { attempt: 6, ..member(1) };
        let (desk, _orders) = mpsc::unbounded_channel();
        // As far as the registry knows, the connection of the earlier worker has not ended yet.
        assert!(pool.registry.enlist(later.clone(), desk));
        assert!(received.try_recv().is_ok(), "its orders");
        assert!(matches!(received.try_recv(), Err(mpsc::error::TryRecvError::Disconnected)), "it is let go");
        assert!(before.try_exit().is_some());
        let mut part = pool.assign(orders(1)).unwrap();
        pool.registry.done(1, 5, "late".to_owned());
        pool.registry.left(1, 5, "late");
        drop(before);
        assert_eq!(part.try_exit(), None);
        assert_eq!(pool.members(), [later]);
    }

    #[test]
    fn waiting_ends_when_the_last_has_come_or_the_time_is_over() {
        let (pool, _received) = pool_of_one();
        assert!(pool.wait_for(1, PATIENCE));
        assert!(!pool.wait_for(2, Duration::from_millis(1)));
        let began = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| assert!(pool.registry.enlist(member(2), mpsc::unbounded_channel().0)));
            assert!(pool.wait_for(2, PATIENCE));
        });
        assert!(began.elapsed() < PATIENCE, "not by the time limit");
    }

    #[test]
    fn a_closed_pool_has_nobody() {
        let (pool, _received) = pool_of_one();
        let mut part = pool.assign(orders(1)).unwrap();
        pool.close();
        pool.close();
        assert_eq!(pool.members(), []);
        assert!(part.try_exit().is_some());
        assert!(std::net::TcpStream::connect(pool.address()).is_err(), "the port is closed");
    }
}
