//! Tests which peers are accepted, over real sockets, and the errors of each end.

use std::time::{Duration, SystemTime};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use super::{Certificates, Tls, TlsError};
use crate::handshake::{DEFAULT_HANDSHAKE_TIMEOUT, Features, Hello, Role};
use crate::{Credentials, HandshakeError, Secret, Stream};

const HELLO: Hello = Hello { role: Role::Control, features: Features::NONE };
const TIMEOUT: Duration = DEFAULT_HANDSHAKE_TIMEOUT;
const DAY: Duration = Duration::from_secs(24 * 3600);

type BothEnds = (Result<Stream, HandshakeError>, Result<Stream, HandshakeError>);

fn secret() -> Secret {
    Secret::from_bytes([7; Secret::BYTES])
}

fn plain() -> Credentials {
    secret().into()
}

fn with(certificates: &Certificates) -> Credentials {
    Credentials::with_tls(secret(), certificates.clone()).unwrap()
}

/// Returns certificates that present the one of `shown` and accept the authorities of both.
fn mixed(shown: &Certificates, accepted: &Certificates) -> Certificates {
    let authority = accepted.pem().rsplit_once("-----BEGIN CERTIFICATE-----").unwrap().1;
    Certificates::from_pem(&format!("{}-----BEGIN CERTIFICATE-----{authority}", shown.pem())).unwrap()
}

async fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dialed = TcpStream::connect(listener.local_addr().unwrap());
    let (dialed, accepted) = tokio::join!(dialed, listener.accept());
    (dialed.unwrap(), accepted.unwrap().0)
}

/// Runs the handshake between `initiator` and `acceptor`, and returns both results.
async fn meet(initiator: &Credentials, acceptor: &Credentials) -> BothEnds {
    let (dialed, accepted) = tcp().await;
    tokio::join!(initiator.initiate(dialed, HELLO, TIMEOUT), acceptor.accept(accepted, HELLO, TIMEOUT))
}

fn refusals((initiator, acceptor): BothEnds) -> (String, String) {
    (initiator.unwrap_err().to_string(), acceptor.unwrap_err().to_string())
}

#[tokio::test]
async fn processes_of_one_job_talk_and_nobody_on_the_way_reads_along() {
    let ours = with(&Certificates::generate().unwrap());
    let theirs = Credentials::from_text(&ours.to_text()).unwrap();
    assert!(theirs.has_tls());
    let (dialed, mut on_the_way) = tcp().await;
    let (mut behind, accepted) = tcp().await;
    let tap = tokio::spawn(async move {
        let mut seen = Vec::new();
        let (mut from_initiator, mut to_initiator) = on_the_way.split();
        let (mut from_acceptor, mut to_acceptor) = behind.split();
        let back = tokio::io::copy(&mut from_acceptor, &mut to_initiator);
        let forth = async {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = from_initiator.read(&mut bytes).await {
                seen.extend_from_slice(&bytes[..read]);
                to_acceptor.write_all(&bytes[..read]).await.unwrap();
            }
            to_acceptor.shutdown().await.unwrap();
        };
        let _ends = tokio::join!(back, forth);
        seen
    });
    let (initiator, acceptor) =
        tokio::join!(ours.initiate(dialed, HELLO, TIMEOUT), theirs.accept(accepted, HELLO, TIMEOUT));
    let (mut initiator, mut acceptor) = (initiator.unwrap(), acceptor.unwrap());
    let said = b"nobody else may read this".repeat(1000);
    initiator.write_all(&said).await.unwrap();
    initiator.flush().await.unwrap();
    drop(initiator);
    let mut heard = Vec::new();
    acceptor.read_to_end(&mut heard).await.unwrap();
    assert_eq!(heard, said);
    drop(acceptor);
    let seen = tap.await.unwrap();
    assert!(seen.len() > said.len());
    assert!(!seen.windows(8).any(|window| window == b"FLOWNET\0" || window == b"nobody e"));
}

#[tokio::test]
async fn a_certificate_of_another_job_is_refused_by_whoever_sees_it() {
    let (ours, foreign) = (Certificates::generate().unwrap(), Certificates::generate().unwrap());
    let (initiator, acceptor) = refusals(meet(&with(&ours), &with(&foreign)).await);
    assert_eq!(initiator, "the peer's certificate is refused: another authority issued it");
    assert_eq!(acceptor, "the peer refused our certificate: another authority issued it");
    let (initiator, acceptor) = refusals(meet(&with(&mixed(&foreign, &ours)), &with(&ours)).await);
    assert_eq!(initiator, "the peer refused our certificate: another authority issued it");
    assert_eq!(acceptor, "the peer's certificate is refused: another authority issued it");
}

#[tokio::test]
async fn an_expired_certificate_is_refused_at_home_and_by_peers() {
    let ours = Certificates::generate().unwrap();
    let expired = Certificates::generate_for(SystemTime::now() - 3 * DAY, DAY).unwrap();
    let at_home = Credentials::with_tls(secret(), expired.clone()).unwrap_err();
    assert_eq!(at_home.to_string(), "the certificate would be refused by every peer: it has expired");
    let expired = Credentials::unchecked(secret(), Tls::unchecked(mixed(&expired, &ours)).unwrap());
    let accepting = with(&mixed(&ours, &expired_authority(&expired)));
    let (initiator, acceptor) = refusals(meet(&expired, &accepting).await);
    assert_eq!(initiator, "the peer refused our certificate: it has expired, or the clocks differ");
    assert_eq!(acceptor, "the peer's certificate is refused: it has expired");
    let early = Certificates::generate_for(SystemTime::now() + 3 * DAY, DAY).unwrap();
    let at_home = Credentials::with_tls(secret(), early).unwrap_err().to_string();
    assert!(at_home.ends_with("it is not valid yet: compare the clocks"), "{at_home}");
}

