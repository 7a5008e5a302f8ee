//! The tokio TCP driver of flownet's exchange: handshake, connections, flusher.
#![forbid(unsafe_code)]

pub mod handshake;

mod config;
mod error;
mod parker;
mod secret;

pub use config::NetworkConfig;
pub use error::{HandshakeError, NetError, SecretError};
pub use parker::{ThreadParker, wait_until};
pub use secret::Secret;
