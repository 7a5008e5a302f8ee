//! Names of columns.

use std::collections::HashSet;

/// The name that two of them are, if two are one.
pub fn twice<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut seen = HashSet::new();
    names.into_iter().find(|name| !seen.insert(*name))
}
