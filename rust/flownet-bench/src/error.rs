//! What can go wrong with a bench.

use std::io;

use flownet_core::ExchangeError;
use flownet_memory::MemoryError;
use flownet_net::{CredentialsError, NetError};

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// A setting that cannot be measured with.
    #[error("{setting} is {value}, allowed is {allowed}")]
    Invalid {
        /// Name of the setting, as the command line spells it, without dashes in front.
        setting: &'static str,
        /// What it was set to.
        value: String,
        /// What it may be.
        allowed: String,
    },
    /// A process of the bench could not be started.
    #[error("cannot start {program}: {source}")]
    Launch {
        /// The program.
        program: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A process of the bench says that it failed.
    #[error("the {party} failed: {reason}")]
    PartyFailed {
        /// What it was there for.
        party: &'static str,
        /// Its own words.
        reason: String,
    },
    /// A process of the bench ended in the middle, or its bench did.
    #[error("the {party} is gone")]
    PartyGone {
        /// What it was there for.
        party: &'static str,
    },
    /// Something was said that does not belong there: the two sides are not of one version.
    #[error("the {party} said {said}, which is not what was expected")]
    Unexpected {
        /// Who said it.
        party: &'static str,
        /// What was said.
        said: String,
    },
    /// Records were lost, doubled or changed on their way.
    #[error("{received} records with sum {sum} arrived, {expected} with sum {expected_sum} were sent")]
    WrongSum {
        /// Records that arrived.
        received: u64,
        /// The sum of their values, modulo 2^64.
        sum: u64,
        /// Records that should have arrived.
        expected: u64,
        /// The sum of theirs.
        expected_sum: u64,
    },
    /// The network memory does not hold what the exchange needs to move at all.
    #[error("{source}; one segment has {segment_bytes} bytes: raise network-memory")]
    Memory {
        /// The numbers.
        source: MemoryError,
        /// Size of a segment.
        segment_bytes: usize,
    },
    /// The exchange under test failed.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// The network under test could not be set up.
    #[error(transparent)]
    Net(#[from] NetError),
    /// No credentials for the connections could be made or read.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// A socket, pipe or file of the bench itself.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// Somebody stopped the bench.
    #[error("stopped")]
    Stopped,
}

impl BenchError {
    /// Puts a name on an IO error, for `map_err`.
    pub(crate) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }

    pub(crate) fn invalid(setting: &'static str, value: impl ToString, allowed: impl Into<String>) -> Self {
        Self::Invalid { setting, value: value.to_string(), allowed: allowed.into() }
    }
}
