//! Authenticates both ends of a connection before anything else is read from it.
//!
//! Both ends know the job's [`Secret`]; neither sends it. All integers are little-endian.
//!
//! ```text
//! initiator -> acceptor   hello     magic "FLOWNET\0" 8 | version u16 | role u8 | zero u8 | features u32 | nonce 32   (48 bytes)
//! acceptor  -> initiator  hello     the same shape
//! initiator -> acceptor   proof     HMAC-SHA256(secret, "flownet initiator" | hello of initiator | hello of acceptor | binding)  (32 bytes)
//! acceptor  -> initiator  verdict   0 accepted, 1 refused                                                             (1 byte)
//!                         proof     HMAC-SHA256(secret, "flownet acceptor"  | the same)   (32 bytes, after an acceptance)
//! ```
//! The binding is empty on a plain connection. Within TLS it is the session's `tls-exporter` (RFC 9266).

use std::fmt;
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::error::HandshakeError;
use crate::secret::Secret;

/// Version of the whole wire protocol. Peers must match exactly, because all workers of a job run one build.
pub const PROTOCOL_VERSION: u16 = 1;

/// Default time limit of a handshake.
pub const DEFAULT_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// Purpose of a connection. A port serves one role.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    /// Frames of the exchange.
    Data,
    /// Calls between coordinator and workers.
    Control,
}

/// Optional features, one bit each. A connection may use those that both ends offered.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Features(u32);

/// Description that each end sends of itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Hello {
    /// Purpose of the connection.
    pub role: Role,
    /// Features that the end supports.
    pub features: Features,
}

/// Authenticates both ends, on the end that dialed. Returns the peer's hello.
///
/// On an error, drop the stream: bytes of the handshake may still be in flight.
pub async fn initiate<S>(
    stream: &mut S,
    secret: &Secret,
    hello: Hello,
    timeout: Duration,
) -> Result<Hello, HandshakeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    within(timeout, initiate_bound(stream, secret, &[], hello)).await
}

/// Authenticates both ends, on the end that accepted `stream`. The counterpart of [`initiate`].
pub async fn accept<S>(
    stream: &mut S,
    secret: &Secret,
    hello: Hello,
    timeout: Duration,
) -> Result<Hello, HandshakeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    within(timeout, accept_bound(stream, secret, &[], hello)).await
}

impl Features {
    /// No optional features.
    pub const NONE: Self = Self(0);

    /// Returns the bits as sent.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Parses bits as sent. Unknown bits are preserved, so that newer peers can be recognized.
    pub fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Returns the features that both ends offered.
    pub fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Role {
    fn byte(self) -> u8 {
        match self {
            Self::Data => 1,
            Self::Control => 2,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Data => "data",
            Self::Control => "control",
        })
    }
}

/// Our end of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Side {
    /// The end that dialed.
    Initiator,
    /// The end that accepted.
    Acceptor,
}

/// Runs the whole exchange for either side, without a deadline.
pub(crate) async fn prove_bound<S>(
    side: Side,
    stream: &mut S,
    secret: &Secret,
    binding: &[u8],
    hello: Hello,
) -> Result<Hello, HandshakeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    match side {
        Side::Initiator => initiate_bound(stream, secret, binding, hello).await,
        Side::Acceptor => accept_bound(stream, secret, binding, hello).await,
    }
}

async fn initiate_bound<S>(
    stream: &mut S,
    secret: &Secret,
    binding: &[u8],
    hello: Hello,
) -> Result<Hello, HandshakeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let ours = encode_hello(hello)?;
    stream.write_all(&ours).await?;
    stream.flush().await?;
    let (peer, theirs) = read_hello(stream, hello.role).await?;
    stream.write_all(&proof(secret, INITIATOR_LABEL, &ours, &theirs, binding)).await?;
    stream.flush().await?;

    match stream.read_u8().await? {
        ACCEPTED => {}
        REFUSED => return Err(HandshakeError::Refused),
        value => return Err(HandshakeError::Malformed { field: "verdict", value }),
    }
    check_proof(stream, &proof(secret, ACCEPTOR_LABEL, &ours, &theirs, binding)).await?;
    Ok(peer)
}

