"""Sources of one's own: read from their splits, gone on with from a checkpoint, refused where they are wrong."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import flownet as fn
from flownet import errors
from flownet.connectors.source import Assignment

from .failures import FailsOnce, lines

if TYPE_CHECKING:
    from tests.python.conftest import Run


class Range(fn.SplitReader[int]):
    """Numbers of a hundred, a few at a time; nothing, now and then."""

    def __init__(self, number: int, end: int, log: Path | None) -> None:
        self.number, self.end, self.log = number, end, log
        self.calls = 0

    def read(self) -> list[int] | None:
        self.calls += 1
        if self.calls % 3 == 0:
            return []
        batch = list(range(self.number, min(self.number + 7, self.end)))
        self.number += len(batch)
        return batch or None

    def position(self) -> int:
        return self.number

    def close(self) -> None:
        if self.log is not None:
            with self.log.open("a") as log:
                log.write(f"{self.end}\n")


class Ranges(fn.Source[int]):
    """A split for each hundred."""

    def __init__(self, count: int, log: Path | None = None) -> None:
        self.count, self.log = count, log

    def splits(self) -> list[str]:
        return [f"hundred {number}" for number in range(self.count)]

    def open(self, split: str, position: int | None) -> Range:
        begin = 100 * int(split.split()[1])
        return Range(begin if position is None else position, begin + 100, self.log)


def words(split: str, position: int | None) -> Iterator[tuple[int, str]]:
    """Words of a split, each with where it ends."""
    for number in range(position or 0, 300):
        yield number + 1, f"{split}{number}"


@pytest.mark.parametrize("count", [1, 2, 5, 0])
def test_every_record_of_every_split_comes_once_and_readers_are_closed(
    run: Run, env: fn.Environment, count: int, tmp_path: Path
) -> None:
    log = tmp_path / "closed"
    assert sorted(run(env.from_source(Ranges(count, log)))) == list(range(100 * count))
    assert log.exists() == (count > 0)
    if count:
        assert sorted(map(int, log.read_text().split())) == [100 * number + 100 for number in range(count)]


def test_a_generator_may_be_of_one_split_or_several_and_yield_batches(run: Run, env: fn.Environment) -> None:
    def alone(position: int | None) -> Iterator[tuple[int, list[int]] | None]:
        for number in range(position or 0, 10):
            yield None
            yield number + 1, [10 * number + digit for digit in range(10)]

    batched = env.from_generator(alone, batches=True).collect()
    found = run(env.from_generator(words, splits=["a", "b", "c"]))
    assert Counter(word[0] for word in found) == {"a": 300, "b": 300, "c": 300}
    assert list(batched) == list(range(100))
    assert [word for word in found if word[0] == "b"] == [f"b{number}" for number in range(300)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (lambda env: env.from_source(Ranges(5), rate_limit=1000), [str(number) for number in range(500)]),
        (
            lambda env: env.from_generator(words, splits=["a", "b", "c"], rate_limit=1500),
            [f"{split}{number}" for split in "abc" for number in range(300)],
        ),
    ],
    ids=["readers", "generators"],
)
def test_a_job_that_fails_reads_on_where_each_split_was(
    source: Any, expected: list[str], workers: int, tmp_path: Path
) -> None:
    env = fn.Environment(parallelism=2, buffer_timeout="5ms", restart="fixed:3:10ms")
    env.enable_checkpointing("20ms", storage=tmp_path / "checkpoints")
    fails = FailsOnce(expected[len(expected) // 2 + 20], tmp_path / "failed", tmp_path / "checkpoints")
    source(env).map(str).map(fails).write_text(tmp_path / "out")
    result = env.execute(workers)
    assert result.restarted == 1
    assert result.restarts[0].resumed_from is not None
    assert lines(tmp_path / "out") == sorted(expected)


def stopped_half_way(describe: Callable[[fn.Environment], fn.Stream[Any]], tmp_path: Path) -> int:
    """Run a job into a folder until it has records and checkpoints count; stop it, and say how many records."""
    env = fn.Environment(parallelism=2, buffer_timeout="5ms")
    env.enable_checkpointing("20ms", storage=tmp_path / "checkpoints")
    describe(env).map(str).write_text(tmp_path / "out")
    with env.execute_async() as job:
        while (status := job.status()).checkpoints_made < 2 or status.records == 0:
            time.sleep(0.001)
        job.stop(drain=False)
        return job.wait().records


def gone_on_with(describe: Callable[[fn.Environment], fn.Stream[Any]], tmp_path: Path) -> fn.observation.JobResult:
    env = fn.Environment(parallelism=2)
    env.enable_checkpointing("1h", storage=tmp_path / "checkpoints")
    describe(env).map(str).write_text(tmp_path / "out")
    return env.execute()


def test_records_that_the_rate_holds_back_are_kept_with_the_checkpoint(tmp_path: Path) -> None:
    def whole(position: int | None) -> Iterator[tuple[int, list[int]]]:
        yield 1, list(range(400))

    def source(env: fn.Environment, rate: float | None) -> fn.Stream[int]:
        return env.from_generator(lambda at: iter(()) if at else whole(at), batches=True, rate_limit=rate)

    read = stopped_half_way(lambda env: source(env, 20), tmp_path)
    assert 0 < read < 400
    gone_on_with(lambda env: source(env, None), tmp_path)
    assert lines(tmp_path / "out") == sorted(map(str, range(400)))


def test_lines_of_a_file_come_in_its_order_whoever_had_read_them_and_not_emitted(tmp_path: Path) -> None:
    """Each subtask reads ahead of its rate: what several of one file had read is in order again when one goes on."""
    written = list(range(1500))
    (tmp_path / "in").write_text("".join(f"{number}\n" for number in written))
    strategy: Any = fn.WatermarkStrategy.for_bounded_out_of_orderness("0ms").with_timestamp_assigner(int)

    def job(parallelism: int, rate: float | None) -> fn.Environment:
        env = fn.Environment(parallelism=parallelism, buffer_timeout="5ms")
        env.enable_checkpointing("20ms", storage=tmp_path / "checkpoints")
        times = env.read_text(tmp_path / "in", rate_limit=rate).assign_timestamps_and_watermarks(strategy)
        times.write_text(tmp_path / "out")
        return env

    for parallelism in (1, 2, 3):
        with job(parallelism, 100).execute_async() as running:
            before = len(lines(tmp_path / "out"))
            while running.status().state != "ended" and len(lines(tmp_path / "out")) == before:
                time.sleep(0.001)
            running.stop(drain=False)
            running.wait()
    emitted = set(map(int, lines(tmp_path / "out")))
    assert len(emitted) < len(written)
    parts = set(tmp_path.glob("out/*.txt"))
    job(1, None).execute()
    new = sorted(set(tmp_path.glob("out/*.txt")) - parts)
    assert [int(line) for part in new for line in part.read_text().splitlines()] == sorted(set(written) - emitted)


def test_splits_that_are_listed_later_are_read_and_one_that_is_gone_is_refused(tmp_path: Path) -> None:
    def source(count: int, rate: float | None = None) -> Callable[[fn.Environment], fn.Stream[int]]:
        return lambda env: env.from_source(Ranges(count), rate_limit=rate)

    assert 0 < stopped_half_way(source(4, 20), tmp_path) < 400
    env = fn.Environment(parallelism=2)  # which would be started again, if that were of any use
    env.enable_checkpointing("1h", storage=tmp_path / "checkpoints")
    source(1)(env).map(str).write_text(tmp_path / "out")
    with pytest.raises(
        errors.RestoreError, match=r"'Ranges' cannot go on from the checkpoint: split 'hundred \d' had not ended"
    ):
        env.execute()
    assert gone_on_with(source(7), tmp_path).resumed_from is not None
    assert lines(tmp_path / "out") == sorted(map(str, range(700)))


def test_new_splits_go_to_subtasks_that_may_still_read() -> None:
    assignment = Assignment(Ranges(0), ["a", "b", "c", "d", "e"])
    kept = [(0, "a", True, None, []), (1, "b", False, 7, ["x"])]
    assert assignment.resume(0, 2, 2, [1], kept) == ([], ["a"])
    fresh: list[tuple[str, None, list[Any]]] = [(split, None, []) for split in ("c", "d", "e")]
    assert assignment.resume(1, 2, 2, [1], kept) == ([("b", 7, ["x"]), *fresh], [])
    dealt = [assignment.resume(subtask, 3, 2, [1], kept) for subtask in range(3)]
    assert sorted(split for going, _ in dealt for split, _, _ in going) == ["b", "c", "d", "e"]
    assert [ended for _, ended in dealt] == [["a"], [], []]
    assert assignment.resume(0, 1, 1, [0], []) == ([(split, None, []) for split in ("a", "b", "c", "d", "e")], [])


def test_time_is_the_least_of_the_splits_and_one_that_has_nothing_holds_nobody_up(workers: int, tmp_path: Path) -> None:
    """The first split has nothing after its first record, until windows of the second fire."""
    fired = tmp_path / "fired"

    def read(split: str, position: int | None) -> Iterator[Any]:
        if split == "slow":
            yield 1, ("slow", 0)
            while not fired.exists():
                yield None
            return
        for second in range(20):
            yield second, ("fast", 1000 * second)
            began = time.monotonic()
            while time.monotonic() - began < 0.1:
                yield None

    env = fn.Environment(parallelism=1, buffer_timeout="5ms")
    strategy: Any = fn.WatermarkStrategy.for_monotonous_timestamps()
    strategy = strategy.with_timestamp_assigner(lambda record: record[1]).with_idleness("200ms")
    stream = env.from_generator(read, splits=["slow", "fast"]).assign_timestamps_and_watermarks(strategy)
    came = Counter[Any]()

    class Noting(list[Any]):
        def extend(self, records: Any) -> None:
            came.update(records)
            if came["fast", 1]:
                fired.touch()

    stream.key_by(lambda record: record[0]).window(fn.Tumbling("1s")).count().collect(into=Noting())
    env.execute(workers)
    assert came == {("slow", 1): 1, ("fast", 1): 20}


class Wrong(fn.Source[int]):
    """Whatever a test makes of it."""

    def __init__(self, splits: Any = None, reader: Any = None) -> None:
        self.listed, self.reader = splits, reader

    def splits(self) -> Any:
        return ["a"] if self.listed is None else self.listed

    def open(self, split: Any, position: Any) -> Any:
        return self.reader


class Reads(fn.SplitReader[int]):
    """Returns what it is told to."""

    def __init__(self, what: Any, position: Any = 0) -> None:
        self.what, self.at = what, position

    def read(self) -> Any:
        return self.what

    def position(self) -> Any:
        return self.at


@pytest.mark.parametrize(
    ("splits", "text"),
    [
        (["a", "b", "a"], r"splits\(\) of Wrong lists 'a' twice"),
        ([1, True], r"lists True twice"),
        ("abc", r"returned 'abc', not a list of splits"),
        (7, r"returned 7, not a list"),
        ([object()], r"which cannot name one"),
        ([["a"]], r"which cannot name one"),
    ],
)
def test_splits_that_are_none_are_refused_before_anything_runs(splits: Any, text: str, env: fn.Environment) -> None:
    env.from_source(Wrong(splits)).print()
    with pytest.raises(errors.PlanError, match=text) as caught:
        env.execute()
    assert caught.value.operator == "Wrong"


@pytest.mark.parametrize(
    ("reader", "text"),
    [
        (None, "opening split 'a' returned NoneType None, not a flownet.SplitReader"),
        ([], r"returned list \[\], not a flownet.SplitReader"),
        (Reads("text"), r"read\(\) returned 'text', where a list of records is wanted"),
        (Reads((1, 2)), r"read\(\) returned \(1, 2\), where a list"),
        (Reads([1], position=object()), r"state 'position of split 'a'' cannot be kept in a checkpoint"),
        (fn.SplitReader(), r"SplitReader must define position\(\)"),
    ],
)
def test_a_reader_that_is_none_fails_the_job_by_name(reader: Any, text: str, workers: int) -> None:
    env = fn.Environment()
    env.from_source(Wrong(reader=reader)).print()
    with pytest.raises((errors.OperatorError, errors.CodecError), match=text) as caught:
        env.execute(workers)
    assert getattr(caught.value, "operator", None) == "Wrong"


@pytest.mark.parametrize(
    ("read", "batches", "text"),
    [
        (lambda at: [1], False, "opening split None returned list .* not an iterator"),
        (lambda at: iter([1]), False, r"it yielded 1, where a tuple \(position, record\)"),
        (lambda at: iter([(1, 2, 3)]), False, r"it yielded \(1, 2, 3\), where"),
        (lambda at: iter([(object(), 2)]), False, r"state 'position of split None' cannot be kept"),
        (lambda at: iter([(1, 2)]), True, "it yielded 2, where a list of records is wanted"),
        (lambda: iter([]), False, "takes 0 positional arguments but 1 was given"),
    ],
)
def test_a_generator_that_is_none_fails_the_job_by_name(read: Any, batches: bool, text: str, workers: int) -> None:
    env = fn.Environment()
    env.from_generator(read, batches=batches).print()
    with pytest.raises((errors.OperatorError, errors.CodecError), match=text) as caught:
        env.execute(workers)
    assert getattr(caught.value, "operator", None) == "from_generator"


def test_what_is_no_source_is_refused_where_it_is_given(env: fn.Environment) -> None:
    async def wrong(position: Any) -> Any:
        yield 1

    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: env.from_source(Ranges), "not Ranges, a class"),  # type: ignore[arg-type]
        (lambda: env.from_source([1]), "not list"),  # type: ignore[arg-type]
        (lambda: env.from_generator([1]), r"needs a function that yields \(position, record\)"),  # type: ignore[arg-type]
        (lambda: env.from_generator(wrong), "async function"),
        (lambda: env.from_generator(words, splits=7), "needs something to iterate over"),  # type: ignore[arg-type]
    ]
    for give, text in refused:
        with pytest.raises(errors.PlanError, match=text):
            give()
    with pytest.raises(errors.ConfigError):
        env.from_source(Ranges(1), rate_limit=-1)
