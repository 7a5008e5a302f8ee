//! The targets. Each is a function over bytes and the seeds to begin with.

mod handshake;
#[cfg(feature = "interpreter")]
mod object_codec;
mod peer;
mod raw_records;
mod record_reader;
mod rows;
mod rows_by_key;
mod wire;

/// Something that takes bytes of strangers.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, also of its folder in the corpus.
    pub name: &'static str,
    /// Takes the bytes; panics if they break a promise.
    pub run: fn(&[u8]),
    /// Bytes as correct peers make them, by name.
    pub seeds: fn() -> Vec<(&'static str, Vec<u8>)>,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "wire", run: wire::run, seeds: wire::seeds },
    Target { name: "peer", run: peer::run, seeds: peer::seeds },
    Target { name: "handshake", run: handshake::run, seeds: handshake::seeds },
    Target { name: "record-reader", run: record_reader::run, seeds: record_reader::seeds },
    Target { name: "rows", run: rows::run, seeds: rows::seeds },
    Target { name: "rows-by-key", run: rows_by_key::run, seeds: rows_by_key::seeds },
    #[cfg(feature = "interpreter")]
    Target { name: "object-codec", run: object_codec::run, seeds: object_codec::seeds },
];
