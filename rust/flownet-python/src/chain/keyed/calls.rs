//! Calls users' functions for windows: gaps of sessions, and custom triggers.

use flownet_runtime::operator::{Calls, InspectedState, KeyedRecord, StateKind, TriggerCall, TriggeredWindow};
use flownet_runtime::snapshot::Input;
use flownet_runtime::time::Clock;
use flownet_runtime::window::{TriggerResult, Window};
use flownet_runtime::{TaskContext, TaskError};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt};

use super::KeyedBase;
use super::mapping_values::pass_option;
use crate::chain::call::call1;
use crate::chain::context::{PyTriggerContext, window_object};
use crate::chain::record_format::{Collector, PythonFormat};

/// The functions, if there are any.
pub(in crate::chain) struct WindowCalls {
    base: KeyedBase,
    gap: Option<Py<PyAny>>,
    trigger: Option<Py<PyAny>>,
}

impl WindowCalls {
    pub(in crate::chain) fn new(base: KeyedBase, gap: Option<Py<PyAny>>, trigger: Option<Py<PyAny>>) -> Self {
        Self { base, gap, trigger }
    }

    fn missing<T>(what: &str) -> Result<T, TaskError> {
        Err(TaskError::Config(format!("a window was planned with {what} of the user and has none")))
    }
}

impl Calls<PythonFormat> for WindowCalls {
    type TriggerState = Option<Py<PyDict>>;

    fn gap_ms(&mut self, record: &KeyedRecord<'_>, collector: &mut Collector<'_, '_>) -> Result<i64, TaskError> {
        let py = collector.token;
        let Some(gap) = &self.gap else { return Self::missing("gaps") };
        let (gap, value) = (gap.bind(py), self.base.decode(py, record.value())?);
        let failed = |error: PyErr| self.base.info.call_failed(py, &error, gap, "one record", Some(&value));
        let gap_ms = call1(gap, &value).map_err(failed)?;
        match gap_ms.extract::<i64>() {
            Ok(gap_ms @ 1..) => Ok(gap_ms),
            Ok(_) => Err(failed(PyValueError::new_err(format!("a session lasts at least 1 ms, not {gap_ms}")))),
            Err(_) => Err(failed(PyTypeError::new_err(format!("a gap is a number of milliseconds, not {gap_ms}")))),
        }
    }

    fn trigger(
        &mut self,
        call: TriggerCall<'_>,
        at: &mut TriggeredWindow<'_, Self::TriggerState>,
        collector: &mut Collector<'_, '_>,
    ) -> Result<TriggerResult, TaskError> {
        let py = collector.token;
        let Some(trigger) = &self.trigger else { return Self::missing("a trigger") };
        let trigger = trigger.bind(py);
        let failed = |error: PyErr| self.base.info.failed(py, &error, None);
        let context = Bound::new(py, PyTriggerContext::new(at.watermark_ms, collector.now_ms)).map_err(failed)?;
        context.get().enter(at.kept.take());
        let window = window_object(py, at.window).map_err(failed)?;
        let answer = match call {
            TriggerCall::Record(record) => {
                let value = self.base.decode(py, record.value())?;
                let timestamp_ms = PyInt::new(py, record.timestamp_ms);
                let given = (&value, timestamp_ms, window, &context);
                let answer = trigger.call_method1(intern!(py, "on_element"), given);
                answer.map_err(|error| self.base.info.failed(py, &error, Some(&value)))
            }
            TriggerCall::Time(clock, time_ms) => {
                let method = match clock {
                    Clock::Event => intern!(py, "on_event_time"),
                    Clock::Processing => intern!(py, "on_processing_time"),
                };
                trigger.call_method1(method, (time_ms, window, &context)).map_err(failed)
            }
            TriggerCall::Merged => trigger.call_method1(intern!(py, "on_merge"), (window, &context)).map_err(failed),
            TriggerCall::Clear => trigger.call_method1(intern!(py, "clear"), (window, &context)).map_err(failed),
        };
        let answer = answer?;
        let (kept, timers) = context.get().leave();
        *at.kept = kept.filter(|kept| !kept.bind(py).is_empty());
        at.timers = timers;
        if answer.is_none() {
            return Ok(TriggerResult::CONTINUE);
        }
        let parts = answer.getattr(intern!(py, "value")).and_then(|value| value.extract::<(bool, bool)>());
        let (fires, purges) = parts.map_err(|_| {
            failed(PyTypeError::new_err(format!("a trigger answers with a TriggerResult or None, not {answer}")))
        })?;
        Ok(TriggerResult { fires, purges })
    }

    fn merge_kept(
        &mut self,
        _: Window,
        kept: &mut Self::TriggerState,
        other: Self::TriggerState,
        py: Python<'_>,
    ) -> Result<(), TaskError> {
        let Some(trigger) = &self.trigger else { return Ok(()) };
        let merged = trigger.bind(py).call_method1(intern!(py, "merge_state"), (kept.take(), other));
        let merged = merged.and_then(|merged| Ok(merged.extract::<Option<Py<PyDict>>>()?));
        *kept = merged.map_err(|error| self.base.info.failed(py, &error, None))?;
        Ok(())
    }

    fn inspect<'py>(
        &self,
        py: Python<'py>,
        (key, window): (&[u8], Option<Window>),
        kept: &Self::TriggerState,
        found: &mut InspectedState<Bound<'py, PyAny>>,
    ) -> Result<(), TaskError> {
        if let Some(state) = kept {
            found.add(StateKind::TriggerState, Some(key), window, state.bind(py).clone().into_any());
        }
        Ok(())
    }

    fn write_kept(
        &self,
        py: Python<'_>,
        key: &[u8],
        kept: &Self::TriggerState,
        out: &mut Vec<u8>,
    ) -> Result<(), TaskError> {
        self.base.put_option(py, ("trigger", key), kept.as_ref().map(|kept| kept.bind(py).as_any()), out)
    }

    fn read_kept(&self, py: Python<'_>, input: &mut Input<'_>) -> Result<Self::TriggerState, TaskError> {
        self.base.take_optional_dict(py, input)
    }

    fn pass_kept(&self, _: Python<'_>, input: &mut Input<'_>) -> Result<(), TaskError> {
        pass_option(input)
    }

    fn open(&mut self, _: Python<'_>, _: &TaskContext) -> Result<(), TaskError> {
        Ok(())
    }
}
