//! Lists the checkpoints of a folder.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::convert::to_dict;
use crate::errors;

/// The checkpoints in a folder, the oldest first.
#[pyfunction]
pub(crate) fn checkpoints<'py>(py: Python<'py>, storage: &str) -> PyResult<Bound<'py, PyList>> {
    let listed = py.detach(|| flownet_cluster::checkpoints(storage)).map_err(|error| errors::store(py, error))?;
    let rows = PyList::empty(py);
    for one in listed.checkpoints {
        let row = to_dict(py, &one.manifest)?;
        row.set_item("bytes", one.manifest.bytes())?;
        row.set_item("has_ended", one.manifest.has_ended())?;
        row.set_item("is_last", one.is_last)?;
        rows.append(row)?;
    }
    Ok(rows)
}

/// Say what is damaged of the log in a folder, and of its checkpoints, one text each.
#[pyfunction]
pub(crate) fn checkpoint_damage(py: Python<'_>, storage: &str) -> PyResult<Vec<String>> {
    let listed = py.detach(|| flownet_cluster::checkpoints(storage)).map_err(|error| errors::store(py, error))?;
    Ok(listed.damage.iter().map(ToString::to_string).collect())
}

/// Copy a checkpoint in a folder, the one of this number or the last, to a place of its own. `sign`: it is not signed, and the
/// copy is to be.
#[pyfunction]
pub(crate) fn save_checkpoint<'py>(
    py: Python<'py>,
    storage: &str,
    checkpoint: Option<u64>,
    url: &str,
    sign: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let saved = py.detach(|| flownet_cluster::save_checkpoint(storage, checkpoint, url, sign));
    to_dict(py, &saved.map_err(|error| errors::cluster(py, error))?)
}
