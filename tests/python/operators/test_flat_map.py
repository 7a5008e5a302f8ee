from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import flownet as fn

if TYPE_CHECKING:
    from tests.python.conftest import Run


def test_flat_map_emits_what_is_returned_in_order(env: fn.Environment, run: Run) -> None:
    lines = env.from_collection(["to be", "", "or not to be"])
    assert run(lines.flat_map(str.split).set_parallelism(1)) == ["to", "be", "or", "not", "to", "be"]


def test_flat_map_takes_generators(env: fn.Environment, run: Run) -> None:
    def twice(n: int) -> Iterator[int]:
        yield n
        yield n

    assert sorted(run(env.from_collection([1, 2, 3]).flat_map(twice))) == [1, 1, 2, 2, 3, 3]


def test_flat_map_names_the_operator_when_a_generator_raises_half_way(env: fn.Environment, run: Run) -> None:
    def half(n: int) -> Iterator[int]:
        yield n
        raise KeyError(n)

    with pytest.raises(fn.errors.OperatorError, match="operator 'half'.*record 7") as caught:
        run(env.from_collection([7]).flat_map(half).name("half"))
    assert caught.value.error_type == "KeyError"
