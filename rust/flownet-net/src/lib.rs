//! The tokio TCP driver of flownet's exchange: handshake, connections, flusher.
