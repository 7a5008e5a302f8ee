//! The object codec: encodes Python values of the built-in types to bytes, and decodes them, without pickle.
//!
//! Chains call [`Encoder`] for records that leave a task and [`decode`] for records that arrive. Keyed edges call
//! [`encode_key`] (see `key.rs`). All of them need the interpreter attached.
//!
//! # Invariants
//! - I1: `decode(encode(v))` has the type of `v` and, except for NaN, its value. The encoder refuses types that cannot
//!   guarantee this by name, subclasses of built-in types included. So no value changes its type silently.
//! - I2: decoding is total: any bytes decode to a value or a [`CodecError`]. A count is checked against the bytes left
//!   before anything is allocated, and the counts of one record add up to at most its bytes.
//! - I3: a value nests at most [`MAX_DEPTH`] deep, so no value can make either end overflow its stack.
//! - I4: bytes create instances only of classes in the reader's table ([`ClassTable`]). They run only code of these
//!   classes that hashes and compares, or finds the members of a Flag. The exception is a reader that opted in to
//!   pickle with [`Pickle::Allowed`]. Definitions of classes are code: they arrive separately, from peers of the job.
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
//! | `15` | `OrderedDict` | as `12` |
//! | `20` | `date` | year u16, month u8, day u8 |
//! | `21` | `time` | hour u8, minute u8, second u8, fold u8, microsecond u32, zone |
//! | `22` | `datetime` | as `20`, then as `21` |
//! | `23` | `timedelta` | days i32, seconds u32, microseconds u32 |
//! | `24` | `Decimal` | varint length, its `str` |
//! | `25` | `UUID` | 16 bytes, big-endian as in RFC 9562 |
//! | `26` | `pandas.Timestamp` | unit u8 (`0` to `3`: s, ms, us, ns), ticks i64, zone, or `80`, varint length and a name of pytz |
//! | `26` | `pandas.NaT` | `ff` |
//! | `30` | numpy scalar | dtype, its bytes |
//! | `31` | `ndarray` | dtype, varint dimensions, a varint each, the elements in C order |
//! | `3f` | anything, opt-in only | varint length, pickle, with classes by their number as persistent ids |
//! | `40` | instance of a class | number of the class (8 bytes), then by kind: |
//! | | NamedTuple | its items |
//! | | Enum; Flag | varint place among its members; its value |
//! | | dataclass, attrs class | its attributes in the order of the definition |
//! | | pydantic model | the same; the set of fields that were given may be an `int` with a bit for each |
//! | `41` | the same, with other attributes than the class has | number; items of a NamedTuple; varint count, name and value in turn |
//! | `80`..`bf` | `str` of 0..=63 bytes | UTF-8; the length is the low six bits |
//! | `c0`..`ff` | `int` 0..=63 | the low six bits |
//!
//! `7d` and `7e` are not values: keys of classes begin with `7d` (`key.rs`), and keyed edges use `7e` as a marker
//! (`chain::record`). All other tags are errors.
//!
//! The number of a class is xxh3 (64 bits) of its definition: `81`, a byte (`1` NamedTuple, `2` Enum, `3` Flag,
//! `4` class with attributes, `5` pydantic model, `6` any other), two lists of names (varint count, then varint
//! length and name each: fields, members or attributes; attributes in slots), its module and qualified name
//! (varint length, `module:Name`), and the class as cloudpickle writes it: by name, or by value if the script
//! defines it. A sender sends it once ([`SentClasses`]), before the first record that needs it. Checkpoints
//! store definitions after their number, and the next run finds the class by its name.
//!
//! A zone is a byte: `0` none, `1` UTC (`timezone.utc`), `2` fixed offset (zigzag microseconds), `3` named
//! fixed offset (as `2`, then varint length and the name), `4` `ZoneInfo` (varint length and its key).
//!
//! A dtype is a byte: `0` a plain type (length u8 and its `str`, such as `<f8`), `1` a structure (varint item
//! size, align u8, varint fields, each: varint length and name, varint offset, dtype), `2` a subarray (dtype,
//! varint dimensions, a varint each).

mod changed_class;
mod class;
mod class_key;
mod class_table;
mod decode;
mod encode;
mod error;
mod exact;
mod key;
mod look_at;
mod number;
mod numpy;
mod object;
mod ordered;
mod pandas;
mod pickle;
mod scan;
mod tag;
mod temporal;

pub use class::Class;
pub(crate) use class::Layout;
pub(crate) use class_table::KeptDefinition;
pub use class_table::{ClassTable, KnownClasses, PyClassTable, SentClasses, parts};
pub use decode::{Decoder, array_rows, decode};
pub use encode::{Encoder, encode};
pub use error::CodecError;
pub(crate) use exact::exact;
pub use key::{KeyForm, canonical_key, encode_key, key_kind, kind_name};
pub(crate) use look_at::look_at;
pub(crate) use number::small_int;
pub use scan::{Number, item_bytes, number};
pub use tag::KEY_AS_GIVEN;

/// Greatest depth of a value. Deep enough for data, shallow enough for the stack of any thread.
pub const MAX_DEPTH: usize = 128;

/// Whether values outside the built-in types may travel as pickle.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Pickle {
    /// Such values are an error on either side: bytes cannot run code.
    #[default]
    Refused,
    /// The job has enabled it: `Environment(codec="pickle")`.
    Allowed,
}
