//! Sets up both ends of a TLS session.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, cipher_suite};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig, SignatureScheme,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::TlsError;
use super::certificates::{Certificates, PROCESS_NAME, Parts};
use super::error::describe;
use super::record_reader::RecordReader;
use super::takeover::{Session, TrafficSecrets};
use crate::error::HandshakeError;

/// Closes a refused connection so that the peer receives the alert. If bytes that the peer has already sent remained
/// unread, the kernel would reset the connection and the alert would be lost.
async fn see_off(mut stream: RecordReader<TcpStream>) {
    let mut rest = [0; SEEN_OFF_BYTES];
    if stream.shutdown().await.is_ok() {
        let _over = tokio::time::timeout(SEEN_OFF_TIME, stream.read(&mut rest)).await;
    }
}

/// TLS configuration of both ends, with a job's certificates.
pub(crate) struct Tls {
    certificates: Certificates,
    client: ClientConfig,
    server: ServerConfig,
}

impl Tls {
    /// Checks the certificates as a peer would, and builds the configuration.
    pub(crate) fn new(certificates: Certificates) -> Result<Self, TlsError> {
        let parts = certificates.parts()?;
        let verifiers = Verifiers::new(&parts)?;
        verifiers.verify(&parts.chain)?;
        Self::build(certificates, parts, verifiers, &provider())
    }

    #[cfg(test)]
    pub(super) fn unchecked(certificates: Certificates) -> Result<Self, TlsError> {
        let parts = certificates.parts()?;
        let verifiers = Verifiers::new(&parts)?;
        Self::build(certificates, parts, verifiers, &provider())
    }

    #[cfg(test)]
    pub(super) fn with_suite(
        certificates: Certificates,
        suite: rustls::SupportedCipherSuite,
    ) -> Result<Self, TlsError> {
        let parts = certificates.parts()?;
        let verifiers = Verifiers::new(&parts)?;
        let provider = CryptoProvider { cipher_suites: vec![suite], ..aws_lc_rs::default_provider() };
        Self::build(certificates, parts, verifiers, &Arc::new(provider))
    }

    fn build(
        certificates: Certificates,
        parts: Parts,
        verifiers: Verifiers,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, TlsError> {
        let Parts { chain, key, .. } = parts;
        let mut client = ClientConfig::builder_with_provider(Arc::clone(provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(unusable)?
            .dangerous()
            .with_custom_certificate_verifier(verifiers.servers)
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .map_err(unusable)?;
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        client.alpn_protocols = vec![PROTOCOL.to_vec()];
        client.enable_secret_extraction = true;
        let mut server = ServerConfig::builder_with_provider(Arc::clone(provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(unusable)?
            .with_client_cert_verifier(verifiers.clients)
            .with_single_cert(chain, key)
            .map_err(unusable)?;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        server.alpn_protocols = vec![PROTOCOL.to_vec()];
        server.enable_secret_extraction = true;
        Ok(Self { certificates, client, server })
    }

    /// Returns the certificates of this configuration.
    pub(crate) fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    /// Runs the handshake of the end that dialed. The peer may still refuse our certificate afterwards, which a read
    /// reports.
    pub(crate) async fn connect(&self, stream: TcpStream) -> Result<Session, HandshakeError> {
        let secrets = Arc::<TrafficSecrets>::default();
        let mut client = self.client.clone();
        client.key_log = Arc::clone(&secrets) as _;
        let connecting = TlsConnector::from(Arc::new(client)).connect(process_name(), RecordReader::new(stream));
        Ok(Session { stream: connecting.await?.into(), secrets })
    }

    /// Runs the handshake of the end that accepted.
    pub(crate) async fn accept(&self, stream: TcpStream) -> Result<Session, HandshakeError> {
        let secrets = Arc::<TrafficSecrets>::default();
        let mut server = self.server.clone();
        server.key_log = Arc::clone(&secrets) as _;
        let accepting = TlsAcceptor::from(Arc::new(server)).accept(RecordReader::new(stream));
        match accepting.into_fallible().await {
            Ok(stream) => Ok(Session { stream: stream.into(), secrets }),
            Err((error, stream)) => {
                see_off(stream).await;
                Err(error.into())
            }
        }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

/// Verifiers of peers' certificates.
struct Verifiers {
    servers: Arc<AnyName>,
    clients: Arc<dyn ClientCertVerifier>,
}

impl Verifiers {
    fn new(parts: &Parts) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        for authority in &parts.authorities {
            roots.add(authority.clone()).map_err(unusable)?;
        }
        let roots = Arc::new(roots);
        let servers = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), provider()).build();
        let clients = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
        Ok(Self { servers: Arc::new(AnyName(servers.map_err(malformed)?)), clients: clients.map_err(malformed)? })
    }

    fn verify(&self, chain: &[CertificateDer<'_>]) -> Result<(), TlsError> {
        let Some((ours, intermediates)) = chain.split_first() else { return Ok(()) };
        let now = UnixTime::now();
        self.servers.verify_server_cert(ours, intermediates, &process_name(), &[], now).map_err(unusable)?;
        self.clients.verify_client_cert(ours, intermediates, now).map_err(unusable)?;
        Ok(())
    }
}

/// Accepts every certificate of the authorities, regardless of its name.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // The name is checked last, so this error means that all other checks passed.
        match self.0.verify_server_cert(certificate, intermediates, name, ocsp_response, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Prefers the fastest suite for which all current processors have instructions; see `docs/internals/tls-records.md`.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: vec![
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_AES_256_GCM_SHA384,
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ],
        ..aws_lc_rs::default_provider()
    })
}

fn process_name() -> ServerName<'static> {
    ServerName::try_from(PROCESS_NAME).expect("it is a name")
}

fn unusable(error: Error) -> TlsError {
    let reason = match &error {
        Error::InvalidCertificate(error) => describe(error),
        other => other.to_string(),
    };
    TlsError::Unusable { reason }
}

fn malformed(error: rustls::server::VerifierBuilderError) -> TlsError {
    TlsError::Malformed { reason: error.to_string() }
}

/// Larger than the hello of an honest peer. A peer that sends more still notices the refusal.
const SEEN_OFF_BYTES: usize = 512;
const SEEN_OFF_TIME: Duration = Duration::from_secs(1);
/// Negotiated in the TLS handshake (ALPN), so that no other protocol can be mistaken for this one.
const PROTOCOL: &[u8] = b"flownet/1";
