use flownet_runtime::{
    EventTimeSnapshot,
    spec::{OperatorKind, Partitioner},
    watermark::{SplitWatermarks, Watermarks},
};
use proptest::prelude::*;

use super::*;
use crate::{plan::tests::DataflowBuilder, settings::JobSettings};

/// Returns a plan with a source of the given parallelism for each group named. Each has an aligning operator; all lead
/// to one sink.
fn plan(sources: &[(&str, u32)], max_drift_ms: u64, update_interval_ms: u64) -> Plan {
    let mut flow = DataflowBuilder::default().operator("sink", 3);
    for (at, (group, parallelism)) in sources.iter().enumerate() {
        let (source, assign) = (format!("source {at}"), format!("assign {at}"));
        let alignment = Alignment {
            group: (*group).to_owned(),
            max_drift_ms: max_drift_ms.try_into().expect("above zero"),
            update_interval_ms: update_interval_ms.try_into().expect("above zero"),
        };
        let watermarks = Watermarks::Bounded { delay_ms: 0 };
        flow = flow
            .operator(&source, *parallelism)
            .operator(&assign, *parallelism)
            .edge(&source, &assign, Partitioner::Forward)
            .edge(&assign, "sink", Partitioner::Rebalance)
            .with(&assign, |operator| {
                operator.kind = OperatorKind::AssignTimestamps {
                    watermarks,
                    idle_after_ms: None,
                    alignment: Some(alignment),
                    max_ahead_ms: None,
                };
            });
    }
    Plan::new(&flow.0, &JobSettings::default()).expect("a sound dataflow")
}

fn reached(aligned_ms: Option<i64>) -> MetricsSnapshot {
    MetricsSnapshot { event_time: EventTimeSnapshot { aligned_ms, ..Default::default() }, ..Default::default() }
}

const SECOND: Duration = Duration::from_secs(1);

/// Reports the event times of tasks, and polls for limits.
fn told(machine: &mut AlignmentMachine, now: Duration, reports: &[(u32, Option<i64>)]) -> Option<Vec<i64>> {
    reports.iter().for_each(|(task, at_ms)| machine.on_metrics(*task, &reached(*at_ms)));
    machine.on_time(now);
    machine.poll_limits().map(|limits| limits.into_values().collect())
}

fn tasks(plan: &Plan) -> Vec<u32> {
    aligned(plan).map(|(task, _)| task).collect()
}

#[test]
fn who_begins_anew_has_come_nowhere_and_is_waited_for() {
    let plan = plan(&[("g", 1), ("g", 1)], 100, 1000);
    let (mut machine, members) = (AlignmentMachine::new(&plan), tasks(&plan));
    let both = [(members[0], Some(500)), (members[1], Some(500))];
    assert_eq!(told(&mut machine, SECOND, &both), Some(vec![600; 2]));
    machine.begin_again(&members[1..]);
    assert_eq!(told(&mut machine, SECOND * 2, &[(members[0], Some(590))]), Some(vec![NO_TIMESTAMP; 2]));
    assert_eq!(told(&mut machine, SECOND * 3, &[(members[1], Some(200))]), Some(vec![300; 2]));
}

#[test]
fn all_may_go_as_far_as_the_last_one_and_the_drift_and_hear_of_less_than_a_step_once_an_interval() {
    let plan = plan(&[("g", 2), ("g", 1)], 100, 1000);
    let (mut machine, members) = (AlignmentMachine::new(&plan), tasks(&plan));
    assert_eq!(members.len(), 3);
    assert_eq!(
        told(&mut machine, SECOND, &[(members[0], Some(50)), (members[1], Some(70))]),
        None,
        "one is not heard of"
    );
    assert_eq!(machine.poll_timeout(), None);
    assert_eq!(
        told(&mut machine, SECOND, &[(members[2], Some(60))]),
        Some(vec![150; 3]),
        "the first one is told at once"
    );
    assert_eq!(told(&mut machine, SECOND, &[(members[0], Some(55))]), None, "A3");
    assert_eq!(machine.poll_timeout(), Some(SECOND * 2));
    assert_eq!(told(&mut machine, SECOND * 2, &[]), Some(vec![155; 3]));
    assert_eq!(told(&mut machine, SECOND * 9, &[]), None);
    assert_eq!(told(&mut machine, SECOND * 9, &[(members[0], Some(60)), (members[2], Some(80))]), Some(vec![160; 3]));
}

