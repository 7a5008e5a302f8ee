"""Mistakes that would otherwise say nothing: each is an error or a warning that says what to do."""

from __future__ import annotations

import asyncio
import functools
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import pytest

import flownet as fn
from flownet.errors import OperatorError, PlanError, UsageWarning

from ..conftest import Run


async def later(record: object) -> object:
    await asyncio.sleep(0)
    return record


async def some(record: object) -> AsyncIterator[object]:
    yield record


class Callable_:
    async def __call__(self, record: object) -> object:
        return record


def test_records_that_nothing_takes_are_warned_of_at_the_users_line(env: fn.Environment) -> None:
    numbers = env.from_collection([1])
    numbers.print()
    numbers.map(str).name("texts")
    with pytest.warns(UsageWarning, match="nothing takes the records of operator 'texts': add a sink") as caught:
        env.execute()
    assert [warning.filename for warning in caught] == [__file__]


def test_a_dataflow_with_sinks_everywhere_is_not_warned_of(env: fn.Environment) -> None:
    numbers = env.from_collection([1])
    numbers.map(str).print()
    numbers.union(numbers).collect()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env.execute()


@pytest.mark.parametrize(
    "function", [later, some, functools.partial(later), Callable_()], ids=["def", "yield", "partial", "call"]
)
@pytest.mark.parametrize("method", ["map", "flat_map", "filter", "key_by"])
def test_async_functions_are_refused_where_they_are_given(env: fn.Environment, method: str, function: Any) -> None:
    with pytest.raises(PlanError, match=rf"{method}\(\) got .*which is async"):
        getattr(env.from_collection([1]), method)(function)


def test_async_methods_are_refused_too(env: fn.Environment) -> None:
    class Store(fn.Sink[int]):
        async def write(self, records: list[int]) -> None:  # type: ignore[override]
            pass

    class Process(fn.KeyedProcessFunction[int, int, int]):
        async def process(self, value: int, ctx: fn.ProcessContext[int]) -> None:  # type: ignore[override]
            pass

    with pytest.raises(PlanError, match=r"write\(\) got .*Store\.write, which is async"):
        env.from_collection([1]).sink_to(Store())
    with pytest.raises(PlanError, match=r"process\(\) got .*Process\.process, which is async"):
        env.from_collection([1]).key_by(abs).process(Process())


def test_a_used_up_iterator_is_refused_by_the_next_run(env: fn.Environment) -> None:
    numbers = env.from_iterable(iter([1, 2])).collect()
    env.execute()
    assert list(numbers) == [1, 2]
    with pytest.raises(PlanError, match=r"earlier run has taken its records: give it a list"):
        env.execute()


def test_what_can_be_iterated_again_serves_every_run(env: fn.Environment) -> None:
    numbers = env.from_iterable([1, 2]).collect()
    for _ in range(2):
        env.execute()
        assert list(numbers) == [1, 2]


@pytest.mark.parametrize("method", ["sum", "count", "min", "max", "reduce", "window"])
def test_what_works_by_key_says_that_key_by_comes_first(env: fn.Environment, method: str) -> None:
    with pytest.raises(AttributeError, match=rf"{method}\(\) works by key: call key_by\(\) before it"):
        getattr(env.from_collection([1]), method)


def test_a_function_with_state_says_that_key_by_comes_first(env: fn.Environment) -> None:
    with pytest.raises(PlanError, match=r"is a flownet.KeyedProcessFunction, behind key_by\(\)"):
        env.from_collection([1]).process(fn.KeyedProcessFunction())  # type: ignore[arg-type]


def test_other_names_are_unknown_as_ever(env: fn.Environment) -> None:
    with pytest.raises(AttributeError, match="'Stream' object has no attribute 'mpa'"):
        env.from_collection([1]).mpa(str)  # type: ignore[attr-defined]


def failure(run: Run, stream: fn.Stream[Any]) -> OperatorError:
    with pytest.raises(OperatorError) as caught:
        run(stream)
    return caught.value


