"""Functions that are told of their beginning and their end, in every operator that takes one of one record."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

import flownet as fn
from flownet.testing import Harness


class Told:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def open(self, ctx: fn.TaskContext) -> None:
        self.told.append((ctx.operator, ctx.subtask, ctx.parallelism))

    def close(self) -> None:
        self.told.append("closed")


class Ending(Told):
    def finish(self) -> Iterable[Any]:
        self.told.append("finished")
        return ["left"]


class Upper(Ending, fn.MapFunction[str, str]):
    def map(self, value: str) -> str:
        return value.upper()


class Split(Ending, fn.FlatMapFunction[str, str]):
    def flat_map(self, value: str) -> Iterable[str]:
        return value.split()


class Long(Ending, fn.FilterFunction[str]):
    def filter(self, value: str) -> object:
        return len(value) > 2


class Longest(Told, fn.ReduceFunction[str]):
    def reduce(self, value1: str, value2: str) -> str:
        return max(value1, value2, key=len)


class Joined(Told, fn.AggregateFunction[str, str, str]):
    def create_accumulator(self) -> str:
        return ""

    def add(self, value: str, accumulator: str) -> str:
        return accumulator + value

    def get_result(self, accumulator: str) -> str:
        return accumulator

    def merge(self, accumulator: str, later: str) -> str:
        return accumulator + later


class Both(Ending, fn.CoMapFunction[str, str, str]):
    def map1(self, value: str) -> str:
        return value + "1"

    def map2(self, value: str) -> str:
        return value + "2"


class BothFlat(Ending, fn.CoFlatMapFunction[str, str, str]):
    def flat_map1(self, value: str) -> Iterable[str]:
        return [value, "1"]

    def flat_map2(self, value: str) -> Iterable[str]:
        return [value, "2"]


ENDING: dict[str, tuple[Callable[[], Any], Callable[..., fn.Stream[Any]], list[Any]]] = {
    "map": (Upper, lambda stream, function: stream.map(function), ["TO BE"]),
    "flat_map": (Split, lambda stream, function: stream.flat_map(function), ["to", "be"]),
    "filter": (Long, lambda stream, function: stream.filter(function), ["to be"]),
    "co-map": (Both, lambda stream, function: stream.connect(stream).map(function), ["to be1", "to be2"]),
    "co-flat-map": (
        BothFlat,
        lambda stream, function: stream.connect(stream).flat_map(function),
        ["to be", "1", "to be", "2"],
    ),
}


@pytest.mark.parametrize("name", ENDING)
def test_what_is_left_at_the_end_is_emitted_before_it_is_closed(name: str) -> None:
    make, build, expected = ENDING[name]
    function = make()
    with Harness(lambda stream: build(stream, function).name("told")) as harness:
        assert function.told == [("told", 0, 1)]
        assert sorted(harness.send("to be")) == sorted(expected)
        assert harness.end() == ["left"]
    assert function.told == [("told", 0, 1), "finished", "closed"]


@pytest.mark.parametrize("name", ENDING)
def test_it_is_the_same_in_workers_and_several_subtasks(name: str, workers: int) -> None:
    make, build, expected = ENDING[name]
    env = fn.Environment(parallelism=2)
    results = build(env.from_collection(["to be"]).rebalance(), make()).collect()
    env.execute(workers)
    assert sorted(results) == sorted([*expected, "left", "left"])


def test_one_that_is_cancelled_is_closed_and_not_finished() -> None:
    function = Upper()
    Harness(lambda stream: stream.map(function)).close()
    assert function.told == [("map", 0, 1), "closed"]


FOLDS: dict[str, tuple[Callable[[], Any], Callable[..., fn.Stream[Any]]]] = {
    "running": (Longest, lambda keyed, function: keyed.reduce(function)),
    "window": (Longest, lambda keyed, function: keyed.window(fn.Tumbling("1s")).reduce(function)),
    "evictor": (
        Longest,
        lambda keyed, function: keyed.window(fn.Tumbling("1s")).evictor(fn.triggers.CountEvictor(2)).reduce(function),
    ),
    "session": (Joined, lambda keyed, function: keyed.window(fn.Session("1s")).aggregate(function)),
    "evicting aggregate": (
        Joined,
        lambda keyed, function: keyed.window(fn.Session("1s")).evictor(fn.triggers.CountEvictor(2)).aggregate(function),
    ),
}


@pytest.mark.parametrize("name", FOLDS)
def test_folds_are_told_too(name: str) -> None:
    make, build = FOLDS[name]
    function = make()
    with Harness(lambda stream: build(stream.key_by(len), function).name("told")) as harness:
        came_out = [*harness.send("to", 1), *harness.send("be", 2), *harness.end()]
        assert came_out
    assert function.told == [("told", 0, 1), "closed"]


class Pooled(fn.FlatMapFunction[int, int]):
    """Works in threads: some of it is always under way."""

    def open(self, ctx: fn.TaskContext) -> None:
        self.threads = ThreadPoolExecutor(4)
        self.pending: list[Future[int]] = []

    def flat_map(self, value: int) -> Iterable[int]:
        self.pending.append(self.threads.submit(lambda: value * 2))
        while len(self.pending) > 47:
            yield self.pending.pop(0).result()

    def finish(self) -> Iterable[int]:
        return [future.result() for future in self.pending]

    def close(self) -> None:
        self.threads.shutdown()


def test_a_flat_map_over_a_pool_of_threads_loses_none_of_its_last_records(workers: int) -> None:
    env = fn.Environment()
    doubled = env.from_collection(range(1000)).flat_map(Pooled()).collect()
    env.execute(workers)
    assert list(doubled) == [2 * number for number in range(1000)]


def test_what_finish_raises_names_the_operator() -> None:
    class Fails(fn.MapFunction[int, int]):
        def map(self, value: int) -> int:
            return value

        def finish(self) -> Iterable[int]:
            raise ValueError("not done")

    env = fn.Environment()
    env.from_collection([1]).map(Fails()).name("fails").collect()
    with pytest.raises(fn.errors.OperatorError, match="not done") as raised:
        env.execute()
    assert raised.value.operator == "fails"


WRONG: Any = Upper


@pytest.mark.parametrize(
    ("say", "advice"),
    [
        (lambda stream: stream.map(WRONG), r"the class Upper: make an instance"),
        (lambda stream: stream.flat_map(WRONG()), r"flownet.FlatMapFunction, not Upper"),
        (lambda stream: stream.connect(stream).map(Both(), str), r"a flownet.CoMapFunction alone"),
        (lambda stream: stream.connect(stream).map(str), r"map\(\) needs a function, not NoneType"),
    ],
)
def test_what_does_not_fit_is_refused(say: Callable[[fn.Stream[str]], object], advice: str) -> None:
    with pytest.raises(fn.errors.PlanError, match=advice):
        say(fn.Environment().from_collection(["a"]))


@pytest.mark.parametrize("after", [False, True])
def test_an_evictor_works_before_the_function_or_after(after: bool) -> None:
    def build(stream: fn.Stream[int]) -> fn.Stream[Any]:
        windows = stream.key_by(lambda number: 0).window(fn.Global()).trigger(fn.triggers.CountTrigger(2))
        return windows.evictor(fn.triggers.CountEvictor(1, after=after)).process(
            lambda key, window, values: [list(values)]
        )

    with Harness(build) as harness:
        came_out = [result for number in range(4) for result in harness.send(number, number)]
        assert came_out == ([[0, 1], [1, 2, 3]] if after else [[1], [3]])
        assert [window.value for window in harness.windows] == [[3]]


def test_an_evictor_before_a_fold_with_an_object_behind_it_is_refused() -> None:
    class Last(fn.ProcessWindowFunction[int, int, int]):
        def process(self, key: int, ctx: fn.WindowContext, values: list[int]) -> Iterable[int]:
            return values

    windows = (
        fn.Environment().from_collection([1]).key_by(int).window(fn.EndOfInput()).evictor(fn.triggers.CountEvictor(1))
    )
    with pytest.raises(fn.errors.PlanError, match="takes a function for process=, not the ProcessWindowFunction Last"):
        windows.reduce(max, process=Last())
    with pytest.raises(fn.errors.PlanError, match="use process\\(\\) alone"):
        windows.aggregate(0, max, process=Last())
