//! Errors of TLS: unusable certificates, and peers that fail authentication.

use std::io;
use std::path::PathBuf;

use rustls::{AlertDescription, CertificateError, Error};

use crate::error::HandshakeError;

/// Reason why certificates cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// No certificate could be generated.
    #[error("no certificate could be made: {reason}")]
    NotMade {
        /// Error text of the library.
        reason: String,
    },
    /// A file cannot be read.
    #[error("cannot read {}: {reason}", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// The system's error text.
        reason: String,
    },
    /// The text is not a certificate, a key and an authority.
    #[error("the certificates are no PEM that can be used: {reason}")]
    Malformed {
        /// Reason why the text is invalid.
        reason: String,
    },
    /// Every peer would refuse the certificate: it has expired, or belongs to another authority or another key.
    #[error("the certificate would be refused by every peer: {reason}")]
    Unusable {
        /// Reason for which peers would refuse it.
        reason: String,
    },
}

/// Returns the TLS error that ended a connection, if TLS ended it.
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

/// Returns why the peer refused our certificate, if its alert means a refusal.
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
