//! Limits the nesting of types that arrive over the PyCapsule interface, before they are converted:
//! conversion recurses once for each level.

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_schema::ffi::FFI_ArrowSchema;
use flownet_rows::{MOST_TYPE_LEVELS, TypeTooDeep};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Checks the columns of a stream that has not been read.
pub(super) fn check_stream(stream: &mut FFI_ArrowArrayStream) -> PyResult<()> {
    let (Some(_), Some(get_schema)) = (stream.release(), stream.get_schema()) else {
        // It was read already: its reader reports that.
        return Ok(());
    };
    let mut schema = FFI_ArrowSchema::empty();
    // SAFETY: the stream is valid and not released. It writes a valid schema, or answers with an error and
    // writes nothing.
    let code = unsafe { get_schema(stream, &raw mut schema) };
    if code == 0 { check_columns(&schema) } else { Ok(()) }
}

/// Checks the columns of a batch.
pub(super) fn check_columns(schema: &FFI_ArrowSchema) -> PyResult<()> {
    schema.children().try_for_each(|column| check_column(column.name().unwrap_or_default(), column))
}

/// Checks one column.
pub(super) fn check_column(name: &str, column: &FFI_ArrowSchema) -> PyResult<()> {
    let mut left = vec![(column, 0)];
    while let Some((part, level)) = left.pop() {
        if level > MOST_TYPE_LEVELS {
            return Err(PyValueError::new_err(TypeTooDeep { column: name.to_owned() }.to_string()));
        }
        left.extend(part.children().chain(part.dictionary()).map(|part| (part, level + 1)));
    }
    Ok(())
}
