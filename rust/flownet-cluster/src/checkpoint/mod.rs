//! Checkpoints of a running job, and what follows its end: decisions without IO and without a clock.
//!
//! ```text
//! Supervisor   a job is a row of attempts: restart, after how long, or give up
//!    CheckpointMachine   of one attempt: when to trigger, who has answered, what counts
//! JobMachine   of one attempt, beside it
//! ```

mod machine;
mod restart;

#[cfg(test)]
mod tests;

pub(crate) use self::machine::{CheckpointLimits, CheckpointMachine, Command, Input, Kept};
pub use self::restart::Restart;
pub(crate) use self::restart::Supervisor;
