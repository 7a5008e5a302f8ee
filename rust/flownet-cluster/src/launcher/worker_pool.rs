//! Workers that came by themselves, and what each of them does now.
//!
//! A worker pool listens; processes that somebody else started dial it, prove that
//! they belong to it ([`serve_pool`](crate::serve_pool)), and wait there for
//! jobs. The connection of a member is its life: when either end closes it, the
//! member is gone, and so is its part in a job. Another may come in its place.
//!
//! ```text
//! (nobody) --enlists--> Idle --assign--> Working --reports the end--> Idle
//!                         \________________\--connection ends--> Gone --a later one enlists--> Idle
//! ```
//!
//! # Invariants
//! - I1: a member takes part in one job at a time.
//! - I2: an [`Assignment`] that is dropped has ended, or its member is gone.
//! - I3: a number that was taken is given again only in a worker pool that is refilled, and to a
//!   later attempt. What an earlier one says or does has no effect from then on: not on
//!   the seat, and not on the part in a job that the later one has.
//! - I4: when a [`WorkerPool`] is closed or dropped, its port, its connections and its
//!   thread are gone.

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
    threads::{SHUTDOWN_LIMIT, control_runtime},
    tls::Tls,
};

/// Workers that came by themselves. See the module documentation.
#[derive(Debug)]
pub struct WorkerPool {
    registry: Arc<WorkerRegistry>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A process that came, as people can find it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PoolWorker {
    /// Its number, from 1.
    pub worker: u32,
    /// Which attempt to fill this number it is: see [`Enlistment::attempt`](crate::Enlistment::attempt).
    pub attempt: u64,
    /// Its process.
    pub pid: u32,
    /// Where it runs, in its own words.
    pub place: Arc<str>,
}

/// Who there is. Shared by the worker pool, its connections and its assignments.
#[derive(Debug)]
pub(super) struct WorkerRegistry {
    address: SocketAddr,
    pub(super) credentials: Credentials,
    tls: Tls,
    refill: Option<Refill>,
    pub(super) closing: Notify,
    is_closed: AtomicBool,
    seats: Mutex<BTreeMap<u32, WorkerSlot>>,
    changed: Condvar,
}

/// Who may come in the place of members that have left.
#[derive(Clone, Copy, Debug)]
pub struct Refill {
    /// How long a job that is restarted waits for them.
    pub patience: Duration,
    /// A job that is restarted lets all members go first. Those that read their input from a stream which they cannot
    /// rewind need this.
    pub each_attempt: bool,
}

/// One member and what it does.
#[derive(Debug)]
struct WorkerSlot {
    member: PoolWorker,
    /// Counts its assignments, so that an old one does not take the end of a new one for its own.
    assignments: u64,
    duty: Duty,
    /// It has had orders.
    is_used: bool,
    /// Why its last assignment ended, in the member's words.
    end: Option<String>,
}

#[derive(Debug)]
enum Duty {
    Idle(UnboundedSender<Orders>),
    Working(UnboundedSender<Orders>),
    Gone(String),
}

/// A member's part in one job.
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
    /// Listens on a port of `host`, an address of this machine that the members
    /// reach. `tls` says whether what they say to each other is encrypted, and
    /// `refill` whether others may come in the place of members that have left.
    ///
    /// # Errors
    /// [`ClusterError::Setup`] if that cannot be done, [`ClusterError::Plan`] if
    /// the certificates cannot be used.
    pub fn open(host: IpAddr, tls: Tls, refill: Option<Refill>) -> Result<Self, ClusterError> {
        let setup = |what: &str, error: &dyn std::fmt::Display| ClusterError::Setup {
            message: format!("cannot {what} on {host}: {error}"),
        };
        let secret = Secret::generate().map_err(|error| setup("make a secret", &error))?;
        let credentials = tls.credentials(secret, host).map_err(PlanError::from)?;
        let listener = TcpListener::bind((host, 0)).map_err(|error| setup("listen for workers", &error))?;
        // All workers may dial at once. The standard library lets 128 wait.
        rustix::net::listen(&listener, BACKLOG).map_err(|error| setup("listen for workers", &error))?;
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
            seats: Mutex::default(),
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

    /// Where members dial.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.registry.address
    }

    /// What members prove themselves with. Whoever has it can run code in them,
    /// and become one.
    #[must_use]
    pub fn credentials(&self) -> &Credentials {
        &self.registry.credentials
    }

    /// What it was opened with.
    pub(crate) fn tls(&self) -> &Tls {
        &self.registry.tls
    }

    /// Who is there now, by number.
    #[must_use]
    pub fn members(&self) -> Vec<PoolWorker> {
        let seats = self.registry.seats();
        seats.values().filter(|seat| seat.is_there()).map(|seat| seat.member.clone()).collect()
    }

    /// Of each number that was ever taken, which attempt has it, gone or not.
    #[must_use]
    pub fn attempts(&self) -> Vec<u64> {
        self.registry.seats().values().map(|seat| seat.member.attempt).collect()
    }

    /// Whether so many members are there.
    pub(crate) fn has(&self, count: u32) -> bool {
        self.wait_for(count as usize, Duration::ZERO)
    }

    /// How long to wait for those in the place of members that have left; none: nobody will come.
    pub(crate) fn refill(&self) -> Option<Duration> {
        let refill = self.registry.refill.filter(|_| !self.registry.is_closed.load(Ordering::Relaxed));
        refill.map(|refill| refill.patience)
    }

