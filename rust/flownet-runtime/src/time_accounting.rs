//! Accounts the time of a task to states, such as busy or idle. The parts sum to the whole.
//!
//! The task thread switches between states; any thread may read. Time comes in as an argument, in nanoseconds since the
//! task began, and only at a switch: the clock is never read while a state lasts.
//!
//! Samples divide the busy time. A sample names the current work of the task, and all busy time since the last sample
//! counts as that work, or in part as waiting for the interpreter. See [`crate::work`].
//!
//! # Invariants
//! - I1: a snapshot's parts sum to the time between the first instant and the snapshot's, the open period included.
//! - I2: time that goes backwards counts as no time.
//! - I3: the parts of busy time sum to it in every snapshot. No part shrinks from one snapshot to the next, except for
//!   time that is recounted.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::work::Work;

/// The current state of a task's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TimeState {
    /// Running operators, or moving records.
    Busy,
    /// Between records, with an output that has no free buffer; mail and timers still run.
    SoftBackPressured(BackpressureCause),
    /// Inside an operator, in the middle of a record, with no free buffer.
    HardBackPressured(BackpressureCause),
    /// No input to read.
    Idle,
    /// Waiting for the interpreter, which the tasks of a process share.
    Interpreter,
    /// Waiting for answers that operators requested outside the exchange: the task takes no records meanwhile.
    Awaiting,
    /// A source that is ahead of the sources that it is aligned with: waiting until they catch up.
    Aligning,
    /// No input on the open channels, while other channels wait for the barriers of these.
    Barrier,
}

/// The resource that an output lacks when the wait for it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BackpressureCause {
    /// Permission to send: readers have not taken their queued buffers and give no credit, or the coordinator gives no
    /// permission.
    Credit,
    /// Segments: its pool has none left, though its readers could take more.
    Pool,
}

impl TimeState {
    const COUNT: usize = 10;

    /// The same state, independent of the back-pressure cause.
    pub(crate) fn whatever_lacks(self) -> Self {
        match self {
            Self::SoftBackPressured(_) => Self::SoftBackPressured(BackpressureCause::Credit),
            Self::HardBackPressured(_) => Self::HardBackPressured(BackpressureCause::Credit),
            state => state,
        }
    }

    /// Its index in the totals.
    pub(crate) fn index(self) -> usize {
        match self {
            Self::Busy => 0,
            Self::SoftBackPressured(BackpressureCause::Credit) => 1,
            Self::SoftBackPressured(BackpressureCause::Pool) => 2,
            Self::HardBackPressured(BackpressureCause::Credit) => 3,
            Self::HardBackPressured(BackpressureCause::Pool) => 4,
            Self::Idle => 5,
            Self::Interpreter => 6,
            Self::Awaiting => 7,
            Self::Aligning => 8,
            Self::Barrier => 9,
        }
    }
}

/// Accounts the wall time of one task to [`TimeState`]s.
#[derive(Debug)]
pub struct TimeAccounting {
    // Written a few times per batch by one thread, and read or sampled rarely. So the lock is almost never contended,
    // and it makes snapshots consistent.
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    // `None` once closed.
    state: Option<TimeState>,
    since_ns: u64,
    // Start of the state. A snapshot settles the time of the state so far, so `since_ns` may be later.
    began_ns: u64,
    totals_ns: [u64; TimeState::COUNT],
    // Busy time by work, as far as it is divided.
    work_ns: [u64; Work::ALL.len()],
    // The work at the last sample while the task was busy.
    seen: Work,
    // The share of time that counted as waiting for the interpreter at that sample.
    seen_waiting: f64,
}

impl TimeAccounting {
    /// Starts the accounting in `state` at `now_ns`.
    pub fn new(state: TimeState, now_ns: u64) -> Self {
        let inner = Inner {
            state: Some(state),
            since_ns: now_ns,
            began_ns: now_ns,
            totals_ns: [0; TimeState::COUNT],
            work_ns: [0; Work::ALL.len()],
            seen: Work::Rust,
            seen_waiting: 0.0,
        };
        Self { inner: Mutex::new(inner) }
    }

    /// Closes the running period at `now_ns` and begins one of `state`.
    pub fn switch(&self, state: TimeState, now_ns: u64) {
        let mut inner = self.lock();
        inner.settle(now_ns);
        (inner.state, inner.began_ns) = (Some(state), inner.since_ns);
    }

    /// Closes the running period at `now_ns`, the last one: the task has ended.
    pub fn close(&self, now_ns: u64) {
        let mut inner = self.lock();
        inner.settle(now_ns);
        inner.state = None;
    }

