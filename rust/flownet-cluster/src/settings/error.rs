//! Why settings were refused.

use std::time::Duration;

use flownet_net::TlsError;

use crate::tls::Tls;

/// A setting that cannot be used, named as the user writes it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A number outside what is allowed.
    #[error("{setting} is {value}, allowed are {min} to {max}")]
    OutOfRange {
        /// Name of the setting.
        setting: &'static str,
        /// What it was set to.
        value: u64,
        /// Smallest value allowed.
        min: u64,
        /// Largest value allowed.
        max: u64,
    },
    /// A time outside what is allowed.
    #[error("{setting} is {value:?}, allowed are {min:?} to {max:?}")]
    TimeOutOfRange {
        /// Name of the setting.
        setting: &'static str,
        /// What it was set to.
        value: Duration,
        /// Shortest time allowed.
        min: Duration,
        /// Longest time allowed.
        max: Duration,
    },
    /// A text without a letter.
    #[error("{setting} must be a text that is not empty")]
    Empty {
        /// Name of the setting.
        setting: &'static str,
    },
    /// One late report would already count as a lost worker.
    #[error("heartbeat_timeout is {timeout:?}, it must be at least twice heartbeat_interval ({interval:?})")]
    HeartbeatTooTight {
        /// The interval set.
        interval: Duration,
        /// The timeout set.
        timeout: Duration,
    },
    /// Checkpoints without a place.
    #[error("checkpoint_interval is set, but not checkpoint_storage: say in which folder checkpoints are kept")]
    NoStorage,
    /// Nobody waits for anybody, and yet barriers are to overtake.
    #[error(
        "{set} is set, and checkpoint_mode is at_least_once, where inputs do not wait for each other: leave out one of them"
    )]
    UnalignedAtLeastOnce {
        /// The setting by which they are to.
        set: &'static str,
    },
    /// A checkpoint is given up before it would overtake.
    #[error("checkpoint_aligned_timeout is {aligned:?}, it must be less than checkpoint_timeout ({timeout:?})")]
    AlignedTooLong {
        /// When it would overtake.
        aligned: Duration,
        /// When it is given up.
        timeout: Duration,
    },
    /// A checkpoint without the folder that it is in.
    #[error("restore_checkpoint is set, but not restore_from: say in which folder that checkpoint is")]
    NoRestoreFrom,
    /// A job that is to begin from a checkpoint and takes none.
    #[error("restore_from is set, but not checkpoint_interval: a job that goes on from a checkpoint takes some itself")]
    NoCheckpoints,
    /// Certificates that cannot be used.
    #[error("tls: {0}")]
    Tls(#[from] TlsError),
    /// The workers were opened with another setting than the job asks for.
    #[error("tls is {job}, but the worker pool of these workers was opened with {pool}: open it with the same")]
    WorkerPoolTls {
        /// The setting of the job.
        job: Tls,
        /// That of the worker pool.
        pool: Tls,
    },
}
