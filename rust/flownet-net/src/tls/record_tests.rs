//! Tests our records against other TLS implementations, and against peers that violate the protocol.

use std::io::{BufRead, BufReader, Cursor, IoSlice, Read, Write};
use std::process::{Command, Stdio};

use rustls::crypto::aws_lc_rs::cipher_suite;
use rustls::{AlertDescription, Connection, Error, InvalidMessage, PeerMisbehaved, SupportedCipherSuite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsStream;

use super::record::{self, APPLICATION_DATA, CONTENT_BYTES, HEADER_BYTES};
use super::{Certificates, IncomingRecords, OutgoingRecords, RemainingSlices, Session, Tls};

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const SUITES: [SupportedCipherSuite; 3] = [
    cipher_suite::TLS13_AES_128_GCM_SHA256,
    cipher_suite::TLS13_AES_256_GCM_SHA384,
    cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
];

/// Returns both ends of one session as rustls leaves them.
async fn sessions(suite: SupportedCipherSuite) -> (Session, Session) {
    let tls = Tls::with_suite(Certificates::generate().unwrap(), suite).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dialed = TcpStream::connect(listener.local_addr().unwrap());
    let (dialed, accepted) = tokio::join!(dialed, listener.accept());
    let (dialed, accepted) = tokio::join!(tls.connect(dialed.unwrap()), tls.accept(accepted.unwrap().0));
    (dialed.unwrap(), accepted.unwrap())
}

/// Returns one direction with our implementation at both ends, and the reverse direction.
async fn ours() -> ((IncomingRecords, OutgoingRecords), (IncomingRecords, OutgoingRecords)) {
    let (dialed, accepted) = sessions(SUITES[0]).await;
    let [(_, incoming, outgoing), (_, their_incoming, their_outgoing)] =
        [dialed, accepted].map(|session| session.take_over().unwrap());
    ((incoming, outgoing), (their_incoming, their_outgoing))
}

fn into_rustls(session: Session) -> Connection {
    match session.stream {
        TlsStream::Client(stream) => stream.into_inner().1.into(),
        TlsStream::Server(stream) => stream.into_inner().1.into(),
    }
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at % 251) as u8).collect()
}

