"""What goes round in an iteration is in checkpoints: nothing of it is lost, and nothing doubled."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import flownet as fn
from flownet import errors

from .failures import FailsOnce, lines, manifests, run_until

NUMBERS = 400
LAPS = 40
SMALL = {"memory": "1KiB", "disk": "64MiB"}
"""Most of what goes round lies on disk."""


class Lap(fn.KeyedProcessFunction[int, "Going", "Going"]):
    """Counts in state by key how often records of it went round, and waits a little."""

    def __init__(self, pause: float) -> None:
        self.pause = pause

    def process(self, record: Going, ctx: fn.ProcessContext[int]) -> Iterator[Going]:
        if self.pause:
            time.sleep(self.pause)
        laps = ctx.state["laps"] = ctx.state.get("laps", 0) + 1
        number, lap, _ = record
        yield number, lap + 1, laps


Going = tuple[int, int, int]
"""A number, its laps, and the laps of all records of its key."""


def key(record: Going) -> int:
    return record[0] % 10


def has_arrived(record: Going) -> bool:
    return record[1] == LAPS


class Numbers:
    """All of them; the second half once a file is there, if one is waited for."""

    def __init__(self, until: Path | None) -> None:
        self.until = until

    def __call__(self, position: Any) -> Iterator[tuple[int, Going]]:
        for number in range(position or 0, NUMBERS):
            # A source that waits for a file takes no checkpoint: there have to be some before.
            time.sleep(0.0005 if self.until is None else 0.01)
            while self.until is not None and number >= NUMBERS // 2 and not self.until.exists():
                time.sleep(0.002)
            yield number + 1, (number, 0, 0)


Step = Callable[[Any], Any]
STEPS: dict[str, Callable[[float], Step]] = {
    "one task": lambda pause: lambda each: each.map(lambda record: slowly(record, pause)),
    "by key": lambda pause: lambda each: each.key_by(key).process(Lap(pause)).uid("laps"),
    "over two exchanges": lambda pause: (
        lambda each: each.rebalance().map(lambda record: record).key_by(key).process(Lap(pause)).uid("laps")
    ),
}


def slowly(record: Going, pause: float) -> Going:
    if pause:
        time.sleep(pause)
    number, lap, laps = record
    return number, lap + 1, laps


def job(
    folder: Path,
    step: str,
    *,
    pause: float = 0.0,
    parallelism: int = 2,
    once: FailsOnce[int] | None = None,
    until: Path | None = None,
    **checkpointing: Any,
) -> fn.Environment:
    env = fn.Environment(
        parallelism=parallelism, max_parallelism=16, buffer_timeout="1ms", restart="fixed:100:10ms", stop_timeout="5min"
    )
    env.enable_checkpointing("50ms", **{"storage": folder / "kept", **checkpointing})
    begun = env.from_generator(Numbers(until)).uid("numbers")
    gone = begun.iterate(STEPS[step](pause), until=has_arrived, **SMALL).uid("round")
    said = gone.map(lambda record: record[0])
    if once is not None:
        said = said.map(once)
    said.map(str).write_text(folder / "out").uid("written")
    return env


def expected() -> list[str]:
    return sorted(map(str, range(NUMBERS)))


def written(folder: Path) -> list[str]:
    return lines(folder / "out")


def going_round(folder: Path) -> int:
    """Count the checkpoints that have something that goes round."""
    return sum(b"going round" in manifest for manifest in manifests(folder / "kept"))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("step", STEPS)
def test_a_job_that_fails_goes_on_with_what_went_round(step: str, workers: int, tmp_path: Path) -> None:
    once = FailsOnce(NUMBERS // 3, tmp_path / "mark")
    result = job(tmp_path, step, pause=0.0001, once=once).execute(workers)
    assert result.restarted == 1
    assert written(tmp_path) == expected()


@pytest.mark.parametrize("step", STEPS)
def test_checkpoints_come_while_a_loop_has_far_to_go_and_a_job_goes_on_in_another_shape(
    step: str, tmp_path: Path
) -> None:
    shapes = [(2, 0), (3, 2), (1, 0), (2, 2)]
    for parallelism, workers in shapes:
        run_until(job(tmp_path, step, pause=0.0005, parallelism=parallelism), workers, 2)
    assert going_round(tmp_path)
    result = job(tmp_path, step, parallelism=3).execute(2)
    assert result.resumed_from is not None
    assert written(tmp_path) == expected()


def test_checkpoints_come_while_a_loop_is_never_empty(tmp_path: Path) -> None:
    """The head has always more to feed back than the exchange of the step has room for."""

    def endless(position: Any) -> Iterator[tuple[int, int]]:
        yield from ((number + 1, number) for number in itertools.count(position or 0))

    def slowly(number: int) -> int:
        time.sleep(0.0005)
        return number

    env = fn.Environment(parallelism=1, buffer_timeout="1ms")
    env.enable_checkpointing("50ms", storage=tmp_path)
    env.from_generator(endless).iterate(lambda each: each.rebalance().map(slowly), until=lambda _: False).print()
    with env.execute_async() as running:
        while running.status().tasks[0].back_pressured < 0.9:
            time.sleep(0.01)
        made = running.status().checkpoints_made
        while running.status().checkpoints_made < made + 3:
            time.sleep(0.01)
        running.stop(drain=False)
        running.wait()


@pytest.mark.parametrize("drain", [True, False])
def test_a_job_that_is_stopped_keeps_what_goes_round_or_works_it_off(drain: bool, tmp_path: Path) -> None:
    # However slowly checkpoints come, not all have begun by then.
    env = job(tmp_path, "by key", pause=0.001, until=tmp_path / "stopped")
    with env.execute_async(2) as running:
        while running.status().checkpoints_made < 2:
            time.sleep(0.002)
        running.stop(drain=drain, savepoint=tmp_path / "saved")
        while running.status().state == "running":
            time.sleep(0.002)
        # A source that waits for its next number ends when that has come.
        (tmp_path / "stopped").touch()
        running.wait()
    begun = len(written(tmp_path))
    again = job(tmp_path, "by key", storage=tmp_path / "again", restore_from=tmp_path / "saved")
    again.execute(0)
    if drain:
        assert begun > 0
        assert len(written(tmp_path)) == begun, "all that had begun was worked off"
    else:
        assert begun < NUMBERS
        assert written(tmp_path) == expected()


def test_a_delta_iteration_comes_to_the_same_whatever_happened(tmp_path: Path) -> None:
    names = range(300)
    edges = [(name, name + 1) for name in names if name % 50 != 49]
    random.Random(1).shuffle(edges)
    records = [(one, other, None) for a, b in edges for one, other in ((a, b), (b, a))]

    def update(known: Any, record: Any) -> Any:
        name, neighbour, heard = record
        least, neighbours = known or (name, ())
        if neighbour is not None:
            return (least, (*neighbours, neighbour)), [(neighbour, None, least)]
        if heard >= least:
            return None
        return (heard, neighbours), [(other, None, heard) for other in neighbours]

    def env() -> fn.Environment:
        env = fn.Environment(parallelism=2, buffer_timeout="1ms")
        env.enable_checkpointing("20ms", storage=tmp_path / "kept")
        edges = env.from_collection(records, rate_limit=2_000).uid("edges")
        found = edges.key_by(0).iterate_delta(update).uid("components")
        found.map(lambda known: f"{known[0]} {known[1][0]}").write_text(tmp_path / "out").uid("written")
        return env

    for checkpoints in (3, 5, 2):
        run_until(env(), 2, checkpoints)
    env().execute(2)
    assert written(tmp_path) == sorted(f"{name} {name // 50 * 50}" for name in names)


@pytest.mark.parametrize("setting", [{"unaligned": True}, {"aligned_timeout": "1s"}])
def test_checkpoints_that_overtake_are_refused_by_name(setting: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(errors.PlanError, match=r"operator 'until' \(iterate\) has .* leave out unaligned") as caught:
        job(tmp_path, "by key", **setting).execute()
    assert caught.value.operator == "until"


def lap(record: tuple[int, int]) -> tuple[int, int]:
    return record[0], record[1] + 1


class Slowly:
    """Yields numbers of one split, slowly."""

    def __call__(self, split: int, position: int | None) -> Iterator[tuple[int, tuple[int, int]]]:
        for number in range(position or 0, 100):
            yield number + 1, (number, 0)
            time.sleep(0.005)


@pytest.mark.parametrize("parallelism", [2, 3])
def test_a_stop_keeps_what_goes_round_when_a_source_subtask_has_nothing_left(
    parallelism: int, workers: int, tmp_path: Path
) -> None:
    def job() -> fn.Environment:
        env = fn.Environment(parallelism=parallelism)
        env.enable_checkpointing("50ms", storage=tmp_path / "kept")
        numbers = env.from_generator(Slowly(), splits=[0])
        laps = numbers.iterate(lambda each: each.key_by(lambda record: record[0]).map(lap), until=lambda r: r[1] == 10)
        laps.map(str).write_text(tmp_path / "out")
        return env

    stops = 0
    for _ in range(3):
        with job().execute_async(workers) as running:
            time.sleep(0.2)
            running.stop()
            stops += running.wait().records > 0
    assert stops > 0
    job().execute(workers)
    assert sorted(lines(tmp_path / "out")) == sorted(str((number, 10)) for number in range(100))