fn expired_authority(credentials: &Credentials) -> Certificates {
    let text = credentials.to_text();
    let parts: Vec<&str> = text.split("-----BEGIN CERTIFICATE-----").collect();
    // The parts are the secret, then the certificate and its key, its authority, and the other one.
    let pem = [parts[1], parts[2]].map(|part| format!("-----BEGIN CERTIFICATE-----{part}")).concat();
    Certificates::from_pem(&pem).unwrap()
}

#[tokio::test]
async fn a_plain_peer_and_one_with_tls_tell_each_other_what_is_wrong() {
    let tls = with(&Certificates::generate().unwrap());
    let (not_tls, tls_peer) = (HandshakeError::NotTls.to_string(), HandshakeError::TlsPeer.to_string());
    assert_eq!(refusals(meet(&plain(), &tls).await), (tls_peer.clone(), not_tls.clone()));
    assert_eq!(refusals(meet(&tls, &plain()).await), (not_tls, tls_peer));
}

#[tokio::test]
async fn strangers_at_a_port_with_tls_are_refused_in_one_line() {
    let tls = with(&Certificates::generate().unwrap());
    for noise in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 64], b"\x16\x03\x01\xff\xff\x01", b"\x16\x03\x01\0\x01\x01"] {
        let (mut dialed, accepted) = tcp().await;
        dialed.write_all(noise).await.unwrap();
        dialed.shutdown().await.unwrap();
        let refused = tls.accept(accepted, HELLO, TIMEOUT).await.unwrap_err().to_string();
        assert!(!refused.contains('\n'), "{refused}");
    }
}

#[tokio::test]
async fn the_certificates_alone_do_not_let_anybody_in() {
    let certificates = Certificates::generate().unwrap();
    let stranger = Credentials::with_tls(Secret::from_bytes([8; Secret::BYTES]), certificates.clone()).unwrap();
    let (initiator, acceptor) = meet(&stranger, &with(&certificates)).await;
    assert!(matches!(initiator, Err(HandshakeError::Refused)), "{initiator:?}");
    assert!(matches!(acceptor, Err(HandshakeError::WrongSecret)), "{acceptor:?}");
}

#[tokio::test]
async fn who_passes_the_proof_on_from_one_session_to_another_is_found_out() {
    let certificates = Certificates::generate().unwrap();
    let ours = with(&certificates);
    // The attacker has the certificates but not the secret.
    let middle = Tls::new(certificates).unwrap();
    let ((dialed, towards_initiator), (towards_acceptor, accepted)) = (tcp().await, tcp().await);
    let relay = async move {
        let (left, right) = tokio::join!(middle.accept(towards_initiator), middle.connect(towards_acceptor));
        copy_bidirectional(&mut left.unwrap().stream, &mut right.unwrap().stream).await.ok();
    };
    let ends = async { tokio::join!(ours.initiate(dialed, HELLO, TIMEOUT), ours.accept(accepted, HELLO, TIMEOUT)) };
    let ((), (initiator, acceptor)) = tokio::join!(relay, ends);
    assert!(matches!(initiator, Err(HandshakeError::Refused)), "{initiator:?}");
    assert!(matches!(acceptor, Err(HandshakeError::WrongSecret)), "{acceptor:?}");
}

#[tokio::test]
async fn silence_within_tls_ends_at_the_deadline() {
    let tls = with(&Certificates::generate().unwrap());
    let (_silent, accepted) = tcp().await;
    let refused = tls.accept(accepted, HELLO, Duration::from_millis(50)).await;
    assert!(matches!(refused, Err(HandshakeError::TimedOut { .. })), "{refused:?}");
}

#[test]
fn text_that_is_no_certificate_a_key_and_an_authority_is_refused() {
    let pem = Certificates::generate().unwrap().pem().to_owned();
    let key_at = pem.find("-----BEGIN PRIVATE KEY").unwrap();
    let authority_at = pem.rfind("-----BEGIN CERTIFICATE").unwrap();
    let cases = [
        ("", "it has no key"),
        (&pem[key_at..], "it has no certificate before the key"),
        (&pem[..authority_at], "it has no authority behind the key"),
        (&pem[..key_at], "it has no key"),
    ];
    for (text, reason) in cases {
        let refused = Certificates::from_pem(text).unwrap_err();
        assert_eq!(refused, TlsError::Malformed { reason: reason.to_owned() });
    }
    let other = Certificates::generate().unwrap();
    let swapped = format!("{}{}", &pem[..key_at], &other.pem()[other.pem().find("-----BEGIN PRIVATE KEY").unwrap()..]);
    let refused = Credentials::with_tls(secret(), Certificates::from_pem(&swapped).unwrap()).unwrap_err();
    assert!(matches!(refused, TlsError::Unusable { .. }), "the key of another certificate: {refused}");
    assert!(Credentials::from_text(&format!("{}\nno PEM", secret().to_hex())).is_err());
}

#[test]
fn nothing_secret_is_printed() {
    let certificates = Certificates::generate().unwrap();
    let shown = format!("{:?} {:?}", certificates, with(&certificates));
    assert!(!shown.contains("PRIVATE") && !shown.contains("0707"), "{shown}");
}
