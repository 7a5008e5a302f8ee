//! Identifies a file while it is followed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use pyo3::prelude::*;

/// The number of a file on its device, and when it was made, in nanoseconds since 1970: together they are of no other file,
/// also of one that is made when it is gone. None where the file system does not say when. Python itself cannot ask before 3.15.
#[pyfunction]
pub(crate) fn file_identity(path: PathBuf) -> PyResult<Option<(u64, u64)>> {
    let metadata = fs::metadata(path)?;
    let made = metadata.created().ok().and_then(|made| made.duration_since(UNIX_EPOCH).ok());
    Ok(made.and_then(|made| Some((metadata.ino(), u64::try_from(made.as_nanos()).ok()?))))
}
