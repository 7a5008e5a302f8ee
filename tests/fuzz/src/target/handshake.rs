//! The handshake: a stranger's bytes are refused, and so is a conversation of friends that somebody changed on its way.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use flownet_net::handshake::{Features, Hello, Role, accept, initiate};
use flownet_net::{HandshakeError, Secret};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex, join, sink};

/// Far longer than any input takes: nobody falls silent here without ending.
const TIMEOUT: Duration = Duration::from_secs(60);

/// First byte: what is done. Then the stranger's bytes, or how each byte on its way is changed.
pub(super) fn run(data: &[u8]) {
    let Some((&shape, bytes)) = data.split_first() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    match shape % 3 {
        0 => assert!(runtime.block_on(greet(bytes, true)).is_err(), "a stranger was let in"),
        1 => assert!(runtime.block_on(greet(bytes, false)).is_err(), "a stranger was believed"),
        _ => runtime.block_on(meddle(bytes)),
    }
}

async fn greet(bytes: &[u8], is_acceptor: bool) -> Result<Hello, HandshakeError> {
    let mut stream = join(bytes, sink());
    let secret = Secret::from_bytes([7; Secret::BYTES]);
    let hello = Hello { role: Role::Data, features: Features::NONE };
    if is_acceptor {
        accept(&mut stream, &secret, hello, TIMEOUT).await
    } else {
        initiate(&mut stream, &secret, hello, TIMEOUT).await
    }
}

/// Two friends talk; what either reads was changed by its half of `changes`.
async fn meddle(changes: &[u8]) {
    let (to_initiator, to_acceptor) = changes.split_at(changes.len() / 2);
    let (one, other) = duplex(256);
    let secret = Secret::from_bytes([7; Secret::BYTES]);
    let hello = Hello { role: Role::Control, features: Features::NONE };
    let initiator = async {
        let mut stream = Meddled { inner: one, changes: to_initiator, has_changed: false };
        (initiate(&mut stream, &secret, hello, TIMEOUT).await.is_ok(), stream.has_changed)
    };
    let acceptor = async {
        let mut stream = Meddled { inner: other, changes: to_acceptor, has_changed: false };
        (accept(&mut stream, &secret, hello, TIMEOUT).await.is_ok(), stream.has_changed)
    };
    let ((is_initiator_content, to_it), (is_acceptor_content, to_other)) = tokio::join!(initiator, acceptor);
    let is_changed = to_it || to_other;
    assert_eq!(is_initiator_content && is_acceptor_content, !is_changed, "changed on its way: {is_changed}");
}

/// A stream whose incoming bytes are changed.
struct Meddled<'a> {
    inner: DuplexStream,
    changes: &'a [u8],
    has_changed: bool,
}

impl AsyncRead for Meddled<'_> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        let arrived = &mut buf.filled_mut()[before..];
        let (changes, later) = self.changes.split_at(arrived.len().min(self.changes.len()));
        for (byte, change) in arrived.iter_mut().zip(changes) {
            *byte ^= change;
        }
        self.has_changed |= changes.iter().any(|&change| change != 0);
        self.changes = later;
        read
    }
}

impl AsyncWrite for Meddled<'_> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

pub(super) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    // magic, version, role, zero, features, nonce; then as much as a proof takes.
    let hello = |role: u8| [b"FLOWNET\0", &[1, 0, role, 0, 0, 0, 0, 0][..], &[9; 32]].concat();
    let (stranger, acceptor) = ([&[0][..], &hello(1), &[5; 32]].concat(), [&[1][..], &hello(1), &[0; 33]].concat());
    let change = |at: usize| {
        let mut changes = vec![0; 162];
        changes[at] = 0x80;
        [&[2], changes.as_slice()].concat()
    };
    vec![
        ("a-stranger", stranger),
        ("a-false-acceptor", acceptor),
        ("the-other-role", [&[0][..], &hello(2), &[5; 32]].concat()),
        ("unchanged", vec![2]),
        ("a-nonce-changed", change(40)),
        ("a-proof-changed", change(81 + 60)),
        ("a-verdict-changed", change(48)),
    ]
}
