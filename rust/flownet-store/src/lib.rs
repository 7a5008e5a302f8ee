//! Where checkpoints are kept, and how they come to count.
//!
//! ```text
//! epochs/0000000007                  the log: what was published, and who may publish; each entry is created once
//! gen-4/chk-12/manifest              what a checkpoint is made of; written once, before its entry in the log
//! gen-4/chk-12/0003-1.snap           what one task keeps; written once, before the manifest that names it
//! gen-4/chk-12/0003-1.000000.snap    the first piece of what it keeps on disk; likewise
//! gen-4/chk-12/0003-1.overtaken.snap what it has overtaken for it afterwards, likewise
//! ```
//!
//! A *generation* is one attempt to run the job. It begins by appending a fence to the log and publishes its checkpoints
//! behind it. An entry is created only if nobody else has created it, so whoever finds the next place taken knows that the
//! job has gone on without it: it is fenced, and publishes nothing any more. No object is ever written over.
//!
//! # Invariants
//! - I1: a checkpoint counts from the moment its entry is in the log. Everything it refers to is durable before.
//! - I2: a generation that was followed by another publishes nothing any more.
//! - I3: what is torn, of something else, or of another version is never read as state.
//! - I4: what a checkpoint refers to that may still be asked for is not deleted, whatever generation wrote it.
//! - I5: what a checkpoint refers to is its own, or what one of the last two before it refers to; that is not deleted
//!   before the next is published.
//! - I6: with a key, nothing is decoded whose signature does not fit ([`StateKeys`]).
//!
//! The object store of the crate `object_store` does the reading and writing: in local folders with every file and folder
//! synced before it counts, or with the feature `cloud` in those that one reaches over the network, where an object is whole
//! or not there and is created only if it is not there.
#![forbid(unsafe_code)]

mod copy;
mod error;
mod fencing_token;
mod files;
mod garbage;
mod keys;
mod lineage;
mod listing;
mod log;
mod manifest;
#[cfg(feature = "cloud")]
mod objects;
mod private;
mod sealed;
mod url;

#[cfg(test)]
mod tests;

pub use self::error::StoreError;
pub use self::fencing_token::{FencingToken, PublishError};
pub use self::files::{CheckpointStore, PartRef, SnapshotName, SnapshotWriter, TaskSnapshot};
pub use self::keys::{FILE_VARIABLE, KEY_VARIABLE, KeyError, StateKeys};
pub use self::lineage::Lineage;
pub use self::listing::{ListedCheckpoint, Listing};
pub use self::manifest::{Manifest, OperatorEntry, TaskEntry};
