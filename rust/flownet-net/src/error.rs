//! What can go wrong on the way to a working connection, and at the edges of an environment.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use flownet_memory::MemoryError;

use crate::handshake::Role;
use crate::tls::{self, TlsError};

/// Why text is not a [`Secret`](crate::Secret), or none could be made.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// A secret is written as exactly 64 digits.
    #[error("a secret has 64 hexadecimal digits, this has {digits} bytes")]
    WrongLength {
        /// Length of the text in bytes.
        digits: usize,
    },
    /// Something other than 0-9, a-f, A-F.
    #[error("a secret is written in hexadecimal digits only")]
    NotHex,
    /// The operating system gave no random bytes.
    #[error("no randomness from the operating system: {reason}")]
    NoRandomness {
        /// The system's own words.
        reason: String,
    },
}

/// Why text holds no [`Credentials`](crate::Credentials).
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialsError {
    /// Its secret is none.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// Its certificates are none, or none that can be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Why a connection was closed before a single frame was read from it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The first bytes are not flownet's: some other program, or noise.
    #[error("the peer does not speak flownet (first bytes {first_bytes:02x?})")]
    NotFlownet {
        /// What came in place of the magic.
        first_bytes: [u8; 8],
    },
    /// TLS is asked for here, and the peer speaks something else.
    #[error("the peer does not speak TLS, which this process asks for: give both the same tls setting")]
    NotTls,
    /// The peer speaks TLS, and here it is off.
    #[error("the peer speaks TLS, which is off in this process: give both the same tls setting")]
    TlsPeer,
    /// The peer's certificate is not accepted here.
    #[error("the peer's certificate is refused: {reason}")]
    WrongCertificate {
        /// Why.
        reason: String,
    },
    /// The peer does not accept *our* certificate.
    #[error("the peer refused our certificate: {reason}")]
    CertificateRefused {
        /// What the peer says.
        reason: String,
    },
    /// TLS failed for another reason.
    #[error("TLS failed: {reason}")]
    Tls {
        /// What the library says.
        reason: String,
    },
    /// The peer was built from another protocol version.
    #[error("the peer speaks protocol version {theirs}, this process {ours}")]
    WrongVersion {
        /// Our version.
        ours: u16,
        /// The peer's.
        theirs: u16,
    },
    /// A control client on a data port, or the reverse.
    #[error("the peer wants a connection of kind {theirs:#04x}, this is a {ours} port")]
    WrongRole {
        /// What this end serves or asks for.
        ours: Role,
        /// The peer's role byte, as sent.
        theirs: u8,
    },
    /// The peer could not prove that it knows the job's secret.
    #[error("the peer does not know this job's secret")]
    WrongSecret,
    /// The peer says that *we* do not know the secret.
    #[error("the peer refused our proof of the job's secret")]
    Refused,
    /// A field that must hold a fixed value does not.
    #[error("malformed handshake: {field} is {value}")]
    Malformed {
        /// Which field.
        field: &'static str,
        /// What it holds.
        value: u8,
    },
    /// Too slow, silent, or stopped half way.
    #[error("no complete handshake within {} ms", timeout.as_millis())]
    TimedOut {
        /// The deadline that passed.
        timeout: Duration,
    },
    /// Too many connections were about to prove themselves, and this one was not.
    #[error("gave way to a newer connection before it had proved itself")]
    Displaced,
    /// The stream ended or broke in the middle.
    #[error("connection lost during the handshake: {0}")]
    Io(Arc<io::Error>),
    /// No nonce could be made.
    #[error("no randomness from the operating system: {reason}")]
    NoRandomness {
        /// The system's own words.
        reason: String,
    },
}

impl HandshakeError {
    /// Whether the other end may just have been too busy: it hung up, without a word against us.
    #[must_use]
    pub fn is_hang_up(&self) -> bool {
        matches!(self, Self::Io(_))
    }
}

impl From<io::Error> for HandshakeError {
    /// What TLS had to say is found in the error, where there is TLS.
    fn from(source: io::Error) -> Self {
        tls::failure(&source).unwrap_or_else(|| Self::Io(Arc::new(source)))
    }
}

/// Why an environment could not be set up or could not serve a call.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// The data port could not be opened.
    #[error("cannot listen on {addr}: {source}")]
    Bind {
        /// The address asked for.
        addr: SocketAddr,
        /// The system's reason.
        source: Arc<io::Error>,
    },
    /// A setting outside its range.
    #[error("{setting} is {value}, must be {allowed}")]
    InvalidConfig {
        /// The setting's name.
        setting: &'static str,
        /// What it was set to.
        value: String,
        /// What it may be.
        allowed: &'static str,
    },
    /// Called outside a tokio runtime with IO and time enabled.
    #[error("NetworkEnvironment::bind needs a running tokio runtime")]
    NoRuntime,
    /// Buffers for a partition or a gate could not be had.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}
