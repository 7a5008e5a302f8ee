//! The loop of one task.
//!
//! ```text
//!        +-----------------------------------------------------------------+
//!        v                                                                 |
//!   read mail -> fire timers -> outputs available? --no--> wait for them --+
//!                                       | yes                              |
//!                      what others sent -> chain full? --yes--> wait for it -+
//!                                       | no                               |
//!                               input or source ------> chain -------------+
//!                                       | nothing there                    |
//!                                       +--------> wait for it ------------+
//! ```
//!
//! While a snapshot is being written, the task writes some of it in each turn of the loop instead of waiting.
//!
//! # Invariants
//! - I1: input is taken only while all outputs are available and the chain is not full, so a slow consumer slows
//!   exactly its producers.
//! - I2: before every wait, the task's waker is registered with everything that it waits for. Mail always wakes it. A
//!   wait has a time limit only if a timer or the source asks for one.
//! - I3: on every way out, including a panic, the chain is closed, the partitions are finished or failed, and the gate
//!   is closed.

mod checkpoints;
mod manual;
mod markers;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use flownet_core::Event;
use flownet_core::partition::PartitionHandle;
use flownet_memory::BufferPool;
use flownet_net::{Inlets, ThreadParker};

use self::checkpoints::PendingSnapshot;
pub(crate) use self::manual::{ManualTask, TurnOutcome};
pub(crate) use self::markers::Markers;
use crate::chain::{AwaitedInput, SourceStatus, TaskContext};
use crate::error::TaskError;
use crate::input::{Arrival, Signal, TaskInput};
use crate::mailbox::{Mail, Mailbox};
use crate::operator::{OperatorChain, RecordFormat};
use crate::outputs::Outputs;
use crate::snapshot::{CheckpointContext, Edges, Progress};
use crate::source::Turn;
use crate::time::{END_OF_TIME_MS, TimeSignal};
use crate::time_accounting::TimeState;

/// Longest sleep before a timer, because the wall clock may be set meanwhile.
const MAX_TIMER_SLEEP: Duration = Duration::from_secs(1);

/// One task on its own thread.
pub(crate) struct Task<M: RecordFormat> {
    cx: TaskContext,
    chain: OperatorChain<M>,
    /// `None` for a source.
    input: Option<TaskInput>,
    /// The connections that bring the input.
    inlets: Arc<Inlets>,
    outputs: Outputs,
    output_pools: Vec<Arc<BufferPool>>,
    partitions: Vec<PartitionHandle>,
    mailbox: Mailbox,
    parker: Arc<ThreadParker>,
    started: Instant,
    /// An operator's waker was called.
    has_arrived: bool,
    /// The input that is awaited. Records from outside the exchange must not delay it forever.
    awaited: AwaitedInput,
    /// The next turn reads the input.
    is_inputs_turn: bool,
    /// The source was asked to end. True if it drains, which also fires all pending timers.
    source_end: Option<bool>,
    /// `None` without checkpoints.
    checkpointing: Option<CheckpointContext>,
    /// Checkpoint progress, once the task runs.
    progress: Option<Progress>,
    /// Names of its channels in snapshots.
    edges: Edges,
    /// A snapshot of a checkpoint whose barriers have not all arrived.
    taken: Option<PendingSnapshot>,
    /// Latency markers, for a source that emits some.
    markers: Option<Markers>,
    /// No more data will arrive, but the chain still works on earlier data: `drain` of that end.
    ending: Option<bool>,
    /// The input has ended and the operators have finished: `drain` of that end.
    ended: Option<bool>,
    /// The operators are open and their state is restored.
    has_run: bool,
}

/// Everything that a new task needs besides its chain.
pub(crate) struct TaskSetup {
    pub(crate) cx: TaskContext,
    /// `None` for a source.
    pub(crate) input: Option<TaskInput>,
    /// The connections that bring the input.
    pub(crate) inlets: Arc<Inlets>,
    pub(crate) outputs: Outputs,
    pub(crate) output_pools: Vec<Arc<BufferPool>>,
    pub(crate) partitions: Vec<PartitionHandle>,
    pub(crate) mailbox: Mailbox,
    pub(crate) parker: Arc<ThreadParker>,
    /// `None` without checkpoints.
    pub(crate) checkpointing: Option<CheckpointContext>,
    /// Names of its channels in snapshots.
    pub(crate) edges: Edges,
    /// Latency markers, for a source that emits some.
    pub(crate) markers: Option<Markers>,
}

