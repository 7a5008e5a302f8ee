"""What functions count by ``ctx.metrics``, and where it is shown."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flownet as fn
from flownet import testing
from flownet.errors import OperatorError


class Parse(fn.ProcessFunction[str, int]):
    """Counts what is no number."""

    def open(self, ctx: fn.TaskContext) -> None:
        self.bad = ctx.metrics.counter("bad")
        self.seen = ctx.metrics.meter("seen")
        self.last = ctx.metrics.gauge("last")
        self.digits = ctx.metrics.histogram("digits", buckets=[1, 3])

    def process(self, value: str, ctx: fn.RecordContext) -> Iterator[int]:
        self.seen.mark()
        if not value.isdigit():
            self.bad.inc()
            return
        self.last.set(int(value))
        self.digits.observe(len(value))
        yield int(value)


def by_name(metrics: tuple[fn.metrics.UserMetric, ...]) -> dict[str, fn.metrics.UserMetric]:
    named = {metric.name: metric for metric in metrics}
    assert len(named) == len(metrics)
    return named


@pytest.mark.parametrize("workers", [0, 2])
def test_a_result_has_what_all_subtasks_counted(workers: int) -> None:
    env = fn.Environment(parallelism=2)
    words = env.from_collection(["7", "x", "1234", "99", "y", "z"] * 10).rebalance()
    numbers = words.process(Parse()).name("parse").collect()
    result = env.execute(workers)
    assert len(list(numbers)) == 30
    metrics = by_name(result.metrics)
    assert set(metrics) == {"bad", "seen", "digits"}, "levels do not add up"
    assert {metric.operator for metric in result.metrics} == {"parse"}
    assert (metrics["bad"].kind, metrics["bad"].value) == ("counter", 30)
    assert (metrics["seen"].kind, metrics["seen"].value) == ("meter", 60)
    digits = metrics["digits"]
    assert (digits.kind, digits.count, digits.sum, digits.max) == ("histogram", 30, 70.0, 4.0)
    assert (digits.bounds, digits.buckets) == ((1.0, 3.0), (10, 10, 10))
    assert digits.mean == pytest.approx(7 / 3)
    assert "bad of parse: 30\n" in str(result)
    assert "digits of parse: 30, mean 2.333, at most 4\n" in f"{result}\n"


def test_a_sample_has_what_each_subtask_counts_while_it_runs() -> None:
    env = fn.Environment(parallelism=2, status_interval="20ms")
    words = env.from_iterable(itertools.count(), rate_limit=2000).rebalance()
    words.map(str).process(Parse()).name("parse").filter(lambda _: False).collect()
    with env.execute_async() as job:
        while True:
            assert job.status().state != "ended"
            found = [by_name(task.metrics) for task in job.sample().tasks if task.metrics]
            if len(found) == 2 and all((one["seen"].per_second or 0) > 0 for one in found):
                break
            time.sleep(0.01)
        for one in found:
            assert 0 < (one["last"].value or 0)
            assert one["digits"].count
            assert one["bad"].value == 0
        assert by_name(job.status().metrics)["seen"].value
        job.stop()
        result = job.wait()
    seen = by_name(result.metrics)["seen"].value
    assert seen == next(task.records_in for task in result.tasks if "parse" in task.name)


class Keyed(fn.KeyedProcessFunction[int, int, int]):
    """Asks where it opens, and for each record."""

    def open(self, ctx: fn.OpenContext) -> None:
        self.seen = ctx.metrics.counter("seen")

    def process(self, value: int, ctx: fn.ProcessContext[int]) -> None:
        self.seen.inc(2)
        assert ctx.metrics.counter("seen").value == self.seen.value


class Both(fn.CoProcessFunction[int, int, int]):
    """Counts two inputs."""

    def open(self, ctx: fn.TaskContext) -> None:
        self.seen = ctx.metrics.counter("seen")

    def process1(self, value: int, ctx: fn.RecordContext) -> None:
        self.seen.inc()

    def process2(self, value: int, ctx: fn.RecordContext) -> None:
        self.seen.inc()


class Mapped(fn.MapFunction[int, int]):
    """A function of one record."""

    def open(self, ctx: fn.TaskContext) -> None:
        self.seen = ctx.metrics.counter("seen")

    def map(self, value: int) -> int:
        self.seen.inc(2)
        return value


class Windows(fn.ProcessWindowFunction[int, int, int]):
    """Counts records of windows."""

    def open(self, ctx: fn.TaskContext) -> None:
        self.seen = ctx.metrics.counter("seen")

    def process(self, key: int, ctx: fn.WindowContext, values: list[int]) -> None:
        self.seen.inc(2 * len(values))


class Async(fn.AsyncFunction[int, int]):
    """Counts in calls that overlap."""

    async def open(self, ctx: fn.TaskContext) -> None:
        self.seen = ctx.metrics.counter("seen")

    async def call(self, value: int) -> int:
        await asyncio.sleep(0)
        self.seen.inc(2)
        return value


class Writes(fn.Sink[int]):
    """Counts what is written."""

    def open(self, ctx: fn.TaskContext) -> None:
        self.seen = ctx.metrics.counter("seen")

    def write(self, records: list[int]) -> None:
        self.seen.inc(2 * len(records))


def key(number: int) -> int:
    return number % 3


FUNCTIONS: dict[str, Callable[[fn.Stream[int]], Any]] = {
    "keyed": lambda numbers: numbers.key_by(key).process(Keyed()).collect(),
    "connected": lambda numbers: numbers.connect(numbers).process(Both()).collect(),
    "map": lambda numbers: numbers.map(Mapped()).collect(),
    "window": lambda numbers: numbers.key_by(key).window(fn.EndOfInput()).process(Windows()).collect(),
    "async": lambda numbers: numbers.map_async(Async()).collect(),
    "sink": lambda numbers: numbers.sink_to(Writes()),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_that_is_opened_may_count(name: str) -> None:
    env = fn.Environment(parallelism=2)
    FUNCTIONS[name](env.from_collection(range(50)))
    (seen,) = env.execute().metrics
    assert (seen.name, seen.kind, seen.value) == ("seen", "counter", 100)


def test_a_restarted_job_counts_anew(tmp_path: Any) -> None:
    env = fn.Environment(restart="fixed:1:10ms")
    env.enable_checkpointing("50ms", storage=str(tmp_path / "checkpoints"))
    mark = tmp_path / "failed"

    class Fails(Mapped):
        def map(self, value: int) -> int:
            if value == 60 and not mark.exists():
                mark.touch()
                raise RuntimeError("once")
            return super().map(value)

    env.from_collection(range(100), rate_limit=1000).map(Fails()).collect()
    result = env.execute()
    (seen,) = result.metrics
    assert result.restarted == 1
    assert seen.value == 2 * next(task.records_in for task in result.tasks)


def test_a_harness_shows_what_is_counted() -> None:
    with testing.Harness(lambda words: words.process(Parse()).name("parse")) as harness:
        harness.send("12")
        harness.send("x")
        metrics = by_name(harness.metrics)
    assert (metrics["bad"].value, metrics["last"].value, metrics["seen"].value) == (1, 12.0, 2)
    assert str(metrics["digits"]) == "1, mean 2, at most 2"


def refused(ask: Callable[[fn.metrics.Metrics], object]) -> str:
    """Say what the job that asks so ends with."""

    class Asks(Mapped):
        def open(self, ctx: fn.TaskContext) -> None:
            ctx.metrics.counter("there")
            ask(ctx.metrics)

    env = fn.Environment()
    env.from_collection([1]).map(Asks()).name("asks").collect()
    with pytest.raises(OperatorError) as caught:
        env.execute()
    assert caught.value.operator == "asks"
    return str(caught.value)


def test_what_cannot_be_counted_is_said() -> None:
    assert "'a b' is no name" in refused(lambda metrics: metrics.counter("a b")).replace('"', "'")
    assert "is a counter and cannot be a gauge, too" in refused(lambda metrics: metrics.gauge("there"))
    assert "1 to 50 finite numbers" in refused(lambda metrics: metrics.histogram("sizes", buckets=[2, 1]))
    assert "only grows, and -1" in refused(lambda metrics: metrics.counter("there").inc(-1))
    many = refused(lambda metrics: [metrics.counter(f"of_{number}") for number in range(100)])
    assert "one metric more than the 100" in many


def test_threads_of_a_function_lose_no_count() -> None:
    class Threads(Mapped):
        def count(self) -> None:
            for _ in range(5000):
                self.seen.inc()

        def map(self, value: int) -> int:
            counting = [threading.Thread(target=self.count) for _ in range(4)]
            for thread in counting:
                thread.start()
            for thread in counting:
                thread.join()
            return value

    env = fn.Environment()
    env.from_collection([1]).map(Threads()).collect()
    (seen,) = env.execute().metrics
    assert seen.value == 20_000
