//! Lists the classes of a checkpoint's values, without the values.

use flownet_cluster::CheckpointContents;
use flownet_runtime::snapshot::medium_items;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::codec::{CodecError, KeptDefinition, Layout};
use crate::errors;

/// The classes of the checkpoint that a job would go on from: the last of its own storage, or the one that it is to begin
/// from. `None` if it has none, or none can be read, which the job will say.
#[pyfunction]
#[pyo3(signature = (storage, restore_from))]
pub(crate) fn kept_classes<'py>(
    py: Python<'py>,
    storage: &str,
    restore_from: Option<&str>,
) -> PyResult<Option<Bound<'py, PyList>>> {
    let read = py.detach(|| {
        let of = |url| flownet_cluster::read_medium(url).ok();
        of(storage).or_else(|| restore_from.and_then(of))
    });
    read.map(|read| listed(py, &read)).transpose()
}

/// `(operator, uid, is_in_state, number, name, kind, in_dict, in_slots, pickled)` of each class that an
/// operator has.
pub(crate) fn listed<'py>(py: Python<'py>, read: &CheckpointContents) -> PyResult<Bound<'py, PyList>> {
    let all = PyList::empty(py);
    for part in &read.parts {
        let operator = read.manifest.operators.iter().find(|operator| operator.uid == part.uid);
        let operator = operator.map_or(&*part.uid, |operator| &*operator.name);
        let failed = |error: &dyn std::fmt::Display| errors::unreadable(py, operator, &error.to_string());
        for kept in medium_items(part).map_err(|error| failed(&error))? {
            let kept = KeptDefinition::read(kept).map_err(|error| failed(&error))?;
            let layout = Layout::read(kept.definition).map_err(|error| failed(&error))?;
            let kind = layout.kind().map_err(|error: CodecError| failed(&error))?;
            let pickled = PyBytes::new(py, layout.pickled);
            let names = (layout.in_dict, layout.in_slots);
            all.append((
                operator,
                &*part.uid,
                kept.is_in_state,
                kept.number,
                layout.identity,
                kind,
                names.0,
                names.1,
                pickled,
            ))?;
        }
    }
    Ok(all)
}
