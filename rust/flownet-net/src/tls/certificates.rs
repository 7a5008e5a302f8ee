//! The certificates of a job: made for it, or one's own.

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
/// Never printed: `Debug` is redacted, and the only way to text is [`Certificates::pem`], for handing them to another
/// process of the job as its secret is handed.
#[derive(Clone)]
pub struct Certificates {
    /// The certificate and what leads from it to an authority, then its key, then the authorities.
    pem: Arc<str>,
}

/// What is in the text.
pub(super) struct Parts {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
    pub(super) authorities: Vec<CertificateDer<'static>>,
}

impl Certificates {
    /// Makes an authority, has it issue one certificate, and forgets its key. Both are valid for a year from now, and
    /// for clocks that are up to a day behind.
    ///
    /// # Errors
    /// No key could be made.
    pub fn generate() -> Result<Self, TlsError> {
        Self::generate_for(SystemTime::now(), VALID_FOR)
    }

    pub(super) fn generate_for(from: SystemTime, valid: Duration) -> Result<Self, TlsError> {
        let made = |error: rcgen::Error| TlsError::NotMade { reason: error.to_string() };
        // By a name of its own, or it would be taken for that of another job and found to be a forger.
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

    /// Reads `tls.crt`, `tls.key` and `ca.crt` of a folder, in PEM: the names in a TLS secret of Kubernetes.
    ///
    /// # Errors
    /// A file that cannot be read, or files that hold something else.
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

    /// Takes a certificate and what leads from it to its authority, then its key, then the authorities to accept, in
    /// PEM.
    ///
    /// # Errors
    /// Text that holds something else.
    pub fn from_pem(pem: &str) -> Result<Self, TlsError> {
        let certificates = Self { pem: pem.into() };
        certificates.parts().map(|_| certificates)
    }

    /// What [`Certificates::from_pem`] reads. Whoever has it can pass for a process of the job, though not without its
    /// secret.
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
    // A clock beyond the year 9999 is none.
    i64::try_from(seconds)
        .ok()
        .and_then(|at| OffsetDateTime::from_unix_timestamp(at).ok())
        .unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// In the order of the text.
const FILES: [&str; 3] = ["tls.crt", "tls.key", "ca.crt"];
/// Nobody looks at it, but a certificate of a server has one.
pub(super) const PROCESS_NAME: &str = "flownet";
const JOB_DIGITS: usize = 16;
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Between the clocks of two machines.
const CLOCK_SKEW: Duration = DAY;
/// Longer than a job runs without a new connection.
const VALID_FOR: Duration = DAY.saturating_mul(365);
