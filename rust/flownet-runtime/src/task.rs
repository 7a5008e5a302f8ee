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
//! As long as a snapshot is being written, some of it is written each time around, instead of any wait.
//!
//! # Invariants
//! - I1: input is taken only while all outputs are available and the chain is not full, so a slow consumer slows exactly
//!   its producers.
//! - I2: before every wait the task's waker was given to all it waits for; mail wakes it always. No wait is timed unless
//!   a timer or the source asks for it.
//! - I3: the chain is closed, the partitions are finished or failed and the gate is closed on every way out, a panic
//!   included.

mod checkpoints;
mod markers;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use flownet_core::Event;
use flownet_core::partition::PartitionHandle;
use flownet_memory::BufferPool;
use flownet_net::{Inlets, ThreadParker};

pub(crate) use self::checkpoints::PendingSnapshot;
pub(crate) use self::markers::Markers;
use crate::chain::{AwaitedInput, Chain, SourceStatus, TaskContext};
use crate::error::TaskError;
use crate::input::{Arrival, Signal, TaskInput};
use crate::mailbox::{Mail, Mailbox};
use crate::outputs::Outputs;
use crate::snapshot::{CheckpointContext, Edges, Progress};
use crate::source::Turn;
use crate::time::{END_OF_TIME_MS, TimeSignal};
use crate::time_accounting::TimeState;

/// Longest sleep towards a timer: the wall clock may be set meanwhile.
const MAX_TIMER_SLEEP: Duration = Duration::from_secs(1);

/// One task on its own thread.
pub(crate) struct Task<C: Chain + ?Sized = dyn Chain> {
    pub(crate) cx: TaskContext,
    pub(crate) chain: Box<C>,
    /// `None` for a source.
    pub(crate) input: Option<TaskInput>,
    /// Where the connections are that bring it.
    pub(crate) inlets: Arc<Inlets>,
    pub(crate) outputs: Outputs,
    pub(crate) output_pools: Vec<Arc<BufferPool>>,
    pub(crate) partitions: Vec<PartitionHandle>,
    pub(crate) mailbox: Mailbox,
    pub(crate) parker: Arc<ThreadParker>,
    pub(crate) started: Instant,
    /// Somebody has rung for an operator.
    pub(crate) has_arrived: bool,
    /// What is to come by the input: what others sent does not go before it for ever.
    pub(crate) awaited: AwaitedInput,
    /// It is the input's turn.
    pub(crate) is_inputs_turn: bool,
    /// The source was told to end, and whether with everything that waits for time.
    pub(crate) source_end: Option<bool>,
    /// None without checkpoints.
    pub(crate) checkpointing: Option<CheckpointContext>,
    /// The same, once the task runs.
    pub(crate) progress: Option<Progress>,
    /// What is kept of its channels is called so.
    pub(crate) edges: Edges,
    /// A snapshot that was taken, of a checkpoint whose barriers have not all come.
    pub(crate) taken: Option<PendingSnapshot>,
    /// Of a source that emits some.
    pub(crate) markers: Option<Markers>,
    /// There are no more data to come, and the chain is not done with those it had: `drain` of that end.
    pub(crate) ending: Option<bool>,
    /// The input has ended and the operators have finished: `drain` of that end.
    pub(crate) ended: Option<bool>,
    /// The operators are open, with what they had kept.
    pub(crate) has_run: bool,
}

pub(crate) enum Step {
    /// Something was done; there may be more.
    More,
    /// Nothing to do for now, at most for this long.
    Wait(Option<Duration>),
    /// Those behind hold it back, or the coordinator, until it is woken or at most for this long.
    Held(Option<Duration>),
    /// The chain is full: nothing to do until something arrives for an operator, at most for this long.
    Await(Option<Duration>),
    /// The source is ahead of those it is aligned with: nothing to do until it is woken, at most for this long.
    Align(Option<Duration>),
    /// The input has ended.
    End { drain: bool },
}