#[test]
fn a_limit_that_rises_by_a_quarter_of_the_drift_is_sent_at_once() {
    let plan = plan(&[("g", 1), ("g", 1)], 100, 1000);
    let (mut machine, members) = (AlignmentMachine::new(&plan), tasks(&plan));
    let both = |at_ms| [(members[0], Some(at_ms)), (members[1], Some(at_ms + 50))];
    // An hour of event time within one interval.
    for at_ms in (0..3_600_000).step_by(25) {
        assert_eq!(told(&mut machine, SECOND, &both(at_ms)), Some(vec![at_ms + 100; 2]), "no cap");
    }
    assert_eq!(told(&mut machine, SECOND, &both(3_599_975 + 24)), None, "A3");
    // Both sources return from idleness below the limit: limits change once an interval, as before.
    assert_eq!(told(&mut machine, SECOND, &both(0)), None);
    assert_eq!(told(&mut machine, SECOND * 2, &both(0)), Some(vec![100; 2]));
}

#[test]
fn who_is_idle_or_has_ended_is_not_counted_and_who_comes_back_is() {
    let plan = plan(&[("g", 2)], 10, 1000);
    let (mut machine, members) = (AlignmentMachine::new(&plan), tasks(&plan));
    let (one, other) = (members[0], members[1]);
    let gone = Some(END_OF_TIME_MS);
    assert_eq!(told(&mut machine, SECOND, &[(one, gone), (other, Some(5))]), Some(vec![15; 2]));
    assert_eq!(told(&mut machine, SECOND * 2, &[(other, gone)]), Some(vec![END_OF_TIME_MS; 2]), "nobody to wait for");
    assert_eq!(told(&mut machine, SECOND * 3, &[(one, Some(-7))]), Some(vec![3; 2]));
    assert_eq!(told(&mut machine, SECOND * 4, &[(one, Some(i64::MAX - 2))]), Some(vec![END_OF_TIME_MS - 1; 2]));
}

#[test]
fn groups_do_not_wait_for_each_other() {
    let plan = plan(&[("a", 1), ("b", 1)], 10, 1000);
    let (mut machine, members) = (AlignmentMachine::new(&plan), tasks(&plan));
    assert_eq!(told(&mut machine, SECOND, &[(members[0], Some(5))]), Some(vec![15, NO_TIMESTAMP]));
    assert_eq!(told(&mut machine, SECOND, &[(members[1], Some(1000))]), Some(vec![15, 1010]));
    machine.on_metrics(99, &reached(Some(1)));
    assert_eq!(AlignmentMachine::shortest_interval(&plan), Some(SECOND));
}

/// Source of the simulation below.
struct SimulatedJob {
    watermarks: SplitWatermarks,
    /// Times of its unread records, the next one last.
    records: Vec<i64>,
    has_ended: bool,
    is_silent: bool,
    reported: Option<i64>,
}

#[derive(Clone, Debug)]
enum Step {
    /// A source reads, if it may.
    Read(usize),
    /// A report of a source reaches the coordinator.
    Report(usize),
    /// The coordinator's last limit reaches a source.
    Deliver(usize),
    /// A source becomes idle, or active again.
    Silence(usize),
    Tick,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0usize..4).prop_map(Step::Read),
        3 => (0usize..4).prop_map(Step::Report),
        3 => (0usize..4).prop_map(Step::Deliver),
        1 => (0usize..4).prop_map(Step::Silence),
        2 => Just(Step::Tick),
    ];
    proptest::collection::vec(step, 0..300)
}

struct World {
    machine: AlignmentMachine,
    members: Vec<u32>,
    sources: Vec<SimulatedJob>,
    limits: BTreeMap<u32, i64>,
    now: Duration,
}

const DRIFT_MS: i64 = 20;

impl World {
    fn new(records: Vec<Vec<i64>>) -> Self {
        let plan = plan(&[("g", 2), ("g", 1), ("g", 1)], DRIFT_MS as u64, 1000);
        let sources = records.into_iter().map(|records| SimulatedJob {
            watermarks: SplitWatermarks::new(Watermarks::Bounded { delay_ms: 0 }, Some(200)).aligned(),
            records,
            has_ended: false,
            is_silent: false,
            reported: None,
        });
        let (members, sources) = (tasks(&plan), sources.collect());
        Self { machine: AlignmentMachine::new(&plan), members, sources, limits: BTreeMap::new(), now: Duration::ZERO }
    }

