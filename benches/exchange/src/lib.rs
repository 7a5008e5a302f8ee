//! Benches of the exchange.
