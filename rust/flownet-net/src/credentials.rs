//! What the processes of a job know and nobody else: its secret and, with TLS, its certificates.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

use crate::error::{CredentialsError, HandshakeError};
use crate::handshake::{Hello, accept_bound, initiate_bound, within};
use crate::secret::Secret;
use crate::stream::Stream;
use crate::tls::{Certificates, Tls, TlsError};

/// What one end of a connection proves itself with, and asks of the other. Clones share it.
///
/// Never printed: `Debug` is redacted, and the only way to text is [`Credentials::to_text`], for handing it to another
/// process of the job over a private pipe.
#[derive(Clone, Debug)]
pub struct Credentials {
    secret: Secret,
    tls: Option<Arc<Tls>>,
}

impl Credentials {
    /// Those of a job whose connections are encrypted by these certificates.
    ///
    /// # Errors
    /// Certificates that a peer would refuse, such as those that have expired.
    pub fn with_tls(secret: Secret, certificates: Certificates) -> Result<Self, TlsError> {
        Ok(Self { secret, tls: Some(Arc::new(Tls::new(certificates)?)) })
    }

    #[cfg(test)]
    pub(crate) fn unchecked(secret: Secret, tls: Tls) -> Self {
        Self { secret, tls: Some(Arc::new(tls)) }
    }

    /// Whether connections are encrypted.
    pub fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Those by which connections are encrypted, if they are.
    pub fn certificates(&self) -> Option<&Certificates> {
        self.tls.as_deref().map(Tls::certificates)
    }

    /// Reads what [`Credentials::to_text`] wrote.
    ///
    /// # Errors
    /// Text that is something else, or certificates that a peer would refuse.
    pub fn from_text(text: &str) -> Result<Self, CredentialsError> {
        let (secret, pem) = text.split_once('\n').unwrap_or((text, ""));
        let secret = Secret::from_hex(secret)?;
        if pem.is_empty() {
            return Ok(secret.into());
        }
        Ok(Self::with_tls(secret, Certificates::from_pem(pem)?)?)
    }

    /// The secret in hexadecimal digits and, with TLS, a line break and the certificates in PEM. Whoever has it can
    /// join the job.
    pub fn to_text(&self) -> String {
        match &self.tls {
            None => self.secret.to_hex(),
            Some(tls) => format!("{}\n{}", self.secret.to_hex(), tls.certificates().pem()),
        }
    }

    /// Proves ourselves to the end that accepted `stream`, and it to us.
    ///
    /// # Errors
    /// Why the two are not of one job, or do not speak alike; the connection is closed then.
    pub async fn initiate(
        &self,
        mut stream: TcpStream,
        hello: Hello,
        timeout: Duration,
    ) -> Result<Stream, HandshakeError> {
        let prove = async {
            let Some(tls) = &self.tls else {
                initiate_bound(&mut stream, &self.secret, &[], hello).await?;
                return Ok(Stream::plain(stream));
            };
            let mut stream = tls.connect(stream).await?;
            let binding = binding(&stream)?;
            initiate_bound(&mut stream, &self.secret, &binding, hello).await?;
            Ok(Stream::tls(stream))
        };
        within(timeout, prove).await
    }

    /// The other half of [`initiate`](Self::initiate), for the end that accepted `stream`.
    ///
    /// # Errors
    /// As there.
    pub async fn accept(
        &self,
        mut stream: TcpStream,
        hello: Hello,
        timeout: Duration,
    ) -> Result<Stream, HandshakeError> {
        let prove = async {
            let Some(tls) = &self.tls else {
                accept_bound(&mut stream, &self.secret, &[], hello).await?;
                return Ok(Stream::plain(stream));
            };
            let mut stream = tls.accept(stream).await?;
            let binding = binding(&stream)?;
            accept_bound(&mut stream, &self.secret, &binding, hello).await?;
            Ok(Stream::tls(stream))
        };
        within(timeout, prove).await
    }
}

impl From<Secret> for Credentials {
    /// Those of a job without TLS.
    fn from(secret: Secret) -> Self {
        Self { secret, tls: None }
    }
}

/// What only the two ends of this session know: whoever stands between them has two sessions, and so two of these.
fn binding(stream: &TlsStream<TcpStream>) -> Result<[u8; BINDING_BYTES], HandshakeError> {
    let exported = match stream {
        TlsStream::Client(stream) => stream.get_ref().1.export_keying_material([0; BINDING_BYTES], BINDING_LABEL, None),
        TlsStream::Server(stream) => stream.get_ref().1.export_keying_material([0; BINDING_BYTES], BINDING_LABEL, None),
    };
    exported.map_err(|error| HandshakeError::Tls { reason: error.to_string() })
}

const BINDING_BYTES: usize = 32;
const BINDING_LABEL: &[u8] = b"EXPORTER-Channel-Binding";