pub(crate) enum Step {
    /// The task did some work; there may be more.
    More,
    /// The task has no work for now, at most for this long.
    Wait(Option<Duration>),
    /// Downstream tasks or the coordinator hold the task back, until it is woken or at most for this long.
    Held(Option<Duration>),
    /// The chain is full: no work until something arrives for an operator, at most for this long.
    Await(Option<Duration>),
    /// The source is ahead of those that it is aligned with: no work until it is woken, at most for this long.
    Align(Option<Duration>),
    /// The input has ended.
    End { drain: bool },
}

impl<M: RecordFormat> Task<M> {
    /// A task that has not begun.
    pub(crate) fn new(chain: OperatorChain<M>, setup: TaskSetup) -> Self {
        let TaskSetup { cx, input, inlets, outputs, output_pools, partitions, mailbox, parker, .. } = setup;
        let TaskSetup { checkpointing, edges, markers, .. } = setup;
        Self {
            cx,
            chain,
            input,
            inlets,
            outputs,
            output_pools,
            partitions,
            mailbox,
            parker,
            started: Instant::now(),
            has_arrived: false,
            awaited: AwaitedInput::Nothing,
            is_inputs_turn: false,
            source_end: None,
            checkpointing,
            progress: None,
            edges,
            taken: None,
            markers,
            ending: None,
            ended: None,
            has_run: false,
        }
    }

    /// Runs the task to its end and releases all its resources. Calls `on_failure` as soon as the task has failed, with
    /// true if its operators had started.
    pub(crate) fn run(mut self, name: &str, on_failure: impl FnOnce(&TaskError, bool)) -> Result<(), TaskError> {
        let ran = catching(name, || self.run_chain());
        let (ran, closed) = match ran {
            Err(error) => {
                // Fail first, because `close` of user code may take long. Readers then get the cause before any
                // follow-up errors.
                self.fail(&error, on_failure);
                (Err(error), catching(name, || self.chain.close()))
            }
            Ok(()) => {
                // A failure to finish in `close` is a failure like any other.
                let closed = catching(name, || self.chain.close());
                if let Err(error) = &closed {
                    self.fail(error, on_failure);
                }
                (closed, Ok(()))
            }
        };
        if let Err(error) = closed {
            tracing::warn!(task = name, %error, "close() failed too");
        }
        self.cx.metrics.close();
        ran
    }

    fn fail(&self, error: &TaskError, on_failure: impl FnOnce(&TaskError, bool)) {
        on_failure(error, self.has_run);
        let cause: Arc<str> = error.to_string().into();
        self.partitions.iter().for_each(|partition| partition.fail(Arc::clone(&cause)));
    }

    fn run_chain(&mut self) -> Result<(), TaskError> {
        self.switch(TimeState::Busy);
        self.chain.open(&self.cx)?;
        self.restore()?;
        self.count();
        self.has_run = true;
        if self.input.is_none() {
            self.outputs.control.pace.set_limit(self.chain.rate_limit())?;
        }
        let drain = self.run_to_end_of_input()?;
        self.finish(drain)
    }

    fn run_to_end_of_input(&mut self) -> Result<bool, TaskError> {
        loop {
            match self.turn()? {
                Step::More => {}
                Step::Wait(limit) => self.sleep(self.without_input(), limit),
                Step::Held(limit) => self.sleep(TimeState::SoftBackPressured(self.outputs.lack()), limit),
                Step::Await(limit) => self.sleep(TimeState::Awaiting, limit),
                Step::Align(limit) => self.sleep(TimeState::Aligning, limit),
                Step::End { drain } => {
                    self.end_data(drain)?;
                    if self.progress.as_ref().is_none_or(Progress::may_end) {
                        return Ok(drain);
                    }
                    // A checkpoint that covers all work is still to come.
                    if !self.is_writing() {
                        self.sleep(TimeState::Idle, None);
                    }
                }
            }
        }
    }