async fn accept_bound<S>(stream: &mut S, secret: &Secret, binding: &[u8], hello: Hello) -> Result<Hello, HandshakeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let ours = encode_hello(hello)?;
    let read = read_hello(stream, hello.role).await;
    if let Err(HandshakeError::WrongVersion { .. } | HandshakeError::WrongRole { .. } | HandshakeError::TlsPeer) = read
    {
        // Our hello contains no secret, and shows an honest peer why it fails.
        stream.write_all(&ours).await?;
        stream.flush().await?;
    }
    let (peer, theirs) = read?;
    stream.write_all(&ours).await?;
    stream.flush().await?;

    match check_proof(stream, &proof(secret, INITIATOR_LABEL, &theirs, &ours, binding)).await {
        Ok(()) => {
            let mut answer = [ACCEPTED; 1 + PROOF_BYTES];
            answer[1..].copy_from_slice(&proof(secret, ACCEPTOR_LABEL, &theirs, &ours, binding));
            stream.write_all(&answer).await?;
            stream.flush().await?;
            Ok(peer)
        }
        Err(error) => {
            if matches!(error, HandshakeError::WrongSecret) {
                stream.write_all(&[REFUSED]).await?;
                stream.flush().await?;
            }
            Err(error)
        }
    }
}

pub(crate) async fn within<T>(
    timeout: Duration,
    exchange: impl Future<Output = Result<T, HandshakeError>>,
) -> Result<T, HandshakeError> {
    tokio::time::timeout(timeout, exchange).await.unwrap_or(Err(HandshakeError::TimedOut { timeout }))
}

fn encode_hello(hello: Hello) -> Result<HelloBytes, HandshakeError> {
    let mut bytes = [0; HELLO_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..10].copy_from_slice(&PROTOCOL_VERSION.to_le_bytes());
    bytes[10] = hello.role.byte();
    bytes[12..16].copy_from_slice(&hello.features.bits().to_le_bytes());
    getrandom::fill(&mut bytes[NONCE_AT..])
        .map_err(|source| HandshakeError::NoRandomness { reason: source.to_string() })?;
    Ok(bytes)
}

/// Reads a hello and checks each field as early as possible. A foreign protocol is recognized by its magic, even if it
/// sends fewer bytes than a hello. Another version is recognized by a field that has the same place in every version.
async fn read_hello<S>(stream: &mut S, role: Role) -> Result<(Hello, HelloBytes), HandshakeError>
where
    S: AsyncRead + Unpin,
{
    let mut bytes = [0; HELLO_BYTES];
    let mut have = 0;
    while have < HELLO_BYTES {
        let upto = if have < VERSION_END { VERSION_END } else { HELLO_BYTES };
        let read = stream.read(&mut bytes[have..upto]).await?;
        if read == 0 {
            return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
        }
        have += read;
        let magic_seen = have.min(MAGIC.len());
        if TLS_RECORDS.contains(&bytes[0]) && (have == 1 || bytes[1] == TLS_VERSION) {
            // The first byte alone does not prove TLS, so wait for the version.
            if have > 1 {
                return Err(HandshakeError::TlsPeer);
            }
            continue;
        }
        if bytes[..magic_seen] != MAGIC[..magic_seen] {
            let mut first_bytes = [0; 8];
            first_bytes[..magic_seen].copy_from_slice(&bytes[..magic_seen]);
            return Err(HandshakeError::NotFlownet { first_bytes });
        }
        let theirs = u16::from_le_bytes([bytes[8], bytes[9]]);
        if have >= VERSION_END && theirs != PROTOCOL_VERSION {
            return Err(HandshakeError::WrongVersion { ours: PROTOCOL_VERSION, theirs });
        }
    }
    if bytes[10] != role.byte() {
        return Err(HandshakeError::WrongRole { ours: role, theirs: bytes[10] });
    }
    if bytes[11] != 0 {
        return Err(HandshakeError::Malformed { field: "reserved byte", value: bytes[11] });
    }
    let features = Features::from_bits(u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]));
    Ok((Hello { role, features }, bytes))
}

async fn check_proof<S>(stream: &mut S, expected: &[u8; PROOF_BYTES]) -> Result<(), HandshakeError>
where
    S: AsyncRead + Unpin,
{
    let mut theirs = [0; PROOF_BYTES];
    stream.read_exact(&mut theirs).await?;
    if bool::from(theirs.ct_eq(expected)) { Ok(()) } else { Err(HandshakeError::WrongSecret) }
}

