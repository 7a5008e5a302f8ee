//! Checkpoints of a running job and its restarts: decisions without I/O and without a clock.
//!
//! ```text
//! Supervisor   attempts of a job: whether and when to restart
//!    CheckpointMachine   of one attempt: trigger, acknowledgements, publication
//!    FailuresWithoutProgress   failures that no restart heals
//! RegionsMachine   of one attempt, beside it: which of its regions run
//! parts        statistics of a checkpoint, for people
//! assign       state that each task of an attempt restores
//! ```

mod machine;
mod parts;
mod redistribution;
mod repeated;
mod restart;

#[cfg(test)]
mod region_tests;
#[cfg(test)]
mod tests;

pub(crate) use self::machine::{CheckpointLimits, CheckpointMachine, Command, Input, TaskSnapshotRef};
pub use self::parts::CheckpointPart;
pub(crate) use self::parts::{CheckpointParts, SnapshotTimes};
pub use self::redistribution::RestoreMismatch;
pub(crate) use self::redistribution::{assign, operators, without_uid, without_uid_in};
pub(crate) use self::repeated::RepeatedFailure;
pub use self::restart::Restart;
pub(crate) use self::restart::Supervisor;
