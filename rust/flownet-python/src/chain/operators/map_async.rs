//! `map_async` and `flat_map_async`: concurrent calls of a coroutine function, on a thread with an event
//! loop.
//!
//! Records pass to that thread, and answers return, in batches: each side wakes the other once for many. The
//! task does not block. If the number of concurrent calls is at its limit, the task reads no input
//! (`is_full`), and answers wake it like mail. It waits inside the operator in two cases only. One is the
//! middle of a record from which an upstream stage makes several records. The other is the end of the input.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flownet_core::Round;
use flownet_runtime::operator::{InFlight, InFlightItem, Operator, ReadyItem, Ticket, WaitingOperator};
use flownet_runtime::snapshot::{Input, RestoredState, Snapshot, put_signed};
use flownet_runtime::time::TimeSignal;
use flownet_runtime::watermark::SplitSignal;
use flownet_runtime::{TaskContext, TaskError};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::chain::answers::{Answer, PyAnswers};
use crate::chain::attach::ThreadsOfTask;
use crate::chain::context::PyTaskContext;
use crate::chain::failure::OperatorInfo;
use crate::chain::keyed::KeptValues;
use crate::chain::record_format::{Collector, EmitEach, PythonFormat};
use crate::codec::{self, KnownClasses};

/// Records that are gathered before they are handed over, unless the batch ends first.
const HANDED_OVER: usize = 64;

/// Ticket with which `flownet.internal.asynchronous` reports that the function is open. The ticket that
/// reports the end of a loop is no record's either.
const OPENED: Ticket = Ticket::MAX;

/// Name and format of its state: `00`, time: signed, record: block; `01`, watermark: signed; `02` idle, `03`
/// not idle.
const STATE: &str = "records under way";
const RECORD: u8 = 0;
const WATERMARK: u8 = 1;
const IDLE: u8 = 2;
const ACTIVE: u8 = 3;

/// Calls a coroutine function for each record.
pub(in crate::chain) struct MapAsync {
    function: Py<PyAny>,
    is_flat: bool,
    timeout: Option<Duration>,
    threads: ThreadsOfTask,
    info: OperatorInfo,
    flight: InFlight<Call, Py<PyAny>>,
    /// Records that are admitted, and not handed over yet.
    gathered: Vec<(Ticket, Py<PyAny>)>,
    calls: Option<Calls>,
    /// True until the function is open.
    is_opening: bool,
    takes_checkpoints: bool,
    classes: KnownClasses,
    kept: KeptValues,
}

/// Limits of calls.
pub(in crate::chain) struct Limits {
    pub(in crate::chain) capacity: usize,
    pub(in crate::chain) timeout: Option<Duration>,
    pub(in crate::chain) keeps_order: bool,
}

/// The thread that runs calls.
struct Calls {
    /// `flownet.internal.asynchronous.Calls`.
    runner: Py<PyAny>,
    answers: Py<PyAnswers>,
}

/// A record whose call is running.
struct Call {
    /// The record, for errors.
    record: Py<PyAny>,
    /// The record as it arrived, for checkpoints: the coroutine may change the object. Empty if no
    /// checkpoints are taken.
    kept: Vec<u8>,
    timestamp_ms: i64,
    due: Option<CallDeadline>,
}

/// Time at which a call has exceeded its timeout.
#[derive(Clone, Copy)]
struct CallDeadline {
    at: Instant,
    /// Time of the check by the wall clock, which may be adjusted in between.
    at_ms: i64,
}

impl MapAsync {
    pub(in crate::chain) fn new(
        function: Py<PyAny>,
        is_flat: bool,
        limits: Limits,
        threads: ThreadsOfTask,
        (classes, kept): (KnownClasses, KeptValues),
        info: OperatorInfo,
    ) -> Self {
        let Limits { capacity, timeout, keeps_order } = limits;
        let flight = InFlight::new(capacity, keeps_order);
        Self {
            function,
            is_flat,
            timeout,
            threads,
            info,
            flight,
            gathered: Vec::new(),
            calls: None,
            is_opening: false,
            takes_checkpoints: false,
            classes,
            kept,
        }
    }

