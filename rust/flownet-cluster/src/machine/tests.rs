//! Tests in virtual time: each is a list of inputs and the resulting commands.

use flownet_runtime::snapshot::SnapshotError;
use flownet_runtime::{ExchangeFailure, ExchangeFailureKind, OperatorFailure};
use proptest::prelude::*;

use super::*;

const LIMITS: Limits = Limits {
    launch: Duration::from_secs(60),
    heartbeat: Duration::from_secs(10),
    stop: Duration::from_secs(7),
    cancel: Duration::from_secs(5),
};

/// A machine, its clock, and a check that every command is legal.
struct Rig {
    machine: JobMachine,
    now: Duration,
    issued: Vec<Command>,
}

impl Rig {
    /// Two workers with two tasks each: 0 and 2 on the first, 1 and 3 on the second.
    fn new() -> Self {
        Self::with(&[1, 2], &[1, 2, 1, 2])
    }

    fn with(participants: &[u32], placement: &[u32]) -> Self {
        Self {
            machine: JobMachine::of_some(participants, placement, LIMITS, |_| true),
            now: Duration::ZERO,
            issued: Vec::new(),
        }
    }

    fn running() -> Self {
        let mut rig = Self::new();
        rig.handle(Input::Begin);
        for worker in [1, 2] {
            rig.handle(Input::Registered { worker });
            rig.handle(Input::Deployed { worker });
        }
        for worker in [1, 2] {
            rig.handle(Input::Started { worker });
        }
        assert_eq!(rig.machine.state(), JobState::Running);
        rig
    }

    fn handle(&mut self, input: Input) -> Vec<Command> {
        self.machine.handle(input, self.now);
        let mut commands = Vec::new();
        while let Some(command) = self.machine.poll_command() {
            self.assert_legal(&command);
            self.issued.push(command.clone());
            commands.push(command);
        }
        commands
    }

    fn advance(&mut self, by: Duration) -> Vec<Command> {
        self.now += by;
        self.handle(Input::Tick)
    }

    /// Checks I1 and I3 from the commands alone.
    fn assert_legal(&self, command: &Command) {
        assert!(
            !self.issued.iter().any(|issued| matches!(issued, Command::End { .. })),
            "{command:?} after the end: {:?}",
            self.issued
        );
        let Some((worker, rank)) = worker_and_rank(command) else { return };
        let earlier: Vec<u8> =
            self.issued.iter().filter_map(worker_and_rank).filter(|&(of, _)| of == worker).map(|(_, r)| r).collect();
        assert!(earlier.iter().all(|&before| before < rank), "{command:?} after {earlier:?}");
        assert!(rank == 0 || earlier.contains(&0), "{command:?} to a worker not launched");
        assert!(rank != 3 || earlier.contains(&2), "{command:?} to a worker that runs nothing");
        assert!(rank != 2 || earlier.contains(&1), "{command:?} to a worker without tasks");
    }

    fn fail_task(&mut self, task: u32, error: TaskError) -> Vec<Command> {
        self.handle(Input::TaskFailed { task, error, has_run: true })
    }

    /// Reports all released workers as gone and returns the outcome.
    fn outcome(&mut self) -> Outcome {
        for worker in 0..3 {
            self.handle(Input::WorkerGone { worker });
        }
        assert_eq!(self.machine.state(), JobState::Ended);
        match self.issued.last() {
            Some(Command::End { outcome }) => outcome.clone(),
            other => panic!("ended with {other:?}"),
        }
    }
}

fn worker_and_rank(command: &Command) -> Option<(u32, u8)> {
    match *command {
        Command::Launch { worker } => Some((worker, 0)),
        Command::Deploy { worker } => Some((worker, 1)),
        Command::Start { worker } => Some((worker, 2)),
        Command::EndSources { worker, .. } => Some((worker, 3)),
        Command::Stop { worker } => Some((worker, 4)),
        Command::Kill { worker } => Some((worker, 5)),
        Command::End { .. } => None,
    }
}

fn operator_error() -> TaskError {
    OperatorFailure {
        operator: "parse".into(),
        subtask: 0,
        parallelism: 2,
        record: None,
        error_type: "ValueError".into(),
        message: "no".into(),
        traceback: None,
        is_transient: false,
    }
    .into()
}

