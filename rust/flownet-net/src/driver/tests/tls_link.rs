//! Tests the encrypting link over sockets with little room.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::task::{Context, Waker};

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream as TokioStream;

use crate::driver::link::{Event, Link, ReadOutcome, SocketLink, WriteOutcome};
use crate::driver::tls_link::TlsLink;
use crate::handshake::{DEFAULT_HANDSHAKE_TIMEOUT, Features, Hello, Role};
use crate::tls::Certificates;
use crate::{Credentials, Secret, Stream};

use super::pipe::{Kind, PipeEnd, pipe};

type Tls = TlsLink<SocketLink>;

fn connect() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let dialed = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    for socket in [&dialed, &accepted] {
        SockRef::from(socket).set_send_buffer_size(8 * 1024).unwrap();
        socket.set_nonblocking(true).unwrap();
    }
    (dialed, accepted)
}

/// Returns the two ends of one connection.
async fn pair() -> (Tls, Tls) {
    let (dialed, accepted) = connect();
    let (one, other) = streams_over(dialed, accepted, async {}).await;
    (link(one), link(other))
}

/// Returns the two ends of a tapped connection. Each comes with the socket that connects it to the tap. After the
/// handshake, the test itself carries bytes between these sockets.
async fn tapped_pair() -> ((Tls, TcpStream), (TcpStream, Tls)) {
    let ((dialed, mut near), (mut far, accepted)) = (connect(), connect());
    let carry = async {
        loop {
            carry_over(&mut near, &mut far, |_| {});
            carry_over(&mut far, &mut near, |_| {});
            tokio::task::yield_now().await;
        }
    };
    let (one, other) = streams_over(dialed, accepted, carry).await;
    ((link(one), near), (far, link(other)))
}

/// Runs the handshake of two ends while `carry` carries their bytes.
async fn streams_over(dialed: TcpStream, accepted: TcpStream, carry: impl Future<Output = ()>) -> (Stream, Stream) {
    let credentials = Credentials::with_tls(Secret::from_bytes([1; 32]), Certificates::generate().unwrap()).unwrap();
    let hello = Hello { role: Role::Data, features: Features::NONE };
    let (dialed, accepted) = (TokioStream::from_std(dialed).unwrap(), TokioStream::from_std(accepted).unwrap());
    let ends = async {
        tokio::join!(
            credentials.initiate(dialed, hello, DEFAULT_HANDSHAKE_TIMEOUT),
            credentials.accept(accepted, hello, DEFAULT_HANDSHAKE_TIMEOUT)
        )
    };
    let (one, other) = tokio::select! { biased; ends = ends => ends, () = async { carry.await; std::future::pending().await } => unreachable!() };
    (one.unwrap(), other.unwrap())
}

fn link(stream: Stream) -> Tls {
    let (tcp, session) = stream.into_parts().unwrap();
    let (incoming, outgoing) = session.unwrap();
    TlsLink::new(SocketLink::new(tcp.into_std().unwrap().into()).unwrap(), incoming, outgoing)
}

/// Returns two ends over a pipe, in which written bytes arrive at once.
async fn pair_over_a_pipe() -> (TlsLink<PipeEnd>, TlsLink<PipeEnd>) {
    let (dialed, accepted) = connect();
    let (one, other) = streams_over(dialed, accepted, async {}).await;
    let (near, far) = pipe(Kind::Plain, 1 << 20);
    let over = |stream: Stream, end| {
        let (incoming, outgoing) = stream.into_parts().unwrap().1.unwrap();
        TlsLink::new(end, incoming, outgoing)
    };
    (over(one, near), over(other, far))
}

/// One direction: counts of written and read bytes of an endless sequence.
#[derive(Default)]
struct ByteStream {
    written: usize,
    read: usize,
}

fn byte(at: usize) -> u8 {
    // The period is no multiple of a record's or segment's size.
    (at % 251) as u8
}

impl ByteStream {
    /// Writes once, in pieces of different lengths. Returns `false` if the link wants room.
    fn write(&mut self, link: &Tls, total: usize, step: usize) -> bool {
        let bytes: Vec<u8> = (self.written..total.min(self.written + step % 90_000 + 1)).map(byte).collect();
        let slices: Vec<_> = bytes.chunks(step % 40_000 + 1).take(64).map(IoSlice::new).collect();
        if slices.is_empty() && !link.has_unsent() {
            return false;
        }
        match link.write(&slices).unwrap() {
            WriteOutcome::Accepted(count) => self.written += count,
            WriteOutcome::WantsRoom => {
                assert!(link.has_unsent(), "it wants room for something");
                return false;
            }
        }
        true
    }