    fn start(&self, py: Python<'_>, cx: &TaskContext) -> PyResult<(Calls, bool)> {
        let answers = Py::new(py, PyAnswers::new(cx.bell.clone(), self.threads.clone()))?;
        let class = py.import(intern!(py, "flownet.internal.asynchronous"))?.getattr(intern!(py, "Calls"))?;
        let runner = class.call1((&self.function, PyTaskContext::new(&self.info, cx), &answers))?;
        let is_opening = runner.call_method0(intern!(py, "start"))?.extract()?;
        Ok((Calls { runner: runner.unbind(), answers }, is_opening))
    }

    /// Begins the calls of the gathered records.
    fn hand_over(&mut self, py: Python<'_>) -> Result<(), TaskError> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        if let Some(timeout) = self.timeout {
            let due = CallDeadline { at: Instant::now() + timeout, at_ms: after(timeout) };
            for (ticket, _) in &self.gathered {
                if let Some(call) = self.flight.running_mut(*ticket) {
                    call.due = Some(due);
                }
            }
        }
        let Some(calls) = &self.calls else { return Ok(()) };
        let begun = PyList::new(py, self.gathered.drain(..))
            .and_then(|gathered| calls.runner.bind(py).call_method1(intern!(py, "begin"), (gathered,)));
        match begun {
            // The reason for the end of the loop says more than this error.
            Err(error) => Err(self.why_ended(py).unwrap_or_else(|| self.info.failed(py, &error, None))),
            Ok(_) => Ok(()),
        }
    }

    #[cold]
    fn why_ended(&mut self, py: Python<'_>) -> Option<TaskError> {
        let answers = self.calls.as_ref()?.answers.get().take();
        answers.into_iter().find_map(|(ticket, answer)| self.take_answer(py, (ticket, answer)).err())
    }

    /// Takes the answers that have arrived, and emits the results that may leave.
    fn take_answers(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        let Some(calls) = &self.calls else { return Ok(()) };
        let was_opening = self.is_opening;
        for answer in calls.answers.get().take() {
            self.take_answer(collector.token, answer)?;
        }
        if was_opening && !self.is_opening {
            // Restored records wait for the function to open.
            self.hand_over(collector.token)?;
        }
        self.emit_ready(collector)
    }

    fn take_answer(&mut self, py: Python<'_>, (ticket, answer): Answer) -> Result<(), TaskError> {
        match answer {
            Ok(_) if ticket == OPENED => self.is_opening = false,
            Ok(value) => {
                self.flight.complete(ticket, value);
            }
            Err(error) => return Err(self.failed(py, ticket, &error)),
        }
        Ok(())
    }

    #[cold]
    fn failed(&mut self, py: Python<'_>, ticket: Ticket, error: &PyErr) -> TaskError {
        let call = self.flight.fail(ticket);
        let record = call.as_ref().map(|call| call.record.bind(py));
        if error.is_instance_of::<PyTypeError>(py) && record.is_some() {
            return self.info.call_failed(py, error, self.function.bind(py), "one record", record);
        }
        self.info.failed(py, error, record)
    }

    fn emit_ready<'py>(&mut self, collector: &mut Collector<'_, 'py>) -> Result<(), TaskError> {
        let py: Python<'py> = collector.token;
        while let Some(ready) = self.flight.next() {
            match ready {
                ReadyItem::Time(signal) => collector.emit_time(signal)?,
                ReadyItem::Round(round) => collector.emit_round(round)?,
                ReadyItem::Split(signal) => collector.tell_split(signal)?,
                ReadyItem::Record(call, value) => {
                    let before_ms = std::mem::replace(&mut collector.timestamp_ms, call.timestamp_ms);
                    let value = value.into_bound(py);
                    if self.is_flat {
                        let record = call.record.bind(py);
                        let failed = |error: PyErr| {
                            self.info.call_failed(py, &error, self.function.bind(py), "one record", Some(record))
                        };
                        collector.emit_each(&value, failed)?;
                    } else {
                        // The result may be the record itself. After this drop it may have no other
                        // reference.
                        drop(call.record);
                        collector.emit(value)?;
                    }
                    collector.timestamp_ms = before_ms;
                }
            }
        }
        Ok(())
    }

    /// Fails if a call has exceeded its timeout. An answer that has arrived in the meantime is taken first.
    fn check_due(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        let Some(timeout) = self.timeout else { return Ok(()) };
        let is_over = |call: &Call| call.due.is_some_and(|due| due.at <= Instant::now());
        if !self.flight.oldest().is_some_and(is_over) {
            return Ok(());
        }
        self.take_answers(collector)?;
        match self.flight.oldest() {
            Some(call) if is_over(call) => Err(self.info.timed_out(timeout, Some(call.record.bind(collector.token)))),
            _ => Ok(()),
        }
    }

    /// Waits until there are answers, and takes them.
    fn await_answers(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        self.hand_over(collector.token)?;
        collector.end_batch()?;
        // Check this last: emitting may have waited for a buffer, and that wait may have consumed the
        // wake-up.
        if self.calls.as_ref().is_some_and(|calls| calls.answers.get().is_empty()) {
            let due = self.flight.oldest().and_then(|call| call.due);
            collector.await_arrival(due.map(|due| due.at.saturating_duration_since(Instant::now())))?;
        }
        self.check_due(collector)?;
        self.take_answers(collector)
    }

    /// Admits a record whose call was running when a checkpoint was taken.
    fn readmit(&mut self, py: Python<'_>, item: &mut Input<'_>) -> Result<(), TaskError> {
        let timestamp_ms = item.signed()?;
        let encoded = item.block()?;
        let record = codec::decode(py, encoded, &self.classes);
        let record = record.map_err(|error| self.info.codec_failed(py, error, None))?.unbind();
        let mut kept = Vec::new();
        self.kept.put((&self.info, STATE), record.bind(py), &mut kept)?;
        let ticket = self.flight.readmit(Call { record: record.clone_ref(py), kept, timestamp_ms, due: None });
        self.gathered.push((ticket, record));
        Ok(())
    }

    /// Waits for all running calls.
    fn drain(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        let before_ms = collector.timestamp_ms;
        self.take_answers(collector)?;
        while self.is_opening || !self.flight.is_empty() {
            self.await_answers(collector)?;
        }
        collector.timestamp_ms = before_ms;
        Ok(())
    }
}

