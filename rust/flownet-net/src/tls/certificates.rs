//! Certificates of a job: generated for it, or provided by the user.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType,
};
use rustls::pki_types::pem::{PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use time::OffsetDateTime;

use super::TlsError;
use crate::secret::Secret;

/// A certificate with its key, and the authorities whose certificates are accepted from peers.
///
/// Never printed: `Debug` is redacted. The only conversion to text is [`Certificates::pem`], for passing them to
/// another process of the job in the same way as its secret.
#[derive(Clone)]
pub struct Certificates {
    /// PEM text: the certificate and its chain to an authority, then its key, then the authorities.
    pem: Arc<str>,
}

/// Parsed contents of the PEM text.
pub(super) struct Parts {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
    pub(super) authorities: Vec<CertificateDer<'static>>,
}

impl Certificates {
    /// Generates an authority, issues one certificate with it, and discards the authority's key.
    ///
    /// Both certificates are valid for a year from now, and also for clocks that are up to a day slow.
    ///
    /// # Errors
    /// Returns an error if no key could be generated.
    pub fn generate() -> Result<Self, TlsError> {
        Self::generate_for(SystemTime::now(), VALID_FOR)
    }

    pub(super) fn generate_for(from: SystemTime, valid: Duration) -> Result<Self, TlsError> {
        let made = |error: rcgen::Error| TlsError::NotMade { reason: error.to_string() };
        // Each job needs a unique authority name. Otherwise peers would take its authority for that of another job, and
        // report a forged signature.
        let job = Secret::generate().map_err(|error| TlsError::NotMade { reason: error.to_string() })?.to_hex();
        let mut root = params(&format!("flownet job {}", &job[..JOB_DIGITS]), from, valid);
        root.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        root.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let authority = CertifiedIssuer::self_signed(root, KeyPair::generate().map_err(made)?).map_err(made)?;
        let mut leaf = params("flownet process", from, valid);
        leaf.subject_alt_names = vec![SanType::DnsName(PROCESS_NAME.try_into().map_err(made)?)];
        leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().map_err(made)?;
        let certificate = leaf.signed_by(&key, &authority).map_err(made)?;
        Self::from_pem(&[certificate.pem(), key.serialize_pem(), authority.pem()].concat())
    }

    /// Reads `tls.crt`, `tls.key` and `ca.crt` of a folder, in PEM. A TLS secret of Kubernetes has the same names.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, or if the files hold something else.
    pub fn from_folder(folder: &Path) -> Result<Self, TlsError> {
        let mut pem = String::new();
        for name in FILES {
            let path = folder.join(name);
            let text = std::fs::read_to_string(&path);
            pem.push_str(&text.map_err(|error| TlsError::Unreadable { path, reason: error.to_string() })?);
            pem.push('\n');
        }
        Self::from_pem(&pem)
    }

    /// Parses PEM text: a certificate and its chain to an authority, then its key, then the authorities to accept.
    ///
    /// # Errors
    /// Returns an error if the text holds something else.
    pub fn from_pem(pem: &str) -> Result<Self, TlsError> {
        let certificates = Self { pem: pem.into() };
        certificates.parts().map(|_| certificates)
    }

    /// Returns the text that [`Certificates::from_pem`] parses. Anyone with it can present the certificate of a process
    /// of the job, but cannot join without the job's secret.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    pub(super) fn parts(&self) -> Result<Parts, TlsError> {
        let malformed = |reason: &str| TlsError::Malformed { reason: reason.to_owned() };
        let (mut chain, mut key, mut authorities) = (Vec::new(), None, Vec::new());
        for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(self.pem.as_bytes()) {
            let (kind, der) = section.map_err(|error| malformed(&error.to_string()))?;
            match kind {
                SectionKind::Certificate if key.is_none() => chain.push(der.into()),
                SectionKind::Certificate => authorities.push(der.into()),
                kind => key = PrivateKeyDer::from_pem(kind, der).or(key),
            }
        }
        match key {
            None => Err(malformed("it has no key")),
            Some(_) if chain.is_empty() => Err(malformed("it has no certificate before the key")),
            Some(_) if authorities.is_empty() => Err(malformed("it has no authority behind the key")),
            Some(key) => Ok(Parts { chain, key, authorities }),
        }
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Certificates(redacted)")
    }
}

fn params(name: &str, from: SystemTime, valid: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = date(from - CLOCK_SKEW);
    params.not_after = date(from + valid);
    params
}

fn date(time: SystemTime) -> OffsetDateTime {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    // A clock beyond the year 9999 is wrong, so use the epoch.
    i64::try_from(seconds)
        .ok()
        .and_then(|at| OffsetDateTime::from_unix_timestamp(at).ok())
        .unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// Files in the order of their PEM text.
const FILES: [&str; 3] = ["tls.crt", "tls.key", "ca.crt"];
/// No peer checks this name, but a server certificate must contain one.
pub(super) const PROCESS_NAME: &str = "flownet";
const JOB_DIGITS: usize = 16;
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Allowed difference between the clocks of two machines.
const CLOCK_SKEW: Duration = DAY;
/// Exceeds the time for which a job runs without a new connection.
const VALID_FOR: Duration = DAY.saturating_mul(365);