fn echo() -> TaskError {
    let kind = ExchangeFailureKind::ConnectionLost { peer: "127.0.0.1:1".into() };
    TaskError::Exchange(ExchangeFailure { kind, message: "connection lost".into() })
}

fn killed() -> WorkerExit {
    WorkerExit::Signalled { signal: 9 }
}

#[test]
fn a_job_runs_from_launch_to_finish_when_everybody_answers() {
    let mut rig = Rig::new();
    assert_eq!(rig.handle(Input::Begin), [Command::Launch { worker: 1 }, Command::Launch { worker: 2 }]);
    assert_eq!(rig.handle(Input::Registered { worker: 2 }), [Command::Deploy { worker: 2 }]);
    assert_eq!(rig.machine.state(), JobState::Launching);
    assert_eq!(rig.handle(Input::Registered { worker: 1 }), [Command::Deploy { worker: 1 }]);
    assert_eq!(rig.machine.state(), JobState::Deploying);
    assert_eq!(rig.handle(Input::Deployed { worker: 2 }), []);
    let started = rig.handle(Input::Deployed { worker: 1 });
    assert_eq!(started, [Command::Start { worker: 1 }, Command::Start { worker: 2 }]);
    rig.handle(Input::Started { worker: 1 });
    rig.handle(Input::Started { worker: 2 });
    assert_eq!(rig.machine.state(), JobState::Running);
    for task in 0..3 {
        assert_eq!(rig.handle(Input::TaskFinished { task }), []);
    }
    let stopped = rig.handle(Input::TaskFinished { task: 3 });
    assert_eq!(stopped, [Command::Stop { worker: 1 }, Command::Stop { worker: 2 }]);
    assert_eq!(rig.machine.state(), JobState::Finishing);
    assert_eq!(rig.handle(Input::WorkerGone { worker: 1 }), []);
    let ended = rig.handle(Input::WorkerGone { worker: 2 });
    assert_eq!(ended, [Command::End { outcome: Outcome::Finished }]);
}

#[test]
fn a_job_has_come_to_run_once_one_of_its_tasks_did_and_failed_by_itself() {
    let deployed = || {
        let mut rig = Rig::new();
        rig.handle(Input::Begin);
        for worker in [1, 2] {
            rig.handle(Input::Registered { worker });
            rig.handle(Input::Deployed { worker });
        }
        // The other worker has not answered.
        rig.handle(Input::Started { worker: 1 });
        assert!(!rig.machine.has_run());
        rig
    };
    for (error, has_run, expected) in
        [(operator_error(), true, true), (operator_error(), false, false), (echo(), true, false)]
    {
        let mut rig = deployed();
        rig.handle(Input::TaskFailed { task: 0, error, has_run });
        assert_eq!(rig.machine.has_run(), expected);
    }
    assert!(Rig::running().machine.has_run());
}

#[test]
fn tasks_that_finish_before_the_last_worker_reports_its_start_end_the_job_too() {
    let mut rig = Rig::with(&[1, 2], &[1]);
    rig.handle(Input::Begin);
    for worker in [1, 2] {
        rig.handle(Input::Registered { worker });
        rig.handle(Input::Deployed { worker });
    }
    let stopped = rig.handle(Input::TaskFinished { task: 0 });
    assert_eq!(stopped, [Command::Stop { worker: 1 }, Command::Stop { worker: 2 }]);
    assert_eq!(rig.outcome(), Outcome::Finished);
}

#[test]
fn a_worker_without_part_in_the_job_is_left_alone() {
    let mut rig = Rig::with(&[0], &[0]);
    assert_eq!(rig.handle(Input::Begin), [Command::Launch { worker: 0 }]);
    let mut rig = Rig::with(&[2], &[2]);
    assert_eq!(rig.handle(Input::Begin), [Command::Launch { worker: 2 }]);
}

#[test]
fn an_operator_error_ends_the_job_at_once_with_that_error() {
    let mut rig = Rig::running();
    let commands = rig.fail_task(1, operator_error());
    assert_eq!(commands, [Command::Stop { worker: 1 }, Command::Stop { worker: 2 }]);
    assert_eq!(rig.machine.state(), JobState::Failing);
    assert_eq!(rig.outcome(), Outcome::Failed(Failure::Task { task: 1, error: operator_error() }));
}

