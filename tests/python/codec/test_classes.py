"""Instances of classes: they come back as what they were, as records and as keys."""

from __future__ import annotations

import collections
import dataclasses
import pickle
import subprocess
import sys
from collections.abc import Hashable
from typing import Any, ClassVar

import pandas as pd
import pytest

from flownet import codec
from flownet.codec import ClassTable, decode, encode, encode_key
from flownet.errors import CodecError

from . import key_classes, record_types
from .record_types import (
    Checked,
    Closed,
    Colour,
    Fail,
    Folded,
    Frozen,
    Further,
    Guarded,
    Holds,
    Itself,
    Level,
    Loose,
    Mode,
    Model,
    Named,
    Open,
    Pair,
    Place,
    Point,
    Reading,
    Right,
    Slow,
    Word,
)


def with_more() -> Reading:
    reading = Reading("late", 1.0)
    assert reading.doubled == 2.0
    reading.extra = [1]  # type: ignore[attr-defined]
    return reading


def without_value() -> Reading:
    reading = Reading("lacks", 1.0)
    del reading.value
    return reading


def without_value_is(back: object) -> bool:
    return isinstance(back, Reading) and vars(back) == {"sensor": "lacks", "tags": []}


def tagged() -> Pair:
    pair = Pair(1, 2)
    pair.tag = "x"  # type: ignore[attr-defined]
    return pair


INSTANCES = [
    Reading("a", 1.5, ["x"]),
    with_more(),
    without_value(),
    Place(1, 2, "here"),
    Named("n", Place(3, 4)),
    Further("f", 1, 2),
    Point(1),
    Point("wrong", None),  # type: ignore[arg-type]
    Pair(1, [2]),
    tagged(),
    *(Colour.RED, Colour.BLUE, Level.HIGH, Word.YES, Right.READ, Right.READ | Right.WRITE, Right(0), Mode.A | Mode.B),
    *(Open("o", 3), Closed("c"), Loose("l")),
    *(
        Model(name="m"),
        Model(name="m", size=1),
        Frozen.model_validate(dict(name="f", size=2, other=[3])),
        Holds[int](what=3),
    ),
    collections.OrderedDict([("b", 1), ("a", Point(2))]),
    *(
        pd.Timestamp("2026-01-02 03:04:05.678"),
        pd.Timestamp("2026-01-02", tz="UTC").as_unit("s"),
        pd.Timestamp(2**60 + 1),
    ),
    *(pd.Timestamp("2026-10-25 00:30", tz="UTC").tz_convert("Europe/Berlin"), pd.NaT),
]


def sent(value: object, *, pickle: bool = False) -> Any:
    """Encode, and decode as another process would that knows the classes by their definitions."""
    here, there = ClassTable(), ClassTable()
    data = encode(value, classes=here, pickle=pickle)
    for definition in here.definitions():
        there.add(definition)
    return decode(data, classes=there, pickle=pickle)


@pytest.mark.parametrize("value", INSTANCES, ids=lambda value: type(value).__name__)
def test_instances_come_back_in_type_value_and_all_attributes(value: Any) -> None:
    for given, back in ((value, sent(value)), (value, sent([value, (value,)])[1][0])):
        assert type(back) is type(given)
        assert back is given or without_value_is(back) or back == given
    back = sent(value)
    assert getattr(back, "__dict__", None) == getattr(value, "__dict__", None)


def test_an_instance_is_made_without_its_init() -> None:
    @dataclasses.dataclass
    class Counted:
        made: ClassVar[list[int]] = []
        number: int

        def __post_init__(self) -> None:
            self.made.append(self.number)

    given = Counted(7)
    assert sent(given).number == 7
    assert Counted.made == [7]


def test_a_model_comes_back_with_what_was_given_and_what_is_private() -> None:
    model = Model(name="m")
    model._secret = 9
    back = sent(model)
    assert (back.model_fields_set, back._secret) == ({"name"}, 9)
    assert sent(Frozen.model_validate(dict(name="f", other=1))).model_extra == {"other": 1}


