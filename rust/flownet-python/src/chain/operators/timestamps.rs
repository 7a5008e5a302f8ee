//! `assign_timestamps_and_watermarks`: assigns times to records and emits watermarks.

use std::collections::BTreeMap;
use std::sync::Arc;

use flownet_rows::mistaken_unit;
use flownet_runtime::operator::{Operator, TimestampAssigner};
use flownet_runtime::snapshot::{RestoredState, Snapshot, WATERMARK, put_signed};
use flownet_runtime::time::{END_OF_TIME_MS, NO_TIMESTAMP, TimeSignal};
use flownet_runtime::watermark::{GeneratedSignals, OutOfOrder, RECORDS_PER_WATERMARK, SplitSignal, SplitWatermarks};
use flownet_runtime::{TaskContext, TaskError, TaskMetrics};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyList, PyTuple, PyType};
use pyo3::{Borrowed, ffi, intern};

use crate::chain::call::call1;
use crate::chain::failure::{OperatorInfo, short_repr};
use crate::chain::record_format::{Collector, PythonFormat};
use crate::codec::{exact, small_int};
use crate::convert::milliseconds_of_datetime;

/// Assigns times to records, and emits watermarks downstream.
pub(in crate::chain) struct Timestamps {
    /// Finds the time in a record; none retains the time that it has.
    assigner: Option<Assigner>,
    own: Option<OwnGenerators>,
    watermarks: SplitWatermarks,
    /// True after the unit of the first record's timestamp was checked.
    is_questioned: bool,
    order: OutOfOrder,
    metrics: Option<Arc<TaskMetrics>>,
    info: OperatorInfo,
}

/// Finds the time of a record.
pub(in crate::chain) enum Assigner {
    /// A function that returns milliseconds.
    Function(Py<PyAny>),
    /// An index or key.
    Field(Py<PyAny>),
    /// An index from the front, which is read from tuples without an intermediate object.
    Index(usize, Py<PyAny>),
}

impl Assigner {
    /// An assigner that reads an index or key.
    pub(in crate::chain) fn of_field(field: &Bound<'_, PyAny>) -> Self {
        match field.extract::<usize>() {
            Ok(index) if field.is_exact_instance_of::<PyInt>() => Self::Index(index, field.clone().unbind()),
            _ => Self::Field(field.clone().unbind()),
        }
    }
}

impl Timestamps {
    pub(in crate::chain) fn new(
        assigner: Option<Assigner>,
        own: Option<Py<PyAny>>,
        watermarks: SplitWatermarks,
        info: OperatorInfo,
    ) -> Self {
        let (own, order) = (own.map(OwnGenerators::new), OutOfOrder::new(watermarks.watermarks()));
        Self { assigner, own, watermarks, is_questioned: false, order, metrics: None, info }
    }

    /// The time in a record, if it is a plain item of a tuple. Other records take a slower path.
    #[inline]
    fn item_of_tuple(&self, record: &Bound<'_, PyAny>) -> Option<i64> {
        let Some(Assigner::Index(index, _)) = &self.assigner else { return None };
        let found = item(exact::<PyTuple>(record)?, *index)?;
        milliseconds(&found)
    }

    #[inline(never)]
    fn timestamp(&self, record: &Bound<'_, PyAny>, before_ms: i64) -> Result<i64, TaskError> {
        let py = record.py();
        let found = match &self.assigner {
            None => return Ok(before_ms),
            Some(Assigner::Function(function)) => {
                let function = function.bind(py);
                call1(function, record)
                    .map_err(|error| self.info.call_failed(py, &error, function, "one record", Some(record)))?
            }
            Some(Assigner::Index(_, field) | Assigner::Field(field)) => self.field(record, field.bind(py))?,
        };
        if let Some(timestamp_ms) = milliseconds(&found) {
            return Ok(timestamp_ms);
        }
        let timestamp_ms = milliseconds_of_datetime(&found).and_then(|at| at.ok_or_else(|| no_timestamp(&found)));
        timestamp_ms.map_err(|error| self.info.failed(py, &error, Some(record)))
    }

