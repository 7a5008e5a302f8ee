//! Split marks: items that a Python iterator yields between its records to name their split.

use flownet_runtime::watermark::SplitSignal;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A mark among the records of an iterator. Event time follows the split that is furthest behind.
#[pyclass(frozen, name = "SplitMark", module = "flownet._flownet")]
pub(crate) struct PySplitMark {
    signal: SplitSignal,
}

impl PySplitMark {
    pub(super) fn signal(&self) -> SplitSignal {
        self.signal
    }
}

#[pymethods]
impl PySplitMark {
    /// `growing`: there are `number` splits by now, numbered from 0. `of`: the records that follow are of this split.
    /// `ended`: this split has no more records.
    #[new]
    fn new(kind: &str, number: u32) -> PyResult<Self> {
        let signal = match kind {
            "growing" => SplitSignal::Growing(number),
            "of" => SplitSignal::Of(number),
            "ended" => SplitSignal::Ended(number),
            _ => return Err(PyValueError::new_err(format!("there is no split mark {kind:?}"))),
        };
        Ok(Self { signal })
    }
}