    /// Counts busy time as `work` until the first sample.
    pub fn assume(&self, work: Work) {
        self.lock().seen = work;
    }

    /// Samples the task as doing `work`. If it is busy, all busy time since the last sample counts as that.
    pub fn look(&self, work: Work, now_ns: u64) {
        self.look_waiting(work, u64::MAX, now_ns);
    }

    /// The same for a task that had at most `worked_ns` of CPU time since the last sample. It waited for the
    /// interpreter for the rest.
    pub fn look_waiting(&self, work: Work, worked_ns: u64, now_ns: u64) {
        let mut inner = self.lock();
        inner.settle(now_ns);
        if inner.state == Some(TimeState::Busy) {
            let untold = inner.untold();
            inner.seen = work;
            inner.seen_waiting = untold.saturating_sub(worked_ns) as f64 / untold.max(1) as f64;
            inner.tell_apart();
        }
    }

    /// Returns all time until `now_ns`, the open period included.
    pub fn snapshot(&self, now_ns: u64) -> TimeShares {
        let mut inner = self.lock();
        inner.settle(now_ns);
        // This is no sample, because the caller may be the task itself, at a place of its own choice.
        inner.tell_apart();
        let of = |state: TimeState| Duration::from_nanos(inner.totals_ns[state.index()]);
        let (soft, hard) = (TimeState::SoftBackPressured, TimeState::HardBackPressured);
        let (awaiting, aligning) = (of(TimeState::Awaiting), of(TimeState::Aligning));
        let waiting_for_barrier = of(TimeState::Barrier);
        let works_on = |work: Work| Duration::from_nanos(inner.work_ns[work as usize]);
        TimeShares {
            busy: of(TimeState::Busy),
            python: works_on(Work::Python),
            serialising: works_on(Work::Serialising),
            rust: works_on(Work::Rust),
            soft_back_pressured: of(soft(BackpressureCause::Credit)) + of(soft(BackpressureCause::Pool)),
            hard_back_pressured: of(hard(BackpressureCause::Credit)) + of(hard(BackpressureCause::Pool)),
            waiting_for_credit: of(soft(BackpressureCause::Credit)) + of(hard(BackpressureCause::Credit)),
            waiting_for_pool: of(soft(BackpressureCause::Pool)) + of(hard(BackpressureCause::Pool)),
            idle: of(TimeState::Idle) + awaiting + aligning + waiting_for_barrier,
            awaiting,
            aligning,
            waiting_for_barrier,
            interpreter: of(TimeState::Interpreter),
        }
    }

    /// Moves recorded time from one state to another. `work` is the kind of any busy time that this adds or removes.
    pub fn recount(&self, (from, to): (TimeState, TimeState), work: Work, time_ns: u64) {
        let mut inner = self.lock();
        let moved = time_ns.min(inner.totals_ns[from.index()]);
        inner.totals_ns[from.index()] -= moved;
        inner.totals_ns[to.index()] += moved;
        if to == TimeState::Busy {
            inner.work_ns[work as usize] += moved;
        }
        inner.forget_excess(work);
    }

    /// The current state; `None` once closed.
    pub fn state(&self) -> Option<TimeState> {
        self.period().map(|(state, _)| state)
    }

