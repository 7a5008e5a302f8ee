//! Stores checkpoints durably and decides which of them count.
//!
//! ```text
//! epochs/0000000007                  the log: what was published, and who may publish; each entry is created once
//! gen-4/chk-12/manifest              what a checkpoint is made of; written once, before its entry in the log
//! gen-4/chk-12/0003-1.snap           what one task keeps; written once, before the manifest that names it
//! gen-4/chk-12/0003-1.000000.snap    the first piece of what it keeps on disk; likewise
//! gen-4/chk-12/0003-1.overtaken.snap what it has overtaken for it afterwards, likewise
//! ```
//!
//! A *generation* is one attempt to run the job. It begins by appending a fencing entry to the log, and publishes its
//! checkpoints after it. An entry is created only if its place in the log is free. A generation that finds its next
//! place taken thus knows that the job continued without it: it is fenced and publishes nothing any more. No object is
//! ever overwritten.
//!
//! # Invariants
//! - I1: a checkpoint counts from the moment its entry is in the log. Everything it refers to is durable before.
//! - I2: a generation that was followed by another one publishes nothing any more.
//! - I3: an object that is torn, foreign, or of another version is never read as state.
//! - I4: objects of a checkpoint that can still be requested are not deleted, regardless of the generation that wrote
//!   them.
//! - I5: a checkpoint refers only to its own files, and to files that one of the two previous checkpoints refers to.
//!   Those are not deleted before the next checkpoint is published.
//! - I6: with a key, no object is decoded unless its signature is valid ([`StateKeys`]).
//!
//! The crate `object_store` does the reading and writing. In local folders, every file and folder is synced before it
//! counts. With the feature `cloud`, it also supports remote object stores. There, an object is either complete or
//! absent, and is created only if it is absent.
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