    /// Runs one turn of the loop, and continues to write a pending snapshot.
    fn turn(&mut self) -> Result<Step, TaskError> {
        let step = self.turn_around()?;
        if !self.is_writing() {
            return Ok(step);
        }
        self.write_on(matches!(step, Step::More))?;
        // No waiting while a snapshot is written. The end of input is still reported.
        Ok(if matches!(step, Step::End { .. }) { step } else { Step::More })
    }

    fn turn_around(&mut self) -> Result<Step, TaskError> {
        self.read_mail()?;
        // The rest of a blocked record goes first (I1 of `outputs`).
        self.outputs.wait()?;
        if self.cx.cancel.take_attention() {
            self.take_urgent()?;
        }
        let timer = if self.ended.is_some() { None } else { self.fire_timers()? };
        let timer = shorter(timer, self.emit_marker()?);
        if !self.outputs.is_available() && !self.outputs.poll_available()? {
            return Ok(Step::Held(timer));
        }
        // Records that arrive after an end without drain are left to the run that resumes from the next checkpoint.
        self.has_arrived &= self.ended.is_none();
        // A full chain takes no input in its turn either, and it may wait for just the records that have arrived.
        if self.has_arrived && (!std::mem::take(&mut self.is_inputs_turn) || self.chain.is_full()) {
            self.has_arrived = false;
            self.is_inputs_turn = self.awaited != AwaitedInput::Nothing;
            self.switch(TimeState::Busy);
            self.chain.on_arrived(self.cx.clock.now_ms(), &mut self.outputs)?;
            return Ok(Step::More);
        }
        if let Some(drain) = self.ending {
            self.data_ends(drain)?;
        }
        if self.chain.is_full() {
            return Ok(Step::Await(timer));
        }
        let step = self.step()?;
        if self.has_arrived && matches!(step, Step::Wait(_) | Step::End { .. }) {
            // It was the input's turn, but there was no input.
            return Ok(Step::More);
        }
        Ok(match step {
            Step::Wait(limit) => Step::Wait(shorter(timer, limit)),
            Step::Held(limit) => Step::Held(shorter(timer, limit)),
            Step::Align(limit) => Step::Align(shorter(timer, limit)),
            Step::End { drain } => match self.chain_ends(drain)? {
                Some(drain) => Step::End { drain },
                None => Step::Wait(timer),
            },
            done => done,
        })
    }

    /// No more data will arrive, only barriers.
    #[cold]
    fn data_ends(&mut self, drain: bool) -> Result<(), TaskError> {
        let ended = self.chain_ends(drain)?;
        self.ending = ended.is_none().then_some(drain);
        ended.map_or(Ok(()), |drain| self.end_data(drain))
    }

    /// The input has ended. Returns the chain's own `drain` once it has no work left.
    #[cold]
    fn chain_ends(&mut self, drain: bool) -> Result<Option<bool>, TaskError> {
        self.switch(TimeState::Busy);
        match self.ended {
            Some(drain) => Ok(Some(drain)),
            None => self.chain.end_input(drain, self.cx.clock.now_ms(), &mut self.outputs),
        }
    }

    /// Ends the outputs after the input has ended. Event time ends too if the input reached its own end.
    fn finish(&mut self, drain: bool) -> Result<(), TaskError> {
        self.end_data(drain)?;
        self.switch(TimeState::Busy);
        self.chain.commit(&mut self.outputs)?;
        self.count();
        self.outputs.finish(drain)
    }

    /// Handles the end of input. With checkpoints, readers get the end at once, and wait for the next checkpoint as
    /// this task does.
    fn end_data(&mut self, drain: bool) -> Result<(), TaskError> {
        if self.ended.is_some() {
            return Ok(());
        }
        self.ended = Some(drain);
        self.switch(TimeState::Busy);
        if drain && self.input.is_none() {
            // Tasks with inputs get the end of time from upstream; at a source it starts here.
            self.cx.metrics.set_watermark(END_OF_TIME_MS);
            self.chain.on_time(TimeSignal::Watermark(END_OF_TIME_MS), self.cx.clock.now_ms(), &mut self.outputs)?;
        }
        self.cx.metrics.end_input();
        if let Some(progress) = &mut self.progress {
            self.outputs.end_data(drain)?;
            progress.on_end(drain);
        }
        Ok(())
    }

