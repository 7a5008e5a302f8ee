//! `from_source`: reads splits of a user's source, each from a position on.
//!
//! `flownet.connectors.source` defines the splits and assigns them to subtasks; here a subtask reads them in
//! turn. The source reports its position only for checkpoints, and for no record. Records that were read and
//! not emitted by then, because the rate limit held them back, are part of the checkpoint.
//!
//! A source may find more splits while the job runs. The subtask that lists them reports all of them to every
//! subtask. A subtask ignores splits that are reported twice, or that it began with. So a split that is in no
//! checkpoint yet is found again after a failure.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flownet_runtime::operator::Source;
use flownet_runtime::snapshot::{Input, RestoredState, Snapshot, SnapshotError};
use flownet_runtime::source::SourceError;
use flownet_runtime::state_stats::StateStats;
use flownet_runtime::varint::put_varint;
use flownet_runtime::watermark::SplitSignal;
use flownet_runtime::{SourceStatus, TaskContext, TaskError, TaskMetrics};
use pyo3::exceptions::{PyLookupError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList, PyTuple};

use super::POLL_RECORDS;
use super::waits::Waits;
use crate::chain::attach::TaskThreads;
use crate::chain::failure::{OperatorInfo, short_repr};
use crate::chain::isolate::take_item;
use crate::chain::keyed::KeptValues;
use crate::chain::meter::Meter;
use crate::chain::record_format::{Collector, PythonFormat};
use crate::chain::rows::rows;
use crate::codec::{self, KnownClasses};

/// Reads the splits that are assigned to this subtask.
pub(in crate::chain) struct Splits {
    /// A `flownet.connectors.source.Assignment`.
    assignment: Py<PyAny>,
    info: OperatorInfo,
    meter: Meter,
    metrics: Option<Arc<TaskMetrics>>,
    classes: KnownClasses,
    kept: KeptValues,
    waits: Waits,
    /// Splits by number. Downstream knows them by the same numbers.
    splits: Vec<Split>,
    /// Splits that had ended before the job was restored, and are to be remembered.
    ended: Vec<Py<PyAny>>,
    /// True if a restore assigned the splits, false if the assignment does.
    is_restored: bool,
    has_begun: bool,
    /// True if more splits may be found while the job runs: the source has no end.
    grows: bool,
    /// True if checkpoints contain ended splits, because those may be listed again.
    keeps_ended: bool,
    /// Splits that were found and not begun yet, as encoded by the subtask that lists them.
    found: Vec<Arc<[u8]>>,
    /// The splits that have not ended, in their order.
    reading: Vec<usize>,
    /// The split that was read last, and the one that was last reported downstream.
    current: usize,
    told: Option<usize>,
    /// Names and positions of splits in checkpoints that have not completed yet, oldest first.
    noted: Vec<(u64, Py<PyList>)>,
    /// True after a reader has reported the number of records left.
    knows_left: Cell<bool>,
    /// Error of a reader that failed to report it, for the next poll.
    not_counted: Cell<Option<TaskError>>,
}

/// One split.
struct Split {
    name: Py<PyAny>,
    /// Position at which it begins. For an iterator, the position after the last record that it yielded. None
    /// at the very beginning.
    position: Option<Py<PyAny>>,
    reader: Option<Reader>,
    /// Records that were read and not fully emitted, and the number of those that were.
    rest: Option<(Py<PyList>, usize)>,
    /// Set if the last poll found no record: the time of the next poll.
    silent_until: Option<Instant>,
    /// Interval until the next poll of a split without records.
    ask_again: Duration,
    has_ended: bool,
}

/// Reader of a split.
enum Reader {
    /// A `SplitReader`.
    Object(Py<PyAny>),
    /// Yields positions and records, or lists of these.
    Iterator { items: Py<PyIterator>, yields_batches: bool },
}

