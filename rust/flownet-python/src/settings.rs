//! Settings of a job: exposes flownet-cluster's table to Python, and reads dictionaries.

use flownet_cluster::JobSettings;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::convert::{from_python, to_dict, to_python};
use crate::errors;

/// Every setting: its name, kind, bounds, default and what it does.
#[pyfunction]
pub(crate) fn settings(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let defaults = to_dict(py, &JobSettings::default())?;
    let table = PyList::empty(py);
    for setting in JobSettings::TABLE {
        let row = to_python(py, setting)?;
        row.set_item("default", defaults.get_item(setting.name)?)?;
        table.append(row)?;
    }
    Ok(table)
}

/// Raise what is wrong with settings, which may be known of all of them together only.
#[pyfunction]
pub(crate) fn check_settings(settings: &Bound<'_, PyDict>) -> PyResult<()> {
    let valid = job_settings(settings)?.validate();
    valid.map_err(|error| errors::cluster(settings.py(), flownet_cluster::PlanError::from(error).into()))
}

/// Reads a dictionary. Settings that it does not name have their defaults.
pub(crate) fn job_settings(settings: &Bound<'_, PyDict>) -> PyResult<JobSettings> {
    let py = settings.py();
    // The message of the error, without the name of its type, which is replaced.
    from_python(settings).map_err(|error| errors::config(py, "settings", &error.value(py).to_string()))
}

/// Checks a number of subtasks or key groups.
pub(crate) fn check_parallelism(py: Python<'_>, setting: &str, value: u32, max: u32) -> PyResult<()> {
    if (1..=max).contains(&value) {
        return Ok(());
    }
    Err(errors::config(py, setting, &format!("{setting} is {value}, allowed are 1 to {max}")))
}
