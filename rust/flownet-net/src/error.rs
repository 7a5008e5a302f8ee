//! Errors of connection setup and of the network environment.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use flownet_memory::MemoryError;

use crate::handshake::Role;
use crate::tls::{self, TlsError};

/// Error of parsing or generating a [`Secret`](crate::Secret).
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The text does not have exactly 64 digits.
    #[error("a secret has 64 hexadecimal digits, this has {digits} bytes")]
    WrongLength {
        /// Length of the text in bytes.
        digits: usize,
    },
    /// The text has a character other than 0-9, a-f, A-F.
    #[error("a secret is written in hexadecimal digits only")]
    NotHex,
    /// The operating system provided no random bytes.
    #[error("no randomness from the operating system: {reason}")]
    NoRandomness {
        /// The system's error text.
        reason: String,
    },
}

/// Error of parsing [`Credentials`](crate::Credentials).
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialsError {
    /// The secret is invalid.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The certificates are invalid or cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Reason why a connection was closed before any frame was read from it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The first bytes are not flownet's, but some other program's, or noise.
    #[error("the peer does not speak flownet (first bytes {first_bytes:02x?})")]
    NotFlownet {
        /// Bytes received in place of the magic.
        first_bytes: [u8; 8],
    },
    /// This process requires TLS, and the peer speaks something else.
    #[error("the peer does not speak TLS, which this process asks for: give both the same tls setting")]
    NotTls,
    /// The peer speaks TLS, which is off in this process.
    #[error("the peer speaks TLS, which is off in this process: give both the same tls setting")]
    TlsPeer,
    /// This process does not accept the peer's certificate.
    #[error("the peer's certificate is refused: {reason}")]
    WrongCertificate {
        /// Reason of the refusal.
        reason: String,
    },
    /// The peer does not accept *our* certificate.
    #[error("the peer refused our certificate: {reason}")]
    CertificateRefused {
        /// Reason given by the peer.
        reason: String,
    },
    /// TLS failed for another reason.
    #[error("TLS failed: {reason}")]
    Tls {
        /// Error text of the TLS library.
        reason: String,
    },
    /// The peer uses another protocol version.
    #[error("the peer speaks protocol version {theirs}, this process {ours}")]
    WrongVersion {
        /// Our version.
        ours: u16,
        /// The peer's version.
        theirs: u16,
    },
    /// The peer wants the other role: a control client on a data port, or the reverse.
    #[error("the peer wants a connection of kind {theirs:#04x}, this is a {ours} port")]
    WrongRole {
        /// Role that this end serves or requests.
        ours: Role,
        /// The peer's role byte, as sent.
        theirs: u8,
    },
    /// The peer could not prove that it knows the job's secret.
    #[error("the peer does not know this job's secret")]
    WrongSecret,
    /// The peer reports that *we* do not know the secret.
    #[error("the peer refused our proof of the job's secret")]
    Refused,
    /// A field has a value other than its fixed one.
    #[error("malformed handshake: {field} is {value}")]
    Malformed {
        /// Name of the field.
        field: &'static str,
        /// Value of the field.
        value: u8,
    },
    /// The peer was too slow, silent, or stopped half way.
    #[error("no complete handshake within {} ms", timeout.as_millis())]
    TimedOut {
        /// Deadline that passed.
        timeout: Duration,
    },
    /// Too many handshakes were pending, and a newer connection displaced this one.
    #[error("gave way to a newer connection before it had proved itself")]
    Displaced,
    /// The stream ended or broke during the handshake.
    #[error("connection lost during the handshake: {0}")]
    Io(Arc<io::Error>),
    /// No nonce could be generated.
    #[error("no randomness from the operating system: {reason}")]
    NoRandomness {
        /// The system's error text.
        reason: String,
    },
}

impl HandshakeError {
    /// Returns true if the peer may just have been too busy: it hung up without giving a reason.
    #[must_use]
    pub fn is_hang_up(&self) -> bool {
        matches!(self, Self::Io(_))
    }
}

impl From<io::Error> for HandshakeError {
    /// Extracts the TLS error from `source`, if it contains one.
    fn from(source: io::Error) -> Self {
        tls::failure(&source).unwrap_or_else(|| Self::Io(Arc::new(source)))
    }
}

/// Error of setting up an environment or of serving a call.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// The data port could not be opened.
    #[error("cannot listen on {addr}: {source}")]
    Bind {
        /// Requested address.
        addr: SocketAddr,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// A setting is outside its range.
    #[error("{setting} is {value}, must be {allowed}")]
    InvalidConfig {
        /// Name of the setting.
        setting: &'static str,
        /// Value of the setting.
        value: String,
        /// Allowed values.
        allowed: &'static str,
    },
    /// `bind` was called outside a tokio runtime with IO and time enabled.
    #[error("NetworkEnvironment::bind needs a running tokio runtime")]
    NoRuntime,
    /// Buffers for a partition or a gate could not be allocated.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}
