"""A script that uses the whole API as a user would; checked by mypy --strict, and run."""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import assert_type

import flownet as fn
from flownet.observation import TaskReport


class Quiet(fn.KeyedProcessFunction[str, str, tuple[str, int]]):
    """Counts the records of a key and emits the count when a timer fires."""

    def open(self, ctx: fn.TaskContext) -> None:
        self.place = f"{ctx.operator} {ctx.subtask + 1} of {ctx.parallelism}, {ctx.worker}"

    def process(self, value: str, ctx: fn.ProcessContext[str]) -> None:
        ctx.state["count"] = ctx.state.get("count", 0) + 1
        ctx.delete_timer(0)
        ctx.set_timer(ctx.now_ms() + 60_000)

    def on_timer(self, timestamp_ms: int, ctx: fn.ProcessContext[str]) -> Iterator[tuple[str, int]]:
        count = ctx.state.pop("count", 0)
        if count:
            yield ctx.key, count


class Lines(fn.Sink[int]):
    """Writes numbers into a file a subtask."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def open(self, ctx: fn.TaskContext) -> None:
        self.file = open(f"{self.folder}/sink-{ctx.subtask}", "w")

    def write(self, records: list[int]) -> None:
        self.file.writelines(f"{record}\n" for record in records)

    def flush(self) -> None:
        self.file.flush()

    def close(self) -> None:
        self.file.close()


def numbers() -> Iterator[int]:
    """Yield what `from_iterable` pulls."""
    yield from range(10)


def squares(position: int | None) -> Iterator[tuple[int, int]]:
    """Yield squares with where to go on."""
    for number in range(position or 0, 3):
        yield number + 1, number * number


class Letters(fn.Source[str]):
    """A letter for each split."""

    def splits(self) -> list[str]:
        return ["a", "b"]

    def open(self, split: str, position: int | None) -> fn.SplitReader[str]:
        return Letter(split, position or 0)


class Letter(fn.SplitReader[str]):
    """One letter."""

    def __init__(self, letter: str, read: int) -> None:
        self.letter, self.times = letter, read

    def read(self) -> list[str] | None:
        self.times += 1
        return [self.letter] if self.times == 1 else None

    def position(self) -> int:
        return self.times


def spread(key: int, subtasks: int) -> int:
    """Choose a subtask."""
    return key % subtasks


def ends(word: str, window: fn.Window, words: list[str]) -> list[tuple[str, int]]:
    """Say how many records a window had."""
    return [(word, len(words))] if window.start_ms < window.end_ms else []


def longest(one: str, other: str) -> str:
    """Combine two words."""
    return max(one, other, key=len)


def describe(
    env: fn.Environment, folder: Path
) -> tuple[fn.streams.CollectedRecords[str], fn.streams.CollectedRecords[tuple[str, int]]]:
    """Describe a dataflow with every source, operator and sink but the socket."""
    lines = env.read_text([folder / "text"], errors="replace").uid("lines")
    words = lines.flat_map(str.split).filter(len).name("words").start_new_chain()
    assert_type(words, fn.Stream[str])
    keyed = words.key_by(lambda word: word[0])
    assert_type(keyed, fn.KeyedStream[str, str])

    assert_type(keyed.count(), fn.Stream[tuple[str, int]])
    assert_type(keyed.reduce(longest), fn.Stream[str])
    assert_type(keyed.process(Quiet()), fn.Stream[tuple[str, int]])
    assert_type(keyed.map(len), fn.Stream[int])
    assert_type(keyed.window(fn.Tumbling("5s")), fn.streams.WindowedStream[str, str])
    assert_type(keyed.window(fn.EndOfInput()), fn.streams.WindowedStream[str, str])
    assert_type(keyed.window(fn.Tumbling(timedelta(seconds=5))).count(), fn.Stream[tuple[str, int]])
    assert_type(keyed.window(fn.Tumbling("5s")).reduce(longest), fn.Stream[tuple[str, str]])
    assert_type(keyed.window(fn.Tumbling("5s")).process(ends), fn.Stream[tuple[str, int]])

    pairs = env.from_collection([("a", 1), ("b", 2)])
    for total in (pairs.key_by(lambda pair: pair[0]).sum(1), pairs.key_by(lambda pair: pair[0]).max(1)):
        total.print("total").name("totals")
    whole = env.from_iterable(numbers()).union(env.from_collection([10, 11]))
    assert_type(whole, fn.Stream[int])
    texts = whole.rebalance().map(str).set_parallelism(2).place_on(1)
    texts.rescale().map(int).broadcast().map(abs).disable_chaining().forward()
    whole.partition_custom(spread, key=lambda number: number).sink_to(Lines(str(folder))).name("files")
    whole.write_text(folder / "out").uid("out")
    pairs.write_json(folder / "json", default=str)
    pairs.write_csv(folder / "csv", columns=["word", "number"], delimiter=";")
    pairs.sink_to(fn.SqliteSink(folder / "pairs.db", "pairs", columns=["word", "number"], key=["word"]))
    letters = env.from_source(Letters(), rate_limit=1000)
    assert_type(letters, fn.Stream[str])
    letters.collect()
    if not folder.exists():
        read = env.from_source(fn.KafkaSource("localhost:9092", ["a", "b"], value="text", start="latest", group="g"))
        assert_type(read, fn.Stream[fn.KafkaRecord])
        read.sink_to(fn.KafkaSink("localhost:9092", "c", key="text", value="json", guarantee="at_least_once"))
    env.from_generator(squares).collect()
    return keyed.collect(), keyed.process(Quiet()).collect()


def main(workers: int) -> None:
    """Run it."""
    # Streams that only have their types looked at lead nowhere.
    warnings.simplefilter("ignore", fn.errors.UsageWarning)
    env = fn.Environment(
        parallelism=2,
        buffer_timeout=timedelta(milliseconds=5),
        max_in_flight_time=timedelta(seconds=2),
        max_parallelism=64,
        codec="typed",
        network_memory="32MiB",
        segment_size=16_384,
        exclusive_buffers=2,
        floating_buffers=4,
        bandwidth_delay="1MB",
        max_record_size="1MiB",
        slots_per_worker=None,
        heartbeat_interval="1s",
        heartbeat_timeout="10s",
        launch_timeout="60s",
        cancel_timeout=timedelta(seconds=5),
        tls="on",
        name="whole",
    )
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "text").write_text("to be or not to be\n")
        words, counts = describe(env, Path(folder))
        plan: str = env.explain(workers)
        with env.execute_async(workers) as job:
            status: fn.observation.JobStatus = job.status()
            result: fn.observation.JobResult = job.wait()
        task: TaskReport = result.tasks[0]
        assert task.busy + task.back_pressured + task.idle + task.interpreter <= 1.05
        assert "words" in plan
        assert status.name == "whole"
    assert sorted(words) == ["be", "be", "not", "or", "to", "to"]
    assert dict(counts) == {"t": 2, "b": 2, "o": 1, "n": 1}
    try:
        env.execute(workers=-1)
    except fn.errors.ConfigError as error:
        if error.setting != "workers":
            raise


if __name__ == "__main__":
    main(int(sys.argv[1]))
