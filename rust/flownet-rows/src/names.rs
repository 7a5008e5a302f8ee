//! Checks names of columns.

use std::collections::HashSet;

/// Returns the first name that occurs twice, if any.
pub fn twice<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut seen = HashSet::new();
    names.into_iter().find(|name| !seen.insert(*name))
}
