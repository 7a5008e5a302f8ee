//! The tree of a chain: stages, the links between them, and how a record flows from one to the next.

use std::time::{Duration, Instant};

use flownet_runtime::ledger::TimeState;
use flownet_runtime::source::Throttle;
use flownet_runtime::{CancelToken, Outputs, SourceStatus, TaskContext, TaskError, TimeSpent};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyIterator, PyList, PyString};

use super::attach::detached;
use super::exit::Exit;
use super::failure::{OperatorInfo, short_repr};
use super::isolate::{is_immutable, isolate, take_item};
use super::record::KeyedRecord;
use crate::codec::{SentClasses, encode, exact};

/// A source: the head of a task without inputs.
pub(super) trait Source: Send {
    /// Prepares the subtask.
    fn open(&mut self, py: Python<'_>, cx: &TaskContext) -> Result<(), TaskError>;

    /// Waits for input and reads it, without the interpreter. A status ends this poll; `None` asks for `emit`.
    fn fill(&mut self, out: &mut Outputs) -> Result<Option<SourceStatus>, TaskError> {
        let _ = out;
        Ok(None)
    }

    /// Emits a bounded number of records.
    fn emit(&mut self, flow: &mut Flow<'_, '_>) -> Result<SourceStatus, TaskError>;

    /// Gives back what `open` took.
    fn close(&mut self, py: Python<'_>) -> Result<(), TaskError> {
        let _ = py;
        Ok(())
    }
}

/// An operator that takes records as Python objects, sinks included.
pub(super) trait Operator: Send {
    /// Prepares the subtask.
    fn open(&mut self, py: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        let _ = (py, cx);
        Ok(())
    }

    /// Takes one record.
    fn push<'py>(&mut self, record: Bound<'py, PyAny>, flow: &mut Flow<'_, 'py>) -> Result<(), TaskError>;

    /// The batch is over: hands on what was gathered.
    fn end_batch(&mut self, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        let _ = flow;
        Ok(())
    }

    /// The input has ended and the last batch is over: makes the results final.
    fn commit(&mut self, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        let _ = flow;
        Ok(())
    }

    /// Gives back what `open` took.
    fn close(&mut self, py: Python<'_>) -> Result<(), TaskError> {
        let _ = py;
        Ok(())
    }
}

/// An operator behind a keyed edge: the head of a task.
pub(super) trait KeyedOperator: Send {
    /// Prepares the subtask; its key groups are known now.
    fn open(&mut self, py: Python<'_>, cx: &TaskContext) -> Result<(), TaskError>;

    /// Takes a record without the interpreter, if this operator and this record allow it; false leaves it untouched.
    fn absorb(&mut self, record: &KeyedRecord<'_>, now_ms: i64) -> Result<bool, TaskError> {
        let _ = (record, now_ms);
        Ok(false)
    }

    /// Takes a record.
    fn push(&mut self, record: &KeyedRecord<'_>, now_ms: i64, flow: &mut Flow<'_, '_>) -> Result<(), TaskError>;

    /// When `on_timer` is wanted.
    fn next_timer_ms(&self) -> Option<i64> {
        None
    }

    /// Fires what is due.
    fn on_timer(&mut self, now_ms: i64, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        let _ = (now_ms, flow);
        Ok(())
    }

    /// The input has ended: fires everything.
    fn finish(&mut self, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        let _ = flow;
        Ok(())
    }

    /// Gives back what `open` took.
    fn close(&mut self, py: Python<'_>) -> Result<(), TaskError> {
        let _ = py;
        Ok(())
    }
}

/// One operator in its place.
pub(super) struct Stage {
    pub(super) info: OperatorInfo,
    pub(super) kind: Kind,
    pub(super) links: Vec<Link>,
    /// Set where the operator's config has a rate.
    pub(super) brake: Option<Brake>,
    is_open: bool,
}

/// What a stage does.
pub(super) enum Kind {
    Source(Box<dyn Source>),
    Operator(Box<dyn Operator>),
    Keyed(Box<dyn KeyedOperator>),
}

/// Where a stage's records go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) to: Target,
    /// Whether a user's function there gets objects of its own, which it may change and keep.
    pub(super) isolates: bool,
}

/// What a stage's records go to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// The stage of this index, which lies behind.
    Stage(usize),
    /// Out of the task.
    Exit(usize),
}

impl Stage {
    pub(super) fn new(info: OperatorInfo, kind: Kind, links: Vec<Link>, brake: Option<Brake>) -> Self {
        Self { info, kind, links, brake, is_open: false }
    }