    fn reached(&self, at: usize) -> Option<i64> {
        let source = &self.sources[at];
        let reached = if source.has_ended { None } else { source.watermarks.reached_ms() };
        Some(reached.unwrap_or(END_OF_TIME_MS)).filter(|at_ms| *at_ms != NO_TIMESTAMP)
    }

    /// Returns the least time of all counted sources, or `None` if one has no progress yet.
    fn least_ms(&self) -> Option<i64> {
        (0..self.sources.len()).map(|at| self.reached(at)).min().flatten()
    }

    /// Reads a record. Returns whether the source made progress.
    fn read(&mut self, at: usize) -> bool {
        let source = &mut self.sources[at];
        if source.has_ended || source.is_silent || source.watermarks.is_ahead() {
            return false;
        }
        match source.records.pop() {
            Some(record) => drop(source.watermarks.on_record(record)),
            None => source.has_ended = true,
        }
        true
    }

    fn report(&mut self, at: usize) {
        self.sources[at].reported = self.reached(at);
        self.machine.on_metrics(self.members[at], &reached(self.sources[at].reported));
    }

    fn tick(&mut self) -> Result<(), TestCaseError> {
        self.now += SECOND / 2;
        self.machine.on_time(self.now);
        let Some(limits) = self.machine.poll_limits() else { return Ok(()) };
        let least = self.sources.iter().map(|source| source.reported.unwrap_or(NO_TIMESTAMP)).min();
        for limit in limits.values() {
            let least = least.expect("there are sources");
            let is_bounded = least == END_OF_TIME_MS || *limit <= least.saturating_add(DRIFT_MS);
            prop_assert!(is_bounded, "A1: {} for {:?}", limit, least);
        }
        self.limits = limits;
        Ok(())
    }

    fn deliver(&mut self, at: usize) {
        if let Some(limit) = self.limits.get(&self.members[at]) {
            self.sources[at].watermarks.align(*limit);
        }
    }

    /// Marks the source as idle, as its clock would after a while.
    fn silence(&mut self, at: usize) {
        let source = &mut self.sources[at];
        source.is_silent = !source.is_silent;
        if source.is_silent {
            let begin_ms = source.watermarks.next_ms().unwrap_or_default().max(0);
            for period in 0..4 {
                source.watermarks.on_period(begin_ms + period * 200, !source.watermarks.is_ahead());
            }
        }
    }
}

proptest! {
    /// A1 and A2 hold if messages are delayed or superseded, and if sources are idle or have ended.
    #[test]
    fn nobody_runs_ahead_and_nobody_waits_for_good(
        records in proptest::collection::vec(proptest::collection::vec(-100i64..300, 0..40), 4..=4),
        steps in steps(),
    ) {
        let mut world = World::new(records);
        let mut was_silent = false;
        for step in steps {
            match step {
                Step::Read(at) => {
                    let (before_ms, least_ms) = (world.reached(at), world.least_ms());
                    // A source that returns from idleness may be behind the limits that the others received meanwhile.
                    if world.read(at) && !was_silent && let (Some(before_ms), Some(least_ms)) = (before_ms, least_ms) {
                        prop_assert!(before_ms <= least_ms + DRIFT_MS, "{} with the last at {}", before_ms, least_ms);
                    }
                }
                Step::Report(at) => world.report(at),
                Step::Deliver(at) => world.deliver(at),
                Step::Silence(at) => {
                    was_silent = true;
                    world.silence(at);
                }
                Step::Tick => world.tick()?,
            }
        }
        // From now on every message arrives. A source that became silent while it waited was not idle, because it
        // waited.
        for at in 0..4 {
            world.sources[at].is_silent &= world.sources[at].watermarks.reached_ms().is_none();
        }
        for _ in 0..400 {
            for at in 0..4 {
                world.read(at);
                world.report(at);
            }
            world.tick()?;
            (0..4).for_each(|at| world.deliver(at));
        }
        prop_assert!(world.sources.iter().all(|source| source.has_ended || source.is_silent), "A2");
    }
}