    fn field<'py>(
        &self,
        record: &Bound<'py, PyAny>,
        field: &Bound<'py, PyAny>,
    ) -> Result<Bound<'py, PyAny>, TaskError> {
        record.get_item(field).map_err(|error| self.info.failed(record.py(), &error, Some(record)))
    }

    /// Warns if the timestamp of the first record is obviously not in milliseconds.
    #[cold]
    fn question(&mut self, timestamp_ms: i64, py: Python<'_>) -> Result<(), TaskError> {
        self.is_questioned = true;
        let Some(unit) = mistaken_unit(timestamp_ms, timestamp_ms) else { return Ok(()) };
        let text = format!(
            "{}: the first timestamp is plainly not in milliseconds: {unit}. Give milliseconds: timestamp {}",
            self.info.operator,
            unit.conversion()
        );
        let warned = py.import(intern!(py, "flownet.errors")).and_then(|errors| {
            let warning = errors.getattr(intern!(py, "UsageWarning"))?.call1((text,))?;
            errors.getattr(intern!(py, "warn_user"))?.call1((warning,))
        });
        warned.map(drop).map_err(|error| self.info.failed(py, &error, None))
    }

    /// Makes the source end its poll if it is ahead, unless it has to continue because other splits lag.
    #[cold]
    fn hold_if_ahead(&mut self, collector: &mut Collector<'_, '_>) {
        if self.watermarks.is_ahead() {
            collector.control().pace.end_poll();
        } else if self.own.is_none() {
            self.watermarks.go_on_to_end_of_batch();
        }
    }

    /// Calls the user's generator of a split, and carries out its request.
    fn ask(&mut self, split: u32, call: Call<'_, '_>, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        let py = collector.token;
        let Some(own) = &mut self.own else { return Ok(()) };
        let record = if let Call::Record(record, _) = call { Some(record) } else { None };
        let asked = own.of(py, split).and_then(|own| {
            let output =
                py.import(intern!(py, "flownet.api.watermark"))?.getattr(intern!(py, "WatermarkOutput"))?.call0()?;
            match call {
                Call::Record(record, timestamp_ms) => {
                    own.call_method1(intern!(py, "on_event"), (record, timestamp_ms, &output))?;
                }
                Call::Period => {
                    own.call_method1(intern!(py, "on_periodic_emit"), (&output,))?;
                }
            }
            output.getattr(intern!(py, "_said"))
        });
        let failed = |error: PyErr| self.info.failed(py, &error, record);
        let said = asked.map_err(failed)?.cast_into::<PyList>().map_err(|error| failed(error.into()))?;
        for word in said.iter() {
            let signal = if let Ok(idle) = word.cast::<PyBool>() {
                TimeSignal::Idle(idle.is_true())
            } else {
                TimeSignal::Watermark(word.extract().map_err(failed)?)
            };
            tell(&self.watermarks.said(split, signal), collector)?;
        }
        Ok(())
    }
}

/// Watermark generators of the user, which replace the built-in one: one for each split of the source's input
/// that has begun and not ended.
struct OwnGenerators {
    /// Creates the generators, or is copied for each.
    given: Py<PyAny>,
    /// True if there are several splits, so that a generator instance is copied for each.
    is_shared: bool,
    made: BTreeMap<u32, Py<PyAny>>,
}

impl OwnGenerators {
    fn new(given: Py<PyAny>) -> Self {
        Self { given, is_shared: false, made: BTreeMap::new() }
    }

    /// Follows the source's signals about its splits.
    fn follow(&mut self, signal: SplitSignal) {
        match signal {
            SplitSignal::Among(count) if count > 1 => {
                self.is_shared = true;
                self.made.clear();
            }
            SplitSignal::Growing(_) if !self.is_shared => {
                self.is_shared = true;
                self.made.clear();
            }
            SplitSignal::Ended(split) => drop(self.made.remove(&split)),
            _ => {}
        }
    }