    /// Whether each attempt of a job gets other members.
    pub(crate) fn renews(&self) -> bool {
        self.registry.refill.is_some_and(|refill| refill.each_attempt)
    }

    /// Lets those go that have had orders. Members that came in the place of lost ones stay.
    pub(crate) fn expel_used(&self) {
        for seat in self.registry.seats().values_mut().filter(|seat| seat.is_used && seat.is_there()) {
            // Without its desk, the connection's task ends.
            seat.duty = Duty::Gone("the next attempt gets others".to_owned());
        }
        self.registry.changed.notify_all();
    }

    /// Waits until `count` members are there, at most `timeout`; whether they are.
    #[must_use]
    pub fn wait_for(&self, count: usize, timeout: Duration) -> bool {
        let too_few =
            |seats: &mut BTreeMap<u32, WorkerSlot>| seats.values().filter(|seat| seat.is_there()).count() < count;
        let waited = self.registry.changed.wait_timeout_while(self.registry.seats(), timeout, too_few);
        let (mut seats, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !too_few(&mut seats)
    }

    /// Lets everybody go and closes the port. Harmless when called again.
    pub fn close(&self) {
        self.registry.is_closed.store(true, Ordering::Relaxed);
        self.registry.closing.notify_one();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // It runs none but our code; a panic in it was printed.
            let _ = thread.join();
        }
    }

    pub(super) fn assign(&self, orders: Orders) -> io::Result<Assignment> {
        let worker = orders.worker;
        let mut seats = self.registry.seats();
        let refuse = |reason: String| Err(io::Error::other(reason));
        let Some(seat) = seats.get_mut(&worker) else {
            return refuse(format!("the worker pool has no worker {worker}"));
        };
        let place = Arc::clone(&seat.member.place);
        match &seat.duty {
            Duty::Idle(desk) => {
                let desk = desk.clone();
                // Its connection may have ended just now: seen by the exit.
                let _ = desk.send(orders);
                seat.duty = Duty::Working(desk);
            }
            Duty::Working(_) => return refuse(format!("worker {worker} on {place} is at work for another job")),
            Duty::Gone(reason) => return refuse(format!("worker {worker} on {place} has left: {reason}")),
        }
        seat.end = None;
        seat.is_used = true;
        seat.assignments += 1;
        let (attempt, number) = (seat.member.attempt, seat.assignments);
        Ok(Assignment { registry: Arc::clone(&self.registry), worker, attempt, number, place, exit: None })
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        self.close();
    }
}

impl WorkerRegistry {
    /// Gives a newcomer its number (I3); false if that is taken.
    pub(super) fn enlist(&self, member: PoolWorker, desk: UnboundedSender<Orders>) -> bool {
        let mut seats = self.seats();
        let assignments = match seats.get(&member.worker) {
            Some(seat) if self.refill.is_none() || seat.member.attempt >= member.attempt => return false,
            // The part that the one before has in a job is over with it.
            Some(seat) => seat.assignments + 1,
            None => 0,
        };
        let seat = WorkerSlot { member, assignments, duty: Duty::Idle(desk), is_used: false, end: None };
        seats.insert(seat.member.worker, seat);
        drop(seats);
        self.changed.notify_all();
        true
    }

    /// A member has done its part in a job.
    pub(super) fn done(&self, worker: u32, attempt: u64, reason: String) {
        if let Some(seat) = self.seats().get_mut(&worker)
            && seat.member.attempt == attempt
            && let Duty::Working(desk) = &seat.duty
        {
            seat.duty = Duty::Idle(desk.clone());
            seat.end = Some(reason);
        }
        self.changed.notify_all();
    }

    /// The connection of a member has ended.
    pub(super) fn left(&self, worker: u32, attempt: u64, reason: &str) {
        if let Some(seat) = self.seats().get_mut(&worker)
            && seat.member.attempt == attempt
            && seat.is_there()
        {
            seat.duty = Duty::Gone(reason.to_owned());
        }
        self.changed.notify_all();
    }

    fn all_left(&self) {
        let members: Vec<_> = self.seats().values().map(|seat| (seat.member.worker, seat.member.attempt)).collect();
        members.into_iter().for_each(|(worker, attempt)| self.left(worker, attempt, "the worker pool was dismissed"));
    }

    fn seats(&self) -> MutexGuard<'_, BTreeMap<u32, WorkerSlot>> {
        // Each change is one assignment: whole even after a panic.
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// How the member's part ended, if it has.
    pub(super) fn try_exit(&mut self) -> Option<WorkerExit> {
        if self.exit.is_none() {
            self.exit = self.look();
        }
        self.exit.clone()
    }

    /// Closes the member's connection, upon which its process ends.
    pub(super) fn dismiss(&mut self) {
        if self.try_exit().is_none() {
            // Without its desk, the connection's task ends.
            self.registry.left(self.worker, self.attempt, "it was dismissed");
        }
    }

    fn look(&self) -> Option<WorkerExit> {
        let seats = self.registry.seats();
        let seat = seats.get(&self.worker)?;
        let ended = "its part in the job ended";
        let reason = match &seat.duty {
            _ if seat.assignments != self.number => ended.to_owned(),
            Duty::Working(_) => return None,
            Duty::Idle(_) => seat.end.clone().unwrap_or_else(|| ended.to_owned()),
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

/// Connections that the system may hold until they are accepted, if it allows so many.
const BACKLOG: i32 = 1024;

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
        // The first was not asked in between, and must not take the second's state for its own.
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
        // The connection of the one before has not ended yet, as far as is known here.
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