#[test]
fn what_a_task_cannot_begin_with_is_no_failure_that_may_pass() {
    let (uid, state) = (String::from("count"), String::from("fold"));
    let refused = SnapshotError::Unknown { uid: uid.clone(), state: state.clone() };
    let out_of_reach = SnapshotError::OutOfReach { uid, state, reason: "no route".into() };
    for (error, may_pass) in [(operator_error(), true), (refused.into(), false), (out_of_reach.into(), true)] {
        let mut rig = Rig::running();
        rig.fail_task(1, error);
        assert_eq!(rig.machine.may_begin_again(LaunchHistory::Here), may_pass);
        assert_eq!(rig.machine.may_begin_again(LaunchHistory::Elsewhere), may_pass);
        assert!(!rig.machine.may_begin_again(LaunchHistory::None));
    }
}

#[test]
fn a_damaged_checkpoint_is_final_and_a_storage_out_of_reach_is_not() {
    let (url, path) = (String::from("file:///c"), String::from("gen-1/chk-1/0000-0.snap"));
    let damaged = StoreError::Damaged { url: url.clone(), path: path.clone(), why: "cut".into() };
    let away = StoreError::Io { url, what: "read".into(), path, reason: "no route".into() };
    for (error, may_pass) in [(damaged, false), (away, true)] {
        let mut rig = Rig::running();
        rig.handle(Input::CheckpointsFailed { failure: Failure::Store { error } });
        assert_eq!(rig.machine.may_begin_again(LaunchHistory::Here), may_pass);
    }
}

#[test]
fn what_cannot_be_loaded_has_to_be_mended_unless_it_could_be_in_this_process() {
    let no_room = TaskError::NoThread { task: "count".into(), reason: "none left".into() };
    for (error, elsewhere) in
        [(operator_error(), false), (TaskError::Config("no such codec".into()), false), (no_room, true)]
    {
        let mut rig = Rig::new();
        rig.handle(Input::Begin);
        rig.handle(Input::Registered { worker: 1 });
        rig.handle(Input::TaskNotBuilt { task: 0, error: error.clone() });
        assert!(rig.machine.may_begin_again(LaunchHistory::Here));
        assert_eq!(rig.machine.may_begin_again(LaunchHistory::Elsewhere), elsewhere, "{error}");
        assert!(!rig.machine.may_begin_again(LaunchHistory::None));
    }
}

#[test]
fn a_lost_worker_wins_over_the_lost_connection_it_causes() {
    let mut rig = Rig::running();
    assert_eq!(rig.fail_task(0, echo()), []);
    assert_eq!(rig.machine.state(), JobState::Failing);
    rig.advance(Duration::from_millis(100));
    let commands = rig.handle(Input::WorkerLost { worker: 2, how: killed() });
    assert_eq!(commands, [Command::Kill { worker: 2 }, Command::Stop { worker: 1 }]);
    assert_eq!(rig.outcome(), Outcome::Failed(Failure::WorkerLost { worker: 2, how: killed() }));
}

#[test]
fn an_operator_error_wins_over_the_failed_producer_it_causes() {
    let mut rig = Rig::running();
    rig.fail_task(3, TaskError::Cancelled);
    rig.fail_task(0, operator_error());
    assert_eq!(rig.outcome(), Outcome::Failed(Failure::Task { task: 0, error: operator_error() }));
}

#[test]
fn an_echo_without_a_root_is_the_cause_after_the_grace() {
    let mut rig = Rig::running();
    rig.fail_task(0, echo());
    assert_eq!(rig.machine.poll_timeout(), Some(ROOT_GRACE));
    assert_eq!(rig.advance(ROOT_GRACE - Duration::from_millis(1)), []);
    let commands = rig.advance(Duration::from_millis(1));
    assert_eq!(commands, [Command::Stop { worker: 1 }, Command::Stop { worker: 2 }]);
    assert_eq!(rig.outcome(), Outcome::Failed(Failure::Task { task: 0, error: echo() }));
}

