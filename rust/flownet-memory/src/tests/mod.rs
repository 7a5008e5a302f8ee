//! Scenarios over the public API. The pools assert their invariants on every change. Each test ends with a check that
//! all segments were returned.

mod buffer;
mod buffer_pool;
mod properties;
mod segment_pool;
mod standing;
mod stress;
mod support;