    pub(super) fn open(&mut self, py: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        // Set first: an `open` that fails half way is closed too.
        self.is_open = true;
        match &mut self.kind {
            Kind::Source(source) => source.open(py, cx),
            Kind::Operator(operator) => operator.open(py, cx),
            Kind::Keyed(operator) => operator.open(py, cx),
        }
    }

    pub(super) fn close(&mut self, py: Python<'_>) -> Result<(), TaskError> {
        if !std::mem::take(&mut self.is_open) {
            return Ok(());
        }
        match &mut self.kind {
            Kind::Source(source) => source.close(py),
            Kind::Operator(operator) => operator.close(py),
            Kind::Keyed(operator) => operator.close(py),
        }
    }

    pub(super) fn next_timer_ms(&self) -> Option<i64> {
        match &self.kind {
            Kind::Keyed(operator) => operator.next_timer_ms(),
            _ => None,
        }
    }

    /// Takes a record; `flow` is everything behind this stage.
    #[inline]
    pub(super) fn push<'py>(&mut self, record: Bound<'py, PyAny>, flow: Flow<'_, 'py>) -> Result<(), TaskError> {
        let Kind::Operator(operator) = &mut self.kind else {
            return Err(TaskError::Config(format!("operator '{}' takes no plain records", self.info.operator)));
        };
        let mut flow = Flow { links: &self.links, ..flow };
        if let Some(brake) = &mut self.brake {
            brake.pass_attached(operator.as_mut(), &mut flow)?;
        }
        operator.push(record, &mut flow)
    }
}

impl Kind {
    pub(super) fn end_batch(&mut self, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        if let Self::Operator(operator) = self { operator.end_batch(flow) } else { Ok(()) }
    }

    pub(super) fn finish(&mut self, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        if let Self::Keyed(operator) = self { operator.finish(flow) } else { Ok(()) }
    }

    pub(super) fn commit(&mut self, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        if let Self::Operator(operator) = self { operator.commit(flow) } else { Ok(()) }
    }
}

/// What lies behind a stage, while the interpreter is attached.
pub(super) struct Flow<'a, 'py> {
    pub(super) py: Python<'py>,
    after: &'a mut [Stage],
    /// Index of the first stage of `after` in the chain.
    offset: usize,
    links: &'a [Link],
    exits: &'a mut [Exit],
    out: &'a mut Outputs,
}

impl<'a, 'py> Flow<'a, 'py> {
    pub(super) fn new(
        py: Python<'py>,
        after: &'a mut [Stage],
        offset: usize,
        links: &'a [Link],
        exits: &'a mut [Exit],
        out: &'a mut Outputs,
    ) -> Self {
        Self { py, after, offset, links, exits, out }
    }

    /// Hands a record to everything that is linked to the stage.
    #[inline]
    pub(super) fn emit(&mut self, record: Bound<'py, PyAny>) -> Result<(), TaskError> {
        let Some((last, others)) = self.links.split_last() else { return Ok(()) };
        for link in others {
            self.follow(*link, record.clone())?;
        }
        self.follow(*last, record)
    }

    /// Hands on a record of a source. False when it was the last for this poll: more would pass the source's rate.
    #[inline]
    pub(super) fn emit_paced(&mut self, record: Bound<'py, PyAny>, meter: &mut Meter) -> Result<bool, TaskError> {
        let bytes = if self.out.counts_bytes() { meter.bytes_of(&record)? } else { 0 };
        self.emit(record)?;
        Ok(self.out.spend(bytes))
    }

    /// Emits each item of what a user's function returned; `failed` tells of an iteration that raises.
    pub(super) fn emit_each(
        &mut self,
        items: &Bound<'py, PyAny>,
        failed: impl Fn(PyErr) -> TaskError,
    ) -> Result<(), TaskError> {
        if let Some(list) = exact::<PyList>(items) {
            let mut at = 0;
            while at < list.len() {
                self.emit(take_item(list, at).map_err(&failed)?)?;
                at += 1;
            }
            return Ok(());
        }
        for item in records(items).map_err(&failed)? {
            self.emit(item.map_err(&failed)?)?;
            self.out.cancel_token().check()?;
        }
        Ok(())
    }

    /// Ends a batch early, for everything behind the stage: it may wait long for its next record.
    pub(super) fn end_batch(&mut self) -> Result<(), TaskError> {
        for index in 0..self.after.len() {
            let Some((stage, after)) = self.after[index..].split_first_mut() else { break };
            let offset = self.offset + index + 1;
            let mut flow = Flow::new(self.py, after, offset, &stage.links, self.exits, self.out);
            stage.kind.end_batch(&mut flow)?;
        }
        Ok(())
    }

