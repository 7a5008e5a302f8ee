"""The object codec: what goes in comes out, in value and in type, or is refused by name."""

from __future__ import annotations

import collections
import datetime as dt
import math
import uuid
import zoneinfo
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from flownet import codec
from flownet._flownet import decode, encode
from flownet.errors import CodecError

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
NAMED_OFFSET = dt.timezone(dt.timedelta(hours=-3, microseconds=5), "trois")

SCALARS = [
    None,
    True,
    False,
    *(0, 63, 64, -1, 2**62, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 10**100, -(10**100)),
    *(0.0, -0.0, 1.5, math.inf, -math.inf, 5e-324),
    *("", "a", "\u00e9" * 40, "x" * 63, "x" * 64, "\U0001f600", "\x00", "\ud800 alone"),
    *(b"", b"ab", bytearray(b"xyz")),
    complex(1, -0.0),
    dt.date.min,
    dt.date.max,
    dt.time(1, 2, 3, 4),
    dt.time(1, fold=1, tzinfo=NAMED_OFFSET),
    dt.datetime.max,
    dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
    dt.datetime(2020, 10, 25, 2, 30, fold=1, tzinfo=BERLIN),
    *(dt.timedelta.max, dt.timedelta.min, dt.timedelta(-5, 3, 2)),
    *(Decimal("1.50"), Decimal("-0"), Decimal("1E+999999"), Decimal("-Infinity")),
    uuid.UUID(int=2**127 + 5),
    *(np.int32(5), np.uint64(2**64 - 1), np.float64(1.5), np.float16(2), np.longdouble(1.5), np.complex64(1 + 2j)),
    *(np.bool_(True), np.str_("abc"), np.str_(""), np.bytes_(b"q")),
    *(np.datetime64("2020-01-01T00", "ns"), np.timedelta64(5, "D")),
]

CONTAINERS = [
    *((), (1, "a"), (1, (2, (3,)))),
    *([], [1, [2, []]]),
    *({}, {"a": 1, 2: (3,), None: [4]}),
    *({1, "x"}, frozenset({1, "x"}), set(), frozenset()),
]

STRUCTURE = np.dtype([("a", "<i4"), ("b", ">f8", (2, 3)), ("c", "S3"), ("inner", [("x", "u1")])], align=True)

ARRAYS = [
    np.zeros((0,)),
    np.zeros((3, 0, 2), "i2"),
    np.arange(12).reshape(3, 4).T,
    np.arange(12)[::-3],
    np.array(5),
    np.zeros(3, STRUCTURE),
    np.array(["a", "bcd"]),
    np.array([b"", b""]),
    np.array(["2020"], "M8[D]"),
    np.zeros((0,), "U1000000"),
    np.zeros(2, "V5"),
    np.arange(3, dtype=">i4"),
]


class Text(str):
    """A subclass of a built-in type."""


class Plain:
    """Neither a dataclass nor anything like it."""

    def __eq__(self, other: object) -> bool:
        return type(other) is Plain

    def __hash__(self) -> int:
        return 1


UNSUPPORTED = [
    (Text("x"), "Text"),
    (Plain(), "Plain"),
    (object(), "object"),
    (len, "builtin_function_or_method"),
    (collections.Counter(), "Counter"),
    (range(3), "range"),
    (Fraction(1, 2), "Fraction"),
    (memoryview(b""), "memoryview"),
    (np.zeros(2, object), "dtype object"),
    (np.ma.zeros(2), "MaskedArray"),
    (np.zeros(2).view(np.recarray), "recarray"),
]


def same(left: object, right: object) -> bool:
    """Equal in value, type and all that a value shows, NaN included."""
    return type(left) is type(right) and repr(left) == repr(right)


@pytest.mark.parametrize("value", SCALARS, ids=repr)
def test_scalars_come_back_in_value_and_type(value: object) -> None:
    assert same(decode(encode(value)), value)


# Sets say themselves in another order in each process, and those that share the tests out must name them alike.
@pytest.mark.parametrize("value", CONTAINERS, ids=lambda value: f"{type(value).__name__} of {len(value)}")
def test_containers_come_back_in_value_and_type(value: object) -> None:
    decoded = decode(encode(value))
    assert (type(decoded), decoded) == (type(value), value)


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}-{array.shape}")
def test_arrays_come_back_writable_with_dtype_and_shape(array: np.ndarray[Any, Any]) -> None:
    decoded = decode(encode(array))
    assert (decoded.dtype, decoded.shape, decoded.flags.writeable) == (array.dtype, array.shape, True)
    assert decoded.dtype.isalignedstruct == array.dtype.isalignedstruct
    assert (decoded == array).all()


