//! Encodes the first message on a worker's standard input, and limits the last message that it sends back.
//!
//! # Invariants
//! - I1: credentials reach a process only through a private socket, never by argument or environment, which other users
//!   of the machine can read.

use std::io::{self, Read};

use serde::{Deserialize, Serialize};

use super::Orders;
use crate::encoding::{decode, encode};

/// First message to a worker process.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Greeting {
    /// Credentials for the coordinator.
    pub(crate) credentials: String,
    pub(crate) orders: Orders,
}

impl Greeting {
    /// Encodes the length as a `u32` (little-endian), then the [encoded](encode) message.
    pub(crate) fn encode(&self) -> io::Result<Vec<u8>> {
        let body = encode(self)?;
        let length = u32::try_from(body.len()).ok().filter(|&length| length <= MAX_GREETING_BYTES);
        let length = length.ok_or_else(|| {
            let text = format!("the init bytes of a worker have {} bytes, limit {MAX_GREETING_BYTES}", body.len());
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        Ok([&length.to_le_bytes(), body.as_slice()].concat())
    }

    /// Reads exactly one greeting.
    pub(crate) fn read(input: &mut dyn Read) -> io::Result<Self> {
        let mut length = [0; 4];
        input.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length);
        if length > MAX_GREETING_BYTES {
            let text = format!("a greeting of {length} bytes, limit {MAX_GREETING_BYTES}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let mut body = Vec::new();
        input.take(u64::from(length)).read_to_end(&mut body)?;
        if body.len() < length as usize {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        decode(&body)
    }
}

const MAX_GREETING_BYTES: u32 = 256 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use std::{net::SocketAddr, time::Duration};

    use super::*;

    fn greeting() -> Greeting {
        let orders = Orders {
            coordinator: SocketAddr::from(([127, 0, 0, 1], 4000)),
            worker: 3,
            silence_limit: Duration::from_secs(10),
            cancel_timeout: Duration::from_secs(5),
            init: vec![0, 255, 7],
        };
        Greeting { credentials: "ab".repeat(32), orders }
    }

    #[test]
    fn a_greeting_arrives_as_it_was_sent_and_nothing_after_it_is_read() {
        let mut bytes = greeting().encode().unwrap();
        bytes.extend_from_slice(b"rest");
        let mut input = bytes.as_slice();
        let read = Greeting::read(&mut input).unwrap().orders;
        assert_eq!((read.worker, read.init, read.coordinator.port()), (3, vec![0, 255, 7], 4000));
        assert_eq!(input, b"rest");
    }

    #[test]
    fn broken_greetings_are_errors() {
        let bytes = greeting().encode().unwrap();
        for length in 0..bytes.len() {
            assert!(Greeting::read(&mut &bytes[..length]).is_err());
        }
        assert!(Greeting::read(&mut &[255; 64][..]).is_err(), "a giant length");
        let noise = [&8_u32.to_le_bytes()[..], &[0xc1; 8]].concat();
        assert!(Greeting::read(&mut noise.as_slice()).is_err());
    }
}