    /// Lets other tasks of the process have the interpreter, if one has waited for it: for what is long and runs no code of
    /// the user's, at which the interpreter changes hands by itself.
    pub(super) fn breathe(&mut self) {
        detached(self.py, self.out, |_| ());
    }

    /// Runs a call that may wait for something outside.
    pub(super) fn idle_unless_at_work<R>(&mut self, pull: impl FnOnce() -> R) -> R {
        self.out.idle_unless_at_work(pull)
    }

    /// Where the task's time went so far.
    pub(super) fn time_spent(&self) -> TimeSpent {
        self.out.time_spent()
    }

    /// Of what counted as idle or busy lately, `idle` is idle, and not `counted`.
    pub(super) fn set_idle(&mut self, counted: Duration, idle: Duration) {
        self.out.recount(TimeState::Idle, TimeState::Busy, counted.saturating_sub(idle));
        self.out.recount(TimeState::Busy, TimeState::Idle, idle.saturating_sub(counted));
    }

    /// Set when the task is told to stop.
    pub(super) fn cancel(&self) -> &CancelToken {
        self.out.cancel_token()
    }

    #[inline]
    fn follow(&mut self, link: Link, record: Bound<'py, PyAny>) -> Result<(), TaskError> {
        let record = if link.isolates && !is_immutable(&record) { self.isolated(link, record)? } else { record };
        match link.to {
            Target::Exit(exit) => self.exits[exit].emit(&record, self.out),
            Target::Stage(index) => {
                let behind = self.after[index - self.offset..].split_first_mut();
                let (stage, after) = behind.expect("links lead to stages behind, as the chain was built");
                stage.push(record, Flow::new(self.py, after, index + 1, &[], self.exits, self.out))
            }
        }
    }

    fn isolated(&mut self, link: Link, record: Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>, TaskError> {
        isolate(record).map_err(|error| {
            let info = match link.to {
                Target::Exit(exit) => self.exits[exit].info(),
                Target::Stage(index) => &self.after[index - self.offset].info,
            };
            info.failed(self.py, &error, None)
        })
    }
}

/// What a function returned, one by one. A text is no list of records, though Python would give its characters.
fn records<'py>(returned: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyIterator>> {
    let is_text = returned.is_exact_instance_of::<PyString>() || returned.is_exact_instance_of::<PyBytes>();
    if !is_text {
        match returned.try_iter() {
            Err(error) if error.is_instance_of::<PyTypeError>(returned.py()) => {}
            items => return items,
        }
    }
    let (kind, what) = (returned.get_type().name()?, short_repr(returned));
    let advice =
        if is_text { "return [text] to emit it whole, list(text) for its parts" } else { "return a list, or yield" };
    Err(PyTypeError::new_err(format!("it returned {what} ({kind}), where records to emit are wanted: {advice}")))
}

/// Measures the records of a source whose rate is in bytes.
pub(super) struct Meter {
    /// Of nobody's: what is measured is not sent.
    classes: SentClasses,
    info: OperatorInfo,
    bytes: Vec<u8>,
}

impl Meter {
    pub(super) fn new(classes: SentClasses, info: OperatorInfo) -> Self {
        Self { classes, info, bytes: Vec::new() }
    }

    fn bytes_of(&mut self, record: &Bound<'_, PyAny>) -> Result<usize, TaskError> {
        self.bytes.clear();
        let encoded = encode(record, &mut self.classes, &mut self.bytes);
        encoded.map_err(|error| self.info.codec_failed(record.py(), error, Some(record)))?;
        Ok(self.bytes.len())
    }
}

/// Slows an operator to a rate, for demonstrations of back-pressure.
pub(super) struct Brake {
    throttle: Throttle,
    started: Instant,
}

/// Shorter waits are gathered: a sleep costs tens of microseconds and may overshoot as much.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

impl Brake {
    /// Lets `rate` records pass a second.
    pub(super) fn new(rate: f64) -> Result<Self, TaskError> {
        Ok(Self { throttle: Throttle::new(rate, 1.0)?, started: Instant::now() })
    }

    /// Takes a record's turn, waiting for it detached.
    pub(super) fn pass(&mut self, out: &mut Outputs) -> Result<(), TaskError> {
        match self.take() {
            Some(wait) => out.pause(wait),
            None => Ok(()),
        }
    }

    fn pass_attached(&mut self, operator: &mut dyn Operator, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        let Some(wait) = self.take() else { return Ok(()) };
        operator.end_batch(flow)?;
        detached(flow.py, flow.out, |out| out.pause(wait))
    }

    fn take(&mut self) -> Option<Duration> {
        let wait = self.throttle.take(1, self.started.elapsed());
        (wait >= SHORTEST_WAIT).then_some(wait)
    }
}
