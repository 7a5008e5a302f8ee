//! Record format of chains with Python objects as records.

use flownet_core::CustomEvent;
use flownet_rows::{CarriesRows, RowBatch, RowInput};
use flownet_runtime::operator::{self, ReceiveOutcome, RecordFormat};
use flownet_runtime::work::Work;
use flownet_runtime::{Outputs, TaskError};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyIterator, PyList, PyString, PyTuple};

use super::attach::{ThreadsOfTask, attached, detached, enter_threads, forget_thread, keep_thread};
use super::context::is_output_tag;
use super::failure::{CODEC_ERROR, OperatorInfo, short_repr};
use super::isolate::{is_immutable, isolate, take_item};
use super::rows::rows;
use super::serializer::{CLASS_DEFINITION, PythonSerializer};
use crate::codec::{self, KnownClasses, exact};
use crate::rows::PyRowBatch;

/// The operators of one task.
pub(crate) type PythonChain = operator::OperatorChain<PythonFormat>;

/// Downstream stages, while the interpreter is attached.
pub(crate) type Collector<'a, 'py> = operator::Collector<'a, 'py, PythonFormat>;

/// The interpreter, as seen by one task.
pub(crate) struct PythonFormat {
    classes: KnownClasses,
    /// Rows that become objects, in a task that receives rows.
    arriving: Option<RowInput>,
    /// The list that its thread is in. None if the thread is the caller's, which has the interpreter already.
    threads: Option<ThreadsOfTask>,
    is_open: bool,
}

impl PythonFormat {
    pub(super) fn new(classes: KnownClasses, threads: Option<ThreadsOfTask>) -> Self {
        Self { classes, arriving: None, threads, is_open: false }
    }

    /// The format for a task that receives rows in place of objects.
    pub(super) fn with_rows(self, arriving: Option<RowInput>) -> Self {
        Self { arriving, ..self }
    }

    /// Decodes a record, a key or a value.
    #[inline]
    pub(crate) fn decode<'py>(
        &self,
        py: Python<'py>,
        bytes: &[u8],
        info: &OperatorInfo,
    ) -> Result<Bound<'py, PyAny>, TaskError> {
        codec::decode(py, bytes, &self.classes).map_err(|error| info.codec_failed(py, error, None))
    }
}

impl RecordFormat for PythonFormat {
    type Token<'m> = Python<'m>;
    type Record<'m> = Bound<'m, PyAny>;
    type Info = OperatorInfo;
    type Serializer = PythonSerializer;

    const WORK: Work = Work::Python;

    fn open(&mut self) -> Result<(), TaskError> {
        let Some(threads) = &self.threads else { return Ok(()) };
        keep_thread();
        self.is_open = true;
        let entered = Python::attach(|py| enter_threads(py, threads));
        entered.map_err(|error| TaskError::Config(error.to_string()))
    }

    fn close(&mut self) {
        if std::mem::take(&mut self.is_open) {
            forget_thread();
        }
    }

    fn key_kind(first_byte: u8) -> u8 {
        codec::key_kind(first_byte)
    }