    /// The generator of a split.
    fn of<'py>(&mut self, py: Python<'py>, split: u32) -> PyResult<Bound<'py, PyAny>> {
        if let Some(made) = self.made.get(&split) {
            return Ok(made.bind(py).clone());
        }
        let given = self.given.bind(py);
        // A factory, or the class itself, creates a generator for each split.
        let makes = given.is_instance_of::<PyType>() || !given.hasattr(intern!(py, "on_event")).unwrap_or(false);
        let made = match (makes, self.is_shared) {
            (true, _) => given.call0()?,
            (false, true) => py.import(intern!(py, "copy"))?.call_method1(intern!(py, "deepcopy"), (given,))?,
            (false, false) => given.clone(),
        };
        self.made.insert(split, made.clone().unbind());
        Ok(made)
    }
}

#[derive(Clone, Copy)]
enum Call<'a, 'py> {
    Record(&'a Bound<'py, PyAny>, i64),
    Period,
}

fn tell(generated: &GeneratedSignals, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
    generated.signals().try_for_each(|signal| collector.begin_time(signal))
}

/// An item of a tuple, if the tuple is long enough. Through PyO3, this check would cost a call and an error.
#[inline]
fn item<'a, 'py>(tuple: &'a Bound<'py, PyTuple>, index: usize) -> Option<Borrowed<'a, 'py, PyAny>> {
    if index >= tuple.len() {
        return None;
    }
    // SAFETY: the index is one of the tuple's, so the item is there; it lives as long as the tuple, which does
    // not change.
    unsafe { Some(Borrowed::from_ptr(tuple.py(), ffi::PyTuple_GetItem(tuple.as_ptr(), index.cast_signed()))) }
}

/// The time that an object contains, if it is one.
#[inline]
fn milliseconds(found: &Bound<'_, PyAny>) -> Option<i64> {
    let timestamp_ms = small_int(exact::<PyInt>(found)?)?;
    (timestamp_ms > NO_TIMESTAMP && timestamp_ms < END_OF_TIME_MS).then_some(timestamp_ms)
}

/// Error that explains why this is no time of a record.
#[cold]
fn no_timestamp(found: &Bound<'_, PyAny>) -> PyErr {
    let (shown, kind) = (short_repr(found), found.get_type().name().map(|name| name.to_string()).unwrap_or_default());
    if found.is_exact_instance_of::<PyInt>() {
        return PyOverflowError::new_err(format!(
            "{shown} is no time of a record: milliseconds since 1970 lie between -2**63 and 2**63 - 1, both excluded"
        ));
    }
    let advice = "a timestamp is an int of milliseconds since 1970-01-01 UTC, or a datetime with a time zone";
    match kind.as_str() {
        "float" => PyValueError::new_err(format!("{shown} is a float, and {advice}: int(seconds * 1000)")),
        _ => PyTypeError::new_err(format!("{shown} is of type {kind}, and {advice}")),
    }
}

impl Operator<PythonFormat> for Timestamps {
    fn open(&mut self, py: Python<'_>, cx: &TaskContext) -> Result<(), TaskError> {
        self.metrics = Some(Arc::clone(&cx.metrics));
        self.watermarks.set_pace(RECORDS_PER_WATERMARK, cx.channels);
        // Detects a generator that cannot be created before the first record.
        let made = self.own.as_mut().map(|own| own.of(py, self.watermarks.current()));
        made.transpose().map(drop).map_err(|error| self.info.failed(py, &error, None))
    }