impl<C: Chain + ?Sized> Task<C> {
    /// Runs the task to its end, whatever that is, and gives everything back. `on_failure` is called as soon as it has
    /// failed, with whether it had come to run.
    pub(crate) fn run(mut self, name: &str, on_failure: impl FnOnce(&TaskError, bool)) -> Result<(), TaskError> {
        let ran = catching(name, || self.run_chain());
        let (ran, closed) = match ran {
            Err(error) => {
                // Before user code closes at its leisure; and the cause is told before its echoes can be.
                self.fail(&error, on_failure);
                (Err(error), catching(name, || self.chain.close()))
            }
            Ok(()) => {
                // What an operator could not finish in `close` is a failure like any other.
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
            self.outputs.pace.set_limit(self.chain.rate_limit())?;
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
                    // A checkpoint that keeps all that was done is on its way.
                    if !self.is_writing() {
                        self.sleep(TimeState::Idle, None);
                    }
                }
            }
        }
    }

    /// Does what there is to do next, once around the loop, and writes some more of a snapshot that is being written.
    pub(crate) fn turn(&mut self) -> Result<Step, TaskError> {
        let step = self.turn_around()?;
        if !self.is_writing() {
            return Ok(step);
        }
        self.write_on(matches!(step, Step::More))?;
        // Nobody waits meanwhile. An end is an end, whatever is being written.
        Ok(if matches!(step, Step::End { .. }) { step } else { Step::More })
    }

    fn turn_around(&mut self) -> Result<Step, TaskError> {
        self.read_mail()?;
        self.outputs.wait()?;
        if self.cx.cancel.take_attention() {
            self.take_urgent()?;
        }
        let timer = if self.ended.is_some() { None } else { self.fire_timers()? };
        let timer = shorter(timer, self.emit_marker()?);
        if !self.outputs.is_available() && !self.outputs.poll_available()? {
            return Ok(Step::Held(timer));
        }
        // What comes behind the end, where that was no drain, is left to whoever goes on from the checkpoint that follows.
        self.has_arrived &= self.ended.is_none();
        // A chain that is full takes no input in its turn either, and what has arrived may be all that it waits for.
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
            // It was the input's turn, and there was none.
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

    /// No more data will come, only barriers.
    #[cold]
    fn data_ends(&mut self, drain: bool) -> Result<(), TaskError> {
        let ended = self.chain_ends(drain)?;
        self.ending = ended.is_none().then_some(drain);
        ended.map_or(Ok(()), |drain| self.end_data(drain))
    }

    /// The input has ended; how the chain ends, once it has nothing left to do.
    #[cold]
    fn chain_ends(&mut self, drain: bool) -> Result<Option<bool>, TaskError> {
        self.switch(TimeState::Busy);
        match self.ended {
            Some(drain) => Ok(Some(drain)),
            None => self.chain.end_input(drain, self.cx.clock.now_ms(), &mut self.outputs),
        }
    }

    /// The input has ended: so does time, if it came to its own end, and so do the outputs.
    pub(crate) fn finish(&mut self, drain: bool) -> Result<(), TaskError> {
        self.end_data(drain)?;
        self.switch(TimeState::Busy);
        self.chain.commit(&mut self.outputs)?;
        self.count();
        self.outputs.finish(drain)
    }

    /// The input has ended. Where checkpoints are taken all readers are told, who wait for the next one as this task does.
    fn end_data(&mut self, drain: bool) -> Result<(), TaskError> {
        if self.ended.is_some() {
            return Ok(());
        }
        self.ended = Some(drain);
        self.switch(TimeState::Busy);
        if drain && self.input.is_none() {
            // Tasks with inputs learn from these that time is over; here it begins.
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
                self.outputs.pace.follow(order, self.started.elapsed());
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
        // A stop is waited for to the last; but sources that were told to drain before it end by that order.
        let is_stopped = self.input.is_some() && self.source_end == Some(false);
        self.awaited = if is_stopped { AwaitedInput::Stop } else { awaited };
        self.chain.await_input(self.awaited);
    }

    /// Fires what is due; says how long the task may sleep.
    fn fire_timers(&mut self) -> Result<Option<Duration>, TaskError> {
        let Some(due_ms) = self.chain.next_timer_ms() else { return Ok(None) };
        let now_ms = self.cx.clock.now_ms();
        if let Ok(left_ms @ 1..) = u64::try_from(due_ms.saturating_sub(now_ms)) {
            return Ok(Some(Duration::from_millis(left_ms).min(MAX_TIMER_SLEEP)));
        }
        self.switch(TimeState::Busy);
        self.chain.on_timer(now_ms, &mut self.outputs)?;
        // Look again before sleeping: firing may have set further timers.
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
        let now = if self.outputs.pace.is_free() { Duration::ZERO } else { self.started.elapsed() };
        match self.outputs.pace.begin(now) {
            Turn::Go => {}
            Turn::Wait(wait) => return Ok(Step::Wait(Some(wait))),
            Turn::Held(limit) => return Ok(Step::Held(limit)),
        }
        self.switch(TimeState::Busy);
        let before = self.cx.metrics.records_in();
        let status = self.chain.poll_source(&mut self.outputs)?;
        self.outputs.pace.end(self.cx.metrics.records_in() - before, now);
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

    pub(crate) fn sleep(&mut self, state: TimeState, limit: Option<Duration>) {
        if self.mailbox.has_mail() || limit.is_some_and(|limit| limit.is_zero()) {
            return;
        }
        self.switch(state);
        match state {
            TimeState::SoftBackPressured(_) => self.outputs.park(limit),
            _ => {
                self.inlets.park(&self.parker, limit);
            }
        }
    }

    /// Tells what the operators hold.
    fn count(&self) {
        self.cx.metrics.set_tally(self.chain.tally());
    }

    /// What the task does where there is nothing to read.
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
    // What a panic may leave half done is given up right after: nothing runs on it again but `close`.
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

/// A batch of several buffers ends after so long: its records share one reading of the clock.
const MOST_BATCH_MS: u64 = 5;