@pytest.mark.parametrize("text", ["to be", b"to be"])
def test_a_text_is_no_list_of_records(env: fn.Environment, run: Run, text: Any) -> None:
    error = failure(run, env.from_collection([text]).flat_map(lambda line: line))
    assert "where records to emit are wanted: return [text] to emit it whole" in str(error)
    assert error.operator == "flat_map"


def test_words_of_a_line_are_records_as_ever(env: fn.Environment, run: Run) -> None:
    assert sorted(run(env.from_collection(["to be"]).flat_map(str.split))) == ["be", "to"]


def test_what_is_no_iterable_names_the_function_and_what_to_return(env: fn.Environment, run: Run) -> None:
    def doubled(number: int) -> Iterable[int]:
        return 2 * number  # type: ignore[return-value]

    error = failure(run, env.from_collection([4]).flat_map(doubled))
    assert "it returned 8 (int), where records to emit are wanted: return a list, or yield" in str(error)
    assert "test_usage_warnings.py" in str(error)
    assert "in doubled" in str(error)


def two(one: int, other: int) -> int:
    return one + other


@pytest.mark.parametrize(
    ("stream", "given"),
    [
        (lambda records: records.map(two), "one record"),
        (lambda records: records.flat_map(two), "one record"),
        (lambda records: records.filter(two), "one record"),
        (lambda records: records.key_by(two).count(), "one record"),
        (lambda records: records.key_by(lambda _: 0).reduce(lambda only: only), "the value so far and the next one"),
        (lambda records: records.partition_custom(lambda only: only).map(str), "the key and the number of subtasks"),
        (
            lambda records: records.key_by(abs).window(fn.Tumbling("1h")).process(two),
            "the key, the window and a list of its records",
        ),
    ],
    ids=["map", "flat_map", "filter", "key_by", "reduce", "partition_custom", "window"],
)
def test_another_number_of_arguments_names_the_function_and_what_it_is_given(
    env: fn.Environment, run: Run, stream: Callable[[fn.Stream[int]], fn.Stream[Any]], given: str
) -> None:
    error = failure(run, stream(env.from_collection([1, 2])))
    assert f"it is called with {given}" in str(error)
    assert "test_usage_warnings.py" in str(error)


def test_an_error_in_key_by_names_key_by(env: fn.Environment, run: Run) -> None:
    error = failure(run, env.from_collection([1]).map(str).name("texts").key_by(lambda text: text[3]).count())
    assert error.operator == "texts -> key_by"


class Timed(fn.KeyedProcessFunction[int, int, int]):
    def __init__(self, at: Callable[[fn.ProcessContext[int]], int]) -> None:
        self.at = at

    def process(self, value: int, ctx: fn.ProcessContext[int]) -> None:
        ctx.set_timer(self.at(ctx))


class Fired(Timed):
    def on_timer(self, timestamp_ms: int, ctx: fn.ProcessContext[int]) -> Iterable[int]:
        yield ctx.key


def test_a_timer_without_on_timer_is_an_error(env: fn.Environment, run: Run) -> None:
    error = failure(run, env.from_collection([1]).key_by(abs).process(Timed(lambda ctx: ctx.now_ms())))
    assert "Timed sets a timer and has no on_timer(self, timestamp_ms, ctx)" in str(error)


def test_a_timer_in_seconds_is_an_error(env: fn.Environment, run: Run) -> None:
    error = failure(run, env.from_collection([1]).key_by(abs).process(Fired(lambda _: int(time.time()) + 5)))
    assert "a time in milliseconds since 1970, and this looks like one in seconds: ctx.now_ms() + 5000" in str(error)


@pytest.mark.parametrize("at", [0, 5000, 2**53])
def test_a_timer_long_ago_or_far_off_is_none(env: fn.Environment, run: Run, at: int) -> None:
    assert run(env.from_collection([1]).key_by(abs).process(Fired(lambda _: at))) == [1]
