//! Frames waiting for the socket.
