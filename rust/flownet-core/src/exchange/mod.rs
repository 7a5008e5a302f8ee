//! State machines for the two ends of one data connection.

pub mod consumer;
mod frames;
pub mod outbox;
pub mod producer;
pub mod ready;
