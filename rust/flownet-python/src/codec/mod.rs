//! The object codec: Python values of the built-in types to bytes and back, without pickle.
//!
//! Chains call [`Encoder`] for what leaves a task and [`decode`] for what arrives; keyed edges call
//! [`encode_key`] (its own page: `key.rs`). All of them need the interpreter attached.
//!
//! # Invariants
//! - I1: `decode(encode(v))` has the type of `v` and, NaN aside, its value. A type that cannot keep this promise,
//!   subclasses of built-in types included, is refused by name: nothing changes type silently.
//! - I2: decoding is total: any bytes give a value or a [`CodecError`]. A count is checked against the bytes left
//!   before anything is allocated, and the counts of one record add up to at most its bytes.
//! - I3: a value nests at most [`MAX_DEPTH`] deep, so neither end can be made to overflow its stack.
//! - I4: bytes never run code, unless the reader opted in to pickle with [`Pickle::Allowed`].
//!
//! # Format
//! A value is one tag byte and a body. Integers in bodies are little-endian; `varint` is LEB128 of at most 10 bytes;
//! `zigzag` is a varint of the zigzag-mapped 64-bit integer.
//!
//! | tag | value | body |
//! |---|---|---|
//! | `00` | `None` | |
//! | `01` `02` | `False`, `True` | |
//! | `03` | `int` of 64 bits | zigzag |
//! | `04` | larger `int` | varint length, two's complement, little-endian |
//! | `05` | `float` | 8 bytes, IEEE 754 |
//! | `06` | `complex` | 8 + 8 bytes: real, imaginary |
//! | `07` | `str` | varint length, UTF-8 |
//! | `08` | `str` with lone surrogates | varint length, UTF-8 with surrogates encoded (`surrogatepass`) |
//! | `09` `0a` | `bytes`, `bytearray` | varint length, the bytes |
//! | `10` `11` | `tuple`, `list` | varint count, the items |
//! | `12` | `dict` | varint count, key and value in turn, insertion order |
//! | `13` `14` | `set`, `frozenset` | varint count, the items |
//! | `20` | `date` | year u16, month u8, day u8 |
//! | `21` | `time` | hour u8, minute u8, second u8, fold u8, microsecond u32, zone |
//! | `22` | `datetime` | as `20`, then as `21` |
//! | `23` | `timedelta` | days i32, seconds u32, microseconds u32 |
//! | `24` | `Decimal` | varint length, its `str` |
//! | `25` | `UUID` | 16 bytes, big-endian as in RFC 9562 |
//! | `30` | numpy scalar | dtype, its bytes |
//! | `31` | `ndarray` | dtype, varint dimensions, a varint each, the elements in C order |
//! | `3f` | anything, opt-in only | varint length, pickle |
//! | `80`..`bf` | `str` of 0..=63 bytes | UTF-8; the length is the low six bits |
//! | `c0`..`ff` | `int` 0..=63 | the low six bits |
//!
//! `7e` is no value: keyed edges use it as a marker (`chain::keyed`). All other tags are errors.
//!
//! A zone is a byte: `0` none, `1` UTC (`timezone.utc`), `2` fixed offset (zigzag microseconds), `3` named fixed offset (as
//! `2`, then varint length and the name), `4` `ZoneInfo` (varint length and its key).
//!
//! A dtype is a byte: `0` a plain type (length u8 and its `str`, such as `<f8`), `1` a structure (varint item size, align u8,
//! varint fields, each: varint length and name, varint offset, dtype), `2` a subarray (dtype, varint dimensions, a
//! varint each).

mod decode;
mod encode;
mod error;
mod exact;
mod key;
mod number;
mod numpy;
mod pickle;
mod scan;
mod tag;
mod temporal;
mod varint;

pub use decode::{Decoder, decode};
pub use encode::{Encoder, encode};
pub use error::CodecError;
pub(crate) use exact::exact;
pub use key::{KeyForm, encode_key};
pub use scan::{Number, item_bytes, number};
pub use tag::KEY_AS_GIVEN;
pub use varint::{put_varint, take_varint};

/// How deep a value may nest. Deep enough for data, shallow enough for the stack of any thread.
pub const MAX_DEPTH: usize = 128;

/// Whether values outside the built-in types may travel as pickle.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Pickle {
    /// Such values are an error on either side: bytes cannot run code.
    #[default]
    Refused,
    /// The job asked for it: `Environment(codec="pickle")`.
    Allowed,
}