#[test]
fn a_lost_connection_wins_over_what_it_did_to_others_whichever_is_told_first() {
    let hearsay = |kind| TaskError::Exchange(ExchangeFailure { kind, message: "an echo of it".into() });
    let failed = hearsay(ExchangeFailureKind::ProducerFailed { partition: 1 });
    let released = hearsay(ExchangeFailureKind::Released);
    for order in [[&released, &failed, &echo()], [&failed, &echo(), &released], [&echo(), &released, &failed]] {
        let mut rig = Rig::running();
        for (task, error) in (0..).zip(order) {
            rig.fail_task(task, error.clone());
            assert_eq!(rig.advance(Duration::from_millis(100)), []);
        }
        rig.advance(ROOT_GRACE);
        let outcome = rig.outcome();
        assert!(matches!(&outcome, Outcome::Failed(Failure::Task { error, .. }) if *error == echo()), "{outcome:?}");
    }
}

#[test]
fn who_is_said_to_have_failed_has_time_to_say_so() {
    let mut rig = Rig::running();
    let kind = ExchangeFailureKind::ProducerFailed { partition: 1 };
    let failed = TaskError::Exchange(ExchangeFailure { kind, message: "producer failed".into() });
    rig.fail_task(0, failed.clone());
    assert_eq!(rig.advance(HEARSAY_GRACE - Duration::from_millis(1)), []);
    rig.fail_task(1, echo());
    rig.advance(Duration::from_millis(1));
    assert_eq!(rig.outcome(), Outcome::Failed(Failure::Task { task: 1, error: echo() }), "and no longer than that");
}

#[test]
fn the_first_root_cause_wins_over_later_ones() {
    let mut rig = Rig::running();
    rig.fail_task(1, operator_error());
    rig.handle(Input::WorkerLost { worker: 2, how: killed() });
    assert_eq!(rig.outcome(), Outcome::Failed(Failure::Task { task: 1, error: operator_error() }));
}

#[test]
fn a_silent_worker_is_killed_and_named_with_its_silence() {
    let mut rig = Rig::running();
    rig.advance(Duration::from_secs(6));
    rig.handle(Input::Heartbeat { worker: 1 });
    assert_eq!(rig.machine.poll_timeout(), Some(Duration::from_secs(10)));
    let commands = rig.advance(Duration::from_secs(4));
    assert_eq!(commands, [Command::Kill { worker: 2 }, Command::Stop { worker: 1 }]);
    let silent_for = Duration::from_secs(10);
    assert_eq!(rig.outcome(), Outcome::Failed(Failure::HeartbeatTimeout { worker: 2, silent_for }));
}

#[test]
fn a_worker_that_dies_before_it_registers_failed_to_launch() {
    let mut rig = Rig::new();
    rig.handle(Input::Begin);
    rig.handle(Input::Registered { worker: 1 });
    let how = WorkerExit::Exited { code: 1 };
    let commands = rig.handle(Input::WorkerLost { worker: 2, how: how.clone() });
    assert_eq!(commands, [Command::Kill { worker: 2 }, Command::Stop { worker: 1 }]);
    assert_eq!(rig.outcome(), Outcome::Failed(Failure::LaunchFailed { worker: 2, how }));
}

#[test]
fn the_worker_the_others_wait_for_is_named_when_time_is_up() {
    let mut rig = Rig::new();
    rig.handle(Input::Begin);
    rig.handle(Input::Registered { worker: 1 });
    for _ in 0..11 {
        rig.advance(Duration::from_secs(5));
        rig.handle(Input::Heartbeat { worker: 1 });
    }
    rig.handle(Input::Deployed { worker: 1 });
    let commands = rig.advance(Duration::from_secs(5));
    assert_eq!(commands, [Command::Stop { worker: 1 }, Command::Kill { worker: 2 }]);
    let expected = Failure::LaunchTimeout { workers: vec![2], limit: LIMITS.launch };
    assert_eq!(rig.outcome(), Outcome::Failed(expected));
}

#[test]
fn a_cancel_stops_every_worker_and_later_errors_do_not_matter() {
    let mut rig = Rig::running();
    let commands = rig.handle(Input::Cancel);
    assert_eq!(commands, [Command::Stop { worker: 1 }, Command::Stop { worker: 2 }]);
    rig.fail_task(0, operator_error());
    assert_eq!(rig.machine.state(), JobState::Cancelling);
    assert_eq!(rig.outcome(), Outcome::Cancelled);
}