/// Result of one call of a reader.
enum ReadResult<'py> {
    Record(Bound<'py, PyAny>),
    Batch(Bound<'py, PyList>),
    Nothing,
    End,
}

/// Interval until the next poll of a split without records, unless its reader chooses another.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// Longest sleep of a subtask without records to read.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// Longest poll of a slow iterator. After it, timers and mail are checked.
const LONGEST_POLL: Duration = Duration::from_millis(5);

/// Name of its state. The first item of a subtask is whether it has read all of its splits, 01 or 00, and a
/// varint: the number of subtasks. Each other item is a split: whether it has ended, and whether it has a
/// position, 01 or 00 each. Its name, the position if it has one, and records that were read and not emitted
/// follow, a block each.
const STATE: &str = "splits";

impl Splits {
    pub(in crate::chain) fn new(
        assignment: Py<PyAny>,
        meter: Meter,
        (classes, kept): (KnownClasses, KeptValues),
        info: OperatorInfo,
    ) -> Self {
        Self {
            assignment,
            info,
            meter,
            metrics: None,
            classes,
            kept,
            waits: Waits::new(),
            splits: Vec::new(),
            ended: Vec::new(),
            is_restored: false,
            has_begun: false,
            grows: false,
            keeps_ended: true,
            found: Vec::new(),
            reading: Vec::new(),
            current: 0,
            told: None,
            noted: Vec::new(),
            knows_left: Cell::new(false),
            not_counted: Cell::new(None),
        }
    }

    fn failed(&self, py: Python<'_>, error: &PyErr) -> TaskError {
        failed(&self.info, py, error)
    }

    /// Opens the splits at the first poll. By then a restored job knows them.
    fn begin(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        let py = collector.token;
        self.has_begun = true;
        if !self.is_restored {
            let place = (self.info.subtask, self.info.parallelism);
            let mine = self.assignment.bind(py).call_method1(intern!(py, "mine"), place);
            let mine: Vec<Py<PyAny>> = mine.and_then(|mine| mine.extract()).map_err(|error| self.failed(py, &error))?;
            self.splits = mine.into_iter().map(Split::new).collect();
        }
        self.open_from(py, 0)?;
        // Splits that are found from here on are in no checkpoint.
        self.is_restored = false;
        let count = number(self.splits.len());
        collector.tell_split(if self.grows { SplitSignal::Growing(count) } else { SplitSignal::Among(count) })
    }

    fn open_from(&mut self, py: Python<'_>, first: usize) -> Result<(), TaskError> {
        // Its readers may know how many records are left.
        self.expect_tally();
        self.reading.extend(first..self.splits.len());
        self.name_splits(py, first)?;
        (first..self.splits.len()).try_for_each(|at| self.open_split(py, at))
    }

    /// Names splits for the report of late records.
    fn name_splits(&self, py: Python<'_>, first: usize) -> Result<(), TaskError> {
        let Some(metrics) = &self.metrics else { return Ok(()) };
        let name = |split: &Split| self.assignment.bind(py).call_method1(intern!(py, "name_of"), (&split.name,));
        let names = self.splits[first..].iter().map(|split| name(split).and_then(|name| name.extract::<String>()));
        let names = names.collect::<PyResult<Vec<_>>>().map_err(|error| self.failed(py, &error))?;
        metrics.late_splits().name(first, names);
        Ok(())
    }

    /// Begins the splits that were found in the meantime and are assigned to this subtask.
    #[cold]
    fn begin_found(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        let (py, first) = (collector.token, self.splits.len());
        for found in std::mem::take(&mut self.found) {
            let found = codec::decode(py, &found, &self.classes);
            let found = found.map_err(|error| self.info.codec_failed(py, error, None))?;
            let place = (self.info.subtask, self.info.parallelism, found);
            let mine = self.assignment.bind(py).call_method1(intern!(py, "found"), place);
            let mine: Vec<(Py<PyAny>, Option<Py<PyAny>>)> =
                mine.and_then(|mine| mine.extract()).map_err(|error| self.failed(py, &error))?;
            let mine = mine.into_iter().map(|(name, position)| Split { position, ..Split::new(name) });
            self.splits.extend(mine);
        }
        if first == self.splits.len() {
            return Ok(());
        }
        self.open_from(py, first)?;
        collector.tell_split(SplitSignal::Growing(number(self.splits.len())))
    }

    fn open_split(&mut self, py: Python<'_>, at: usize) -> Result<(), TaskError> {
        let split = &self.splits[at];
        let opened = self.assignment.bind(py).call_method1(intern!(py, "open"), (&split.name, &split.position));
        let opened: (Option<bool>, f64, Bound<'_, PyAny>) =
            opened.and_then(|opened| opened.extract()).map_err(|error| self.not_opened(py, &error))?;
        let (kind, ask_again, reader) = opened;
        self.splits[at].ask_again = Duration::try_from_secs_f64(ask_again).unwrap_or(ASK_AGAIN);
        let reader = match (kind, reader) {
            (None, reader) => Reader::Object(reader.unbind()),
            (Some(yields_batches), items) => {
                let items = items.cast_into::<PyIterator>().map_err(|error| self.failed(py, &error.into()))?;
                Reader::Iterator { items: items.unbind(), yields_batches }
            }
        };
        self.splits[at].reader = Some(reader);
        // Reports a position that cannot be encoded at once, and not at the first checkpoint.
        self.put_position(py, at, &mut Vec::new()).map(drop)
    }

    /// Error of opening splits. It is permanent for restored ones: no retry can resume them.
    #[cold]
    fn not_opened(&self, py: Python<'_>, error: &PyErr) -> TaskError {
        match self.failed(py, error) {
            TaskError::Source(error) if self.is_restored => {
                SnapshotError::Refused { uid: self.info.operator.clone(), reason: error.to_string() }.into()
            }
            error => error,
        }
    }

    /// The split to read next: one whose next poll is due, the one that event time waits for, or the next in
    /// turn. None if all remaining splits have no records for now.
    fn next_split(&self, wanted: Option<u32>, now: Instant) -> Option<usize> {
        let behind = self.reading.partition_point(|at| *at <= self.current);
        let turns = || self.reading[behind..].iter().chain(&self.reading[..behind]).copied();
        let is_due = |at: &usize| self.splits[*at].silent_until.is_some_and(|until| until <= now);
        let speaks = |at: &usize| self.splits[*at].silent_until.is_none();
        let wanted = wanted.map(|wanted| wanted as usize).filter(|at| self.reading.binary_search(at).is_ok());
        turns().find(is_due).or_else(|| wanted.filter(speaks)).or_else(|| turns().find(speaks))
    }

    /// Status of splits without records for now, with the time of the next poll.
    fn idle(&self, now: Instant) -> SourceStatus {
        let silent = self.reading.iter().filter_map(|at| self.splits[*at].silent_until);
        // A subtask without splits is woken when one is found.
        let wake_after = silent.min().map_or(LONGEST_SLEEP, |until| until.saturating_duration_since(now));
        SourceStatus::Idle { wake_after }
    }

    fn expect_tally(&self) {
        self.metrics.iter().for_each(|metrics| metrics.expect_tally());
    }

    /// Number of records that are left, as far as readers know: records not yet read, and records read and
    /// not emitted.
    fn count_left(&self, py: Python<'_>) -> Result<Option<usize>, TaskError> {
        let (mut left, mut is_known, mut may_know) = (0_usize, self.knows_left.get(), false);
        for split in self.reading.iter().map(|at| &self.splits[*at]) {
            let Some(Reader::Object(reader)) = &split.reader else { continue };
            may_know = true;
            let pending = reader.bind(py).call_method0(intern!(py, "pending_records"));
            let pending = pending.map_err(|error| self.failed(py, &error))?;
            let Some(pending) = not_none(&pending) else { continue };
            let pending: usize = pending.extract().map_err(|_| self.failed(py, &no_number(pending)))?;
            let read = split.rest.as_ref().map_or(0, |(records, emitted)| records.bind(py).len() - emitted);
            left = left.saturating_add(pending).saturating_add(read);
            is_known = true;
        }
        self.knows_left.set(is_known);
        if may_know {
            // A reader that does not know it now may know it later.
            self.expect_tally();
        }
        Ok(is_known.then_some(left))
    }

    /// Reads one split for one poll. `pulls` counts the calls of its iterator.
    fn read_split(&mut self, at: usize, collector: &mut Collector<'_, '_>, pulls: &mut u32) -> Result<(), TaskError> {
        self.current = at;
        if self.splits[at].rest.is_some() {
            return self.emit_rest(at, collector).map(drop);
        }
        let started = Instant::now();
        while *pulls < POLL_RECORDS as u32 {
            collector.cancel().check()?;
            *pulls += 1;
            match self.pull(at, collector)? {
                ReadResult::Record(record) => {
                    let may_go_on = self.emit_record(at, record, collector)?;
                    collector.end_batch()?;
                    // Reading the clock costs as much as a cheap record, so it is read occasionally.
                    if !may_go_on || (pulls.is_multiple_of(16) && started.elapsed() > LONGEST_POLL) {
                        return Ok(());
                    }
                }
                ReadResult::Batch(records) => {
                    self.splits[at].rest = Some((records.unbind(), 0));
                    return self.emit_rest(at, collector);
                }
                ReadResult::Nothing => return self.has_nothing(at, collector),
                ReadResult::End => return self.end(at, collector),
            }
        }
        Ok(())
    }

    fn pull<'py>(&mut self, at: usize, collector: &mut Collector<'_, 'py>) -> Result<ReadResult<'py>, TaskError> {
        let py = collector.token;
        let split = &mut self.splits[at];
        match &split.reader {
            None => Ok(ReadResult::End),
            Some(Reader::Object(reader)) => {
                let reader = reader.bind(py).clone();
                let read = collector.control().time.idle_unless_at_work(|| reader.call_method0(intern!(py, "read")));
                let read = read.map_err(|error| failed(&self.info, py, &error))?;
                batch(read).map_err(|error| self.info.failed(py, &error, None))
            }
            Some(Reader::Iterator { items, yields_batches }) => {
                let (mut iterator, yields_batches) = (items.bind(py).clone(), *yields_batches);
                let is_watched = self.waits.is_watched();
                let next = if is_watched {
                    collector.control().time.idle_unless_computing(|| iterator.next())
                } else {
                    iterator.next()
                };
                let Some(next) = next else { return Ok(ReadResult::End) };
                let next = next.map_err(|error| self.info.failed(py, &error, None))?;
                if next.is_none() {
                    return Ok(ReadResult::Nothing);
                }
                let Some((position, record)) = pair(&next) else {
                    return Err(self.info.failed(py, &no_pair(&next), None));
                };
                drop(next);
                let is_first = split.position.replace(position.unbind()).is_none();
                if is_first {
                    self.put_position(py, at, &mut Vec::new()).map(drop)?;
                }
                if !yields_batches {
                    return Ok(ReadResult::Record(record));
                }
                match record.cast_into::<PyList>() {
                    Ok(records) => Ok(ReadResult::Batch(records)),
                    Err(error) => Err(self.info.failed(py, &no_batch("it yielded", &error.into_inner()), None)),
                }
            }
        }
    }

    /// Emits a record. Returns false if it was the last one for this poll.
    fn emit_record<'py>(
        &mut self,
        at: usize,
        record: Bound<'py, PyAny>,
        collector: &mut Collector<'_, 'py>,
    ) -> Result<bool, TaskError> {
        self.tell(at, collector)?;
        if let Some(metrics) = &self.metrics {
            metrics.add_records_in(1);
            if let Some(rows) = rows(&record) {
                metrics.count_rows_in(rows);
            }
        }
        self.meter.emit(record, collector)
    }

    /// Emits records that were read, as far as the source's rate limit allows.
    fn emit_rest(&mut self, at: usize, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        let Some((records, mut emitted)) = self.splits[at].rest.take() else { return Ok(()) };
        let list = records.bind(collector.token);
        let mut may_go_on = true;
        while may_go_on && emitted < list.len() {
            collector.cancel().check()?;
            let record = take_item(list, emitted).map_err(|error| self.failed(collector.token, &error))?;
            emitted += 1;
            may_go_on = self.emit_record(at, record, collector)?;
        }
        if emitted < list.len() {
            self.splits[at].rest = Some((records, emitted));
        }
        Ok(())
    }

    /// Reports downstream which split the next records belong to.
    #[inline]
    fn tell(&mut self, at: usize, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        if self.told == Some(at) {
            return Ok(());
        }
        self.told = Some(at);
        self.splits[at].silent_until = None;
        collector.tell_split(SplitSignal::Of(number(at)))
    }

    fn has_nothing(&mut self, at: usize, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        let split = &mut self.splits[at];
        let before = split.silent_until.replace(Instant::now() + split.ask_again);
        if before.is_some() {
            return Ok(());
        }
        // It is reported again before its next records.
        self.told = self.told.filter(|told| *told != at);
        collector.tell_split(SplitSignal::Silent(number(at)))
    }

    fn end(&mut self, at: usize, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        // The end position is part of later checkpoints, as the source may report it elsewhere.
        let position = self.put_position(collector.token, at, &mut Vec::new())?;
        let split = &mut self.splits[at];
        split.position = position;
        split.has_ended = true;
        self.reading.retain(|reading| *reading != at);
        self.told = self.told.filter(|told| *told != at);
        let closed = split.reader.take().map_or(Ok(()), |reader| reader.close(collector.token));
        closed.map_err(|error| self.failed(collector.token, &error))?;
        collector.tell_split(SplitSignal::Ended(number(at)))
    }

    /// Writes the position to resume the split from: whether there is one, and the position. Returns the
    /// position.
    fn put_position(&mut self, py: Python<'_>, at: usize, out: &mut Vec<u8>) -> Result<Option<Py<PyAny>>, TaskError> {
        let Self { splits, kept, info, .. } = self;
        let split = &splits[at];
        let position = match &split.reader {
            Some(Reader::Object(reader)) => {
                let position = reader.bind(py).call_method0(intern!(py, "position"));
                Some(position.map_err(|error| info.failed(py, &error, None))?)
            }
            _ => split.position.as_ref().map(|position| position.bind(py).clone()),
        };
        let position = position.filter(|position| !position.is_none());
        out.push(u8::from(position.is_some()));
        let mut name = Vec::new();
        kept.put((info, "name of a split"), split.name.bind(py), &mut name)?;
        out.extend(name);
        let Some(position) = position else { return Ok(None) };
        let state = format!("position of split {}", short_repr(split.name.bind(py)));
        kept.put((info, &state), &position, out)?;
        Ok(Some(position.unbind()))
    }

    fn take<'py>(&self, py: Python<'py>, item: &mut Input<'_>) -> Result<Bound<'py, PyAny>, TaskError> {
        let value = codec::decode(py, item.block()?, &self.classes);
        value.map_err(|error| self.info.codec_failed(py, error, None))
    }

    /// Writes a split. Adds its position to the list that the source receives when the checkpoint completes.
    fn put_split(&mut self, py: Python<'_>, at: usize, noted: &Bound<'_, PyList>) -> Result<Vec<u8>, TaskError> {
        let mut item = vec![u8::from(self.splits[at].has_ended)];
        if let Some(position) = self.put_position(py, at, &mut item)? {
            noted.append((&self.splits[at].name, position)).map_err(|error| self.failed(py, &error))?;
        }
        let Self { splits, kept, info, .. } = self;
        if let Some((records, emitted)) = &splits[at].rest {
            for record in records.bind(py).iter().skip(*emitted) {
                kept.put((info, "record that was read"), &record, &mut item)?;
            }
        }
        Ok(item)
    }
}

impl Split {
    fn new(name: Py<PyAny>) -> Self {
        Self {
            name,
            position: None,
            reader: None,
            rest: None,
            silent_until: None,
            ask_again: ASK_AGAIN,
            has_ended: false,
        }
    }
}

impl Reader {
    /// Runs the `finally` blocks of a generator now, and not at its garbage collection.
    fn close(self, py: Python<'_>) -> PyResult<()> {
        let close = match &self {
            Self::Object(reader) => Some(reader.bind(py).getattr(intern!(py, "close"))?),
            Self::Iterator { items, .. } => items.bind(py).getattr_opt(intern!(py, "close"))?,
        };
        close.map_or(Ok(()), |close| close.call0().map(drop))
    }
}

/// Converts an exception of the source. An `InputError` is an error of the input and no failure of a
/// function.
#[cold]
fn failed(info: &OperatorInfo, py: Python<'_>, error: &PyErr) -> TaskError {
    input_error(py, error).unwrap_or_else(|| info.failed(py, error, None))
}

fn input_error(py: Python<'_>, error: &PyErr) -> Option<TaskError> {
    let class = py.import(intern!(py, "flownet.errors")).ok()?.getattr(intern!(py, "InputError")).ok()?;
    let raised = error.value(py);
    let path = raised.getattr(intern!(py, "path")).ok()?.extract().ok()?;
    let message = raised.str().ok()?.to_string();
    raised.is_instance(&class).ok()?.then(|| SourceError::Followed { path, message }.into())
}

fn number(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// A position and a record from an item that an iterator yielded.
#[inline]
fn pair<'py>(yielded: &Bound<'py, PyAny>) -> Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let pair = yielded.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2)?;
    Some((pair.get_item(0).ok()?, pair.get_item(1).ok()?))
}

