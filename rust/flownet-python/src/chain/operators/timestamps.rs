//! `assign_timestamps_and_watermarks`: when each record is, and how far event time has come.

use flownet_runtime::operator::Operator;
use flownet_runtime::time::{END_OF_TIME_MS, NO_TIMESTAMP, TimeSignal};
use flownet_runtime::watermark::{Generated, Generator};
use flownet_runtime::{TaskContext, TaskError};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyList, PyType};

use crate::chain::call::call1;
use crate::chain::failure::{OperatorInfo, short_repr};
use crate::chain::medium::{Flow, PythonMedium};

/// Gives records their times, and tells what is behind of event time.
pub(in crate::chain) struct Timestamps {
    /// Finds the time in a record; none keeps the one that it has.
    assigner: Option<Assigner>,
    /// The user's own; it makes watermarks in the product's place.
    own: Option<Py<PyAny>>,
    generator: Generator,
    info: OperatorInfo,
}

/// How the time of a record is found.
pub(in crate::chain) enum Assigner {
    /// It returns milliseconds.
    Function(Py<PyAny>),
    /// An index or key.
    Field(Py<PyAny>),
}

impl Timestamps {
    pub(in crate::chain) fn new(
        assigner: Option<Assigner>,
        own: Option<Py<PyAny>>,
        generator: Generator,
        info: OperatorInfo,
    ) -> Self {
        Self { assigner, own, generator, info }
    }

    fn timestamp(&self, record: &Bound<'_, PyAny>, before_ms: i64) -> Result<i64, TaskError> {
        let py = record.py();
        let found = match &self.assigner {
            None => return Ok(before_ms),
            Some(Assigner::Function(function)) => {
                let function = function.bind(py);
                call1(function, record)
                    .map_err(|error| self.info.call_failed(py, &error, function, "one record", Some(record)))?
            }
            Some(Assigner::Field(field)) => {
                let found = record.get_item(field.bind(py));
                found.map_err(|error| self.info.failed(py, &error, Some(record)))?
            }
        };
        if found.is_exact_instance_of::<PyInt>()
            && let Ok(timestamp_ms) = found.extract::<i64>()
            && timestamp_ms > NO_TIMESTAMP
            && timestamp_ms < END_OF_TIME_MS
        {
            return Ok(timestamp_ms);
        }
        Err(self.info.failed(py, &no_timestamp(&found), Some(record)))
    }

    /// Asks the user's generator, and does as it says.
    fn ask(&mut self, call: Call<'_, '_>, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        let py = flow.token;
        let Some(own) = &self.own else { return Ok(()) };
        let output = || py.import(intern!(py, "flownet.watermark"))?.getattr(intern!(py, "WatermarkOutput"))?.call0();
        let asked = output().and_then(|output| {
            match call {
                Call::Record(record, timestamp_ms) => {
                    own.bind(py).call_method1(intern!(py, "on_event"), (record, timestamp_ms, &output))?;
                }
                Call::Period => {
                    own.bind(py).call_method1(intern!(py, "on_periodic_emit"), (&output,))?;
                }
            }
            output.getattr(intern!(py, "_said"))
        });
        let record = if let Call::Record(record, _) = call { Some(record) } else { None };
        let failed = |error: PyErr| self.info.failed(py, &error, record);
        let said = asked.map_err(failed)?.cast_into::<PyList>().map_err(|error| failed(error.into()))?;
        for word in said.iter() {
            let signal = if let Ok(idle) = word.cast::<PyBool>() {
                TimeSignal::Idle(idle.is_true())
            } else {
                TimeSignal::Watermark(word.extract().map_err(failed)?)
            };
            let generated = self.generator.said(signal);
            tell(&generated, flow)?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Call<'a, 'py> {
    Record(&'a Bound<'py, PyAny>, i64),
    Period,
}

fn tell(generated: &Generated, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
    generated.signals().try_for_each(|signal| flow.emit_time(signal))
}

/// Why this is no time of a record.
#[cold]
fn no_timestamp(found: &Bound<'_, PyAny>) -> PyErr {
    let (shown, kind) = (short_repr(found), found.get_type().name().map(|name| name.to_string()).unwrap_or_default());
    if found.is_exact_instance_of::<PyInt>() {
        return PyOverflowError::new_err(format!(
            "{shown} is no time of a record: milliseconds since 1970 lie between -2**63 and 2**63 - 1, both excluded"
        ));
    }
    let advice = "a timestamp is an int of milliseconds since 1970-01-01 UTC";
    match kind.as_str() {
        "float" => PyValueError::new_err(format!("{shown} is a float, and {advice}: int(seconds * 1000)")),
        "datetime" | "Timestamp" => PyTypeError::new_err(format!(
            "{shown} is a {kind}, and {advice}: int(when.timestamp() * 1000), of one that knows its time zone"
        )),
        _ => PyTypeError::new_err(format!("{shown} is of type {kind}, and {advice}")),
    }
}

impl Operator<PythonMedium> for Timestamps {
    fn open(&mut self, py: Python<'_>, _: &TaskContext) -> Result<(), TaskError> {
        if let Some(own) = &self.own {
            // A factory, or the class itself, makes each subtask its own.
            let own = own.bind(py);
            if own.is_instance_of::<PyType>() || !own.hasattr(intern!(py, "on_event")).unwrap_or(false) {
                let made = own.call0().map_err(|error| self.info.failed(py, &error, None))?;
                self.own = Some(made.unbind());
            }
        }
        Ok(())
    }

    #[inline]
    fn process<'py>(&mut self, record: Bound<'py, PyAny>, flow: &mut Flow<'_, 'py>) -> Result<(), TaskError> {
        let before_ms = flow.timestamp_ms;
        let timestamp_ms = self.timestamp(&record, before_ms)?;
        // Who has been idle is told to be back before what brings it back.
        let back = self.generator.on_record(timestamp_ms);
        if back {
            flow.emit_time(TimeSignal::Idle(false))?;
        }
        if self.own.is_none() {
            return flow.emit_at(timestamp_ms, record);
        }
        flow.emit_at(timestamp_ms, record.clone())?;
        self.ask(Call::Record(&record, timestamp_ms), flow)
    }

    fn passes_time(&self) -> bool {
        false
    }

    fn next_timer_ms(&self) -> Option<i64> {
        self.generator.next_ms()
    }

    fn on_timer(&mut self, now_ms: i64, flow: &mut Flow<'_, '_>) -> Result<(), TaskError> {
        if !self.generator.is_due(now_ms) {
            return Ok(());
        }
        // Who waits for those behind is not idle.
        let generated = self.generator.on_period(now_ms, flow.is_available());
        tell(&generated, flow)?;
        self.ask(Call::Period, flow)
    }
}