def test_a_row_of_a_structured_array_comes_back() -> None:
    row = np.ones(2, STRUCTURE)[1]
    assert decode(encode(row)) == row


def test_zones_come_back_as_what_they_are() -> None:
    for zone in (dt.UTC, dt.timezone(dt.timedelta(hours=2)), NAMED_OFFSET, BERLIN):
        decoded = decode(encode(dt.datetime(2020, 1, 1, tzinfo=zone)))
        assert (type(decoded.tzinfo), repr(decoded.tzinfo)) == (type(zone), repr(zone))


def test_a_nan_comes_back_as_a_nan() -> None:
    assert math.isnan(decode(encode(math.nan)))
    assert decode(encode(Decimal("NaN"))).is_nan()


def test_a_dict_keeps_its_order() -> None:
    assert list(decode(encode({"b": 1, "a": 2}))) == ["b", "a"]


@pytest.mark.parametrize(("value", "name"), UNSUPPORTED, ids=[name for _, name in UNSUPPORTED])
def test_other_types_are_refused_by_name_with_the_way_out(value: object, name: str) -> None:
    with pytest.raises(CodecError, match='codec="pickle"') as caught:
        encode([value])
    assert caught.value.type_name is not None
    assert caught.value.type_name.endswith(name)


def test_pickle_is_for_those_who_ask_for_it_on_both_sides() -> None:
    classes = codec.ClassTable()
    pickled = encode([Plain(), len], pickle=True, classes=classes)
    assert decode(pickled, pickle=True, classes=classes) == [Plain(), len]
    with pytest.raises(CodecError, match="pickle is not opted in"):
        decode(pickled)


def test_a_value_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(CodecError, match="contains itself"):
        encode(endless)


def test_a_list_that_changes_while_it_is_pickled_is_refused() -> None:
    class Grows:
        def __reduce__(self) -> tuple[Any, ...]:
            grown.append(1)
            return (int, ())

    grown: list[Any] = [Grows()]
    with pytest.raises(CodecError, match="changed its size"):
        encode(grown, pickle=True)


def test_small_values_are_small() -> None:
    assert [len(encode(value)) for value in (None, 0, 63, 64, "", "word", (1, 2), 1.0)] == [1, 1, 1, 3, 1, 5, 4, 9]


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec=None))
    | st.binary()
    | st.complex_numbers(allow_nan=False)
    | st.dates()
    | st.datetimes(timezones=st.none() | st.timezones())
    | st.timedeltas()
    | st.decimals(allow_nan=False)
    | st.uuids(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(VALUES)
def test_any_value_comes_back(value: object) -> None:
    assert same(decode(encode(value)), value)


@given(st.binary(max_size=64))
def test_any_bytes_give_a_value_or_a_codec_error(data: bytes) -> None:
    try:
        decode(data)
    except CodecError:
        pass


@given(VALUES, st.data())
def test_damaged_bytes_give_a_value_or_a_codec_error(value: object, data: st.DataObject) -> None:
    damaged = bytearray(encode([value, np.zeros(2, STRUCTURE), NAMED_OFFSET.utcoffset(None)]))
    for position in data.draw(st.lists(st.integers(0, len(damaged) - 1), max_size=4)):
        damaged[position] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(damaged)))
    for corrupt in (damaged, damaged[:cut]):
        try:
            decode(bytes(corrupt))
        except CodecError:
            pass


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "end too early"),
        (b"\x60", "unknown tag 0x60"),
        (b"\x00\x00", "1 bytes follow the value"),
        (b"\x11\xff\xff\xff\xff\x0f", "end too early"),
        (b"\x07\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "end too early"),
        (b"\x81\xff", "utf-8"),
        (b"\x13\x01\x11\x00", "unhashable"),
        (b"\x11\x01" * 200, "more than 128 levels"),
        (b"\x30\x00\x02|O", "dtype"),
    ],
)
def test_malformed_bytes_are_named(data: bytes, text: str) -> None:
    with pytest.raises(CodecError, match=text):
        decode(data)


def test_nested_counts_cannot_claim_the_same_bytes_twice() -> None:
    # Each list claims all bytes that follow: refused before the claims add up.
    claims = b"".join(b"\x11" + bytes([200]) + b"\x01" for _ in range(60)) + bytes(200)
    with pytest.raises(CodecError, match="end too early"):
        decode(claims)


def test_an_unhashable_key_of_a_dict_is_a_codec_error_with_its_cause() -> None:
    with pytest.raises(CodecError) as caught:
        decode(b"\x12\x01\x11\x00\x00")
    assert isinstance(caught.value.__cause__, TypeError)


def test_the_public_module_has_the_same_functions() -> None:
    assert (codec.encode, codec.decode) == (encode, decode)