    fn read_mail(&mut self) -> Result<(), TaskError> {
        match self.mailbox.take() {
            Some(Mail::Cancel) => Err(TaskError::Cancelled),
            Some(Mail::Order(order)) => {
                self.outputs.control.pace.follow(order, self.started.elapsed());
                Ok(())
            }
            Some(Mail::EndSource { drain }) => {
                self.source_end.get_or_insert(drain);
                self.await_input(self.awaited);
                Ok(())
            }
            Some(Mail::Align(limit_ms)) => {
                self.chain.align(limit_ms);
                Ok(())
            }
            Some(Mail::Splits(splits)) => {
                self.chain.add_splits(&splits);
                Ok(())
            }
            Some(Mail::Checkpoint(order)) => self.follow(order),
            Some(Mail::Count) => {
                self.count();
                Ok(())
            }
            Some(Mail::Arrived) => {
                self.has_arrived = true;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn await_input(&mut self, awaited: AwaitedInput) {
        // A stop is awaited until the end. Sources end by their own order, which may have been to drain.
        let is_stopped = self.input.is_some() && self.source_end == Some(false);
        self.awaited = if is_stopped { AwaitedInput::Stop } else { awaited };
        self.chain.await_input(self.awaited);
    }

    /// Fires due timers. Returns the time that the task may sleep.
    fn fire_timers(&mut self) -> Result<Option<Duration>, TaskError> {
        let Some(due_ms) = self.chain.next_timer_ms() else { return Ok(None) };
        let now_ms = self.cx.clock.now_ms();
        if let Ok(left_ms @ 1..) = u64::try_from(due_ms.saturating_sub(now_ms)) {
            return Ok(Some(Duration::from_millis(left_ms).min(MAX_TIMER_SLEEP)));
        }
        self.switch(TimeState::Busy);
        self.chain.on_timer(now_ms, &mut self.outputs)?;
        // Check again before sleeping: firing may have set further timers.
        Ok(Some(Duration::ZERO))
    }

    fn step(&mut self) -> Result<Step, TaskError> {
        if self.input.is_some() { self.step_input() } else { self.step_source() }
    }

    fn step_source(&mut self) -> Result<Step, TaskError> {
        if let Some(drain) = self.ended.or(self.source_end) {
            return Ok(Step::End { drain });
        }
        if self.chain.is_ahead() {
            return Ok(Step::Align(None));
        }
        let now = if self.outputs.control.pace.is_free() { Duration::ZERO } else { self.started.elapsed() };
        match self.outputs.control.pace.begin(now) {
            Turn::Go => {}
            Turn::Wait(wait) => return Ok(Step::Wait(Some(wait))),
            Turn::Held(limit) => return Ok(Step::Held(limit)),
        }
        self.switch(TimeState::Busy);
        let before = self.cx.metrics.records_in();
        let status = self.chain.poll_source(&mut self.outputs)?;
        self.outputs.control.pace.end(self.cx.metrics.records_in() - before, now);
        Ok(match status {
            SourceStatus::More => Step::More,
            SourceStatus::Idle { wake_after } => Step::Wait(Some(wake_after)),
            SourceStatus::Finished => Step::End { drain: true },
        })
    }

    fn step_input(&mut self) -> Result<Step, TaskError> {
        let Some(input) = &mut self.input else { return Ok(Step::End { drain: true }) };
        match input.poll(self.parker.waker()) {
            Poll::Pending => return Ok(Step::Wait(None)),
            Poll::Ready(Err(error)) => return Err(error),
            Poll::Ready(Ok(Arrival::End { drain })) => return Ok(Step::End { drain }),
            Poll::Ready(Ok(Arrival::Events)) => {}
            Poll::Ready(Ok(Arrival::Buffer)) => self.process()?,
        }
        self.handle_signals()?;
        Ok(Step::More)
    }

    fn handle_signals(&mut self) -> Result<(), TaskError> {
        while let Some(signal) = self.input.as_mut().and_then(TaskInput::take_signal) {
            self.handle_signal(signal)?;
        }
        Ok(())
    }

    fn process(&mut self) -> Result<(), TaskError> {
        self.switch(TimeState::Busy);
        let (mailbox, pools, clock) = (&self.mailbox, &self.output_pools, &self.cx.clock);
        let cancel = &self.cx.cancel;
        let timer_ms = self.chain.next_timer_ms();
        let now_ms = clock.now_ms();
        let should_yield = || {
            let at_ms = clock.now_ms();
            at_ms.abs_diff(now_ms) >= MOST_BATCH_MS
                || timer_ms.is_some_and(|due_ms| due_ms <= at_ms)
                || mailbox.has_mail()
                || cancel.is_raised()
                || !pools.iter().all(|pool| pool.is_available())
        };
        let Some(input) = &mut self.input else { return Ok(()) };
        input.debloat(now_ms);
        self.chain.process(&mut input.batch(&should_yield, now_ms), &mut self.outputs)
    }

    fn handle_signal(&mut self, signal: Signal) -> Result<(), TaskError> {
        self.switch(TimeState::Busy);
        match signal {
            Signal::Time(signal) => {
                if let TimeSignal::Watermark(timestamp_ms) = signal {
                    self.cx.metrics.set_watermark(timestamp_ms);
                }
                self.chain.on_time(signal, self.cx.clock.now_ms(), &mut self.outputs)
            }
            Signal::Custom(event) => self.chain.on_custom(&event, &mut self.outputs),
            Signal::Marker(marker) => self.pass_marker(&marker),
            Signal::Round(round) => self.chain.on_round(round, &mut self.outputs),
            Signal::Barrier(barrier) => self.take_checkpoint(barrier),
            Signal::Completed { checkpoint_id, aligned, in_flight } => {
                self.complete_checkpoint(checkpoint_id, aligned, &in_flight)
            }
            Signal::Cancelled(checkpoint_id) => {
                self.forget(checkpoint_id);
                self.outputs.send_to_all(&Event::CancelBarrier { checkpoint_id })
            }
            Signal::EndOfData { drain } => self.data_ends(drain),
        }
    }

    fn sleep(&mut self, state: TimeState, limit: Option<Duration>) {
        if self.mailbox.has_mail() || limit.is_some_and(|limit| limit.is_zero()) {
            return;
        }
        self.switch(state);
        match state {
            TimeState::SoftBackPressured(_) => self.outputs.control.park(limit),
            _ => {
                self.inlets.park(&self.parker, limit);
            }
        }
    }

    /// Publishes the state stats of the operators.
    fn count(&self) {
        self.cx.metrics.set_tally(self.chain.tally());
    }

    /// The time state of a task without input to read.
    fn without_input(&self) -> TimeState {
        let is_held = self.input.as_ref().is_some_and(TaskInput::waits_for_barriers);
        if is_held { TimeState::Barrier } else { TimeState::Idle }
    }

    fn switch(&self, state: TimeState) {
        if state == TimeState::Busy {
            self.cx.metrics.begin_work();
        }
        self.cx.metrics.switch(state);
    }
}

/// Runs `body` and turns a panic into an error.
pub(crate) fn catching(task: &str, body: impl FnOnce() -> Result<(), TaskError>) -> Result<(), TaskError> {
    // State that a panic leaves half done is dropped right after: only `close` runs on it again.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let message = text.or_else(|| panic.downcast_ref::<String>().cloned());
        let message = message.unwrap_or_else(|| "no message".to_owned());
        Err(TaskError::Panic { task: task.to_owned(), message })
    })
}

fn shorter(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (limit, None) | (None, limit) => limit,
    }
}

/// A batch of several buffers ends after this time: its records share one clock reading.
const MOST_BATCH_MS: u64 = 5;
