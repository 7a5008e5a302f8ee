"""State that is larger than the memory for it: nobody sees where it lies, whatever fails, from one run to the next."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import flownet as fn
from flownet import errors, state

from .failures import FailsOnce, lines

KEYS = 400
RECORDS = 1600
MEMORY = "48KiB"
"""For three operators: enough for some hundred counts each, and for twenty dicts."""

NUMBERS = [(number * 7919 % KEYS, number) for number in range(RECORDS)]


class Remembers(fn.KeyedProcessFunction[int, tuple[int, int], str]):
    """Keeps state of every kind, forgets some keys now and then, and says what it has."""

    def open(self, ctx: fn.OpenContext) -> None:
        self.last = ctx.get_state(fn.ValueStateDescriptor("last"))
        self.list = ctx.get_list_state(fn.ListStateDescriptor("list"))
        self.map = ctx.get_map_state(fn.MapStateDescriptor("map"))
        self.most = ctx.get_reducing_state(fn.ReducingStateDescriptor("most", max))

    def process(self, record: tuple[int, int], ctx: fn.ProcessContext[int]) -> Iterator[str]:
        _, number = record
        if number % 11 == 5:
            ctx.state.clear()
        else:
            before = self.last.value()
            self.last.update(number)
            self.list.add(number % 3)
            self.map[number % 4] = before
            self.most.add(number % 100)
            ctx.state.setdefault("seen", set()).add(number % 5)
        kept = [
            self.last.value(),
            self.list.get(),
            sorted(self.map.items()),
            self.most.get(),
            sorted(ctx.state.get("seen", ())),
        ]
        yield f"{ctx.key} {kept}"


def functions(out: Path, *, rate: float | None = None, fails: Path | None = None, **settings: Any) -> fn.Environment:
    """Folds and functions by key."""
    env = fn.Environment(buffer_timeout="5ms", restart="fixed:3:10ms", **settings)
    source = numbers(env, rate, fails)
    source.key_by(0).process(Remembers()).uid("remembers").write_text(out / "remembers").uid("one")
    counts = source.key_by(0).count().uid("counts").map(repr)
    counts.write_text(out / "counts").uid("two")
    texts = source.map(lambda record: (record[0], f"{record[1]};")).set_parallelism(1)
    texts.key_by(0).reduce(joined).uid("texts").map(repr).write_text(out / "texts").uid("three")
    return env


def numbers(env: fn.Environment, rate: float | None, fails: Path | None) -> fn.Stream[tuple[int, int]]:
    source: fn.Stream[tuple[int, int]] = env.from_collection(NUMBERS, rate_limit=rate).uid("numbers")
    # What a key is told depends on the order of its records: they come by one subtask.
    return source if fails is None else source.map(FailsOnce(NUMBERS[-200], fails)).set_parallelism(1)


class EveryThird(fn.triggers.Trigger[Any]):
    """Fires with every third record of a window, which it counts."""

    def on_element(self, value: Any, timestamp_ms: int, window: fn.Window, ctx: Any) -> fn.triggers.TriggerResult:
        ctx.state["count"] = ctx.state.get("count", 0) + 1
        return fn.triggers.TriggerResult.FIRE if ctx.state["count"] % 3 == 0 else fn.triggers.TriggerResult.CONTINUE


def windows(out: Path, *, rate: float | None = None, fails: Path | None = None, **settings: Any) -> fn.Environment:
    """Windows and joins of all kinds, over times with a gap in the middle."""
    env = fn.Environment(buffer_timeout="5ms", restart="fixed:3:10ms", **settings)
    strategy = fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda record: record[1] + (1000 if record[1] > RECORDS // 2 else 0)
    )
    timed = numbers(env, rate, fails).assign_timestamps_and_watermarks(strategy).set_parallelism(1).uid("times")
    keyed = timed.key_by(0)
    kinds: dict[str, Any] = {
        "tumbling": keyed.window(fn.Tumbling("900ms", time="event")).sum(1),
        "late": keyed.window(fn.Tumbling("500ms", time="event")).allowed_lateness("700ms").count(),
        "sliding": keyed.window(fn.Sliding("1200ms", "300ms", time="event")).max(1),
        "lists": keyed.window(fn.Sliding("800ms", "400ms", time="event")).process(described),
        "sessions": keyed.window(fn.Session("450ms", time="event")).sum(1),
        "triggered": keyed.window(fn.Global()).trigger(EveryThird()).sum(1),
    }
    others = timed.map(lambda record: (record[0], -record[1])).set_parallelism(1).key_by(0)
    kinds["near"] = keyed.interval_join(others).between("-500ms", "0ms").process()
    kinds["as of"] = keyed.as_of_join(others).process()
    joined = timed.join(others).where(lambda record: record[0]).equal_to(lambda record: record[0])
    kinds["joined"] = joined.window(fn.Tumbling("800ms", time="event")).apply(lambda one, other: (one, other))
    for name, results in kinds.items():
        results.uid(name).map(repr).write_text(out / name).uid(f"files of {name}")
    return env


def described(key: int, window: fn.Window, records: list[tuple[int, int]]) -> Iterator[Any]:
    yield key, window.start_ms, sorted(records)


def joined(one: tuple[int, str], other: tuple[int, str]) -> tuple[int, str]:
    return one[0], one[1] + other[1]


def said(out: Path) -> dict[str, list[str]]:
    parts = (part for part in out.iterdir() if any(part.glob("*.txt")))
    return {part.name: lines(part) for part in parts}


Job = Callable[..., fn.Environment]

JOBS: dict[str, Job] = {"functions": functions, "windows": windows}


@pytest.fixture(scope="module", params=JOBS)
def job(request: pytest.FixtureRequest) -> Job:
    return JOBS[request.param]


@pytest.fixture(scope="module")
def expected(job: Job, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What the job writes with its state in memory."""
    out = tmp_path_factory.mktemp("memory")
    job(out).execute()
    written = said(out)
    assert len(written) in (3, 9)
    return written


