//! Operators that take one record at a time, whatever its key.

mod filter;
mod flat_map;
mod map;

pub(super) use filter::Filter;
pub(super) use flat_map::FlatMap;
pub(super) use map::Map;