fn proof(
    secret: &Secret,
    label: &[u8],
    initiator: &HelloBytes,
    acceptor: &HelloBytes,
    binding: &[u8],
) -> [u8; PROOF_BYTES] {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes keys of any length");
    mac.update(label);
    mac.update(initiator);
    mac.update(acceptor);
    mac.update(binding);
    mac.finalize().into_bytes().into()
}

type HelloBytes = [u8; HELLO_BYTES];

const MAGIC: &[u8; 8] = b"FLOWNET\0";
const VERSION_END: usize = 10;
const NONCE_AT: usize = 16;
const HELLO_BYTES: usize = NONCE_AT + 32;
const PROOF_BYTES: usize = 32;
/// First byte of TLS records: alert and handshake.
const TLS_RECORDS: [u8; 2] = [21, 22];
/// Second byte of TLS records: the major version, the same in all TLS versions.
const TLS_VERSION: u8 = 3;
const ACCEPTED: u8 = 0;
const REFUSED: u8 = 1;
// The labels differ in length and fixed-size hellos follow, so no input of one can be parsed as input of the other.
const INITIATOR_LABEL: &[u8] = b"flownet initiator";
const ACCEPTOR_LABEL: &[u8] = b"flownet acceptor";

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex};

    use super::*;

    const DATA: Hello = Hello { role: Role::Data, features: Features(1) };
    const TIMEOUT: Duration = DEFAULT_HANDSHAKE_TIMEOUT;

    fn secret(byte: u8) -> Secret {
        Secret::from_bytes([byte; 32])
    }

    async fn shake(
        left: (Secret, Hello),
        right: (Secret, Hello),
        pipe_bytes: usize,
    ) -> (Result<Hello, HandshakeError>, Result<Hello, HandshakeError>) {
        let (mut a, mut b) = duplex(pipe_bytes);
        // Each end drops its stream when it is done, as the real ones do.
        tokio::join!(async move { initiate(&mut a, &left.0, left.1, TIMEOUT).await }, async move {
            accept(&mut b, &right.0, right.1, TIMEOUT).await
        })
    }

    #[tokio::test(start_paused = true)]
    async fn peers_with_one_secret_learn_each_others_features() {
        let other = Hello { features: Features(6), ..DATA };
        let (at_initiator, at_acceptor) = shake((secret(1), DATA), (secret(1), other), 1024).await;
        assert_eq!(at_initiator.unwrap(), other);
        assert_eq!(at_acceptor.unwrap(), DATA);
        assert_eq!(other.features.common(Features(3)), Features(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_handshake_survives_any_splitting_of_its_bytes() {
        for pipe_bytes in 1..60 {
            let (at_initiator, at_acceptor) = shake((secret(1), DATA), (secret(1), DATA), pipe_bytes).await;
            assert_eq!((at_initiator.unwrap(), at_acceptor.unwrap()), (DATA, DATA));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn different_secrets_are_told_to_both_ends() {
        let (at_initiator, at_acceptor) = shake((secret(1), DATA), (secret(2), DATA), 1024).await;
        assert!(matches!(at_initiator, Err(HandshakeError::Refused)), "{at_initiator:?}");
        assert!(matches!(at_acceptor, Err(HandshakeError::WrongSecret)), "{at_acceptor:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_control_client_on_a_data_port_is_told_so() {
        let control = Hello { role: Role::Control, ..DATA };
        let (at_initiator, at_acceptor) = shake((secret(1), control), (secret(1), DATA), 1024).await;
        assert!(matches!(at_initiator, Err(HandshakeError::WrongRole { ours: Role::Control, theirs: 1 })));
        assert!(matches!(at_acceptor, Err(HandshakeError::WrongRole { ours: Role::Data, theirs: 2 })));
    }

    #[tokio::test(start_paused = true)]
    async fn another_version_is_named_and_answered_with_ours() {
        let (mut peer, mut stream) = duplex(1024);
        let mut hello = encode_hello(DATA).unwrap();
        hello[8] = 9;
        peer.write_all(&hello[..VERSION_END]).await.unwrap();
        let refused = accept(&mut stream, &secret(1), DATA, TIMEOUT).await;
        assert!(matches!(refused, Err(HandshakeError::WrongVersion { ours: 1, theirs: 9 })), "{refused:?}");

        let mut answer = [0; HELLO_BYTES];
        peer.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer[..VERSION_END], b"FLOWNET\0\x01\0");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stranger_is_known_by_its_first_byte_and_gets_no_answer() {
        for noise in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\xff", b"FLOWNEU"] {
            let (mut peer, mut stream) = duplex(1024);
            peer.write_all(noise).await.unwrap();
            let refused = accept(&mut stream, &secret(1), DATA, TIMEOUT).await;
            assert!(matches!(refused, Err(HandshakeError::NotFlownet { .. })), "{refused:?}");
            drop(stream);
            assert_eq!(read_rest(&mut peer).await, 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_at_any_point_ends_at_the_deadline() {
        let whole = encode_hello(DATA).unwrap();
        for sent in [0, 1, 8, 10, 47, 48] {
            let (mut peer, mut stream) = duplex(1024);
            peer.write_all(&whole[..sent]).await.unwrap();
            let before = tokio::time::Instant::now();
            let refused = accept(&mut stream, &secret(1), DATA, TIMEOUT).await;
            assert!(matches!(refused, Err(HandshakeError::TimedOut { .. })), "{refused:?}");
            assert_eq!(before.elapsed(), TIMEOUT);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_hangs_up_half_way_is_an_io_error() {
        let (mut peer, mut stream) = duplex(1024);
        peer.write_all(b"FLOW").await.unwrap();
        drop(peer);
        assert!(matches!(accept(&mut stream, &secret(1), DATA, TIMEOUT).await, Err(HandshakeError::Io(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn our_own_hello_and_proof_reflected_back_are_refused() {
        let (mut mirror, mut stream) = duplex(1024);
        let echo = async move {
            let mut hello = [0; HELLO_BYTES];
            mirror.read_exact(&mut hello).await.unwrap();
            mirror.write_all(&hello).await.unwrap();
            let mut proof = [0; PROOF_BYTES];
            mirror.read_exact(&mut proof).await.unwrap();
            mirror.write_all(&[ACCEPTED]).await.unwrap();
            mirror.write_all(&proof).await.unwrap();
        };
        let secret = secret(1);
        let (result, ()) = tokio::join!(initiate(&mut stream, &secret, DATA, TIMEOUT), echo);
        assert!(matches!(result, Err(HandshakeError::WrongSecret)), "{result:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_recorded_handshake_cannot_be_replayed() {
        let secret = secret(1);
        let (mut recorded, theirs) = (Vec::new(), encode_hello(DATA).unwrap());
        recorded.extend_from_slice(&theirs);
        recorded.extend_from_slice(&proof(&secret, INITIATOR_LABEL, &theirs, &encode_hello(DATA).unwrap(), &[]));
        let (mut peer, mut stream) = duplex(1024);
        peer.write_all(&recorded).await.unwrap();
        assert!(matches!(accept(&mut stream, &secret, DATA, TIMEOUT).await, Err(HandshakeError::WrongSecret)));
    }

    #[tokio::test(start_paused = true)]
    async fn features_changed_on_the_way_break_the_proof() {
        let secret = secret(1);
        let (mut client, mut client_side) = duplex(1024);
        let (mut server_side, mut server) = duplex(1024);
        let tamper = async move {
            let mut hello = [0; HELLO_BYTES];
            client_side.read_exact(&mut hello).await.unwrap();
            hello[12] = 0;
            server_side.write_all(&hello).await.unwrap();
            tokio::io::copy_bidirectional(&mut client_side, &mut server_side).await.ok();
        };
        let serve = async { accept(&mut server, &secret, DATA, TIMEOUT).await };
        let dial = async { initiate(&mut client, &secret, DATA, TIMEOUT).await };
        tokio::select! {
            () = tamper => panic!("the man in the middle outlives both ends"),
            (served, dialed) = async { tokio::join!(serve, dial) } => {
                assert!(matches!(served, Err(HandshakeError::WrongSecret)));
                assert!(matches!(dialed, Err(HandshakeError::Refused)));
            }
        }
    }

    async fn read_rest(stream: &mut DuplexStream) -> usize {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap()
    }
}
