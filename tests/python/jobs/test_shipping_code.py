"""What can be shipped to workers, and what is said about what cannot."""

from __future__ import annotations

import io
import pickle
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import flownet as fn
from flownet.errors import NotShippableError
from flownet.internal import serialise

LOCK = threading.Lock()


def uses_a_global(n: int) -> int:
    with LOCK:
        return n


@dataclass(frozen=True, slots=True)
class Slotted:
    inner: object
    other: int = 0


class Holder:
    def __init__(self) -> None:
        self.inner = {"lock": threading.Lock()}

    def method(self, n: int) -> int:
        return n


def captures(value: Any) -> Callable[[int], Any]:
    return lambda n: (n, value)


@pytest.mark.parametrize(
    ("function", "culprit"),
    [
        (captures(LOCK), "variable 'value' (_thread.lock)"),
        (captures([1, {"deep": LOCK}]), "item 'deep' of item 1 of variable 'value' (_thread.lock)"),
        (captures(n for n in range(3)), "variable 'value' (generator)"),
        (captures(Slotted([LOCK])), "item 0 of attribute 'inner' of variable 'value' (_thread.lock)"),
        (captures(io.TextIOWrapper(io.BytesIO())), "variable 'value' (_io.TextIOWrapper)"),
        (uses_a_global, "global 'LOCK' (_thread.lock)"),
        (Holder().method, "item 'lock' of attribute 'inner' of the object (_thread.lock)"),
    ],
)
def test_the_part_that_cannot_be_pickled_is_named(function: Callable[[int], Any], culprit: str) -> None:
    with pytest.raises(NotShippableError) as caught:
        serialise.dumps(function, "parse")
    assert caught.value.culprit == culprit
    assert caught.value.operator == "parse"
    assert "operator 'parse'" in str(caught.value)
    assert "run with workers=0" in str(caught.value)


def test_a_function_over_a_socket_is_refused_before_the_job_starts(env: fn.Environment) -> None:
    with socket.socket() as connection:
        env.from_collection([b"x"]).map(lambda data: connection.send(data)).name("send").print()
        with pytest.raises(
            NotShippableError, match=r"operator 'send': .*<lambda> \(test_shipping_code.py:\d+\).*'connection'"
        ):
            env.execute(workers=2)


def test_a_key_selector_that_cannot_be_shipped_names_both_ends(env: fn.Environment) -> None:
    env.from_collection([1]).key_by(captures(LOCK)).count().print()
    with pytest.raises(NotShippableError, match="operator 'from_collection -> count'"):
        env.execute(workers=2)


def test_more_than_a_worker_takes_in_one_message_is_refused_before_the_job_starts(env: fn.Environment) -> None:
    table = bytes(60 << 20)
    env.from_collection([1]).map(lambda n: table[n]).name("look up").set_parallelism(8).print()
    with pytest.raises(fn.errors.PlanError, match="worker 1"):
        env.execute(workers=2)


@pytest.mark.parametrize("workers", [0, 1])
def test_what_only_this_process_has_runs_in_it_with_object_reuse(workers: int) -> None:
    for object_reuse in (False, True):
        env = fn.Environment(object_reuse=object_reuse)
        numbers = env.from_collection([1]).map(captures(LOCK)).map(lambda pair: pair[0]).collect()
        if object_reuse and workers == 0:
            env.execute(workers)
            assert list(numbers) == [1]
        else:
            with pytest.raises(NotShippableError, match="workers=0 and object_reuse=True"):
                env.execute(workers)


def test_functions_use_what_they_capture(env: fn.Environment, workers: int) -> None:
    table = {"a": 1, "b": 2}
    collected = env.from_collection(["a", "b"]).map(lambda key: table[key]).collect()
    env.execute(workers)
    assert sorted(collected) == [1, 2]


def test_the_worker_is_told_where_modules_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend("/somewhere")
    assert "/somewhere" in pickle.loads(serialise.pack_init())["path"]


def test_functions_know_the_file_they_were_written_in() -> None:
    def outer() -> Any:
        def inner() -> None:
            raise ValueError("found")

        return inner

    loaded = pickle.loads(serialise.dumps(outer, "map"))
    assert loaded.__code__.co_filename == __file__
    assert loaded.__code__.co_firstlineno == outer.__code__.co_firstlineno
    assert loaded().__code__.co_filename == __file__, "and so do those within"
