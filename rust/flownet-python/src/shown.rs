//! Formats users' values for errors.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

/// `repr(value)`, or a note that explains why there is none.
///
/// `repr` recurses once for each level of the value. The interpreter's recursion limit bounds that, but
/// programs may raise the limit arbitrarily.
pub(crate) fn repr(value: &Bound<'_, PyAny>) -> String {
    let class = || value.get_type().qualname().map_or_else(|_| "object".to_owned(), |name| name.to_string());
    if nests_deeper(value, MOST_LEVELS) {
        return format!("<{} that nests more than {MOST_LEVELS} levels deep>", class());
    }
    match value.repr() {
        Ok(repr) => repr.to_string_lossy().into_owned(),
        Err(_) => format!("<{} whose repr() raises>", class()),
    }
}

/// Returns true if lists, tuples and dicts nest deeper. Visits one branch after the other, without recursion.
fn nests_deeper(value: &Bound<'_, PyAny>, most: usize) -> bool {
    let mut left = vec![(value.clone(), 0)];
    for _ in 0..MOST_LOOKS {
        let Some((value, level)) = left.pop() else { return false };
        if level > most {
            return true;
        }
        if let Ok(list) = value.cast::<PyList>() {
            left.extend(list.iter().map(|item| (item, level + 1)));
        } else if let Ok(tuple) = value.cast::<PyTuple>() {
            left.extend(tuple.iter().map(|item| (item, level + 1)));
        } else if let Ok(dict) = value.cast::<PyDict>() {
            left.extend(dict.iter().flat_map(|(key, value)| [(key, level + 1), (value, level + 1)]));
        }
    }
    false
}

/// Number of levels that fit on every stack.
const MOST_LEVELS: usize = 1000;
/// Most values that are visited: values that contain themselves have no end.
const MOST_LOOKS: usize = 100_000;