def on_disk(folder: Path, **more: Any) -> dict[str, Any]:
    return {"state_backend": "disk", "state_memory": MEMORY, "state_dir": folder / "state", **more}


def bytes_in(folder: Path) -> int:
    """Bytes of the files that this process has open in a folder, where no name leads to them."""
    held = 0
    for number in os.listdir("/proc/self/fd"):
        link = Path("/proc/self/fd") / number
        try:
            if os.readlink(link).startswith(f"{folder}/"):
                held += link.stat().st_size
        except OSError:
            continue
    return held


def test_state_many_times_its_memory_is_as_in_memory(
    job: Job, workers: int, expected: dict[str, list[str]], tmp_path: Path
) -> None:
    job(tmp_path, parallelism=2, **on_disk(tmp_path)).execute(workers)
    assert said(tmp_path) == expected
    assert list((tmp_path / "state").iterdir()) == []


class Looks(fn.KeyedProcessFunction[int, tuple[int, int], tuple[int, list[str]]]):
    """Keeps something of every key, and looks into a folder when the last one comes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def process(self, record: tuple[int, int], ctx: fn.ProcessContext[int]) -> Iterator[tuple[int, list[str]]]:
        ctx.state["number"] = record[1]
        if record[1] == RECORDS - 1:
            yield bytes_in(self.folder), os.listdir(self.folder)


def test_what_has_no_room_lies_in_a_file_without_a_name_that_ends_with_the_job(tmp_path: Path) -> None:
    env = fn.Environment(**on_disk(tmp_path))
    found = env.from_collection(NUMBERS).key_by(0).process(Looks(tmp_path / "state")).collect()
    env.execute()
    [(held, names)] = found
    # As long as nothing has left memory there is nothing in it.
    assert held > 0
    assert names == []
    assert bytes_in(tmp_path / "state") == 0


def test_a_job_that_fails_goes_on_with_its_state_on_disk(
    job: Job, workers: int, expected: dict[str, list[str]], tmp_path: Path
) -> None:
    env = job(tmp_path, rate=3000, fails=tmp_path / "failed", parallelism=2, **on_disk(tmp_path))
    env.enable_checkpointing("50ms", storage=tmp_path / "checkpoints")
    result = env.execute(workers)
    assert result.restarted == 1
    assert said(tmp_path) == expected
    if job is functions:
        kept = state.read(tmp_path / "checkpoints")
        assert kept.values("counts") == Counter(key for key, _ in NUMBERS)


def test_a_worker_that_is_killed_loses_no_state_and_leaves_no_file(
    job: Job, child_pids: Callable[[], set[int]], expected: dict[str, list[str]], tmp_path: Path
) -> None:
    """Twice, each time when there is a checkpoint of what came since: what was on disk comes from there."""
    env = job(tmp_path, rate=1000, parallelism=2, **on_disk(tmp_path))
    env.enable_checkpointing("50ms", storage=tmp_path / "checkpoints")
    others = child_pids()
    with env.execute_async(2) as running:
        for kills in (1, 2):
            made = running.status().checkpoints_made
            while running.status().checkpoints_made < made + 3:
                time.sleep(0.001)
            os.kill(max(child_pids() - others), signal.SIGKILL)
            while running.status().restarted < kills:
                time.sleep(0.001)
        result = running.wait()
    assert result.restarted == 2
    assert all(restart.resumed_from is not None for restart in result.restarts)
    assert said(tmp_path) == expected
    assert list((tmp_path / "state").iterdir()) == []
    if job is functions:
        kept = state.read(tmp_path / "checkpoints")
        assert kept.values("counts") == Counter(key for key, _ in NUMBERS)


def test_a_checkpoint_and_going_on_from_it_take_less_memory_than_the_state(tmp_path: Path) -> None:
    """Of 12,000 texts, 96 MB, some 100 have room. Written and read whole they took more than they are long."""
    script = Path(__file__).with_name("larger_than_memory.py")
    said = []
    for _ in range(3):
        command = [sys.executable, str(script), str(tmp_path), "12000"]
        said.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    assert [run["resumed"] for run in said] == [False, True, True]
    assert [run["right"] for run in said] == [run["asked"] for run in said]
    assert [run["times"] for run in said] == [[], [1], [2]]
    for run in said:
        assert run["bytes"] > 96_000_000
        assert run["memory"] < 64_000_000, run
    assert list((tmp_path / "state").iterdir()) == []


def test_a_damaged_piece_of_state_is_an_error_that_names_it(workers: int, tmp_path: Path) -> None:
    def run() -> None:
        env = functions(tmp_path, rate=2000, parallelism=2, **on_disk(tmp_path))
        env.enable_checkpointing("1h", storage=tmp_path / "checkpoints")
        with env.execute_async(workers) as running:
            while max(task.records_in for task in running.status().tasks) < RECORDS // 2:
                if running.status().state == "ended":
                    break
                time.sleep(0.001)
            running.stop(drain=False)
            running.wait()

    run()
    [piece, *_] = sorted((tmp_path / "checkpoints").glob("gen-*/chk-*/*-0.000000.snap"))
    whole = piece.read_bytes()
    piece.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(errors.RestoreError, match=rf'{piece.name}" is damaged'):
        run()
    piece.write_bytes(whole)
    run()


@pytest.mark.parametrize("first", ["memory", "disk"])
def test_a_job_changes_over_between_memory_and_disk(
    job: Job, first: str, expected: dict[str, list[str]], tmp_path: Path
) -> None:
    """It is stopped in the middle, and goes on with its state elsewhere and with other subtasks."""
    backends: list[dict[str, Any]] = [{}, on_disk(tmp_path)]
    before, behind = backends if first == "memory" else backends[::-1]
    env = job(tmp_path, rate=2000, **before)
    env.enable_checkpointing("20ms", storage=tmp_path / "one")
    with env.execute_async() as running:
        while running.status().tasks[0].records_in < 3 * RECORDS // 4 and running.status().checkpoints_made < 5:
            time.sleep(0.001)
        running.stop(drain=False, savepoint=tmp_path / "saved")
        running.wait()
    env = job(tmp_path, parallelism=3, **behind)
    env.enable_checkpointing("1h", storage=tmp_path / "two", restore_from=tmp_path / "saved")
    result = env.execute()
    assert result.resumed_from is not None
    assert said(tmp_path) == expected


def test_a_full_disk_is_an_error_that_names_folder_and_numbers(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import resource, sys
        import flownet as fn

        env = fn.Environment(state_backend="disk", state_memory="64KiB", state_dir=sys.argv[1])
        env.from_collection([(key, "x" * 2000) for key in range(4000)]).key_by(0).reduce(max).filter(bool).collect()
        # A file may become no longer than this; what it takes is a disk that is as full.
        resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 20, resource.RLIM_INFINITY))
        try:
            env.execute()
        except fn.errors.DiskStateError as error:
            print(error)
            assert error.folder == sys.argv[1], error.folder
            assert error.state == "fold" and error.subtask == 0 and error.parallelism == 1, vars(error)
            assert 0 < error.bytes <= 3 << 20 and 0 < error.keys < 4000, vars(error)
        """
    )
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "state")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"cannot be kept on disk in folder '{tmp_path / 'state'}', where it has" in done.stdout
    assert "state_dir" in done.stdout


def test_a_folder_that_cannot_be_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    env = functions(tmp_path, **on_disk(tmp_path))
    with pytest.raises(errors.DiskStateError, match=r"cannot be kept on disk in folder .*state'"):
        env.execute()


def test_a_value_that_cannot_be_written_is_an_error_that_names_its_key(tmp_path: Path) -> None:
    env = fn.Environment(**on_disk(tmp_path))
    keys = env.from_collection([(key, 0) for key in range(KEYS)]).key_by(0)
    keys.process(KeepsAnIterator()).print()
    with pytest.raises(errors.CodecError, match=r"of key \d+ cannot be kept in a checkpoint or on disk"):
        env.execute()


class KeepsAnIterator(fn.KeyedProcessFunction[int, Any, Any]):
    """Which nobody can write."""

    def process(self, record: Any, ctx: fn.ProcessContext[int]) -> None:
        ctx.state["rest"] = iter(())
