//! Takes over the records of a session from rustls once both ends have authenticated.

use std::fmt;
use std::io::{self, Read};
use std::sync::{Arc, OnceLock};

use rustls::crypto::tls13::OkmBlock;
use rustls::{Connection, Error, KeyLog, SupportedCipherSuite};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

use super::incoming::IncomingRecords;
use super::keys::{Keys, stands_for};
use super::outgoing::OutgoingRecords;
use super::record_reader::RecordReader;
use crate::error::HandshakeError;

/// Session that rustls has set up, and whose records rustls still seals and opens.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) stream: TlsStream<RecordReader<TcpStream>>,
    pub(super) secrets: Arc<TrafficSecrets>,
}

/// Secrets that a handshake agreed on. The keys of both directions, and all their successors, are derived from them.
#[derive(Default)]
pub(super) struct TrafficSecrets {
    client: OnceLock<OkmBlock>,
    server: OnceLock<OkmBlock>,
}

impl Session {
    /// Returns a value that only the two ends of this session know. An attacker in the middle has two sessions, and so
    /// two different values.
    pub(crate) fn binding(&self) -> Result<[u8; BINDING_BYTES], HandshakeError> {
        let binding = [0; BINDING_BYTES];
        let exported = match &self.stream {
            TlsStream::Client(stream) => stream.get_ref().1.export_keying_material(binding, BINDING_LABEL, None),
            TlsStream::Server(stream) => stream.get_ref().1.export_keying_material(binding, BINDING_LABEL, None),
        };
        exported.map_err(|error| HandshakeError::Tls { reason: error.to_string() })
    }

    /// Returns the connection, and the halves that open and seal its records from now on.
    pub(crate) fn take_over(self) -> io::Result<(TcpStream, IncomingRecords, OutgoingRecords)> {
        let (reader, mut session, [ours, theirs]) = match self.stream {
            TlsStream::Client(stream) => {
                let (reader, session) = stream.into_inner();
                (reader, Connection::from(session), [&self.secrets.client, &self.secrets.server])
            }
            TlsStream::Server(stream) => {
                let (reader, session) = stream.into_inner();
                (reader, Connection::from(session), [&self.secrets.server, &self.secrets.client])
            }
        };
        let stream = reader.into_stream().ok_or_else(|| refusal("a record was read in part"))?;
        let mut opened = Vec::new();
        let is_closed = read_opened(&mut session, &mut opened)?;
        let Some(SupportedCipherSuite::Tls13(suite)) = session.negotiated_cipher_suite() else {
            return Err(refusal("it is not TLS 1.3"));
        };
        let found = session.dangerous_extract_secrets().map_err(breach)?;
        let keys = |secret: &OnceLock<OkmBlock>, (sequence, found)| {
            let secret = secret.get().ok_or_else(|| refusal("the handshake left no secret"))?;
            if !stands_for(secret, suite, &found).map_err(breach)? {
                return Err(refusal("the keys were renewed before both ends had proved themselves"));
            }
            Keys::new(suite, secret.clone(), sequence).map_err(breach)
        };
        Ok((
            stream,
            IncomingRecords::new(keys(theirs, found.rx)?, &opened, is_closed),
            OutgoingRecords::new(keys(ours, found.tx)?),
        ))
    }
}

/// Reads the rest of the content that rustls has already opened. Returns true if the peer has closed the session after
/// it.
fn read_opened(session: &mut Connection, opened: &mut Vec<u8>) -> io::Result<bool> {
    match session.reader().read_to_end(opened) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

fn refusal(reason: &str) -> io::Error {
    breach(Error::General(format!("the session cannot be taken over: {reason}")))
}

/// Wraps the error that ends a session for the driver.
pub(crate) fn breach(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl KeyLog for TrafficSecrets {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        let slot = match label {
            CLIENT_LABEL => &self.client,
            SERVER_LABEL => &self.server,
            _ => return,
        };
        // A handshake agrees on each secret once.
        let _was_empty = slot.set(OkmBlock::new(secret));
    }

    fn will_log(&self, label: &str) -> bool {
        matches!(label, CLIENT_LABEL | SERVER_LABEL)
    }
}

impl fmt::Debug for TrafficSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TrafficSecrets(redacted)")
    }
}

const BINDING_BYTES: usize = 32;
const BINDING_LABEL: &[u8] = b"EXPORTER-Channel-Binding";
const CLIENT_LABEL: &str = "CLIENT_TRAFFIC_SECRET_0";
const SERVER_LABEL: &str = "SERVER_TRAFFIC_SECRET_0";
