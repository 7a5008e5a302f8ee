//! The object codec: any bytes are a value or an error, and a value's encoding decodes to the like of it.

use std::ffi::CStr;

use pyo3::prelude::*;

use crate::codec::{Pickle, decode, encode, encode_key, item_bytes, number};

pub(super) fn run(data: &[u8]) {
    Python::initialize();
    // Looks without the interpreter.
    let _ = number(data);
    let third = item_bytes(data, 2);
    Python::attach(|py| {
        let Ok(value) = decode(py, data, Pickle::Refused) else { return };
        let mut bytes = Vec::new();
        encode(&value, Pickle::Refused, &mut bytes).expect("what was decoded can be encoded");
        let again = decode(py, &bytes, Pickle::Refused).expect("own bytes are good");
        assert!(again.get_type().is(value.get_type()), "the type changed");
        let mut once_more = Vec::new();
        encode(&again, Pickle::Refused, &mut once_more).expect("what was decoded can be encoded");
        // The items of a set have no order, so only this.
        assert_eq!(bytes.len(), once_more.len(), "the value changed");
        if let Some(third) = third {
            decode(py, third, Pickle::Refused).expect("an item of a value is a value");
        }
        // Most values are no keys; none breaks it.
        let _ = encode_key(&value, &mut Vec::new());
    });
}

pub(super) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    Python::initialize();
    Python::attach(|py| EXPRESSIONS.iter().map(|&(name, expression)| (name, encoded(py, expression))).collect())
}

fn encoded(py: Python<'_>, expression: &CStr) -> Vec<u8> {
    let value = py.eval(expression, None, None).expect("a good expression");
    let mut bytes = Vec::new();
    encode(&value, Pickle::Refused, &mut bytes).expect("a value of the codec's types");
    bytes
}

const EXPRESSIONS: &[(&str, &CStr)] = &[
    ("none", c"None"),
    ("row", c"(1, 'word', 2.5, True, None, -70000)"),
    ("nested", c"[{'a': (1, [2, {3}])}, frozenset({4}), b'bytes', bytearray(b'more')]"),
    ("integers", c"[0, 63, 64, -1, 2**63 - 1, 2**63, -2**200]"),
    ("strings", c"['', 'x' * 63, 'x' * 64, 'ä€😀', '\\ud800']"),
    ("complex", c"(1j, float('nan'), float('inf'), -0.0)"),
    ("date", c"__import__('datetime').date(2026, 11, 20)"),
    ("time", c"__import__('datetime').time(23, 59, 59, 999999, fold=1)"),
    ("datetime-utc", c"__import__('datetime').datetime(1, 1, 1, tzinfo=__import__('datetime').timezone.utc)"),
    (
        "datetime-named",
        c"(lambda d: d.datetime(2026, 1, 1, tzinfo=d.timezone(d.timedelta(hours=-3), 'name')))(__import__('datetime'))",
    ),
    ("datetime-zone", c"__import__('datetime').datetime(2026, 1, 1, tzinfo=__import__('zoneinfo').ZoneInfo('UTC'))"),
    ("timedelta", c"__import__('datetime').timedelta(days=-1, microseconds=1)"),
    ("decimal", c"__import__('decimal').Decimal('-1.50E+7')"),
    ("uuid", c"__import__('uuid').UUID(int=1)"),
    ("numpy-scalar", c"__import__('numpy').float32(1.5)"),
    ("numpy-array", c"__import__('numpy').arange(6, dtype='<i2').reshape(2, 3)"),
    ("numpy-structure", c"__import__('numpy').zeros(2, dtype=[('a', '<i4'), ('b', '<f8', (2,)), ('c', 'U3')])"),
    ("numpy-datetime", c"__import__('numpy').array(['2026-11-20'], dtype='datetime64[s]')"),
];