#[cold]
fn no_pair(yielded: &Bound<'_, PyAny>) -> PyErr {
    let text = short_repr(yielded);
    PyTypeError::new_err(format!(
        "it yielded {text}, where a tuple (position, record), or None for nothing yet, is wanted"
    ))
}

fn not_none<'a, 'py>(object: &'a Bound<'py, PyAny>) -> Option<&'a Bound<'py, PyAny>> {
    (!object.is_none()).then_some(object)
}

#[cold]
fn no_number(returned: &Bound<'_, PyAny>) -> PyErr {
    let text = short_repr(returned);
    PyTypeError::new_err(format!("pending_records() returned {text}, where a number from 0, or None, is wanted"))
}

/// Converts the return value of `read`.
fn batch(read: Bound<'_, PyAny>) -> PyResult<ReadResult<'_>> {
    if read.is_none() {
        return Ok(ReadResult::End);
    }
    match read.cast_into::<PyList>() {
        Ok(records) if records.is_empty() => Ok(ReadResult::Nothing),
        Ok(records) => Ok(ReadResult::Batch(records)),
        Err(error) => Err(no_batch("read() returned", &error.into_inner())),
    }
}

#[cold]
fn no_batch(who: &str, given: &Bound<'_, PyAny>) -> PyErr {
    PyTypeError::new_err(format!("{who} {}, where a list of records is wanted", short_repr(given)))
}

impl Source<PythonFormat> for Splits {
    fn open(&mut self, py: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.metrics = Some(Arc::clone(&cx.metrics));
        let prepared = self.assignment.bind(py).call_method1(intern!(py, "prepare"), (cx.max_record_bytes,));
        (self.grows, self.keeps_ended) =
            prepared.and_then(|prepared| prepared.extract()).map_err(|error| self.failed(py, &error))?;
        Ok(())
    }

    fn add_splits(&mut self, splits: &Arc<[u8]>) {
        self.found.push(Arc::clone(splits));
    }

    /// Sends every record of an iterator before it pulls the next one, for which the iterator may have to
    /// wait.
    fn emit<'py>(&mut self, collector: &mut Collector<'_, 'py>) -> Result<SourceStatus, TaskError> {
        if let Some(error) = self.not_counted.take() {
            return Err(error);
        }
        if !self.has_begun {
            self.begin(collector)?;
        }
        if !self.found.is_empty() {
            self.begin_found(collector)?;
        }
        let now = Instant::now();
        if self.grows || !self.reading.is_empty() {
            let Some(at) = self.next_split(collector.wanted_split(), now) else { return Ok(self.idle(now)) };
            if matches!(self.splits[at].reader, Some(Reader::Iterator { .. })) && self.splits[at].rest.is_none() {
                let (mut pulls, before) = (0, collector.control().time.spent());
                let read = self.read_split(at, collector, &mut pulls);
                let spent = collector.control().time.spent().since(&before);
                let others = TaskThreads::of_all_jobs().count().saturating_sub(1);
                collector.control().time.set_idle(spent.idle, self.waits.poll_ended(&spent, pulls, others));
                read?;
            } else {
                self.read_split(at, collector, &mut 0)?;
            }
        }
        Ok(if self.reading.is_empty() && !self.grows { SourceStatus::Finished } else { SourceStatus::More })
    }

    fn tally(&self, tally: &mut StateStats) {
        match Python::attach(|py| self.count_left(py)) {
            Ok(left) => left.into_iter().for_each(|left| tally.add_records_left(left)),
            Err(error) => self.not_counted.set(Some(error)),
        }
    }

    fn snapshot(&mut self, py: Python<'_>, to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        // A subtask that knows no splits yet has not read all of them.
        let knows_splits = self.has_begun || self.is_restored;
        let has_all = !self.grows && knows_splits && self.splits.iter().all(|split| split.has_ended);
        let mut header = vec![u8::from(has_all)];
        put_varint(&mut header, self.info.parallelism.into());
        let mut items = vec![header];
        for name in &self.ended {
            let mut item = vec![1, 0];
            self.kept.put((&self.info, "name of a split"), name.bind(py), &mut item)?;
            items.push(item);
        }
        let noted = PyList::empty(py);
        for at in 0..self.splits.len() {
            if self.keeps_ended || !self.splits[at].has_ended {
                items.push(self.put_split(py, at, &noted)?);
            }
        }
        self.noted.push((to.checkpoint_id(), noted.unbind()));
        to.add_items(STATE, items);
        Ok(())
    }

    fn complete(&mut self, py: Python<'_>, checkpoint_id: u64) -> Result<(), TaskError> {
        let counting = self.noted.iter().take_while(|(of, _)| *of <= checkpoint_id).count();
        let Some((_, positions)) = self.noted.drain(..counting).next_back() else { return Ok(()) };
        let told = self.assignment.bind(py).call_method1(intern!(py, "checkpointed"), (positions,));
        told.map(drop).map_err(|error| self.failed(py, &error))
    }

    fn restore(&mut self, py: Python<'_>, from: &RestoredState<'_>) -> Result<(), TaskError> {
        let (mut before, mut reading, kept) = (0, Vec::new(), PyList::empty(py));
        let mut last = None;
        for (subtask, mut item) in from.items(STATE)? {
            if last.replace(subtask) != Some(subtask) {
                if item.byte()? == 0 {
                    reading.push(subtask);
                }
                before = item.varint()?;
                continue;
            }
            let (has_ended, has_position) = (item.byte()? != 0, item.byte()? != 0);
            let name = self.take(py, &mut item)?;
            let position = if has_position { Some(self.take(py, &mut item)?) } else { None };
            let records = PyList::empty(py);
            while !item.is_empty() {
                records.append(self.take(py, &mut item)?).map_err(|error| self.failed(py, &error))?;
            }
            let split = (subtask, name, has_ended, position, records);
            kept.append(split).map_err(|error| self.failed(py, &error))?;
        }
        let place = (self.info.subtask, self.info.parallelism, before, reading, kept);
        let resumed = self.assignment.bind(py).call_method1(intern!(py, "resume"), place);
        type ResumedSplits = (Vec<(Py<PyAny>, Option<Py<PyAny>>, Py<PyList>)>, Vec<Py<PyAny>>);
        let (splits, ended): ResumedSplits = resumed.and_then(|resumed| resumed.extract()).map_err(|error| {
            if error.is_instance_of::<PyLookupError>(py) {
                from.refused(&self.info.operator, error.value(py))
            } else {
                self.failed(py, &error)
            }
        })?;
        self.splits = (splits.into_iter())
            .map(|(name, position, records)| {
                let rest = Some(records).filter(|records| !records.bind(py).is_empty()).map(|records| (records, 0));
                Split { position, rest, ..Split::new(name) }
            })
            .collect();
        (self.ended, self.is_restored) = (ended, true);
        Ok(())
    }

    fn close(&mut self, py: Python<'_>) -> Result<(), TaskError> {
        let mut closed = Ok(());
        for reader in self.splits.iter_mut().filter_map(|split| split.reader.take()) {
            let result = reader.close(py);
            closed = closed.and(result);
        }
        closed.map_err(|error| self.failed(py, &error))
    }
}