    #[inline]
    fn process<'py>(&mut self, record: Bound<'py, PyAny>, collector: &mut Collector<'_, 'py>) -> Result<(), TaskError> {
        let timestamp_ms = match self.item_of_tuple(&record) {
            Some(timestamp_ms) => timestamp_ms,
            None => self.timestamp(&record, collector.timestamp_ms)?,
        };
        if !self.is_questioned {
            self.question(timestamp_ms, record.py())?;
        }
        // An idle source must become active before the record that ends its idleness.
        let back = self.watermarks.on_record(timestamp_ms);
        self.order.add(timestamp_ms);
        if back {
            collector.emit_time(TimeSignal::Idle(false))?;
        }
        collector.timestamp_ms = timestamp_ms;
        if self.own.is_none() {
            collector.emit(record)?;
        } else {
            collector.emit(record.clone())?;
            self.ask(self.watermarks.current(), Call::Record(&record, timestamp_ms), collector)?;
        }
        if self.watermarks.may_be_ahead(timestamp_ms) {
            self.hold_if_ahead(collector);
        }
        tell(&self.watermarks.after_records(), collector)
    }

    fn end_batch(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        collector.count_ahead(self.watermarks.take_ahead());
        self.metrics.iter().for_each(|metrics| self.order.tell(metrics));
        if self.watermarks.is_aligned() {
            self.watermarks.end_batch();
            collector.tell_aligned(self.watermarks.reached_ms());
        }
        Ok(())
    }

    fn finish(&mut self, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        self.watermarks.finish();
        collector.count_ahead(self.watermarks.take_ahead());
        Ok(())
    }

    fn on_split(&mut self, signal: SplitSignal, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        if matches!(signal, SplitSignal::NotBefore { .. }) {
            // The time is that of a column of rows; the times of objects may differ.
            return Ok(());
        }
        self.own.iter_mut().for_each(|own| own.follow(signal));
        self.order.follow(signal);
        let generated = self.watermarks.follow(signal);
        tell(&generated, collector)
    }

    /// Writes the last watermark. The records that it derives from come again, or later records do. The state
    /// of a user's generator begins anew.
    fn snapshot(&mut self, _: Python<'_>, to: &mut Snapshot<'_>) -> Result<(), TaskError> {
        let mut told = Vec::new();
        put_signed(&mut told, self.watermarks.told_ms());
        to.add_items(WATERMARK, [told]);
        Ok(())
    }

    /// Restores this subtask's watermark. If the number of subtasks has changed, takes the least watermark of
    /// all.
    fn restore(&mut self, _: Python<'_>, from: &RestoredState<'_>) -> Result<(), TaskError> {
        if let Some(told_ms) = from.own_or_least(WATERMARK, self.info.parallelism)? {
            self.watermarks.set_told_ms(told_ms);
        }
        Ok(())
    }

    fn next_timer_ms(&self) -> Option<i64> {
        self.watermarks.next_ms()
    }

    fn on_timer(&mut self, now_ms: i64, collector: &mut Collector<'_, '_>) -> Result<(), TaskError> {
        if !self.watermarks.is_due(now_ms) {
            return Ok(());
        }
        // A source that waits for lagging splits is not idle, and neither is one that waits for other
        // sources.
        let generated = self.watermarks.on_period(now_ms, collector.is_available() && !self.watermarks.is_ahead());
        tell(&generated, collector)?;
        let made: Vec<u32> = self.own.iter().flat_map(|own| own.made.keys().copied()).collect();
        made.into_iter().try_for_each(|split| self.ask(split, Call::Period, collector))
    }
}

impl TimestampAssigner<PythonFormat> for Timestamps {
    fn watermarks(&self) -> &SplitWatermarks {
        &self.watermarks
    }

    fn watermarks_mut(&mut self) -> &mut SplitWatermarks {
        &mut self.watermarks
    }

    fn is_passthrough(&self) -> bool {
        self.own.is_none() && !matches!(self.assigner, Some(Assigner::Function(_)))
    }

    #[inline]
    fn observe(&mut self, record: &Bound<'_, PyAny>, _: i64) -> Option<i64> {
        if !self.is_questioned {
            return None;
        }
        let timestamp_ms = self.item_of_tuple(record).filter(|at_ms| self.watermarks.take_plain(*at_ms))?;
        self.order.add(timestamp_ms);
        Some(timestamp_ms)
    }
}
