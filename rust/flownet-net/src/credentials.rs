//! Credentials of a job: its secret and, with TLS, its certificates. Only the job's processes know them.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;

use crate::error::{CredentialsError, HandshakeError};
use crate::handshake::{Hello, Side, prove_bound, within};
use crate::secret::Secret;
use crate::stream::Stream;
use crate::tls::{Certificates, Tls, TlsError};

/// Credentials with which one end of a connection authenticates itself and checks the other. Clones share them.
///
/// Never printed: `Debug` is redacted. The only conversion to text is [`Credentials::to_text`], for passing them to
/// another process of the job over a private pipe.
#[derive(Clone, Debug)]
pub struct Credentials {
    secret: Secret,
    tls: Option<Arc<Tls>>,
}

impl Credentials {
    /// Creates credentials of a job whose connections are encrypted with these certificates.
    ///
    /// # Errors
    /// Returns an error for certificates that a peer would refuse, such as expired ones.
    pub fn with_tls(secret: Secret, certificates: Certificates) -> Result<Self, TlsError> {
        Ok(Self { secret, tls: Some(Arc::new(Tls::new(certificates)?)) })
    }

    #[cfg(test)]
    pub(crate) fn unchecked(secret: Secret, tls: Tls) -> Self {
        Self { secret, tls: Some(Arc::new(tls)) }
    }

    /// Returns true if connections are encrypted.
    pub fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns the certificates that encrypt connections, if they are encrypted.
    pub fn certificates(&self) -> Option<&Certificates> {
        self.tls.as_deref().map(Tls::certificates)
    }

    /// Parses the output of [`Credentials::to_text`].
    ///
    /// # Errors
    /// Returns an error for other text, or for certificates that a peer would refuse.
    pub fn from_text(text: &str) -> Result<Self, CredentialsError> {
        let (secret, pem) = text.split_once('\n').unwrap_or((text, ""));
        let secret = Secret::from_hex(secret)?;
        if pem.is_empty() {
            return Ok(secret.into());
        }
        Ok(Self::with_tls(secret, Certificates::from_pem(pem)?)?)
    }

    /// Returns the secret in hexadecimal digits and, with TLS, a line break and the certificates in PEM. Anyone with
    /// this text can join the job.
    pub fn to_text(&self) -> String {
        match &self.tls {
            None => self.secret.to_hex(),
            Some(tls) => format!("{}\n{}", self.secret.to_hex(), tls.certificates().pem()),
        }
    }

    /// Authenticates both ends, on the end that dialed `stream`.
    ///
    /// # Errors
    /// Returns the reason why the two ends do not belong to one job or do not use the same protocol. The connection is
    /// then closed.
    pub async fn initiate(&self, stream: TcpStream, hello: Hello, timeout: Duration) -> Result<Stream, HandshakeError> {
        within(timeout, self.prove(Side::Initiator, stream, hello)).await
    }

    /// Authenticates both ends, on the end that accepted `stream`. The counterpart of [`initiate`](Self::initiate).
    ///
    /// # Errors
    /// Returns the same errors as [`initiate`](Self::initiate).
    pub async fn accept(&self, stream: TcpStream, hello: Hello, timeout: Duration) -> Result<Stream, HandshakeError> {
        within(timeout, self.prove(Side::Acceptor, stream, hello)).await
    }

    async fn prove(&self, side: Side, mut stream: TcpStream, hello: Hello) -> Result<Stream, HandshakeError> {
        let Some(tls) = &self.tls else {
            prove_bound(side, &mut stream, &self.secret, &[], hello).await?;
            return Ok(Stream::plain(stream));
        };
        let mut session = match side {
            Side::Initiator => tls.connect(stream).await?,
            Side::Acceptor => tls.accept(stream).await?,
        };
        let binding = session.binding()?;
        prove_bound(side, &mut session.stream, &self.secret, &binding, hello).await?;
        Ok(Stream::tls(session))
    }
}

impl From<Secret> for Credentials {
    /// Creates credentials of a job without TLS.
    fn from(secret: Secret) -> Self {
        Self { secret, tls: None }
    }
}
