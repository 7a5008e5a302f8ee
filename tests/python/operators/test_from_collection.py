from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import numpy
import pytest

import flownet as fn

if TYPE_CHECKING:
    from tests.python.conftest import Run

VALUES = [None, True, -1, 10**40, 2.5, "ß", b"x", (1, ("a",)), [1, [2]], {"k": {1: 2}}, {1, 2}, datetime.date.max]


def test_records_arrive_in_order(env: fn.Environment, run: Run) -> None:
    assert run(env.from_collection(range(1000))) == list(range(1000))


def test_values_of_all_supported_types_arrive_as_they_are(env: fn.Environment, run: Run) -> None:
    arrived = run(env.from_collection(VALUES))
    assert arrived == VALUES
    assert [type(value) for value in arrived] == [type(value) for value in VALUES]


def test_numpy_values_arrive_as_they_are(env: fn.Environment, run: Run) -> None:
    array = numpy.arange(6, dtype="f4").reshape(2, 3)
    (scalar, arrived) = run(env.from_collection([numpy.int16(7), array]))
    assert (type(scalar), scalar) == (numpy.int16, 7)
    assert (arrived.dtype, arrived.tolist()) == (array.dtype, array.tolist())


def test_an_empty_collection_is_an_empty_stream(env: fn.Environment, run: Run) -> None:
    assert run(env.from_collection([])) == []


def test_the_job_can_run_again(env: fn.Environment, workers: int) -> None:
    collected = env.from_collection([1, 2]).collect()
    for _ in range(2):
        env.execute(workers)
        assert collected == [1, 2]


def test_an_unsupported_type_is_refused_at_once(env: fn.Environment) -> None:
    with pytest.raises(
        fn.errors.CodecError, match=r'values of type .*object.* pickle with Environment\(codec="pickle"\)'
    ):
        env.from_collection([object()])


@pytest.mark.parametrize("items", ["text", b"bytes", 5, None])
def test_what_is_no_collection_of_records_is_refused_at_once(env: fn.Environment, items: Any) -> None:
    with pytest.raises(fn.errors.PlanError, match=r"from_collection\(\)"):
        env.from_collection(items)
