//! Why there is no TLS: certificates that are none, and peers that are not who they should be.

use std::io;
use std::path::PathBuf;

use rustls::{AlertDescription, CertificateError, Error};

use crate::error::HandshakeError;

/// Why certificates cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// None could be made.
    #[error("no certificate could be made: {reason}")]
    NotMade {
        /// What the library said.
        reason: String,
    },
    /// A file that cannot be read.
    #[error("cannot read {}: {reason}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// Text that is not a certificate, a key and an authority.
    #[error("the certificates are no PEM that can be used: {reason}")]
    Malformed {
        /// What is wrong with it.
        reason: String,
    },
    /// A certificate that no peer would accept: expired, of another authority, of another key.
    #[error("the certificate would be refused by every peer: {reason}")]
    Unusable {
        /// Why it would be.
        reason: String,
    },
}

/// What TLS says of a connection that it ended, if it was TLS that did.
pub(crate) fn failure(error: &io::Error) -> Option<HandshakeError> {
    let found = error.get_ref()?.downcast_ref::<Error>()?;
    Some(match found {
        Error::InvalidMessage(_) => HandshakeError::NotTls,
        Error::NoCertificatesPresented => HandshakeError::WrongCertificate { reason: "it showed none".into() },
        Error::InvalidCertificate(error) => HandshakeError::WrongCertificate { reason: describe(error) },
        Error::AlertReceived(alert) => match refusal(*alert) {
            Some(reason) => HandshakeError::CertificateRefused { reason: reason.into() },
            None => HandshakeError::Tls { reason: found.to_string() },
        },
        other => HandshakeError::Tls { reason: other.to_string() },
    })
}

pub(super) fn describe(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer => "another authority issued it".into(),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired".into(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet: compare the clocks".into()
        }
        other => other.to_string(),
    }
}

/// What a peer means that ends the handshake for our certificate's sake.
fn refusal(alert: AlertDescription) -> Option<&'static str> {
    match alert {
        AlertDescription::UnknownCA => Some("another authority issued it"),
        AlertDescription::CertificateExpired => Some("it has expired, or the clocks differ"),
        AlertDescription::CertificateRequired => Some("we showed none"),
        AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::DecryptError => Some("it is not what the peer asks for"),
        _ => None,
    }
}
