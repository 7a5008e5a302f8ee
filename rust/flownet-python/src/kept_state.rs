//! Reads the state in a checkpoint as Python values. It uses the format of `flownet_runtime::snapshot`, and
//! needs neither the functions nor the operators of the job.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use flownet_cluster::{CheckpointContents, OperatorEntry, StatePart};
use flownet_runtime::TaskError;
use flownet_runtime::canonical::CLASS_KEY;
use flownet_runtime::snapshot::{Input, RestoredState, WATERMARK, is_incidental};
use flownet_runtime::state::{KeyGroupRange, KeyedState};
use flownet_runtime::timer::KeptTimers;
use flownet_runtime::window::WindowsOfKey;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyInt, PyList, PyTuple};

use crate::chain::take_number_object;
use crate::codec::{ClassTable, CodecError, Decoder, KnownClasses, Pickle, decode};
use crate::{errors, kept_classes};

/// The operators of a checkpoint and everything they keep: `{"checkpoint": ..., "operators": [...], "entries": [...]}`. An
/// entry is `(uid, state, what, key, window, time_ms, value)`, with `what` one of `value`, `record`, `timer` and `item`.
#[pyfunction]
#[pyo3(signature = (storage, checkpoint))]
pub(crate) fn read_state<'py>(py: Python<'py>, storage: &str, checkpoint: Option<u64>) -> PyResult<Bound<'py, PyDict>> {
    let read = py.detach(|| flownet_cluster::read_checkpoint(storage, checkpoint));
    let read = read.map_err(|error| errors::cluster(py, error))?;
    py.import("flownet.internal.class_changes")?.call_method1("find_to_read", (kept_classes::listed(py, &read)?,))?;
    let CheckpointContents { manifest, parts } = read;
    let entries = PyList::empty(py);
    for operator in &manifest.operators {
        let reader = Reader::new(py, operator, &parts, manifest.max_parallelism, &entries);
        reader.read_all().map_err(|error| error.into_err(py, operator))?;
    }
    let found = crate::convert::to_dict(py, &manifest)?;
    found.del_item("tasks")?;
    found.set_item("entries", entries)?;
    Ok(found)
}

/// Reason for unreadable state.
enum UnreadableReason {
    Format(TaskError),
    Value(CodecError),
    Python(PyErr),
}

impl UnreadableReason {
    fn into_err(self, py: Python<'_>, operator: &OperatorEntry) -> PyErr {
        match self {
            Self::Python(error) => error,
            Self::Format(error) => errors::unreadable(py, &operator.name, &error.to_string()),
            Self::Value(error) => errors::unreadable(py, &operator.name, &error.to_string()),
        }
    }
}

impl From<TaskError> for UnreadableReason {
    fn from(error: TaskError) -> Self {
        Self::Format(error)
    }
}

impl From<CodecError> for UnreadableReason {
    fn from(error: CodecError) -> Self {
        Self::Value(error)
    }
}

impl From<PyErr> for UnreadableReason {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

type Readable<T> = Result<T, UnreadableReason>;

/// Reads the state of one operator.
struct Reader<'a, 'py> {
    py: Python<'py>,
    uid: &'a str,
    /// Name of its fold, if it is one.
    fold: &'a str,
    /// True if its state consists of rows, or derives from rows. Such state is shown as bytes, as its columns
    /// are not known here.
    is_of_rows: bool,
    from: RestoredState<'a>,
    range: KeyGroupRange,
    names: BTreeSet<&'a str>,
    classes: KnownClasses,
    entries: &'a Bound<'py, PyList>,
}

/// The operator, key and window that a value belongs to.
#[derive(Clone, Copy, Default)]
struct ValueOwner<'a, 'py> {
    key: Option<&'a Bound<'py, PyAny>>,
    /// Begin and end. The end is unknown for a slice, of which windows are composed.
    window: Option<(i64, Option<i64>)>,
    time_ms: Option<i64>,
}

impl<'a, 'py> Reader<'a, 'py> {
    fn new(
        py: Python<'py>,
        operator: &'a OperatorEntry,
        parts: &'a [StatePart],
        max_parallelism: u32,
        entries: &'a Bound<'py, PyList>,
    ) -> Self {
        let range = KeyGroupRange::of(0, 1, max_parallelism);
        let from = RestoredState::of(&operator.uid, parts, 0, range);
        let of_state = parts.iter().filter(|part| part.uid == operator.uid && !part.share.is_in_flight());
        let names = of_state.map(|part| &*part.name).collect();
        // A reader of a checkpoint trusts it as much as a job that resumes from it.
        let classes = KnownClasses::new(Arc::new(ClassTable::default()), Pickle::Allowed);
        // The name of a fold of windows continues with the way in which they are stored.
        let fold = operator.kind.split(" of windows").next().unwrap_or_default();
        let is_of_rows = is_of_rows(&operator.kind);
        let fold = if is_of_rows { fold.split(" of ").next().unwrap_or(fold) } else { fold };
        Self { py, uid: &operator.uid, fold, is_of_rows, from, range, names, classes, entries }
    }

