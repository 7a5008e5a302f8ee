//! Checkpoints of a running job and its restarts: decisions without I/O and without a clock.
//!
//! ```text
//! Supervisor   a job is a row of attempts: restart, after how long, or give up
//!    CheckpointMachine   of one attempt: when to trigger, who has answered, what counts
//!    FailuresWithoutProgress   which failures no restart heals
//! RegionsMachine   of one attempt, beside it: which of its regions run
//! parts        what a checkpoint is made of, for people
//! assign       what each task of an attempt goes on from
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
pub(crate) use self::parts::CheckpointParts;
pub use self::redistribution::RestoreMismatch;
pub(crate) use self::redistribution::{assign, operators, without_uid, without_uid_in};
pub(crate) use self::repeated::RepeatedFailure;
pub use self::restart::Restart;
pub(crate) use self::restart::Supervisor;
