//! Operators that process one record at a time, independent of its key.

mod filter;
mod flat_map;
mod iterate;
mod map;
mod map_async;
mod process;
mod timestamps;

pub(super) use filter::Filter;
pub(super) use flat_map::FlatMap;
pub(super) use iterate::{FeedbackDecoder, UntilPredicate};
pub(super) use map::Map;
pub(super) use map_async::{Limits, MapAsync};
pub(super) use process::ProcessAll;
pub(super) use timestamps::{Assigner, Timestamps};