    /// The current state and its start, in nanoseconds; `None` once closed.
    pub fn period(&self) -> Option<(TimeState, u64)> {
        let inner = self.lock();
        inner.state.map(|state| (state, inner.began_ns))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn settle(&mut self, now_ns: u64) {
        if let Some(state) = self.state {
            self.totals_ns[state.index()] += now_ns.saturating_sub(self.since_ns);
        }
        self.since_ns = self.since_ns.max(now_ns);
    }

    /// Busy time since the last sample.
    fn untold(&self) -> u64 {
        let told: u64 = self.work_ns.iter().sum();
        self.totals_ns[TimeState::Busy.index()].saturating_sub(told)
    }

    /// Counts the busy time since the last sample as the work of that sample.
    fn tell_apart(&mut self) {
        let untold = self.untold();
        let waited = ((untold as f64 * self.seen_waiting) as u64).min(untold);
        self.totals_ns[TimeState::Busy.index()] -= waited;
        self.totals_ns[TimeState::Interpreter.index()] += waited;
        self.work_ns[self.seen as usize] += untold - waited;
    }

    /// Reduces the parts after busy time was moved away, `work` first.
    fn forget_excess(&mut self, work: Work) {
        let told: u64 = self.work_ns.iter().sum();
        let mut excess = told.saturating_sub(self.totals_ns[TimeState::Busy.index()]);
        for work in [work].into_iter().chain(Work::ALL) {
            let forgotten = excess.min(self.work_ns[work as usize]);
            self.work_ns[work as usize] -= forgotten;
            excess -= forgotten;
        }
    }
}

/// Wall time of a task by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeShares {
    /// Running operators, or moving records.
    pub busy: Duration,
    /// The part of `busy` in operators that call Python functions.
    pub python: Duration,
    /// The part of `busy` that was spent on encoding and decoding.
    pub serialising: Duration,
    /// The rest of `busy`.
    pub rust: Duration,
    /// Waiting for an output between records.
    pub soft_back_pressured: Duration,
    /// Waiting for an output in the middle of a record.
    pub hard_back_pressured: Duration,
    /// The part of both that was spent waiting for readers to take queued buffers.
    pub waiting_for_credit: Duration,
    /// The rest of both, spent waiting for segments.
    pub waiting_for_pool: Duration,
    /// Waiting for input, for answers from outside the exchange, or for other sources.
    pub idle: Duration,
    /// The part of `idle` that was spent waiting for answers, with or without input.
    pub awaiting: Duration,
    /// The part of `idle` that a source spent waiting for the sources that it is aligned with.
    pub aligning: Duration,
    /// The part of `idle` in which some inputs waited for the barriers of others.
    pub waiting_for_barrier: Duration,
    /// Waiting for the interpreter.
    pub interpreter: Duration,
}

impl TimeShares {
    /// The sum of all states.
    pub fn total(&self) -> Duration {
        self.busy + self.back_pressured() + self.idle + self.interpreter
    }

    /// Time waiting for outputs, soft and hard.
    pub fn back_pressured(&self) -> Duration {
        self.soft_back_pressured + self.hard_back_pressured
    }