#[test]
fn a_cancel_while_launching_kills_who_has_not_registered() {
    let mut rig = Rig::new();
    rig.handle(Input::Begin);
    rig.handle(Input::Registered { worker: 1 });
    let commands = rig.handle(Input::Cancel);
    assert_eq!(commands, [Command::Stop { worker: 1 }, Command::Kill { worker: 2 }]);
    assert_eq!(rig.outcome(), Outcome::Cancelled);
}

#[test]
fn a_cancel_before_the_beginning_ends_the_job_without_a_worker() {
    let mut rig = Rig::new();
    assert_eq!(rig.handle(Input::Cancel), [Command::End { outcome: Outcome::Cancelled }]);
}

#[test]
fn a_cancel_does_not_hide_a_failure_being_looked_into() {
    let mut rig = Rig::running();
    rig.fail_task(0, echo());
    rig.handle(Input::Cancel);
    rig.advance(ROOT_GRACE);
    assert_eq!(rig.outcome(), Outcome::Failed(Failure::Task { task: 0, error: echo() }));
}

#[test]
fn a_stop_ends_the_sources_of_all_and_the_job_finishes_with_its_tasks() {
    for drain in [true, false] {
        let mut rig = Rig::running();
        let ended = rig.handle(Input::Stop { drain });
        let expected = [1, 2].map(|worker| Command::EndSources { worker, drain });
        assert_eq!((ended.as_slice(), rig.machine.state()), (&expected[..], JobState::Stopping));
        assert_eq!(rig.handle(Input::Stop { drain: !drain }), [], "the first word holds");
        for task in 0..4 {
            rig.handle(Input::TaskFinished { task });
        }
        assert_eq!(rig.machine.state(), JobState::Finishing);
        assert_eq!(rig.advance(LIMITS.cancel - Duration::from_millis(1)), [], "its time is that of a job that ends");
        assert_eq!(rig.outcome(), Outcome::Finished);
    }
}

#[test]
fn a_stop_of_a_job_that_starts_waits_until_all_tasks_run() {
    let mut rig = Rig::new();
    rig.handle(Input::Begin);
    for worker in [1, 2] {
        rig.handle(Input::Registered { worker });
        rig.handle(Input::Deployed { worker });
    }
    assert_eq!(rig.handle(Input::Stop { drain: true }), []);
    assert_eq!(rig.handle(Input::Started { worker: 1 }), []);
    let ended = rig.handle(Input::Started { worker: 2 });
    assert_eq!(ended, [1, 2].map(|worker| Command::EndSources { worker, drain: true }));
}

#[test]
fn a_job_that_does_not_stop_in_time_is_cancelled_and_its_last_tasks_named() {
    let mut rig = Rig::running();
    rig.handle(Input::Stop { drain: true });
    rig.handle(Input::TaskFinished { task: 0 });
    rig.handle(Input::TaskFinished { task: 3 });
    assert_eq!(rig.machine.poll_timeout(), Some(LIMITS.stop));
    let commands = rig.advance(LIMITS.stop);
    assert_eq!(commands, [Command::Stop { worker: 1 }, Command::Stop { worker: 2 }]);
    assert_eq!(rig.machine.state(), JobState::Cancelling);
    assert_eq!(rig.outcome(), Outcome::StopTimeout { tasks: vec![1, 2] });
}

#[test]
fn a_job_that_stops_can_be_cancelled_and_can_fail() {
    let mut rig = Rig::running();
    rig.handle(Input::Stop { drain: true });
    assert_eq!(rig.handle(Input::Cancel), [Command::Stop { worker: 1 }, Command::Stop { worker: 2 }]);
    assert_eq!(rig.outcome(), Outcome::Cancelled);
    let mut rig = Rig::running();
    rig.handle(Input::Stop { drain: true });
    rig.fail_task(1, operator_error());
    assert_eq!(rig.outcome(), Outcome::Failed(Failure::Task { task: 1, error: operator_error() }));
}

#[test]
fn a_stop_does_not_hide_a_failure_being_looked_into() {
    let mut rig = Rig::running();
    rig.fail_task(0, echo());
    assert_eq!(rig.handle(Input::Stop { drain: true }), []);
    rig.advance(ROOT_GRACE);
    assert_eq!(rig.outcome(), Outcome::Failed(Failure::Task { task: 0, error: echo() }));
}

