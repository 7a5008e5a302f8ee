//! What the processes of a job know and nobody else: its secret and, with TLS, its certificates.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;

use crate::error::{CredentialsError, HandshakeError};
use crate::handshake::{Hello, Side, prove_bound, within};
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
    pub async fn initiate(&self, stream: TcpStream, hello: Hello, timeout: Duration) -> Result<Stream, HandshakeError> {
        within(timeout, self.prove(Side::Initiator, stream, hello)).await
    }

    /// The other half of [`initiate`](Self::initiate), for the end that accepted `stream`.
    ///
    /// # Errors
    /// As there.
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
    /// Those of a job without TLS.
    fn from(secret: Secret) -> Self {
        Self { secret, tls: None }
    }
}