def test_an_instance_takes_its_class_by_number() -> None:
    classes = ClassTable()
    assert len(encode(Point(1, 2), classes=classes)) == 1 + 8 + 2
    assert len(encode(Reading("abc", 1.0), classes=classes)) < 30
    assert len(classes.definitions()) == 2


def test_a_class_that_was_not_sent_has_no_instances() -> None:
    data = encode(Point(1), classes=ClassTable())
    with pytest.raises(CodecError, match="class that was not sent"):
        decode(data, classes=ClassTable())
    with pytest.raises(CodecError, match="class that was not sent"):
        decode(data)


def test_a_class_stays_known_by_the_definition_that_came() -> None:
    # One that is shipped by value is another object in each process, which may define it otherwise. What is kept there
    # in checkpoints names it by the definition that came with it.
    @dataclasses.dataclass
    class Local:
        x: int
        y: str = "y"

    here = ClassTable()
    encode(Local(1), classes=here)
    [definition] = here.definitions()
    there = """
import sys
from flownet._flownet import ClassTable
classes = ClassTable()
classes.add(bytes.fromhex(sys.argv[1]))
print(*(definition.hex() for definition in classes.definitions()))
"""
    run = subprocess.run([sys.executable, "-c", there, definition.hex()], capture_output=True, text=True, check=True)
    assert run.stdout.split() == [definition.hex()]


def test_a_class_that_is_another_there_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    here = ClassTable()
    encode(Point(1), classes=here)
    [definition] = here.definitions()
    other = dataclasses.make_dataclass("Point", ["x", "y"])
    monkeypatch.setattr(record_types, "Point", other)
    with pytest.raises(ValueError, match=r"Point has other fields"):
        ClassTable().add(definition)


@pytest.mark.parametrize(
    "definition",
    [b"", b"\x81", b"\x01\x01\xff", b"\x81\x01\x01\xff", b"\x81\x01\x00\x00\x00", b"\x81\x01\x00\x00\x00junk"],
)
def test_what_is_no_definition_is_refused(definition: bytes) -> None:
    with pytest.raises((ValueError, EOFError, pickle.UnpicklingError)):
        ClassTable().add(definition)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Slow(), r"Slow cannot cross an exchange: use"),
        (Guarded(1), r"Guarded cannot cross an exchange \(its class has a __getstate__"),
        (dataclasses.dataclass(Fail)(), r"Fail cannot cross an exchange \(its class has a __reduce__"),
        (Reading("x", Slow()), r"Slow cannot cross"),  # type: ignore[arg-type]
    ],
    ids=["plain", "hook", "exception", "inside"],
)
def test_other_classes_are_refused_with_the_reason(value: object, text: str) -> None:
    with pytest.raises(CodecError, match=text):
        encode(value, classes=ClassTable())


def test_what_a_class_does_on_setting_attributes_is_not_asked() -> None:
    assert sent(Checked(5)).other == 5


def test_pickle_names_classes_by_number() -> None:
    classes = ClassTable()
    slow = Slow()
    slow.reading = Reading("r", 1.0)  # type: ignore[attr-defined]
    data = encode(slow, classes=classes, pickle=True)
    assert b"Reading" not in data
    assert sent(slow, pickle=True).reading == slow.reading  # type: ignore[attr-defined]


def test_an_instance_that_contains_itself_travels_by_pickle_alone() -> None:
    own = Reading("own", 1.0)
    own.tags = [own]  # type: ignore[list-item]
    with pytest.raises(CodecError, match="contains itself"):
        sent(own)
    back = sent([own], pickle=True)[0]
    assert back.tags[0] is back


