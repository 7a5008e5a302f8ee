//! Scenarios over the public API. Invariants are asserted inside the pools on
//! every change; each test ends by counting that every segment is home.

mod buffer;
mod buffer_pool;
mod properties;
mod segment_pool;
mod standing;
mod stress;
mod support;
