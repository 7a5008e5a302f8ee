//! Encodes and decodes the messages between processes of a job.
//!
//! The format is postcard, which does not describe itself: both ends know the types. So the decoder of a type is the
//! sequence of its fields' decoders. The decoder of a self-describing format can find any value at any place. Over all
//! messages, that took half of the compile time of this crate.

use std::{io, pin::Pin};

use bytes::{Bytes, BytesMut};
use serde::{Serialize, de::DeserializeOwned};

/// Encodes and decodes the messages of a connection.
#[derive(Debug)]
pub(crate) struct Encoding;

impl<Message: Serialize> tokio_serde::Serializer<Message> for Encoding {
    type Error = io::Error;

    fn serialize(self: Pin<&mut Self>, message: &Message) -> io::Result<Bytes> {
        encode(message).map(Bytes::from)
    }
}

impl<Message: DeserializeOwned> tokio_serde::Deserializer<Message> for Encoding {
    type Error = io::Error;

    fn deserialize(self: Pin<&mut Self>, bytes: &BytesMut) -> io::Result<Message> {
        decode(bytes)
    }
}

/// Encodes a value.
pub(crate) fn encode<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    postcard::to_allocvec(value).map_err(io::Error::other)
}

/// Decodes a value that takes all of the bytes.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    let (value, rest) = postcard::take_from_bytes(bytes).map_err(invalid)?;
    if rest.is_empty() { Ok(value) } else { Err(invalid(format!("{} bytes behind a message", rest.len()))) }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_encoded_is_decoded_and_nothing_may_follow_it() {
        let value = (7_u64, Some("seven".to_owned()), vec![0.1, f64::INFINITY]);
        let mut bytes = encode(&value).unwrap();
        assert_eq!(decode::<(u64, Option<String>, Vec<f64>)>(&bytes).unwrap(), value);
        bytes.push(0);
        let error = decode::<(u64, Option<String>, Vec<f64>)>(&bytes).unwrap_err();
        assert_eq!((error.kind(), error.to_string()), (io::ErrorKind::InvalidData, "1 bytes behind a message".into()));
    }
}