impl Operator<PythonFormat> for MapAsync {
    fn open(&mut self, py: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        let (calls, is_opening) = self.start(py, cx).map_err(|error| self.info.failed(py, &error, None))?;
        (self.calls, self.is_opening) = (Some(calls), is_opening);
        self.takes_checkpoints = cx.takes_checkpoints;
        Ok(())
    }

    fn process<'py>(&mut self, record: Bound<'py, PyAny>, collector: &mut Collector<'_, 'py>) -> Result<(), TaskError> {
        let timestamp_ms = collector.timestamp_ms;
        while self.is_full() {
            self.await_answers(collector)?;
        }
        collector.timestamp_ms = timestamp_ms;
        let mut kept = Vec::new();
        if self.takes_checkpoints {
            self.kept.put((&self.info, STATE), &record, &mut kept)?;
        }
        let record = record.unbind();
        let ticket =
            self.flight.admit(Call { record: record.clone_ref(collector.token), kept, timestamp_ms, due: None });
        self.gathered.push((ticket, record));
        if self.gathered.len() >= HANDED_OVER {
            self.hand_over(collector.token)?;
        }
        if self.is_full() {
            collector.control().pace.end_poll();
        }
        Ok(())
    }

    fn next_timer_ms(&self) -> Option<i64> {
        self.flight.oldest().and_then(|call| call.due).map(|due| due.at_ms)
    }

    fn on_timer(&mut self, now_ms: i64, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        if self.next_timer_ms().is_none_or(|due_ms| due_ms > now_ms) {
            return Ok(());
        }
        self.check_due(collector)?;
        // The call is not overdue: the wall clock was set forward.
        if let Some(due) = self.flight.oldest_mut().and_then(|call| call.due.as_mut())
            && due.at_ms <= now_ms
        {
            due.at_ms = after(due.at.saturating_duration_since(Instant::now())).max(now_ms + 1);
        }
        Ok(())
    }

    fn end_batch(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        self.hand_over(collector.token)
    }

    fn finish(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        self.drain(collector)
    }

    /// If the job is stopped without draining, time does not end. But running calls are completed, unless the
    /// last checkpoint contains their records.
    fn commit(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        if self.takes_checkpoints { Ok(()) } else { self.drain(collector) }
    }

    /// Writes records whose calls are running, with watermarks and idleness among them, in order. A restore
    /// calls the function again.
    fn snapshot(&mut self, _: Python<'_>, to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        let mut item = Vec::new();
        for here in self.flight.here() {
            match here {
                InFlightItem::Record(call) => {
                    item.push(RECORD);
                    put_signed(&mut item, call.timestamp_ms);
                    item.extend_from_slice(&call.kept);
                }
                InFlightItem::Time(TimeSignal::Watermark(timestamp_ms)) => {
                    item.push(WATERMARK);
                    put_signed(&mut item, timestamp_ms);
                }
                InFlightItem::Time(TimeSignal::Idle(is_idle)) => item.push(if is_idle { IDLE } else { ACTIVE }),
            }
        }
        to.add_items(STATE, [item]);
        Ok(())
    }

    fn restore(&mut self, py: Python<'_>, from: &RestoredState<'_>) -> Result<(), TaskError> {
        // Each of several subtasks has its own watermark. None of them tells the progress of all.
        let keeps_time = from.is_of_as_many(STATE, self.info.parallelism);
        for mut item in from.dealt_items(STATE, self.info.parallelism)? {
            while !item.is_empty() {
                let signal = match item.byte()? {
                    RECORD => {
                        self.readmit(py, &mut item)?;
                        continue;
                    }
                    WATERMARK => TimeSignal::Watermark(item.signed()?),
                    kind @ (IDLE | ACTIVE) => TimeSignal::Idle(kind == IDLE),
                    other => return Err(item.broken(format_args!("a record of kind {other}"))),
                };
                if keeps_time {
                    self.flight.hold(signal);
                }
            }
        }
        if self.is_opening { Ok(()) } else { self.hand_over(py) }
    }

    fn close(&mut self, py: Python<'_>) -> Result<(), TaskError> {
        let Some(calls) = self.calls.take() else { return Ok(()) };
        let closed = calls.runner.bind(py).call_method0(intern!(py, "close"));
        // An error that came too late holds frames of the runner, which holds the answers. These hold the
        // task's waker.
        drop(calls.answers.get().take());
        closed.map(drop).map_err(|error| self.info.failed(py, &error, None))
    }
}

impl WaitingOperator<PythonFormat> for MapAsync {
    fn is_full(&self) -> bool {
        self.is_opening || self.flight.is_full()
    }

    fn on_arrived(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        self.take_answers(collector)
    }

    fn hold(&mut self, signal: TimeSignal) -> bool {
        self.flight.hold(signal)
    }

    fn hold_split(&mut self, signal: SplitSignal) -> bool {
        self.flight.hold_split(signal)
    }

    fn hold_round(&mut self, round: Round) -> bool {
        self.flight.hold_round(round)
    }
}

/// The wall clock's time after `time`, in milliseconds.
fn after(time: Duration) -> i64 {
    let then = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().saturating_add(time);
    i64::try_from(then.as_millis()).unwrap_or(i64::MAX)
}
