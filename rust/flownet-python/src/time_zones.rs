//! Time zones, for checks of settings in Python.

use flownet_runtime::spec::zone_named;
use pyo3::prelude::*;

/// Whether there is a time zone of this name.
#[pyfunction]
pub(crate) fn is_time_zone(name: &str) -> bool {
    zone_named(name).is_some()
}