    fn kind_name(kind: u8) -> &'static str {
        codec::kind_name(kind)
    }

    fn attach<R>(work: impl for<'m> FnOnce(Python<'m>) -> R) -> R {
        Python::attach(work)
    }

    fn attached<R>(out: &mut Outputs, work: impl for<'m> FnOnce(Python<'m>, &mut Outputs) -> R) -> R {
        attached(out, work)
    }

    fn detached<R: Send>(py: Python<'_>, out: &mut Outputs, work: impl FnOnce(&mut Outputs) -> R + Send) -> R {
        detached(py, out, work)
    }

    #[inline]
    fn receive<'py>(
        &mut self,
        py: Self::Token<'py>,
        bytes: &[u8],
        info: &OperatorInfo,
    ) -> Result<ReceiveOutcome<Self::Record<'py>>, TaskError> {
        let Some(arriving) = &mut self.arriving else {
            return self.decode(py, bytes, info).map(ReceiveOutcome::Record);
        };
        arriving.push(bytes).map_err(|error| info.refused(CODEC_ERROR, error.to_string(), None))?;
        Ok(ReceiveOutcome::Gathered { is_enough: arriving.is_full() })
    }

    fn take_gathered<'py>(
        &mut self,
        py: Self::Token<'py>,
        info: &OperatorInfo,
    ) -> Result<Option<Self::Record<'py>>, TaskError> {
        let Some(arriving) = &mut self.arriving else { return Ok(None) };
        let batch = arriving.take().map_err(|error| info.refused(CODEC_ERROR, error.to_string(), None))?;
        let object = batch.map(|batch| Bound::new(py, PyRowBatch(batch)).map(Bound::into_any)).transpose();
        object.map_err(|error| info.failed(py, &error, None))
    }

    #[inline]
    fn rows(&self, bytes: &[u8]) -> Option<u64> {
        if self.arriving.is_some() { RowInput::rows(bytes) } else { codec::array_rows(bytes, &self.classes) }
    }

    #[inline]
    fn rows_of(record: &Self::Record<'_>) -> u64 {
        if let Ok(batch) = record.cast_exact::<PyRowBatch>() {
            return batch.get().0.len() as u64;
        }
        rows(record).unwrap_or(1)
    }

    #[inline]
    fn share<'py>(record: &Self::Record<'py>) -> Self::Record<'py> {
        record.clone()
    }

    #[inline]
    fn isolate<'py>(
        py: Self::Token<'py>,
        record: Self::Record<'py>,
        info: &OperatorInfo,
    ) -> Result<Self::Record<'py>, TaskError> {
        if is_immutable(&record) {
            return Ok(record);
        }
        isolate(record).map_err(|error| info.failed(py, &error, None))
    }

    fn on_custom(&mut self, event: &CustomEvent, head: &OperatorInfo) -> Result<(), TaskError> {
        if event.kind() != CLASS_DEFINITION {
            return Ok(());
        }
        Python::attach(|py| {
            let added = self.classes.add_part(py, event.payload());
            added.map_err(|error| head.codec_failed(py, error, None))
        })
    }

    /// The classes of values, each by its definition.
    fn snapshot(&self, py: Python<'_>, info: &OperatorInfo) -> Result<Vec<Vec<u8>>, TaskError> {
        let kept = self.classes.kept_definitions(py, &info.operator);
        kept.map_err(|error| info.codec_failed(py, error, None))
    }

    fn restore(&self, py: Python<'_>, kept: &[u8], info: &OperatorInfo) -> Result<(), TaskError> {
        let added = self.classes.add_kept(py, kept, Some(&info.operator));
        added.map_err(|error| info.codec_failed(py, error, None))
    }

    fn name(info: &OperatorInfo) -> &str {
        &info.operator
    }
}

/// Used downstream of `to_rows`, in the same task.
impl CarriesRows for PythonFormat {
    fn into_batch(record: Bound<'_, PyAny>) -> Result<RowBatch, TaskError> {
        let batch = record.cast::<PyRowBatch>().map_err(|error| TaskError::Config(error.to_string()))?;
        Ok(batch.get().0.clone())
    }

    fn from_batch<'py>(py: Self::Token<'py>, batch: RowBatch) -> Result<Self::Record<'py>, TaskError> {
        let batch = Bound::new(py, PyRowBatch(batch)).map_err(|error| TaskError::Config(error.to_string()))?;
        Ok(batch.into_any())
    }
}

/// Emits the values that users' functions return.
pub(super) trait EmitEach<'py> {
    /// Emits each item; `failed` converts an exception of the iteration.
    fn emit_each(&mut self, items: &Bound<'py, PyAny>, failed: impl Fn(PyErr) -> TaskError) -> Result<(), TaskError>;
}

impl<'py> EmitEach<'py> for Collector<'_, 'py> {
    fn emit_each(&mut self, items: &Bound<'py, PyAny>, failed: impl Fn(PyErr) -> TaskError) -> Result<(), TaskError> {
        if let Some(list) = exact::<PyList>(items) {
            let mut at = 0;
            while at < list.len() {
                let record = take_item(list, at).and_then(untagged).map_err(&failed)?;
                self.emit(record)?;
                at += 1;
            }
            return Ok(());
        }
        for item in records(items).map_err(&failed)? {
            self.emit(item.and_then(untagged).map_err(&failed)?)?;
            self.cancel().check()?;
        }
        Ok(())
    }
}

/// Returns the record, unless it is a tuple that begins with an output tag. PyFlink would send that to a side output.
#[inline]
fn untagged(record: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyAny>> {
    let Some(tuple) = exact::<PyTuple>(&record) else { return Ok(record) };
    let Ok(first) = tuple.get_borrowed_item(0) else { return Ok(record) };
    if !is_output_tag(&first)? {
        return Ok(record);
    }
    let (shown, tag) = (short_repr(&record), short_repr(&first));
    let advice = "call ctx.output(tag, value) to send a value to a side output";
    Err(PyTypeError::new_err(format!("the record {shown} begins with {tag}: {advice}")))
}

/// Iterates over the records that a function returned. A string is not a list of records, although Python
/// would iterate over its characters.
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
