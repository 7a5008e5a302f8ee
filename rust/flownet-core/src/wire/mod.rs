//! Wire format of a data connection: [`frame`] defines the bytes, [`codec`] reads and writes them.
//!
//! # Invariants
//! - W1: the decoder is total. Any bytes give a frame, a request for more bytes, or an error; never a panic.
//! - W2: no length is trusted before it was checked against [`WireLimits`].
//! - W3: a payload is never copied here. Decoding a DATA frame stops before its payload, so that the driver can read it
//!   straight into a segment. Encoding one returns a header for a vectored write.

pub mod codec;
pub mod frame;

pub use codec::{
    DecodeResult, decode, decode_header, encode_backlogs, encode_credits, encode_events_read, encode_fill_limits,
};
pub use frame::{
    ControlFrame, DataHeader, EncodedDataHeader, ErrorCode, ErrorScope, FrameHeader, FrameKind, Pairs, WireLimits,
};

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
