//! Where a task's time goes. The parts sum to the whole.
//!
//! The task thread switches between states; anyone may read. Time comes in as an argument, in nanoseconds since the
//! task began, and only at a switch: the clock is never read while a state lasts.
//!
//! # Invariants
//! - I1: a snapshot's parts sum to the time between the first instant and the snapshot's, the open period included.
//! - I2: time that goes backwards counts as no time.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a task's thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TimeState {
    /// Running operators, or moving records.
    Busy,
    /// Between records, with an output that has no free buffer; mail and timers still run.
    SoftBackPressured(Lack),
    /// Inside an operator, in the middle of a record, with no free buffer.
    HardBackPressured(Lack),
    /// Nothing to read.
    Idle,
    /// Waiting for the interpreter, which the tasks of a process share.
    Interpreter,
    /// Waiting for what operators asked of others, outside of the exchange: it takes no records meanwhile.
    Awaiting,
    /// A source that is ahead of those it is aligned with: waiting until they come after.
    Aligning,
    /// Nothing to read from the channels that are open, while others wait for the barriers of these.
    Barrier,
}

/// What an output has too little of, when the wait for it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Lack {
    /// Leave to send: its readers have not taken what is theirs. They give no credit, or the coordinator no leave.
    Credit,
    /// Segments: its pool has none left, though its readers could have more.
    Pool,
}

impl TimeState {
    const COUNT: usize = 10;

    /// The same, whatever an output lacks.
    pub(crate) fn whatever_lacks(self) -> Self {
        match self {
            Self::SoftBackPressured(_) => Self::SoftBackPressured(Lack::Credit),
            Self::HardBackPressured(_) => Self::HardBackPressured(Lack::Credit),
            state => state,
        }
    }