/// Seals as many bytes as there is room for, and returns their number.
fn seal(outgoing: &mut OutgoingRecords, slices: &[IoSlice<'_>]) -> usize {
    let mut rest = RemainingSlices::new(slices);
    outgoing.seal(&mut rest).unwrap();
    rest.taken()
}

/// Removes and returns the records of `outgoing`.
fn sent(outgoing: &mut OutgoingRecords) -> Vec<u8> {
    let records = outgoing.unsent().to_vec();
    outgoing.advance(records.len());
    records
}

/// Takes all available content.
fn take_all(incoming: &mut IncomingRecords, records: &[u8]) -> Result<Vec<u8>, Error> {
    let mut taken = Vec::new();
    let mut rest = records;
    loop {
        let (mut first, mut second) = (vec![0; 20_000], vec![0; 30_000]);
        let count = incoming.take(&mut first, &mut second)?;
        taken.extend(first.iter().chain(&second).take(count));
        if count == 0 {
            if rest.is_empty() {
                return Ok(taken);
            }
            let room = incoming.room();
            let count = room.len().min(rest.len());
            room[..count].copy_from_slice(&rest[..count]);
            incoming.filled(count);
            rest = &rest[count..];
        }
    }
}

#[tokio::test]
async fn rustls_and_we_understand_each_other_with_every_cipher_and_across_new_keys_of_either() {
    for suite in SUITES {
        for we_dial in [true, false] {
            let (dialed, accepted) = sessions(suite).await;
            let (ours, theirs) = if we_dial { (dialed, accepted) } else { (accepted, dialed) };
            let (_, mut incoming, mut outgoing) = ours.take_over().unwrap();
            let mut theirs = into_rustls(theirs);
            theirs.set_buffer_limit(None);
            outgoing.allow_records_per_key(7);
            let data = bytes(400_000);
            let (mut written, mut read, mut renewed) = (0, Vec::new(), 0);
            for step in 0.. {
                if written == data.len() {
                    break;
                }
                let upto = data.len().min(written + step * 7919 % 60_000 + 1);
                let slices: Vec<_> = data[written..upto].chunks(step * 31 % 20_000 + 1).map(IoSlice::new).collect();
                written += seal(&mut outgoing, &slices);
                let mut records = Cursor::new(sent(&mut outgoing));
                while theirs.read_tls(&mut records).unwrap() > 0 {
                    theirs.process_new_packets().unwrap();
                    let _would_go_on = theirs.reader().read_to_end(&mut read);
                }
                // rustls requests new keys of ours as well.
                theirs.refresh_traffic_keys().unwrap();
                theirs.writer().write_all(&data[..step % 30_000]).unwrap();
                let mut records = Vec::new();
                while theirs.wants_write() {
                    theirs.write_tls(&mut records).unwrap();
                }
                assert!(take_all(&mut incoming, &records).unwrap() == data[..step % 30_000]);
                if incoming.take_key_request() {
                    outgoing.renew_keys().unwrap();
                    renewed += 1;
                }
            }
            assert!(read == data, "{suite:?}");
            assert!(renewed > 3);
            outgoing.say_goodbye(AlertDescription::CloseNotify).unwrap();
            theirs.read_tls(&mut Cursor::new(sent(&mut outgoing))).unwrap();
            assert!(theirs.process_new_packets().unwrap().peer_has_closed());
            theirs.send_close_notify();
            let mut records = Vec::new();
            theirs.write_tls(&mut records).unwrap();
            take_all(&mut incoming, &records).unwrap();
            assert!(incoming.is_closed() && incoming.is_between_records());
        }
    }
}

#[tokio::test]
async fn openssl_and_we_understand_each_other_across_new_keys_of_either() {
    if Command::new("openssl").arg("version").stdout(Stdio::null()).status().is_err() {
        println!("skipped: there is no openssl");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let certificates = Certificates::generate().unwrap();
    std::fs::write(folder.path().join("tls.pem"), certificates.pem()).unwrap();
    let tls = Tls::new(certificates).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = Command::new("openssl")
        .args(["s_client", "-cert", "tls.pem", "-key", "tls.pem", "-alpn", "flownet/1", "-connect"])
        .arg(listener.local_addr().unwrap().to_string())
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let session = tls.accept(listener.accept().await.unwrap().0).await.unwrap();
    let (stream, mut incoming, mut outgoing) = session.take_over().unwrap();
    outgoing.allow_records_per_key(4);
    let echo = std::thread::spawn(move || {
        let mut stream = stream.into_std().unwrap();
        stream.set_nonblocking(false).unwrap();
        let (mut echoed, mut asked) = (0, 0);
        while !incoming.is_closed() {
            let mut opened = [0; 5000];
            let (first, second) = opened.split_at_mut(1000);
            let count = incoming.take(first, second).unwrap();
            if incoming.take_key_request() {
                outgoing.renew_keys().unwrap();
                asked += 1;
            }
            seal(&mut outgoing, &[IoSlice::new(&opened[..count])]);
            stream.write_all(&sent(&mut outgoing)).unwrap();
            echoed += count;
            if count == 0 && !incoming.is_closed() {
                let read = stream.read(incoming.room()).unwrap();
                assert!(read > 0, "it says goodbye first");
                incoming.filled(read);
            }
        }
        (echoed, asked)
    });
    let mut stdin = client.stdin.take().unwrap();
    let mut lines = BufReader::new(client.stdout.take().unwrap()).lines();
    let mut log = BufReader::new(client.stderr.take().unwrap()).lines();
    let mut sent_bytes = 0;
    for (round, command) in ["", "K\n", "k\n", "K\n"].iter().enumerate() {
        // openssl takes lines that start like this as commands to renew its keys. The upper-case command also requests
        // a renewal of ours.
        stdin.write_all(command.as_bytes()).unwrap();
        stdin.flush().unwrap();
        if !command.is_empty() {
            assert!(log.any(|line| line.unwrap().contains("KEYUPDATE")), "it has read the order");
        }
        let line = format!("{round} {}", "all is well ".repeat(600));
        writeln!(stdin, "{line}").unwrap();
        stdin.flush().unwrap();
        sent_bytes += line.len() + 1;
        assert!(lines.any(|echoed| echoed.unwrap() == line), "round {round}");
    }
    // Tell openssl to quit, which makes it announce the end.
    stdin.write_all(b"Q\n").unwrap();
    assert_eq!(echo.join().unwrap(), (sent_bytes, 2));
    client.kill().ok();
    client.wait().unwrap();
}

/// Returns a record that only a party with the keys could send.
fn insider(kind: u8, content: &[u8], outgoing: &mut OutgoingRecords) -> Vec<u8> {
    outgoing.say(kind, content).unwrap();
    sent(outgoing)
}

#[tokio::test]
async fn records_that_may_not_be_end_the_session_with_an_error_that_says_why() {
    let invalid = Error::InvalidMessage;
    let unexpected = |what| Error::InvalidMessage(InvalidMessage::UnexpectedMessage(what));
    let insiders: [(u8, &[u8], Error); 11] = [
        (ALERT, &[2], invalid(InvalidMessage::MessageTooShort)),
        (ALERT, &[2, 0x2d], Error::AlertReceived(AlertDescription::CertificateExpired)),
        (ALERT, &[1, 0x2d], Error::AlertReceived(AlertDescription::CertificateExpired)),
        (HANDSHAKE, &[], unexpected("Handshake")),
        (HANDSHAKE, &[1, 0, 0, 0], unexpected("Handshake")),
        (HANDSHAKE, &[24, 0, 0, 1, 2], invalid(InvalidMessage::InvalidKeyUpdate)),
        (HANDSHAKE, &[24, 0, 0, 1], invalid(InvalidMessage::InvalidKeyUpdate)),
        (HANDSHAKE, &[24, 0, 0, 1, 0, 4], invalid(InvalidMessage::InvalidKeyUpdate)),
        (20, &[1], unexpected("ChangeCipherSpec")),
        (99, &[1], invalid(InvalidMessage::InvalidContentType)),
        (0, &[0; 9], PeerMisbehaved::IllegalTlsInnerPlaintext.into()),
    ];
    for (kind, content, expected) in insiders {
        let ((mut incoming, _), (_, mut outgoing)) = ours().await;
        let records = insider(kind, content, &mut outgoing);
        assert_eq!(take_all(&mut incoming, &records).unwrap_err(), expected, "{kind} {content:?}");
        assert!(incoming.has_some() && incoming.take(&mut [0; 50], &mut []).is_err(), "and again");
    }
    let strangers: [(&[u8], Error); 7] = [
        (b"GET /", invalid(InvalidMessage::UnknownProtocolVersion)),
        (&[23, 3, 1, 0, 20], invalid(InvalidMessage::UnknownProtocolVersion)),
        (&[21, 3, 3, 0, 2], unexpected("Alert in the clear")),
        (&[20, 3, 3, 0, 1], unexpected("ChangeCipherSpec")),
        (&[23, 3, 3, 0, 16], invalid(InvalidMessage::MessageTooShort)),
        (&[23, 3, 3, 0x41, 1], invalid(InvalidMessage::MessageTooLarge)),
        (&[23, 3, 3, 0xff, 0xff], invalid(InvalidMessage::MessageTooLarge)),
    ];
    for (header, expected) in strangers {
        let ((mut incoming, _), _) = ours().await;
        assert_eq!(take_all(&mut incoming, header).unwrap_err(), expected, "{header:?}");
        assert!(incoming.has_some(), "whoever holds it looks");
    }
}

#[tokio::test]
async fn what_others_may_do_with_records_is_understood() {
    let ((mut incoming, _), (_, mut outgoing)) = ours().await;
    // Padding after the type, an empty record, and an alert without meaning.
    let padded = [&b"padded"[..], &[APPLICATION_DATA], &[0; 300]].concat();
    let mut records = insider(0, &padded, &mut outgoing);
    records.extend(insider(APPLICATION_DATA, &[], &mut outgoing));
    records.extend(insider(ALERT, &[1, 90], &mut outgoing));
    records.extend(insider(APPLICATION_DATA, &bytes(CONTENT_BYTES), &mut outgoing));
    assert_eq!(take_all(&mut incoming, &records).unwrap(), [&b"padded"[..], &bytes(CONTENT_BYTES)].concat());
    // Bytes after the end are ignored.
    let mut records = insider(ALERT, &[1, 0], &mut outgoing);
    records.extend([7; 60]);
    assert_eq!(take_all(&mut incoming, &records).unwrap(), []);
    assert!(incoming.is_closed() && !incoming.has_some());
}

#[tokio::test]
async fn a_record_with_more_than_one_may_carry_is_refused() {
    let ((mut incoming, _), (_, mut outgoing)) = ours().await;
    let records = insider(APPLICATION_DATA, &bytes(CONTENT_BYTES + 1), &mut outgoing);
    assert_eq!(take_all(&mut incoming, &records).unwrap_err(), Error::PeerSentOversizedRecord);
    let complaint = record::complaint(&Error::PeerSentOversizedRecord);
    assert_eq!(complaint, Some(AlertDescription::RecordOverflow));
}

#[tokio::test]
async fn who_sends_records_without_data_for_ever_is_refused() {
    for (kind, content) in [(APPLICATION_DATA, &[][..]), (HANDSHAKE, &[24, 0, 0, 1, 1]), (ALERT, &[1, 90])] {
        let ((mut incoming, _), (_, mut outgoing)) = ours().await;
        let refused = (0..100).find_map(|_| {
            let records = insider(kind, content, &mut outgoing);
            if kind == HANDSHAKE {
                outgoing.skip_to_next_key();
            }
            take_all(&mut incoming, &records).err()
        });
        assert_eq!(refused, Some(PeerMisbehaved::TooManyEmptyFragments.into()), "{kind}");
    }
}

#[tokio::test]
async fn bytes_changed_left_out_or_repeated_are_never_given_out() {
    let data = bytes(60_000);
    let mut noise = 1_u64;
    let mut below = |bound: usize| {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (noise >> 33) as usize % bound
    };
    let (mut refused, mut cut) = (0, 0);
    for way in 0..60 {
        let ((mut incoming, _), (_, mut outgoing)) = ours().await;
        let slices: Vec<_> = data.chunks(below(20_000) + 50).map(IoSlice::new).collect();
        let sealed = seal(&mut outgoing, &slices);
        let mut records = sent(&mut outgoing);
        let at = below(records.len());
        match way % 4 {
            0 => records[at] ^= 1 << below(8),
            1 => drop(records.drain(at..(at + below(40) + 1).min(records.len()))),
            2 => {
                let record = HEADER_BYTES + usize::from(u16::from_be_bytes([records[3], records[4]]));
                let first = records[..record].to_vec();
                records.splice(record..record, first);
            }
            _ => records.truncate(at),
        }
        let mut taken = vec![0; data.len()];
        let mut count = 0;
        let mut rest = &records[..];
        let end = loop {
            match incoming.take(&mut taken[count..], &mut []) {
                Err(error) => break Err(error),
                Ok(0) if rest.is_empty() => break Ok(()),
                Ok(0) => {
                    let room = incoming.room();
                    let filled = room.len().min(rest.len());
                    room[..filled].copy_from_slice(&rest[..filled]);
                    incoming.filled(filled);
                    rest = &rest[filled..];
                }
                Ok(more) => count += more,
            }
        };
        assert!(taken[..count] == data[..count], "only what was sent, in order");
        assert!(count < sealed || way % 4 == 2, "not all of it");
        match end {
            Err(_) => refused += 1,
            Ok(()) => cut += 1,
        }
    }
    assert!(refused >= 30 && cut >= 10, "{refused} {cut}");
}

#[tokio::test]
async fn no_key_seals_more_records_than_it_may() {
    let ((mut incoming, _), (_, mut outgoing)) = ours().await;
    outgoing.allow_records_per_key(5);
    let mut longest = 0;
    for _ in 0..50 {
        seal(&mut outgoing, &[IoSlice::new(b"small")]);
        longest = longest.max(outgoing.records_of_key());
        assert_eq!(take_all(&mut incoming, &sent(&mut outgoing)).unwrap(), b"small");
    }
    assert_eq!(longest, 4, "and the fifth says that the next follows");
}
