"""State goes on when classes of its values change, or is refused with operator and field before the job starts."""

from __future__ import annotations

import enum
import importlib
import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import flownet as fn
from flownet import errors

from .test_savepoints import until_checkpoints

HEAD = "import dataclasses, enum, typing\nfrom flownet import state\n"
PLAIN = "@dataclasses.dataclass\nclass Acc:\n    n: int\n    s: str\n"
TUPLE = "class Acc(typing.NamedTuple):\n    n: int\n    s: str\n"
ENUM = "class Acc(enum.Enum):\n    ONE = 1\n    TWO = 2\n"
ATTRS = "import attrs\n@attrs.define\nclass Acc:\n    n: int\n    s: str\n"
MODEL = "import pydantic\nclass Acc(pydantic.BaseModel):\n    n: int\n    s: str\n"

Made = Callable[[Any], Any]


def of_fields(module: Any) -> Any:
    return module.Acc(n=5, s="x")


def two(module: Any) -> Any:
    return module.Acc.TWO


def shown(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__} {value.name}"
    slots = {name: getattr(value, name) for name in getattr(value, "__slots__", ()) if hasattr(value, name)}
    held = value._asdict() if hasattr(value, "_asdict") else slots | getattr(value, "__dict__", {})
    held.pop("__weakref__", None)
    return f"{type(value).__name__} {held}"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Writes a module with a class, in place of the one before, and imports it."""
    monkeypatch.syspath_prepend(tmp_path)
    numbers = itertools.count()

    def write(source: str) -> Any:
        sys.modules.pop("accounts", None)
        (tmp_path / "accounts.py").write_text(f"{HEAD}{source}# {next(numbers) * '.'}\n")
        importlib.invalidate_caches()
        return importlib.import_module("accounts")

    yield write
    sys.modules.pop("accounts", None)


class Keeps(fn.KeyedProcessFunction[Any, Any, Any]):
    """Keeps what it makes of the first record, and shows it for the next."""

    def __init__(self, made: Made, has_made: threading.Event) -> None:
        self.made, self.has_made = made, has_made

    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        kept = ctx.state.get("kept")
        if kept is None:
            ctx.state["kept"] = self.made(sys.modules["accounts"])
            self.has_made.set()
        else:
            yield shown(kept)


def job(storage: Path, made: Made, *, is_first: bool = False) -> tuple[fn.Environment, Any, threading.Event, list[Any]]:
    """One record a run, by functions that are used as they are."""
    has_made, read = threading.Event(), []

    def records(position: int | None) -> Iterator[Any]:
        read.append(position)
        yield (position or 0) + 1, 7
        while is_first:
            yield None

    env = fn.Environment(restart="none", object_reuse=True)
    env.enable_checkpointing("1min", storage=storage)
    keyed = env.from_generator(records).uid("records").key_by(lambda value: value)
    found = keyed.process(Keeps(made, has_made)).uid("keeps").collect()
    return env, found, has_made, read


def keep(storage: Path, made: Made) -> None:
    env, _, has_made, _ = job(storage, made, is_first=True)
    with env.execute_async() as running:
        assert has_made.wait(30)
        running.stop(drain=False)
        running.wait()


def go_on(storage: Path, made: Made) -> list[str]:
    env, found, *_ = job(storage, made)
    env.execute()
    return list(found)


CHANGES = {
    "the same": (PLAIN, PLAIN, "Acc {'n': 5, 's': 'x'}"),
    "a field with a default": (PLAIN, PLAIN + "    x: int = 7\n", "Acc {'n': 5, 's': 'x', 'x': 7}"),
    "a field with a factory": (
        PLAIN,
        PLAIN + "    x: list = dataclasses.field(default_factory=list)\n",
        "Acc {'n': 5, 's': 'x', 'x': []}",
    ),
    "a field that is not given": (
        PLAIN,
        PLAIN + "    x: int = dataclasses.field(init=False, default=2)\n",
        "Acc {'n': 5, 's': 'x', 'x': 2}",
    ),
    "a field less": (PLAIN, "@dataclasses.dataclass\nclass Acc:\n    n: int\n", "Acc {'n': 5}"),
    "another order": (PLAIN, "@dataclasses.dataclass\nclass Acc:\n    s: str\n    n: int\n", "Acc {'s': 'x', 'n': 5}"),
    "slots": (PLAIN, PLAIN.replace("dataclass\n", "dataclass(slots=True)\n"), "Acc {'n': 5, 's': 'x'}"),
    "slots and a field": (
        PLAIN,
        PLAIN.replace("dataclass\n", "dataclass(slots=True)\n") + "    x: int = 7\n",
        "Acc {'n': 5, 's': 'x', 'x': 7}",
    ),
    "frozen": (PLAIN, PLAIN.replace("dataclass\n", "dataclass(frozen=True)\n"), "Acc {'n': 5, 's': 'x'}"),
    "a NamedTuple": (PLAIN, TUPLE + "    x: int = 7\n", "Acc {'n': 5, 's': 'x', 'x': 7}"),
    "no NamedTuple": (TUPLE, PLAIN, "Acc {'n': 5, 's': 'x'}"),
    "a NamedTuple of another order": (
        TUPLE,
        "class Acc(typing.NamedTuple):\n    s: str\n    x: int = 3\n",
        "Acc {'s': 'x', 'x': 3}",
    ),
    "another name": (
        PLAIN,
        "@state.renamed_from('Acc', fields={'n': 'count'})\n@dataclasses.dataclass\n"
        "class Account:\n    count: int\n    s: str\n",
        "Account {'count': 5, 's': 'x'}",
    ),
    "another name by an alias": (
        PLAIN,
        PLAIN.replace("Acc", "Account") + "Acc = Account\n",
        "Account {'n': 5, 's': 'x'}",
    ),
    "members": (ENUM, "class Acc(enum.Enum):\n    ZERO = 0\n    TWO = 2\n    ONE = 1\n", "Acc TWO"),
    "a member renamed": (
        ENUM,
        "@state.renamed_from(fields={'TWO': 'PAIR'})\nclass Acc(enum.Enum):\n    ONE = 1\n    PAIR = 2\n",
        "Acc PAIR",
    ),
    "attrs": (ATTRS, ATTRS + "    x: list = attrs.Factory(lambda self: [self.n], takes_self=True)\n", "[5]"),
    "pydantic": (MODEL, MODEL + "    x: int = 7\n", "'x': 7"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_state_goes_on_with_classes_that_have_changed(change: str, module: Any, tmp_path: Path) -> None:
    before, after, expected = CHANGES[change]
    made = two if before is ENUM else of_fields
    if before in (ATTRS, MODEL):
        pytest.importorskip("attrs" if before is ATTRS else "pydantic")
    module(before)
    keep(tmp_path / "ck", made)
    module(after)
    [found] = go_on(tmp_path / "ck", made)
    assert expected in found


REFUSED = {
    "a field without a default": (
        PLAIN,
        PLAIN + "    x: int\n",
        "operator 'Keeps'.*class accounts:Acc has no value for its new fields x: give them a default",
    ),
    "no class": (
        PLAIN,
        "",
        r"the program has no class accounts:Acc; bring it back, .*renamed_from\(\"accounts:Acc\"\)",
    ),
    "another kind": (PLAIN, "class Acc(enum.Enum):\n    ONE = 1\n", "was a class with fields and is an Enum now"),
}


@pytest.mark.parametrize("change", REFUSED)
def test_a_change_that_cannot_work_is_refused_before_the_job_starts(change: str, module: Any, tmp_path: Path) -> None:
    before, after, expected = REFUSED[change]
    module(before)
    keep(tmp_path / "ck", of_fields)
    module(after)
    env, _, _, read = job(tmp_path / "ck", of_fields)
    with pytest.raises(errors.RestoreError, match=expected) as caught:
        env.execute_async()
    assert caught.value.operators == ("Keeps",)
    assert read == []


def test_a_member_that_is_gone_ends_the_job_and_is_named(module: Any, tmp_path: Path) -> None:
    module(ENUM)
    keep(tmp_path / "ck", two)
    module("class Acc(enum.Enum):\n    ONE = 1\n")
    with pytest.raises(errors.RestoreError, match="it has no member TWO any more"):
        go_on(tmp_path / "ck", of_fields)


def test_classes_of_records_that_no_state_has_may_go(module: Any, tmp_path: Path) -> None:
    def counted(*, is_first: bool) -> tuple[fn.Environment, Any]:
        def number_of(one: Any) -> int:
            has_come.set()
            return int(getattr(one, "n", one))

        def records(position: int | None) -> Iterator[Any]:
            there = sys.modules["accounts"]
            yield (position or 0) + 1, there.Seen(7) if hasattr(there, "Seen") else 7
            while is_first:
                yield None

        env = fn.Environment(restart="none", object_reuse=True, parallelism=2)
        env.enable_checkpointing("1min", storage=tmp_path / "ck")
        seen = env.from_generator(records).uid("records").rebalance()
        numbers = seen.map(number_of)
        return env, numbers.key_by(lambda number: number).count().uid("counts").collect()

    has_come = threading.Event()
    module("class Seen(typing.NamedTuple):\n    n: int\n")
    with counted(is_first=True)[0].execute_async() as running:
        assert has_come.wait(30)
        running.stop(drain=False)
        running.wait()
    module("")
    env, counts = counted(is_first=False)
    env.execute()
    assert list(counts) == [(7, 2)]


class Declares(fn.KeyedProcessFunction[Any, Any, Any]):
    def __init__(self, kind: str) -> None:
        self.kind = kind

    def open(self, ctx: fn.OpenContext) -> None:
        if self.kind == "list":
            self.kept: Any = ctx.get_list_state(fn.ListStateDescriptor("kept"))
        else:
            self.kept = ctx.get_state(fn.ValueStateDescriptor("kept"))

    def process(self, value: Any, ctx: Any) -> None:
        if self.kind == "list":
            self.kept.add(value)
        else:
            self.kept.update(value)


def test_a_list_is_not_read_as_a_value(tmp_path: Path) -> None:
    def declared(kind: str) -> fn.Environment:
        def records(position: int | None) -> Iterator[Any]:
            yield (position or 0) + 1, 7
            while kind == "list":
                yield None

        env = fn.Environment(restart="fixed:1000:10ms")
        env.enable_checkpointing("20ms", storage=tmp_path / "ck")
        numbers = env.from_generator(records).uid("numbers").key_by(lambda value: value)
        numbers.process(Declares(kind)).uid("keeps")
        return env

    with declared("list").execute_async() as running:
        until_checkpoints(running, 3)
        running.stop(drain=False)
        running.wait()
    with pytest.raises(
        errors.RestoreError, match="its state 'kept' was of kind list and is declared as kind value now"
    ):
        declared("value").execute()
