//! What any bytes may do to flownet: nothing but a value or a typed error.
//!
//! A target takes bytes as a peer or a user could send them and asserts what must hold whatever they are; it panics where
//! it does not. `make fuzz TARGET=wire SECONDS=600` searches for such bytes, guided by coverage; `make fuzz-smoke` does so
//! for a few seconds a target, and a plain `cargo test` only feeds the corpus.
//!
//! `corpus/TARGET` holds the seeds that `make fuzz-seeds` writes, and bytes that once broke something, under a name that
//! says what.

mod target;

#[cfg(feature = "interpreter")]
#[path = "../../../rust/flownet-python/src/codec/mod.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "the codec alone: with all of flownet-python a build takes minutes"
)]
mod codec;

pub use target::{TARGETS, Target};