    /// Where it is counted.
    pub(crate) fn index(self) -> usize {
        match self {
            Self::Busy => 0,
            Self::SoftBackPressured(Lack::Credit) => 1,
            Self::SoftBackPressured(Lack::Pool) => 2,
            Self::HardBackPressured(Lack::Credit) => 3,
            Self::HardBackPressured(Lack::Pool) => 4,
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
pub struct TimeLedger {
    // Written at most twice a batch by one thread and read rarely: a lock that is nearly never contended keeps a
    // snapshot consistent.
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    // `None` once closed.
    state: Option<TimeState>,
    since_ns: u64,
    // When the state began; a snapshot settles what has run of it so far.
    began_ns: u64,
    totals_ns: [u64; TimeState::COUNT],
}

impl TimeLedger {
    /// Opens the ledger in `state` at `now_ns`.
    pub fn new(state: TimeState, now_ns: u64) -> Self {
        Self {
            inner: Mutex::new(Inner { state: Some(state), since_ns: now_ns, began_ns: now_ns, totals_ns: [0; TimeState::COUNT] }),
        }
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

    /// All time until `now_ns`, the open period included.
    pub fn snapshot(&self, now_ns: u64) -> TimeShares {
        let mut inner = self.lock();
        inner.settle(now_ns);
        let of = |state: TimeState| Duration::from_nanos(inner.totals_ns[state.index()]);
        let (soft, hard) = (TimeState::SoftBackPressured, TimeState::HardBackPressured);
        let (awaiting, aligning) = (of(TimeState::Awaiting), of(TimeState::Aligning));
        let waiting_for_barrier = of(TimeState::Barrier);
        TimeShares {
            busy: of(TimeState::Busy),
            soft_back_pressured: of(soft(Lack::Credit)) + of(soft(Lack::Pool)),
            hard_back_pressured: of(hard(Lack::Credit)) + of(hard(Lack::Pool)),
            waiting_for_credit: of(soft(Lack::Credit)) + of(hard(Lack::Credit)),
            waiting_for_pool: of(soft(Lack::Pool)) + of(hard(Lack::Pool)),
            idle: of(TimeState::Idle) + awaiting + aligning + waiting_for_barrier,
            awaiting,
            aligning,
            waiting_for_barrier,
            interpreter: of(TimeState::Interpreter),
        }
    }

    /// Counts time that has been counted to one state to another.
    pub fn recount(&self, from: TimeState, to: TimeState, time_ns: u64) {
        let mut inner = self.lock();
        let moved = time_ns.min(inner.totals_ns[from.index()]);
        inner.totals_ns[from.index()] -= moved;
        inner.totals_ns[to.index()] += moved;
    }

    /// The state that runs now; `None` once closed.
    pub fn state(&self) -> Option<TimeState> {
        self.period().map(|(state, _)| state)
    }

    /// The state that runs now and when it began, in nanoseconds; `None` once closed.
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
}

/// Wall time of a task by what it was spent on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeShares {
    /// Running operators, or moving records.
    pub busy: Duration,
    /// Waiting for an output between records.
    pub soft_back_pressured: Duration,
    /// Waiting for an output in the middle of a record.
    pub hard_back_pressured: Duration,
    /// The part of both that was spent waiting for readers to take what they have.
    pub waiting_for_credit: Duration,
    /// The rest of it, waiting for segments.
    pub waiting_for_pool: Duration,
    /// Waiting for input, for others outside of the exchange, or for other sources.
    pub idle: Duration,
    /// The part of `idle` that was spent waiting for others, with input there or not.
    pub awaiting: Duration,
    /// The part of `idle` that a source spent waiting for those it is aligned with.
    pub aligning: Duration,
    /// The part of `idle` in which some inputs waited for the barriers of others.
    pub waiting_for_barrier: Duration,
    /// Waiting for the interpreter.
    pub interpreter: Duration,
}

impl TimeShares {
    /// All of it.
    pub fn total(&self) -> Duration {
        self.busy + self.back_pressured() + self.idle + self.interpreter
    }

    /// Waiting for outputs, soft and hard.
    pub fn back_pressured(&self) -> Duration {
        self.soft_back_pressured + self.hard_back_pressured
    }

    /// What was spent since an `earlier` snapshot of the same ledger.
    pub fn since(&self, earlier: &Self) -> Self {
        let passed = |of: fn(&Self) -> Duration| of(self).saturating_sub(of(earlier));
        Self {
            busy: passed(|time| time.busy),
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
        let ledger = TimeLedger::new(TimeState::Idle, 100);
        ledger.switch(TimeState::Busy, 150);
        ledger.switch(TimeState::SoftBackPressured(Lack::Pool), 250);
        ledger.switch(TimeState::HardBackPressured(Lack::Credit), 270);
        ledger.switch(TimeState::Busy, 300);

        let shares = ledger.snapshot(1000);

        assert_eq!(shares.total(), Duration::from_nanos(900));
        assert_eq!((shares.idle, shares.busy), (Duration::from_nanos(50), Duration::from_nanos(800)));
        assert_eq!(shares.back_pressured(), Duration::from_nanos(50));
        assert_eq!(ledger.state(), Some(TimeState::Busy));
    }

    #[test]
    fn time_counted_anew_is_moved_and_never_more_than_there_is() {
        let ledger = TimeLedger::new(TimeState::Idle, 0);
        ledger.switch(TimeState::Interpreter, 100);
        ledger.switch(TimeState::Busy, 110);
        ledger.recount(TimeState::Idle, TimeState::Busy, 30);
        let shares = ledger.snapshot(110);
        assert_eq!((shares.idle, shares.busy), (Duration::from_nanos(70), Duration::from_nanos(30)));
        ledger.recount(TimeState::Idle, TimeState::Busy, 1000);
        let shares = ledger.snapshot(110);
        assert_eq!((shares.busy, shares.interpreter), (Duration::from_nanos(100), Duration::from_nanos(10)));
        assert_eq!(shares.total(), Duration::from_nanos(110));
    }

    #[test]
    fn waiting_for_others_is_idle_and_known_by_itself() {
        let ledger = TimeLedger::new(TimeState::Idle, 0);
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
        let ledger = TimeLedger::new(TimeState::SoftBackPressured(Lack::Credit), 0);
        ledger.switch(TimeState::HardBackPressured(Lack::Credit), 1);
        ledger.switch(TimeState::SoftBackPressured(Lack::Pool), 11);
        ledger.switch(TimeState::HardBackPressured(Lack::Pool), 111);
        let shares = ledger.snapshot(1111);
        let ns = Duration::from_nanos;
        assert_eq!((shares.soft_back_pressured, shares.hard_back_pressured), (ns(101), ns(1010)));
        assert_eq!((shares.waiting_for_credit, shares.waiting_for_pool), (ns(11), ns(1100)));
    }

    #[test]
    fn waiting_for_barriers_is_idle_and_known_by_itself() {
        let ledger = TimeLedger::new(TimeState::Idle, 0);
        ledger.switch(TimeState::Barrier, 10);
        ledger.switch(TimeState::Busy, 40);
        let shares = ledger.snapshot(50);
        assert_eq!((shares.waiting_for_barrier, shares.idle), (Duration::from_nanos(30), Duration::from_nanos(40)));
    }

    proptest! {
        #[test]
        fn parts_sum_to_the_whole_whatever_is_switched_to(
            steps in proptest::collection::vec((0..STATES.len(), 0..1000_u64), 0..100)
        ) {
            let (ledger, mut now) = (TimeLedger::new(TimeState::Idle, 0), 0);
            let mut earlier = ledger.snapshot(0);
            for (state, time) in steps {
                ledger.switch(STATES[state], now);
                now += time;
                let shares = ledger.snapshot(now);
                assert_sums_to(&shares, now);
                assert_sums_to(&shares.since(&earlier), time);
                earlier = shares;
            }
        }
    }

    /// At every level.
    fn assert_sums_to(shares: &TimeShares, whole_ns: u64) {
        assert_eq!(shares.total(), Duration::from_nanos(whole_ns));
        assert_eq!(shares.back_pressured(), shares.waiting_for_credit + shares.waiting_for_pool);
        assert!(shares.idle >= shares.awaiting + shares.aligning + shares.waiting_for_barrier);
    }

    const STATES: [TimeState; TimeState::COUNT] = [
        TimeState::Busy,
        TimeState::SoftBackPressured(Lack::Credit),
        TimeState::SoftBackPressured(Lack::Pool),
        TimeState::HardBackPressured(Lack::Credit),
        TimeState::HardBackPressured(Lack::Pool),
        TimeState::Idle,
        TimeState::Interpreter,
        TimeState::Awaiting,
        TimeState::Aligning,
        TimeState::Barrier,
    ];

    #[test]
    fn looking_changes_nothing() {
        let ledger = TimeLedger::new(TimeState::Busy, 0);
        for now in [10, 20, 20, 30] {
            assert_eq!(ledger.snapshot(now).busy, Duration::from_nanos(now));
        }
    }

    #[test]
    fn a_closed_ledger_counts_no_more() {
        let ledger = TimeLedger::new(TimeState::Busy, 0);
        ledger.close(10);
        assert_eq!((ledger.snapshot(50).total(), ledger.state()), (Duration::from_nanos(10), None));
    }

    #[test]
    fn time_that_goes_backwards_counts_as_none() {
        let ledger = TimeLedger::new(TimeState::Busy, 100);
        ledger.switch(TimeState::Idle, 50);
        assert_eq!(ledger.snapshot(100).total(), Duration::ZERO);
        assert_eq!(ledger.snapshot(130).idle, Duration::from_nanos(30));
    }

    #[test]
    fn the_difference_of_two_snapshots_is_an_interval() {
        let ledger = TimeLedger::new(TimeState::Busy, 0);
        let first = ledger.snapshot(10);
        ledger.switch(TimeState::Idle, 15);
        let interval = ledger.snapshot(40).since(&first);
        assert_eq!((interval.busy, interval.idle), (Duration::from_nanos(5), Duration::from_nanos(25)));
    }
}
