//! Finds records in blocks of CSV and JSON, for `flownet.rows.csv_files` and `json_files`.

use flownet_rows::CsvFault;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Finds the records that are whole in a block of CSV: their bytes, whether a value is an empty pair of quotes, and, if
/// quotes cannot be read, where, where the quote is opened, and why.
#[pyfunction]
pub(crate) fn csv_records(
    py: Python<'_>,
    data: &Bound<'_, PyBytes>,
    delimiter: u8,
    is_last: bool,
) -> (usize, bool, Option<(usize, usize, String)>) {
    let data = data.as_bytes();
    match py.detach(|| flownet_rows::csv_records(data, delimiter, is_last)) {
        Ok(block) => (block.end, block.has_empty_quotes, None),
        Err(fault) => {
            let (offset, open) = match fault {
                CsvFault::Open { offset } => (offset, offset),
                CsvFault::Text { offset, open } => (offset, open),
            };
            (0, false, Some((offset, open, fault.to_string())))
        }
    }
}

/// Says where each record of a block begins.
#[pyfunction]
pub(crate) fn csv_starts(data: &Bound<'_, PyBytes>, delimiter: u8) -> Vec<usize> {
    flownet_rows::csv_starts(data.as_bytes(), delimiter)
}

/// The place at which a block of JSON is not UTF-8, which its parser does not check, or nests deeper than so many levels, and
/// which of the two.
#[pyfunction]
pub(crate) fn json_fault(py: Python<'_>, data: &Bound<'_, PyBytes>, most: usize) -> Option<(usize, String)> {
    let data = data.as_bytes();
    py.detach(|| match std::str::from_utf8(data) {
        Err(error) => Some((error.valid_up_to(), "it is not UTF-8".to_owned())),
        Ok(_) => {
            let deep = flownet_rows::json_too_deep(data, most);
            deep.map(|offset| (offset, format!(
                "it nests deeper than {most} levels, the most that rows may have: read the file with read_text(), and parse \
                 its lines in a function"
            )))
        }
    })
}