#[test]
fn nobody_is_woken_for_the_end_of_a_stop_while_a_failure_is_looked_into() {
    let mut rig = Rig::running();
    rig.handle(Input::Stop { drain: true });
    rig.advance(LIMITS.stop - Duration::from_millis(1));
    rig.fail_task(0, echo());
    rig.advance(Duration::from_millis(2));
    assert_eq!(rig.machine.state(), JobState::Failing);
    assert!(rig.machine.poll_timeout() > Some(rig.now), "it would be woken again and again");
}

#[test]
fn a_worker_that_does_not_stop_in_time_is_killed_and_then_given_up() {
    let mut rig = Rig::running();
    rig.handle(Input::Cancel);
    rig.handle(Input::WorkerGone { worker: 1 });
    assert_eq!(rig.advance(LIMITS.cancel), [Command::Kill { worker: 2 }]);
    assert_eq!(rig.advance(KILL_LIMIT), [Command::End { outcome: Outcome::Cancelled }]);
}

#[test]
fn a_worker_lost_after_all_tasks_finished_does_not_fail_the_job() {
    let mut rig = Rig::running();
    for task in 0..4 {
        rig.handle(Input::TaskFinished { task });
    }
    assert_eq!(rig.handle(Input::WorkerLost { worker: 1, how: killed() }), [Command::Kill { worker: 1 }]);
    assert_eq!(rig.outcome(), Outcome::Finished);
}

#[test]
fn a_task_reported_twice_is_counted_once() {
    let mut rig = Rig::running();
    for _ in 0..4 {
        rig.handle(Input::TaskFinished { task: 0 });
    }
    assert_eq!(rig.machine.state(), JobState::Running);
}

fn input() -> impl Strategy<Value = Input> {
    let worker = 0_u32..4;
    let task = 0_u32..6;
    let error = prop_oneof![Just(operator_error()), Just(echo()), Just(TaskError::Cancelled)];
    prop_oneof![
        2 => Just(Input::Begin),
        8 => worker.clone().prop_map(|worker| Input::Registered { worker }),
        8 => worker.clone().prop_map(|worker| Input::Deployed { worker }),
        8 => worker.clone().prop_map(|worker| Input::Started { worker }),
        8 => worker.clone().prop_map(|worker| Input::Heartbeat { worker }),
        8 => task.clone().prop_map(|task| Input::TaskFinished { task }),
        1 => (task, error, any::<bool>()).prop_map(|(task, error, has_run)| Input::TaskFailed { task, error, has_run }),
        1 => worker.clone().prop_map(|worker| Input::WorkerFailed { worker, message: "no".into() }),
        1 => worker.clone().prop_map(|worker| Input::WorkerLost { worker, how: killed() }),
        2 => worker.prop_map(|worker| Input::WorkerGone { worker }),
        1 => Just(Input::Cancel),
        1 => any::<bool>().prop_map(|drain| Input::Stop { drain }),
        2 => Just(Input::Tick),
    ]
}

proptest! {
    #[test]
    fn any_history_has_legal_commands_and_exactly_one_end(
        history in proptest::collection::vec((input(), 0_u64..3_000), 0..60),
        cancelled in any::<bool>(),
    ) {
        let mut rig = Rig::with(&[0, 1, 2], &[0, 1, 2, 1, 2]);
        for (input, millis) in history {
            rig.now += Duration::from_millis(millis);
            rig.handle(input);
        }
        // No worker answers from here on. Time alone must end a job that has begun. A job that has not begun is
        // cancelled.
        let silent_since = rig.now;
        rig.handle(if cancelled { Input::Cancel } else { Input::Begin });
        for _ in 0..100 {
            let Some(timeout) = rig.machine.poll_timeout() else { break };
            rig.now = rig.now.max(timeout);
            rig.handle(Input::Tick);
        }
        prop_assert_eq!(rig.machine.state(), JobState::Ended);
        let ends = rig.issued.iter().filter(|command| matches!(command, Command::End { .. })).count();
        prop_assert_eq!(ends, 1);
        let bound = LIMITS.launch + LIMITS.heartbeat + ROOT_GRACE + LIMITS.cancel + KILL_LIMIT;
        prop_assert!(rig.now <= silent_since + bound, "I4: took {:?}", rig.now - silent_since);
    }
}
