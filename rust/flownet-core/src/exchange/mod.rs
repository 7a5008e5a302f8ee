//! Connection machines: the two ends of one data connection.

mod brake;
pub mod consumer;
mod frames;
pub mod outbox;
pub mod producer;
pub mod ready;