    /// Reads once. Returns `false` if all bytes were read, as the link must also report.
    fn read(&mut self, link: &Tls, step: usize) -> bool {
        let (mut first, mut second) = (vec![0; step * 7 % 50_000], vec![0; step % 30_000 + 1]);
        match link.read(&mut first, &mut second).unwrap() {
            ReadOutcome::Bytes { count, is_drained } => {
                let read = first.iter().chain(&second).take(count);
                for (&read, at) in read.zip(self.read..) {
                    assert_eq!(read, byte(at), "at {at}");
                }
                assert!(count > 0);
                self.read += count;
                assert!(!(is_drained && link.has_buffered()), "nobody sleeps over buffered bytes");
                true
            }
            ReadOutcome::Drained => {
                assert!(!link.has_buffered(), "nobody sleeps over buffered bytes");
                false
            }
            ReadOutcome::Closed => panic!("closed after {} bytes", self.read),
        }
    }
}

#[tokio::test]
async fn bytes_arrive_in_order_both_ways_whatever_their_pieces_and_across_new_keys() {
    const TOTAL: usize = 3_000_000;
    let (one, other) = pair().await;
    let (mut there, mut back) = (ByteStream::default(), ByteStream::default());
    one.allow_records_per_key(11);
    other.allow_records_per_key(17);
    for step in (0..).map(|step: usize| step.wrapping_mul(7919) % 100_003) {
        if there.read == TOTAL && back.read == TOTAL {
            break;
        }
        there.write(&one, TOTAL, step);
        back.write(&other, TOTAL, step);
        // Rarely do both in one step, so that bytes pile up at times, and at other times there is nothing to read.
        if step % 3 > 0 {
            while there.read(&other, step) {}
        }
        if step % 5 > 0 {
            back.read(&one, step);
        }
    }
    assert!(!one.has_unsent() && !other.has_unsent() && !one.has_buffered() && !other.has_buffered());
    assert_eq!((there.written, back.written), (TOTAL, TOTAL));
}

#[tokio::test]
async fn the_end_is_told_once_all_bytes_before_it_are_read_and_then_with_each_read() {
    let (one, other) = pair().await;
    let mut flow = ByteStream::default();
    while flow.write(&one, 10_000, 5_000) {}
    one.close();
    while flow.read < 10_000 {
        flow.read(&other, 3);
    }
    for _ in 0..3 {
        assert_eq!(other.read(&mut [0; 8], &mut [0; 8]).unwrap(), ReadOutcome::Closed);
    }
    assert!(one.write(&[IoSlice::new(b"more")]).is_err());
}

#[tokio::test]
async fn a_byte_changed_on_the_way_is_an_error_and_not_a_byte() {
    let ((one, mut near), (mut far, other)) = tapped_pair().await;
    assert_eq!(one.write(&[IoSlice::new(b"a hundred and one")]).unwrap(), WriteOutcome::Accepted(17));
    carry_over(&mut near, &mut far, |bytes| bytes[9] ^= 1);
    let error = other.read(&mut [0; 64], &mut []).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert_eq!(error.to_string(), "cannot decrypt peer's message");
    assert!(other.read(&mut [0; 64], &mut []).is_err(), "and so is whatever follows");
    other.close();
    carry_over(&mut far, &mut near, |_| {});
    assert_eq!(one.read(&mut [0; 64], &mut []).unwrap_err().to_string(), "received fatal alert: BadRecordMac");
}

#[tokio::test]
async fn what_came_before_the_session_is_taken_over_is_not_lost() {
    let (dialed, accepted) = connect();
    let (mut one, mut other) = streams_over(dialed, accepted, async {}).await;
    let said: Vec<u8> = (0..3_000).map(byte).collect();
    for part in said.chunks(1_000) {
        other.write_all(part).await.unwrap();
        other.flush().await.unwrap();
    }
    // A part of the first record is read. The other records are still in the socket.
    let mut flow = ByteStream { written: said.len(), read: 700 };
    let mut read = [0; 700];
    one.read_exact(&mut read).await.unwrap();
    assert_eq!(read, said[..700]);
    let (one, other) = (link(one), link(other));
    while flow.written < 10_000 {
        flow.write(&other, 10_000, 3_000);
    }
    while flow.read < 10_000 {
        flow.read(&one, 11);
    }
}