    /// The time spent since an `earlier` snapshot of the same task.
    pub fn since(&self, earlier: &Self) -> Self {
        let passed = |of: fn(&Self) -> Duration| of(self).saturating_sub(of(earlier));
        Self {
            busy: passed(|time| time.busy),
            python: passed(|time| time.python),
            serialising: passed(|time| time.serialising),
            rust: passed(|time| time.rust),
            soft_back_pressured: passed(|time| time.soft_back_pressured),
            hard_back_pressured: passed(|time| time.hard_back_pressured),
            waiting_for_credit: passed(|time| time.waiting_for_credit),
            waiting_for_pool: passed(|time| time.waiting_for_pool),
            idle: passed(|time| time.idle),
            awaiting: passed(|time| time.awaiting),
            aligning: passed(|time| time.aligning),
            waiting_for_barrier: passed(|time| time.waiting_for_barrier),
            interpreter: passed(|time| time.interpreter),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parts_sum_to_the_whole_with_the_open_period_counted() {
        let ledger = TimeAccounting::new(TimeState::Idle, 100);
        ledger.switch(TimeState::Busy, 150);
        ledger.switch(TimeState::SoftBackPressured(BackpressureCause::Pool), 250);
        ledger.switch(TimeState::HardBackPressured(BackpressureCause::Credit), 270);
        ledger.switch(TimeState::Busy, 300);

        let shares = ledger.snapshot(1000);

        assert_eq!(shares.total(), Duration::from_nanos(900));
        assert_eq!((shares.idle, shares.busy), (Duration::from_nanos(50), Duration::from_nanos(800)));
        assert_eq!(shares.back_pressured(), Duration::from_nanos(50));
        assert_eq!(ledger.state(), Some(TimeState::Busy));
    }

    #[test]
    fn time_counted_anew_is_moved_and_never_more_than_there_is() {
        let ledger = TimeAccounting::new(TimeState::Idle, 0);
        ledger.switch(TimeState::Interpreter, 100);
        ledger.switch(TimeState::Busy, 110);
        ledger.recount((TimeState::Idle, TimeState::Busy), Work::Python, 30);
        let shares = ledger.snapshot(110);
        assert_eq!((shares.idle, shares.busy), (Duration::from_nanos(70), Duration::from_nanos(30)));
        ledger.recount((TimeState::Idle, TimeState::Busy), Work::Python, 1000);
        let shares = ledger.snapshot(110);
        assert_eq!((shares.busy, shares.interpreter), (Duration::from_nanos(100), Duration::from_nanos(10)));
        assert_eq!(shares.total(), Duration::from_nanos(110));
    }

    #[test]
    fn waiting_for_others_is_idle_and_known_by_itself() {
        let ledger = TimeAccounting::new(TimeState::Idle, 0);
        ledger.switch(TimeState::Awaiting, 10);
        ledger.switch(TimeState::Aligning, 40);
        ledger.switch(TimeState::Busy, 70);
        let shares = ledger.snapshot(100);
        assert_eq!((shares.awaiting, shares.aligning), (Duration::from_nanos(30), Duration::from_nanos(30)));
        assert_eq!(shares.idle, Duration::from_nanos(70));
        assert_eq!(shares.total(), Duration::from_nanos(100));
    }

    #[test]
    fn back_pressure_is_known_by_what_is_lacking_and_by_where_in_a_record_it_is() {
        let ledger = TimeAccounting::new(TimeState::SoftBackPressured(BackpressureCause::Credit), 0);
        ledger.switch(TimeState::HardBackPressured(BackpressureCause::Credit), 1);
        ledger.switch(TimeState::SoftBackPressured(BackpressureCause::Pool), 11);
        ledger.switch(TimeState::HardBackPressured(BackpressureCause::Pool), 111);
        let shares = ledger.snapshot(1111);
        let ns = Duration::from_nanos;
        assert_eq!((shares.soft_back_pressured, shares.hard_back_pressured), (ns(101), ns(1010)));
        assert_eq!((shares.waiting_for_credit, shares.waiting_for_pool), (ns(11), ns(1100)));
    }

    #[test]
    fn waiting_for_barriers_is_idle_and_known_by_itself() {
        let ledger = TimeAccounting::new(TimeState::Idle, 0);
        ledger.switch(TimeState::Barrier, 10);
        ledger.switch(TimeState::Busy, 40);
        let shares = ledger.snapshot(50);
        assert_eq!((shares.waiting_for_barrier, shares.idle), (Duration::from_nanos(30), Duration::from_nanos(40)));
    }

    #[test]
    fn busy_time_is_what_the_next_look_at_it_finds() {
        let ledger = TimeAccounting::new(TimeState::Busy, 0);
        ledger.look(Work::Python, 10);
        ledger.switch(TimeState::Idle, 30);
        ledger.look(Work::Rust, 40);
        ledger.switch(TimeState::Busy, 50);
        ledger.look(Work::Serialising, 60);
        let shares = ledger.snapshot(70);
        let ns = Duration::from_nanos;
        assert_eq!((shares.python, shares.serialising, shares.rust), (ns(10), ns(20 + 10 + 10), ns(0)));
        assert_eq!((shares.busy, shares.idle), (ns(50), ns(20)));
    }

    #[test]
    fn busy_time_without_processor_time_waits_for_the_interpreter_if_the_look_says_so() {
        let ledger = TimeAccounting::new(TimeState::Busy, 0);
        ledger.look_waiting(Work::Python, 20, 100);
        let (ns, shares) = (Duration::from_nanos, ledger.snapshot(100));
        assert_eq!((shares.busy, shares.python, shares.interpreter), (ns(20), ns(20), ns(80)));
        let shares = ledger.snapshot(200);
        assert_eq!((shares.busy, shares.interpreter), (ns(40), ns(160)), "until the next look it goes on like that");
        ledger.look(Work::Python, 300);
        let shares = ledger.snapshot(400);
        assert_eq!((shares.busy, shares.interpreter, shares.total()), (ns(240), ns(160), ns(400)));
        ledger.look_waiting(Work::Python, 1_000_000, 500);
        assert_eq!(ledger.snapshot(500).interpreter, ns(160), "it had more than there was");
    }

    #[test]
    fn busy_time_that_nobody_looked_at_is_what_was_assumed_and_then_what_was_seen_last() {
        let ledger = TimeAccounting::new(TimeState::Busy, 0);
        assert_eq!(ledger.snapshot(10).rust, Duration::from_nanos(10));
        ledger.assume(Work::Python);
        assert_eq!(ledger.snapshot(30).python, Duration::from_nanos(20));
        ledger.look(Work::Serialising, 30);
        assert_eq!(ledger.snapshot(70).serialising, Duration::from_nanos(40));
    }

    #[test]
    fn time_counted_anew_is_of_the_work_that_it_was_spent_on() {
        let ledger = TimeAccounting::new(TimeState::Idle, 0);
        ledger.switch(TimeState::Busy, 100);
        ledger.look(Work::Serialising, 110);
        ledger.recount((TimeState::Idle, TimeState::Busy), Work::Python, 60);
        let shares = ledger.snapshot(110);
        assert_eq!((shares.python, shares.serialising), (Duration::from_nanos(60), Duration::from_nanos(10)));
        ledger.recount((TimeState::Busy, TimeState::Idle), Work::Python, 65);
        let shares = ledger.snapshot(110);
        assert_eq!((shares.python, shares.serialising), (Duration::ZERO, Duration::from_nanos(5)));
    }

    /// Events in random order.
    #[derive(Clone, Copy, Debug)]
    enum LedgerEvent {
        Switch(usize),
        Look(usize),
        LookWaiting(usize, u64),
        Recount(usize, usize, usize, u64),
    }

    fn happens() -> impl Strategy<Value = LedgerEvent> {
        let (state, work) = (0..STATES.len(), 0..Work::ALL.len());
        prop_oneof![
            state.clone().prop_map(LedgerEvent::Switch),
            work.clone().prop_map(LedgerEvent::Look),
            (work.clone(), 0..2000_u64).prop_map(|(work, ns)| LedgerEvent::LookWaiting(work, ns)),
            (state.clone(), state, work, 0..2000_u64)
                .prop_map(|(from, to, work, ns)| LedgerEvent::Recount(from, to, work, ns)),
        ]
    }

    proptest! {
        #[test]
        fn parts_sum_to_the_whole_whatever_happens(
            steps in proptest::collection::vec((happens(), 0..1000_u64, any::<bool>()), 0..100)
        ) {
            let (ledger, mut now, mut looked) = (TimeAccounting::new(TimeState::Idle, 0), 0, 0);
            let mut earlier = Some(ledger.snapshot(0));
            for (happens, time, looks) in steps {
                match happens {
                    LedgerEvent::Switch(state) => ledger.switch(STATES[state], now),
                    LedgerEvent::Look(work) => ledger.look(Work::ALL[work], now),
                    LedgerEvent::LookWaiting(work, ns) => ledger.look_waiting(Work::ALL[work], ns, now),
                    LedgerEvent::Recount(from, to, work, ns) => {
                        ledger.recount((STATES[from], STATES[to]), Work::ALL[work], ns);
                        // Parts may have shrunk.
                        earlier = None;
                    }
                }
                now += time;
                if looks {
                    let shares = ledger.snapshot(now);
                    assert_sums_to(&shares, now);
                    if let Some(earlier) = earlier.replace(shares) {
                        assert_sums_to(&shares.since(&earlier), now - looked);
                    }
                    looked = now;
                }
            }
        }
    }

    /// Checks the sums at every level.
    fn assert_sums_to(shares: &TimeShares, whole_ns: u64) {
        assert_eq!(shares.total(), Duration::from_nanos(whole_ns));
        assert_eq!(shares.busy, shares.python + shares.serialising + shares.rust);
        assert_eq!(shares.back_pressured(), shares.waiting_for_credit + shares.waiting_for_pool);
        assert!(shares.idle >= shares.awaiting + shares.aligning + shares.waiting_for_barrier);
    }

    const STATES: [TimeState; TimeState::COUNT] = [
        TimeState::Busy,
        TimeState::SoftBackPressured(BackpressureCause::Credit),
        TimeState::SoftBackPressured(BackpressureCause::Pool),
        TimeState::HardBackPressured(BackpressureCause::Credit),
        TimeState::HardBackPressured(BackpressureCause::Pool),
        TimeState::Idle,
        TimeState::Interpreter,
        TimeState::Awaiting,
        TimeState::Aligning,
        TimeState::Barrier,
    ];

    #[test]
    fn looking_changes_nothing() {
        let ledger = TimeAccounting::new(TimeState::Busy, 0);
        for now in [10, 20, 20, 30] {
            assert_eq!(ledger.snapshot(now).busy, Duration::from_nanos(now));
        }
    }

    #[test]
    fn a_closed_ledger_counts_no_more() {
        let ledger = TimeAccounting::new(TimeState::Busy, 0);
        ledger.close(10);
        assert_eq!((ledger.snapshot(50).total(), ledger.state()), (Duration::from_nanos(10), None));
    }

    #[test]
    fn time_that_goes_backwards_counts_as_none() {
        let ledger = TimeAccounting::new(TimeState::Busy, 100);
        ledger.switch(TimeState::Idle, 50);
        assert_eq!(ledger.snapshot(100).total(), Duration::ZERO);
        assert_eq!(ledger.snapshot(130).idle, Duration::from_nanos(30));
    }

    #[test]
    fn the_difference_of_two_snapshots_is_an_interval() {
        let ledger = TimeAccounting::new(TimeState::Busy, 0);
        let first = ledger.snapshot(10);
        ledger.switch(TimeState::Idle, 15);
        let interval = ledger.snapshot(40).since(&first);
        assert_eq!((interval.busy, interval.idle), (Duration::from_nanos(5), Duration::from_nanos(25)));
    }
}