    fn read_all(&self) -> Readable<()> {
        for (_, mut definition) in self.from.items("medium")? {
            self.classes.add_kept(self.py, definition.rest(), None)?;
        }
        for name in self.names.iter().filter(|name| **name == WATERMARK || !is_incidental(name)) {
            match *name {
                "fold" => self.each_value(name, "value", |input| self.folded(input))?,
                "slices" => self.slices(name)?,
                "windows" => self.windows(name)?,
                "join" => self.each_key(
                    name,
                    |input| Ok([self.buffer(input)?, self.buffer(input)?]),
                    |key, sides| {
                        for (side, records) in ["left", "right"].into_iter().zip(sides) {
                            for (time_ms, record) in records {
                                let place = ValueOwner { key: Some(key), time_ms: Some(*time_ms), window: None };
                                self.add(side, "record", place, record.clone())?;
                            }
                        }
                        Ok(())
                    },
                )?,
                timers if timers.starts_with("timers.") => self.timers(timers)?,
                "state" | "global_state" => self.each_value(name, name, |input| self.value(input))?,
                "seen" => {
                    self.each_value(name, "value", |input| Ok(PyInt::new(self.py, input.signed()?).into_any()))?
                }
                "first_rows" => self.first_rows(name)?,
                _ => self.items(name)?,
            }
        }
        Ok(())
    }

    /// A key; bytes if no object equals it. Rows count nanoseconds and years beyond 9999, too.
    fn key(&self, bytes: &[u8]) -> Readable<Bound<'py, PyAny>> {
        match decode(self.py, bytes, &self.classes) {
            Err(CodecError::UnknownTag(CLASS_KEY)) => Ok(PyBytes::new(self.py, bytes).into_any()),
            key => Ok(key?),
        }
    }

