//! Tag bytes of the codec; their bodies are described in the parent module.

// Tags that keys of rows have, too.
pub(super) use flownet_runtime::canonical::{
    BIG_INT, BYTES, CLASS_KEY, DATE, DATETIME, DECIMAL, FLOAT, INT, NONE, SHORT_STR, SMALL_INT, SMALL_MAX, STR, TIME,
    TIMEDELTA, TUPLE,
};

pub(super) const FALSE: u8 = 0x01;
pub(super) const TRUE: u8 = 0x02;
pub(super) const COMPLEX: u8 = 0x06;
pub(super) const SURROGATE_STR: u8 = 0x08;
pub(super) const BYTEARRAY: u8 = 0x0a;
pub(super) const LIST: u8 = 0x11;
pub(super) const DICT: u8 = 0x12;
pub(super) const SET: u8 = 0x13;
pub(super) const FROZENSET: u8 = 0x14;
pub(super) const ORDERED_DICT: u8 = 0x15;
pub(super) const UUID: u8 = 0x25;
pub(super) const TIMESTAMP: u8 = 0x26;
pub(super) const NUMPY_SCALAR: u8 = 0x30;
pub(super) const NDARRAY: u8 = 0x31;
pub(super) const PICKLE: u8 = 0x3f;
pub(super) const OBJECT: u8 = 0x40;
pub(super) const OBJECT_ATTRIBUTES: u8 = 0x41;

/// Not a value: on keyed edges the key in the user's form follows this marker.
pub const KEY_AS_GIVEN: u8 = flownet_runtime::operator::KEY_AS_GIVEN;
