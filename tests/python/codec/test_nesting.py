"""Objects that nest deep: they come through up to a depth, and are refused beyond it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import flownet as fn
from flownet.errors import CodecError

NEST = """
import sys
import flownet as fn
from flownet import errors

def nest(levels, kind):
    value = 0
    for _ in range(levels):
        value = [value] if kind == "list" else (value,) if kind == "tuple" else {"a": value}
    return value

def fails(run):
    try:
        run()
    except errors.CodecError as error:
        assert "nests more than 128 levels deep" in str(error), error
        assert "flatten it" in str(error), error
    else:
        raise AssertionError("it came through")

def collected(kind, levels):
    env = fn.Environment()
    env.from_collection([0]).map(lambda _: nest(levels, kind)).collect()
    env.execute()

def exchanged(kind, levels):
    env = fn.Environment()
    env.from_collection([0]).map(lambda _: nest(levels, kind)).rebalance().map(lambda _: 1).collect()
    env.execute()

def read(kind, levels):
    env = fn.Environment()
    env.from_collection([nest(levels, kind)]).map(lambda _: 1).collect()
    env.execute()

def chosen(kind, levels):
    env = fn.Environment()
    env.from_collection([0]).key_by(lambda _: nest(levels, "tuple")).count().collect()
    env.execute()
"""

CRASHED = (
    NEST
    + """
sys.setrecursionlimit(10**6)
for kind in ["list", "tuple", "dict"]:
    for levels in [129, 2000, 100_000]:
        for run in [collected, exchanged, read, chosen]:
            fails(lambda: run(kind, levels))
print("all refused")
"""
)


def nested(levels: int, kind: type) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value] if kind is list else (value,) if kind is tuple else {"a": value}
    return value


@pytest.mark.parametrize("kind", [list, tuple, dict])
def test_a_value_of_127_levels_comes_through(kind: type, env: fn.Environment, workers: int) -> None:
    given = nested(127, kind)
    found = env.from_collection([given]).rebalance().map(lambda value: value).collect()
    env.execute(workers)
    assert list(found) == [given]
    with pytest.raises(CodecError, match="nests more than 128 levels deep, or contains itself: flatten it"):
        fn.Environment().from_collection([nested(129, kind)])


def test_a_deeper_value_is_refused_with_any_recursion_limit() -> None:
    done = subprocess.run([sys.executable, "-c", CRASHED], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "all refused\n"), done.stderr[-2000:]
