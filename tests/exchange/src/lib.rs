//! Integration tests of the exchange over real sockets; see `tests/`.