def test_classes_made_without_end_are_refused() -> None:
    made = [type(f"Made{number}", (Point,), {}) for number in range(5000)]
    with pytest.raises(CodecError, match="made anew for each record"):
        encode([each(1) for each in made], classes=ClassTable())


# Keys.

EQUAL_KEYS: list[list[Hashable]] = [
    [Point(1, 2.0), (1, 2), (True, 2.0), Pair(1, 2)],
    [Place(1, 2, "a"), Place(1, 2, "b"), Place(True, 2.0)],  # type: ignore[arg-type]
    [Level.HIGH, 7, 7.0],
    [Word.YES, "yes"],
    [Mode.A | Mode.B, 3],
    [Colour.RED, Colour.CRIMSON],
    [Closed("c", 1), Closed("c", 2)],
    [Frozen(name="f"), Frozen(name="f", size=0)],
    [Holds(what=3), Holds[int](what=3)],
    [pd.Timestamp("2026-01-02"), pd.Timestamp("2026-01-02").to_pydatetime(), pd.Timestamp("2026-01-02").as_unit("s")],
    [pd.Timestamp("2026-01-02", tz="UTC"), pd.Timestamp("2026-01-02 01:00", tz="Europe/Berlin")],
    [pd.Timestamp(1), pd.Timestamp(1)],
    [Named("n", Level.LOW), Named("n", 1)],
]

DIFFERENT_KEYS: list[Hashable] = [
    *(
        Place(1, 2),
        Place(2, 1),
        (1, 2),
        Colour.RED,
        Colour.BLUE,
        "RED",
        1,
        Right.READ,
        Right.WRITE,
        Right.READ | Right.WRITE,
    ),
    *(
        Named("n", 1),
        Further("n", 1),
        Closed("n"),
        Loose("n"),
        Frozen(name="n"),
        Frozen.model_validate(dict(name="n", other=1)),
    ),
    *(pd.Timestamp(1), pd.Timestamp(1, tz="UTC"), pd.Timestamp(2), pd.NaT),
]


@pytest.mark.parametrize("keys", EQUAL_KEYS, ids=lambda keys: repr(keys[0]))
def test_equal_keys_are_equal_bytes(keys: list[Hashable]) -> None:
    assert len(set(keys)) == 1, "the test's own premise"
    assert len({encode_key(key) for key in keys}) == 1
    assert len({encode_key((key, frozenset([key]))) for key in keys}) == 1


def test_different_keys_are_different_bytes() -> None:
    assert len(set(DIFFERENT_KEYS)) == len(DIFFERENT_KEYS), "the test's own premise"
    assert len({encode_key(key) for key in DIFFERENT_KEYS}) == len(DIFFERENT_KEYS)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (Reading("r", 1.0), "not hashable: make it frozen"),
        (Open("o"), "not hashable: make it frozen"),
        (Model(name="m"), "not hashable: make it frozen"),
        (Folded("A"), "says itself what is equal"),
        (Itself("a"), "no two of its class are equal"),
        (Named("n", [1]), "must be hashable"),
        (collections.OrderedDict(), "must be hashable"),
        (Slow(), "keys are None, bool"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_instances_that_cannot_be_keys_are_refused_with_the_reason(key: object, text: str) -> None:
    with pytest.raises(CodecError, match=text):
        encode_key(key)


def test_every_process_makes_the_same_key() -> None:
    here = [key.hex() for key in key_classes.keys()]
    for seed in ("1", "2"):
        command = [
            sys.executable,
            "-c",
            f"import {key_classes.__name__} as other; print(*[k.hex() for k in other.keys()])",
        ]
        folder = key_classes.__file__.removesuffix(key_classes.__name__.replace(".", "/") + ".py")
        found = subprocess.run(
            command, env={"PYTHONHASHSEED": seed, "PYTHONPATH": folder}, capture_output=True, text=True, check=True
        )
        assert found.stdout.split() == here


def test_the_public_module_has_the_table() -> None:
    assert codec.ClassTable is ClassTable