#[tokio::test]
async fn a_stream_that_ends_within_a_record_is_an_error() {
    let ((one, mut near), (mut far, other)) = tapped_pair().await;
    assert_eq!(one.write(&[IoSlice::new(b"a hundred and one")]).unwrap(), WriteOutcome::Accepted(17));
    let mut record = [0; 64];
    let count = near.read(&mut record).unwrap();
    far.write_all(&record[..count - 1]).unwrap();
    far.shutdown(Shutdown::Write).unwrap();
    let error = loop {
        match other.read(&mut [0; 64], &mut []) {
            Ok(ReadOutcome::Drained) => tokio::task::yield_now().await,
            other => break other.unwrap_err(),
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn who_is_asked_for_a_new_key_says_so_although_nothing_else_is_to_be_sent() {
    let (one, other) = pair().await;
    one.ask_for_next_key();
    assert!(!other.has_unsent());
    assert_eq!(other.read(&mut [0; 8], &mut []).unwrap(), ReadOutcome::Drained);
    assert!(other.has_unsent(), "the answer");
    assert_eq!(other.write(&[]).unwrap(), WriteOutcome::Accepted(0));
    assert!(!other.has_unsent());
    let (mut there, mut back) = (ByteStream::default(), ByteStream::default());
    while there.write(&one, 5_000, 5_000) || back.write(&other, 5_000, 5_000) {}
    while there.read < 5_000 || back.read < 5_000 {
        there.read(&other, 3);
        back.read(&one, 3);
    }
}

#[tokio::test]
async fn who_is_told_that_all_is_read_has_read_all_and_nothing_is_left_in_the_link() {
    let (one, other) = pair_over_a_pipe().await;
    let bytes: Vec<u8> = (0..200_000).map(byte).collect();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let WriteOutcome::Accepted(count) = one.write(&[IoSlice::new(rest)]).unwrap() else { panic!("there is room") };
        rest = &rest[count..];
    }
    let (mut read, mut was_left) = (0, false);
    loop {
        match other.read(&mut [0; 1_000], &mut [0; 500]).unwrap() {
            ReadOutcome::Bytes { count, is_drained } => {
                read += count;
                if is_drained {
                    break;
                }
            }
            ReadOutcome::Drained => break,
            ReadOutcome::Closed => panic!("closed after {read} bytes"),
        }
        was_left |= other.has_buffered();
    }
    assert_eq!((read, other.has_buffered(), was_left), (bytes.len(), false, true));
}

#[tokio::test]
async fn a_stream_that_ends_between_two_records_is_closed_though_nobody_said_so() {
    let (one, other) = pair_over_a_pipe().await;
    assert_eq!(one.write(&[IoSlice::new(b"all")]).unwrap(), WriteOutcome::Accepted(3));
    drop(one);
    assert!(matches!(other.read(&mut [0; 8], &mut []).unwrap(), ReadOutcome::Bytes { count: 3, .. }));
    assert_eq!(other.read(&mut [0; 8], &mut []).unwrap(), ReadOutcome::Closed);
}

#[tokio::test]
async fn what_is_watched_and_slept_on_is_the_stream_below() {
    let (one, other) = pair_over_a_pipe().await;
    let poll = || other.poll_event(&mut Context::from_waker(Waker::noop()));
    assert!(poll().is_pending());
    one.write(&[IoSlice::new(b"some")]).unwrap();
    assert!(poll().is_ready() && poll().is_pending());
    other.watch(Event::Bytes, false).unwrap();
    one.write(&[IoSlice::new(b"more")]).unwrap();
    assert!(poll().is_pending(), "it is not told of bytes any more");
    other.watch(Event::Bytes, true).unwrap();
    assert!(poll().is_ready());

    let (dialed, accepted) = connect();
    let (one, _other) = streams_over(dialed, accepted, async {}).await;
    let (tcp, session) = one.into_parts().unwrap();
    let socket = tcp.into_std().unwrap();
    let descriptor = socket.as_raw_fd();
    let (incoming, outgoing) = session.unwrap();
    let link = TlsLink::new(SocketLink::new(socket.into()).unwrap(), incoming, outgoing);
    assert_eq!(link.descriptor().unwrap().as_raw_fd(), descriptor);
}

/// Moves the available bytes from one socket to another.
fn carry_over(from: &mut TcpStream, to: &mut TcpStream, change: impl Fn(&mut [u8])) {
    let mut bytes = [0; 4096];
    if let Ok(read @ 1..) = from.read(&mut bytes) {
        change(&mut bytes[..read]);
        to.write_all(&bytes[..read]).unwrap();
    }
}