    /// Reads state by key. Changes are applied to their base.
    fn each_key<V>(
        &self,
        name: &str,
        read: impl FnMut(&mut Input<'a>) -> Readable<V>,
        mut show: impl FnMut(&Bound<'py, PyAny>, &V) -> Readable<()>,
    ) -> Readable<()> {
        let mut state = KeyedState::new(self.range);
        self.from.read_keyed(name, &mut state, read)?;
        for (_, key, held) in state.iter() {
            show(&self.key(held.key_value(key))?, &held.value)?;
        }
        Ok(())
    }

    /// Reads state with one value for each key, which is shown under another name.
    fn each_value(
        &self,
        name: &str,
        shown: &str,
        read: impl FnMut(&mut Input<'a>) -> Readable<Bound<'py, PyAny>>,
    ) -> Readable<()> {
        self.each_key(name, read, |key, value| {
            self.add(shown, "value", ValueOwner { key: Some(key), ..ValueOwner::default() }, value.clone())
        })
    }

    /// For each key, the time of the row that passed last, and the rows that wait.
    fn first_rows(&self, name: &str) -> Readable<()> {
        let read = |input: &mut Input<'a>| {
            let last_ms = if input.varint()? == 0 { None } else { Some(input.signed()?) };
            let waiting = (0..input.varint()?).map(|_| Ok((input.signed()?, PyBytes::new(self.py, input.block()?))));
            Ok((last_ms, waiting.collect::<Readable<Vec<_>>>()?))
        };
        self.each_key(name, read, |key, (last_ms, waiting)| {
            let place = |time_ms| ValueOwner { key: Some(key), time_ms, window: None };
            if let Some(last_ms) = last_ms {
                self.add("value", "value", place(None), PyInt::new(self.py, *last_ms).into_any())?;
            }
            waiting.iter().try_for_each(|(time_ms, row)| {
                self.add("waiting", "record", place(Some(*time_ms)), row.clone().into_any())
            })
        })
    }

    /// Timers of keys, earliest first.
    fn timers(&self, name: &str) -> Readable<()> {
        let mut timers = KeptTimers::new();
        self.from.read_timers(name, &mut timers)?;
        timers.each(|time_ms, owner| {
            let key = self.key(owner.key_value())?;
            let place = ValueOwner { key: Some(&key), time_ms: Some(time_ms), ..ValueOwner::default() };
            self.add(name, "timer", place, self.py.None().into_bound(self.py))
        })
    }

    /// State that belongs to no key.
    fn items(&self, name: &str) -> Readable<()> {
        for (_, mut item) in self.from.items(name)? {
            let value = match name {
                "position" => PyInt::new(self.py, item.varint()?).into_any(),
                WATERMARK => PyInt::new(self.py, item.signed()?).into_any(),
                "list" | "broadcast_state" => self.value(&mut item)?,
                _ => PyBytes::new(self.py, item.rest()).into_any(),
            };
            self.add(name, "item", ValueOwner::default(), value)?;
        }
        Ok(())
    }

    /// The values of slices, of which windows are composed.
    fn slices(&self, name: &str) -> Readable<()> {
        let mut slices = BTreeMap::new();
        let pass = |input: &mut Input<'_>| self.folded(input).map(drop);
        self.from.read_slices(name, pass, |start_ms, record, input| {
            let value = self.folded(input)?;
            slices.insert((start_ms, record.key.to_vec()), (record.key_value().to_vec(), value));
            Ok(())
        })?;
        for ((start_ms, _), (key, value)) in slices {
            let key = self.key(&key)?;
            let place = ValueOwner { key: Some(&key), window: Some((start_ms, None)), time_ms: None };
            self.add("value", "value", place, value)?;
        }
        Ok(())
    }

    /// The windows of each key.
    fn windows(&self, name: &str) -> Readable<()> {
        let value = |input: &mut Input<'a>| {
            let value = self.folded(input)?;
            // Windows of rows have no triggers with state.
            let kept = if self.is_of_rows { None } else { self.option(input)? };
            Ok::<_, UnreadableReason>((Some(value), kept))
        };
        self.each_key(
            name,
            |input| WindowsOfKey::read(input, value),
            |key, windows| {
                for cell in windows.iter() {
                    let window = Some((cell.window.start_ms, Some(cell.window.end_ms)));
                    let place = ValueOwner { key: Some(key), window, time_ms: None };
                    for (clock, timers) in ["timers.processing", "timers.event"].into_iter().enumerate() {
                        for time_ms in cell.timers(clock) {
                            let none = self.py.None().into_bound(self.py);
                            self.add(timers, "timer", ValueOwner { time_ms: Some(*time_ms), ..place }, none)?;
                        }
                    }
                    for (state, value) in [("value", &cell.value), ("trigger", &cell.kept)] {
                        if let Some(value) = value {
                            self.add(state, "value", place, value.clone())?;
                        }
                    }
                }
                Ok(())
            },
        )
    }

    /// Records of one side of a join, with their times.
    fn buffer(&self, input: &mut Input<'a>) -> Readable<Vec<(i64, Bound<'py, PyAny>)>> {
        (0..input.varint()?).map(|_| Ok((input.signed()?, self.value(input)?))).collect()
    }

    /// The value of a fold, as users see it: for a mean, the sum and the number of values.
    fn folded(&self, input: &mut Input<'_>) -> Readable<Bound<'py, PyAny>> {
        if self.is_of_rows {
            return self.folded_rows(input);
        }
        let none = || self.py.None().into_bound(self.py);
        Ok(match self.fold {
            "count" => PyInt::new(self.py, input.varint()?).into_any(),
            "sum" | "min" | "max" => self.number(input)?.unwrap_or_else(none),
            "mean" => {
                let count = PyInt::new(self.py, input.varint()?).into_any();
                PyTuple::new(self.py, [self.number(input)?.unwrap_or_else(none), count])?.into_any()
            }
            "min_by" | "max_by" => {
                self.number(input)?;
                let record = input.block()?;
                if record.is_empty() { none() } else { decode(self.py, record, &self.classes)? }
            }
            "reduce" | "aggregate" => self.option(input)?.unwrap_or_else(none),
            "join" => PyTuple::new(self.py, [self.all(input.block()?)?, self.all(input.block()?)?])?.into_any(),
            "process" => {
                let records = self.all(input.block()?)?;
                for _ in 0..input.varint()? {
                    input.signed()?;
                    input.varint()?;
                }
                self.option(input)?;
                records.into_any()
            }
            other => return Err(input.broken(format_args!("a fold called {other}")).into()),
        })
    }

    fn folded_rows(&self, input: &mut Input<'_>) -> Readable<Bound<'py, PyAny>> {
        Ok(match self.fold {
            "agg" => self.bytes(input)?,
            "join" => PyTuple::new(self.py, [self.bytes(input)?, self.bytes(input)?])?.into_any(),
            "top_n" => {
                let rows = PyList::empty(self.py);
                for _ in 0..input.varint()? {
                    // The value that determines the rank.
                    input.block()?;
                    rows.append(self.bytes(input)?)?;
                }
                rows.into_any()
            }
            other => return Err(input.broken(format_args!("a fold of rows called {other}")).into()),
        })
    }

    fn bytes(&self, input: &mut Input<'_>) -> Readable<Bound<'py, PyAny>> {
        Ok(PyBytes::new(self.py, input.block()?).into_any())
    }

    fn number(&self, input: &mut Input<'_>) -> Readable<Option<Bound<'py, PyAny>>> {
        take_number_object(self.py, input, |input| self.value(input))
    }

    fn option(&self, input: &mut Input<'_>) -> Readable<Option<Bound<'py, PyAny>>> {
        match input.byte()? {
            0 => Ok(None),
            _ => self.value(input).map(Some),
        }
    }

    fn value(&self, input: &mut Input<'_>) -> Readable<Bound<'py, PyAny>> {
        if self.is_of_rows {
            return self.bytes(input);
        }
        Ok(decode(self.py, input.block()?, &self.classes)?)
    }

    fn all(&self, bytes: &[u8]) -> Readable<Bound<'py, PyList>> {
        let (values, mut decoder) = (PyList::empty(self.py), Decoder::new(bytes, &self.classes));
        while !decoder.is_empty() {
            values.append(decoder.next_value(self.py)?)?;
        }
        Ok(values)
    }

    fn add(&self, state: &str, what: &str, place: ValueOwner<'_, 'py>, value: Bound<'py, PyAny>) -> Readable<()> {
        let ValueOwner { key, window, time_ms } = place;
        Ok(self.entries.append((self.uid, state, what, key, window, time_ms, value))?)
    }
}

/// Returns true if an operator of this kind stores rows or aggregates of rows: its kind names columns or
/// aggregates.
fn is_of_rows(kind: &str) -> bool {
    const KINDS: [&str; 8] =
        ["partial agg", "agg", "interval_join", "as_of_join", "join", "regular join", "deduplicate", "top_n"];
    kind.split_once(" of ").is_some_and(|(name, kept)| KINDS.contains(&name) && kept != "windows")
}
