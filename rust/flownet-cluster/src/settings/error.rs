//! Errors of refused settings.

use std::time::Duration;

use flownet_net::TlsError;

use crate::tls::Tls;

/// Invalid setting, with the user's name for it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A number is out of range.
    #[error("{setting} is {value}, allowed are {min} to {max}")]
    OutOfRange {
        /// Name of the setting.
        setting: &'static str,
        /// Configured value.
        value: u64,
        /// Smallest allowed value.
        min: u64,
        /// Largest allowed value.
        max: u64,
    },
    /// A time is out of range.
    #[error("{setting} is {value:?}, allowed are {min:?} to {max:?}")]
    TimeOutOfRange {
        /// Name of the setting.
        setting: &'static str,
        /// Configured value.
        value: Duration,
        /// Shortest allowed time.
        min: Duration,
        /// Longest allowed time.
        max: Duration,
    },
    /// A text is empty.
    #[error("{setting} must be a text that is not empty")]
    Empty {
        /// Name of the setting.
        setting: &'static str,
    },
    /// One late report would already count as a lost worker.
    #[error("heartbeat_timeout is {timeout:?}, it must be at least twice heartbeat_interval ({interval:?})")]
    HeartbeatTooTight {
        /// Configured interval.
        interval: Duration,
        /// Configured timeout.
        timeout: Duration,
    },
    /// Checkpoints have no storage.
    #[error("checkpoint_interval is set, but not checkpoint_storage: say in which folder checkpoints are kept")]
    NoStorage,
    /// Inputs do not wait for each other, so unaligned barriers have no effect.
    #[error(
        "{set} is set, and checkpoint_mode is at_least_once, where inputs do not wait for each other: leave out one of them"
    )]
    UnalignedAtLeastOnce {
        /// Setting that enables unaligned barriers.
        set: &'static str,
    },
    /// A checkpoint is aborted before its barriers would become unaligned.
    #[error("checkpoint_aligned_timeout is {aligned:?}, it must be less than checkpoint_timeout ({timeout:?})")]
    AlignedTooLong {
        /// Time until barriers become unaligned.
        aligned: Duration,
        /// Time until the checkpoint is aborted.
        timeout: Duration,
    },
    /// A checkpoint number is set without its folder.
    #[error("restore_checkpoint is set, but not restore_from: say in which folder that checkpoint is")]
    NoRestoreFrom,
    /// A job that restores from a checkpoint takes none itself.
    #[error("restore_from is set, but not checkpoint_interval: a job that goes on from a checkpoint takes some itself")]
    NoCheckpoints,
    /// The certificates cannot be used.
    #[error("tls: {0}")]
    Tls(#[from] TlsError),
    /// The workers' pool has another setting than the job.
    #[error("tls is {job}, but the worker pool of these workers was opened with {pool}: open it with the same")]
    WorkerPoolTls {
        /// Setting of the job.
        job: Tls,
        /// Setting of the worker pool.
        pool: Tls,
    },
}
