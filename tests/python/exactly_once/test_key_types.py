"""A job that goes on with keys of another type is refused, and does not begin without what was kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import flownet as fn
from flownet import errors

from .failures import lines


class Sum(fn.KeyedProcessFunction[Any, int, str]):
    def process(self, value: int, ctx: fn.ProcessContext[Any]) -> list[str]:
        ctx.state["sum"] = ctx.state.get("sum", 0) + value
        return [f"{ctx.key} {ctx.state['sum']}"]


def joined(keyed: fn.KeyedStream[Any, int]) -> fn.Stream[str]:
    return keyed.interval_join(keyed).between("0ms", "1h").process(lambda one, two: f"{one} {two}").uid("kept")


JOBS: dict[str, Callable[[fn.KeyedStream[Any, int]], fn.Stream[str]]] = {
    "running": lambda keyed: keyed.count().uid("kept").map(str),
    "process": lambda keyed: keyed.process(Sum()).uid("kept"),
    "window": lambda keyed: keyed.window(fn.Tumbling("1h")).count().uid("kept").map(str),
    "sessions": lambda keyed: keyed.window(fn.Session("1h")).count().uid("kept").map(str),
    "join": joined,
}


def run(
    folder: Path, what: str, key: Callable[[int], Any], limit: int, passed: Callable[[], bool] = lambda: True
) -> None:
    """Go on up to a number and until something holds, and stop for the next run."""

    def numbers(position: int | None) -> Iterator[tuple[int, int] | None]:
        yield from ((number + 1, number) for number in range(position or 0, limit))
        while True:
            yield None

    env = fn.Environment(parallelism=2, max_parallelism=8, buffer_timeout="5ms")
    env.enable_checkpointing("10ms", storage=folder / "kept")
    strategy: Any = fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda number: number)
    timed = env.from_generator(numbers).uid("numbers").assign_timestamps_and_watermarks(strategy).uid("times")
    JOBS[what](timed.key_by(key)).write_text(folder / "out").uid("out")
    with env.execute_async(0) as job:
        read = 0
        while job.status().state != "ended":
            time.sleep(0.005)
            read = max(read, job.status().tasks[-1].records_in)
            if read and job.status().checkpoints_made > 2 and passed():
                job.stop(drain=False)
                break
        job.wait()


@pytest.mark.parametrize("what", JOBS)
def test_keys_of_another_type_are_refused_with_both_and_the_way_out(what: str, tmp_path: Path) -> None:
    run(tmp_path, what, lambda number: f"key {number % 4}", 40)
    before = lines(tmp_path / "out")
    with pytest.raises(errors.RestoreError, match="type number now.*of keys of type str.*another uid") as caught:
        run(tmp_path, what, lambda number: number % 4, 80)
    assert "kept" in str(caught.value) or what in str(caught.value) or "count" in str(caught.value)
    assert lines(tmp_path / "out") == before
    # And it goes on where keys are what they were.
    run(tmp_path, what, lambda number: f"key {number % 4}", 80)


TYPES: list[tuple[str, Callable[[int], Any], Callable[[int], Any], str | None]] = [
    ("tuple", lambda number: (number % 4, "a"), lambda number: f"{number % 4} a", "type str now.*type tuple"),
    ("bytes", lambda number: b"%d" % (number % 4), lambda number: str(number % 4), "type str now.*type bytes"),
    ("equal", lambda number: number % 4, lambda number: float(number % 4), None),
    ("none", lambda number: f"{number % 4}", lambda number: f"{number}" if number % 10 == 7 else None, None),
    ("both", lambda number: number % 4 if number >= 20 else str(number % 4), lambda number: number % 4, None),
]


@pytest.mark.parametrize(("first", "then", "refused"), [case[1:] for case in TYPES], ids=[case[0] for case in TYPES])
def test_what_is_of_one_type_is_said_by_the_kind_of_its_value(
    first: Callable[[int], Any], then: Callable[[int], Any], refused: str | None, tmp_path: Path
) -> None:
    run(tmp_path, "running", first, 40, lambda: len(lines(tmp_path / "out")) == 40)
    if refused is None:
        run(tmp_path, "running", then, 80, lambda: len(lines(tmp_path / "out")) == 80)
        return
    with pytest.raises(errors.RestoreError, match=refused):
        run(tmp_path, "running", then, 80)
