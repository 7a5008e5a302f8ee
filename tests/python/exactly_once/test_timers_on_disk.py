"""More timers than there is memory for: nobody sees where they lie, whatever fails, from one run to the next."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import flownet as fn

from .failures import FailsOnce, lines

KEYS = 3000
"""Of timers of an operator some hundred have room in memory."""

RECORDS = 3 * KEYS
NUMBERS = [(number * 7919 % KEYS, number) for number in range(RECORDS)]


class MovesOn(fn.KeyedProcessFunction[int, tuple[int, int], str]):
    """Moves a timer of its key on with each record, but for some that it leaves, and says when they fire."""

    def open(self, ctx: fn.OpenContext) -> None:
        self.due = ctx.get_state(fn.ValueStateDescriptor("due"))

    def process(self, record: tuple[int, int], ctx: fn.ProcessContext[int]) -> None:
        key, number = record
        before = self.due.value()
        if before is not None and key % 3:
            ctx.timer_service().delete_event_time_timer(before)
        # Behind the next record of the key, however soon time moves on.
        due = number + KEYS + 1000 + key * 7919 % 10_000
        ctx.timer_service().register_event_time_timer(due)
        self.due.update(due)

    def on_timer(self, timestamp_ms: int, ctx: fn.ProcessContext[int]) -> Iterator[str]:
        yield f"{ctx.key} {timestamp_ms}"


class Expires(fn.KeyedProcessFunction[int, tuple[int, int], str]):
    """Counts by key in state that expires, in an hour, which is a timer for each key."""

    def open(self, ctx: fn.OpenContext) -> None:
        self.count = ctx.get_state(fn.ValueStateDescriptor("count", ttl="1h"))

    def process(self, record: tuple[int, int], ctx: fn.ProcessContext[int]) -> Iterator[str]:
        self.count.update((self.count.value() or 0) + 1)
        yield f"{ctx.key} {self.count.value()}"


def job(out: Path, *, rate: float | None = None, fails: Path | None = None, **settings: Any) -> fn.Environment:
    """Timers of functions, of state that expires, of sessions and of joins."""
    env = fn.Environment(buffer_timeout="5ms", restart="fixed:3:10ms", **settings)
    source: fn.Stream[tuple[int, int]] = env.from_collection(NUMBERS, rate_limit=rate).uid("numbers")
    if fails is not None:
        source = source.map(FailsOnce(NUMBERS[-2000], fails)).set_parallelism(1)
    strategy = fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda record: record[1])
    timed = source.assign_timestamps_and_watermarks(strategy).set_parallelism(1).uid("times")
    keyed = timed.key_by(0)
    others = timed.map(lambda record: (record[0], -record[1])).set_parallelism(1).key_by(0)
    kinds: dict[str, Any] = {
        "moved": keyed.process(MovesOn()),
        "expiring": keyed.process(Expires()),
        "sessions": keyed.window(fn.Session("4s", time="event")).sum(1),
        "near": keyed.interval_join(others).between("-6500ms", "0ms").process(),
        "as of": keyed.as_of_join(others).process(),
    }
    for name, results in kinds.items():
        results.uid(name).map(repr).write_text(out / name).uid(f"files of {name}")
    return env


def said(out: Path) -> dict[str, list[str]]:
    return {part.name: lines(part) for part in out.iterdir() if any(part.glob("*.txt"))}


def on_disk(folder: Path) -> dict[str, Any]:
    return {"state_backend": "disk", "state_memory": "128KiB", "state_dir": folder / "state"}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What the job writes with all in memory."""
    out = tmp_path_factory.mktemp("memory")
    job(out).execute()
    written = said(out)
    assert sorted(written) == ["as of", "expiring", "moved", "near", "sessions"]
    assert len(written["moved"]) > KEYS
    return written


def test_timers_many_times_their_memory_fire_as_in_memory(
    workers: int, expected: dict[str, list[str]], tmp_path: Path
) -> None:
    job(tmp_path, parallelism=2, **on_disk(tmp_path)).execute(workers)
    assert said(tmp_path) == expected
    assert list((tmp_path / "state").iterdir()) == []


def test_a_job_that_fails_goes_on_with_its_timers_on_disk(
    workers: int, expected: dict[str, list[str]], tmp_path: Path
) -> None:
    env = job(tmp_path, rate=7_500, fails=tmp_path / "failed", parallelism=2, **on_disk(tmp_path))
    env.enable_checkpointing("50ms", storage=tmp_path / "checkpoints")
    result = env.execute(workers)
    assert result.restarted == 1
    assert result.restarts[0].resumed_from is not None
    assert said(tmp_path) == expected


@pytest.mark.parametrize("first", ["memory", "disk"])
@pytest.mark.parametrize("by", ["savepoint", "checkpoint"])
def test_timers_change_over_between_memory_and_disk(
    first: str, by: str, expected: dict[str, list[str]], tmp_path: Path
) -> None:
    """The job is stopped in the middle, and goes on with its timers elsewhere and with other subtasks."""
    backends: list[dict[str, Any]] = [{}, on_disk(tmp_path)]
    before, behind = backends if first == "memory" else backends[::-1]
    env = job(tmp_path, rate=10_000, **before)
    env.enable_checkpointing("50ms", storage=tmp_path / "one")
    with env.execute_async() as running:
        while running.status().tasks[0].records_in < 2 * KEYS or running.status().checkpoints_made < 3:
            assert running.status().state != "ended"
            time.sleep(0.001)
        running.stop(drain=False, **({"savepoint": tmp_path / "saved"} if by == "savepoint" else {}))
        running.wait()
    env = job(tmp_path, parallelism=3, **behind)
    if by == "savepoint":
        env.enable_checkpointing("1h", storage=tmp_path / "two", restore_from=tmp_path / "saved")
    else:
        env.enable_checkpointing("1h", storage=tmp_path / "one")
    result = env.execute()
    assert result.resumed_from is not None
    assert said(tmp_path) == expected


def test_a_full_disk_is_an_error_that_names_the_timers(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import resource, sys
        import flownet as fn

        class Waits(fn.KeyedProcessFunction):
            def process(self, record, ctx):
                ctx.timer_service().register_event_time_timer(10**12 + record * 7919 % 100_003)

            def on_timer(self, timestamp_ms, ctx):
                pass

        env = fn.Environment(state_backend="disk", state_memory="64KiB", state_dir=sys.argv[1])
        env.from_collection(range(50_000)).key_by(lambda key: key).process(Waits()).filter(bool).collect()
        # A file may become no longer than this; what it takes is a disk that is as full.
        resource.setrlimit(resource.RLIMIT_FSIZE, (256 << 10, resource.RLIM_INFINITY))
        try:
            env.execute()
        except fn.errors.DiskStateError as error:
            print(error)
            assert error.folder == sys.argv[1], error.folder
            assert error.state == "timers.event" and error.subtask == 0 and error.parallelism == 1, vars(error)
            assert 0 < error.bytes <= 512 << 10 and 0 < error.keys < 50_000, vars(error)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "state")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"cannot be kept on disk in folder '{tmp_path / 'state'}', where it has" in done.stdout
