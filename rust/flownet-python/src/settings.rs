//! Settings between Python's dictionary and [`JobSettings`].
//!
//! Keys are the names of the fields, with the unit where Python holds a number: `buffer_timeout_us`,
//! `heartbeat_interval_ms`. Two settings are this crate's own: `parallelism`, which Python resolves into the operators, and
//! `codec`.

use std::time::Duration;

use flownet_cluster::{JobSettings, Tls};
use flownet_runtime::spec::FlowControl;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::codec::Pickle;
use crate::errors;

/// What a job is submitted with.
pub(crate) struct Settings {
    pub(crate) job: JobSettings,
    pub(crate) pickle: Pickle,
}

/// The default of every setting of a job.
#[pyfunction]
pub(crate) fn defaults(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let job = JobSettings::default();
    let settings = PyDict::new(py);
    settings.set_item("parallelism", 1)?;
    settings.set_item("codec", TYPED)?;
    settings.set_item("job_name", &job.job_name)?;
    settings.set_item("workers", job.workers)?;
    settings.set_item("slots_per_worker", job.slots_per_worker)?;
    settings.set_item("max_parallelism", job.max_parallelism)?;
    settings.set_item("segment_bytes", job.segment_bytes)?;
    settings.set_item("network_memory_bytes", job.network_memory_bytes)?;
    settings.set_item("exclusive_buffers", job.exclusive_buffers)?;
    settings.set_item("floating_buffers", job.floating_buffers)?;
    settings.set_item("bandwidth_delay_bytes", job.bandwidth_delay_bytes)?;
    settings.set_item("flow_control", job.flow_control.name())?;
    settings.set_item("receive_buffer_bytes", job.receive_buffer_bytes)?;
    settings.set_item("receive_limit_bytes", job.receive_limit_bytes)?;
    settings.set_item("max_buffers_per_channel", job.max_buffers_per_channel)?;
    settings.set_item("max_overdraft_buffers", job.max_overdraft_buffers)?;
    settings.set_item("max_record_bytes", job.max_record_bytes)?;
    settings.set_item("buffer_timeout_us", job.buffer_timeout.map(|timeout| timeout.as_micros()))?;
    settings.set_item("max_in_flight_time_ms", job.max_in_flight_time.map(|time| time.as_millis()))?;
    settings.set_item("status_interval_ms", job.status_interval.as_millis())?;
    settings.set_item("heartbeat_interval_ms", job.heartbeat_interval.as_millis())?;
    settings.set_item("heartbeat_timeout_ms", job.heartbeat_timeout.as_millis())?;
    settings.set_item("launch_timeout_ms", job.launch_timeout.as_millis())?;
    settings.set_item("cancel_timeout_ms", job.cancel_timeout.as_millis())?;
    settings.set_item("tls", job.tls.to_string())?;
    Ok(settings)
}

const TYPED: &str = "typed";

impl Settings {
    /// Reads a dictionary; what it does not name keeps its default.
    pub(crate) fn from_dict(settings: &Bound<'_, PyDict>) -> PyResult<Self> {
        let mut read = Self { job: JobSettings::default(), pickle: Pickle::Refused };
        for (name, value) in settings {
            let name = name.cast::<PyString>()?.to_cow()?.into_owned();
            read.set(&name, &value).map_err(|error| refuse(&name, &value, &error))?;
        }
        Ok(read)
    }

    fn set(&mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let job = &mut self.job;
        match name {
            // Resolved into the operators, each of which has its own.
            "parallelism" => {}
            "codec" => self.pickle = codec(value)?,
            "job_name" => job.job_name = value.extract()?,
            "workers" => job.workers = value.extract()?,
            "slots_per_worker" => job.slots_per_worker = value.extract()?,
            "max_parallelism" => job.max_parallelism = value.extract()?,
            "segment_bytes" => job.segment_bytes = value.extract()?,
            "network_memory_bytes" => job.network_memory_bytes = value.extract()?,
            "exclusive_buffers" => job.exclusive_buffers = value.extract()?,
            "floating_buffers" => job.floating_buffers = value.extract()?,
            "bandwidth_delay_bytes" => job.bandwidth_delay_bytes = value.extract()?,
            "flow_control" => job.flow_control = flow_control(&value.extract::<String>()?)?,
            "receive_buffer_bytes" => job.receive_buffer_bytes = value.extract()?,
            "receive_limit_bytes" => job.receive_limit_bytes = value.extract()?,
            "max_buffers_per_channel" => job.max_buffers_per_channel = value.extract()?,
            "max_overdraft_buffers" => job.max_overdraft_buffers = value.extract()?,
            "max_record_bytes" => job.max_record_bytes = value.extract()?,
            "buffer_timeout_us" => {
                job.buffer_timeout = value.extract::<Option<u64>>()?.map(Duration::from_micros);
            }
            "max_in_flight_time_ms" => {
                job.max_in_flight_time = value.extract::<Option<u64>>()?.map(Duration::from_millis);
            }
            "status_interval_ms" => job.status_interval = milliseconds(value)?,
            "heartbeat_interval_ms" => job.heartbeat_interval = milliseconds(value)?,
            "heartbeat_timeout_ms" => job.heartbeat_timeout = milliseconds(value)?,
            "launch_timeout_ms" => job.launch_timeout = milliseconds(value)?,
            "cancel_timeout_ms" => job.cancel_timeout = milliseconds(value)?,
            "tls" => job.tls = Tls::from_text(&value.extract::<String>()?),
            _ => return Err(pyo3::exceptions::PyKeyError::new_err("there is no such setting")),
        }
        Ok(())
    }
}

/// Checks a number of subtasks or key groups.
pub(crate) fn check_parallelism(py: Python<'_>, setting: &str, value: u32, max: u32) -> PyResult<()> {
    if (1..=max).contains(&value) {
        return Ok(());
    }
    Err(errors::config(py, setting, &format!("{setting} is {value}, allowed are 1 to {max}")))
}

fn codec(value: &Bound<'_, PyAny>) -> PyResult<Pickle> {
    match value.extract::<String>()?.as_str() {
        TYPED => Ok(Pickle::Refused),
        "pickle" => Ok(Pickle::Allowed),
        _ => Err(pyo3::exceptions::PyValueError::new_err("codec is 'typed' or 'pickle'")),
    }
}

/// Reads a way to control flow as users write it.
pub(crate) fn flow_control(name: &str) -> PyResult<FlowControl> {
    FlowControl::from_name(name).ok_or_else(|| {
        let known = FlowControl::ALL.map(FlowControl::name).join(", ");
        pyo3::exceptions::PyValueError::new_err(format!("{name:?} is none of {known}"))
    })
}

fn milliseconds(value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    value.extract().map(Duration::from_millis)
}

fn refuse(name: &str, value: &Bound<'_, PyAny>, error: &PyErr) -> PyErr {
    let py = value.py();
    let shown = value.repr().map_or_else(|_| "?".to_owned(), |repr| repr.to_string());
    errors::config(py, name, &format!("setting {name}={shown}: {}", error.value(py)))
}
