//! Scenarios over the public API. Invariants are asserted inside the pools on
//! every change; each test ends by counting that every segment is home.

#[cfg(not(loom))]
mod buffer;
#[cfg(not(loom))]
mod buffer_pool;
#[cfg(loom)]
mod loom;
#[cfg(not(loom))]
mod properties;
#[cfg(not(loom))]
mod segment_pool;
#[cfg(not(loom))]
mod standing;
#[cfg(not(loom))]
mod stress;
#[cfg(not(loom))]
mod support;
