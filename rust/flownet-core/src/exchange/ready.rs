//! Channels with something to do, and the waker of their connection.
