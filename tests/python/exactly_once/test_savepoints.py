"""Savepoints: what they keep, who may go on from them, and dataflows that were changed meanwhile."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flownet as fn
from flownet import errors

from .failures import lines

WORDS = 900
KEYS = 9


def shown(pair: tuple[Any, Any]) -> str:
    return f"{pair[0]} {pair[1]}"


def all_counts() -> list[str]:
    return sorted(f"w{key} {count + 1}" for key in range(KEYS) for count in range(WORDS // KEYS))


class Job:
    """Counts words from a file into a folder; options change the dataflow."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "in").mkdir()
        (folder / "in" / "in.txt").write_text("".join(f"w{number % KEYS}\n" for number in range(WORDS)))

    def __call__(
        self,
        storage: str,
        *,
        out: str = "out",
        uids: bool = True,
        change: Callable[[fn.Stream[str]], fn.Stream[str]] | None = None,
        count_uid: str = "counts",
        parallelism: int = 2,
        rate: int | None = None,
        **checkpointing: Any,
    ) -> fn.Environment:
        env = fn.Environment(parallelism=parallelism, buffer_timeout="5ms")
        env.enable_checkpointing("50ms", storage=self.folder / storage, **checkpointing)
        words: fn.Stream[str] = env.read_text(self.folder / "in", rate_limit=rate)
        if uids:
            words = words.uid("words")
        if change is not None:
            words = change(words)
        counts = words.key_by(str).count()
        sink = (counts.uid(count_uid) if uids else counts).map(shown).write_text(self.folder / out)
        if uids:
            sink.uid("files")
        return env


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def until_checkpoints(running: fn.Job, count: int) -> None:
    while running.status().checkpoints_made < count:
        time.sleep(0.005)


def test_a_job_goes_on_beside_its_savepoint_and_another_begins_from_it(job: Job, workers: int) -> None:
    place = job.folder / "saved"
    with job("one", rate=1000).execute_async(workers) as running:
        until_checkpoints(running, 2)
        saved = running.savepoint(place)
        running.wait()
    assert saved.url == f"file://{place}"
    assert saved.bytes > 0
    assert lines(job.folder / "out") == all_counts()
    # Whatever becomes of the job's own folder.
    shutil.rmtree(job.folder / "one")
    result = job("two", restore_from=place, parallelism=3).execute(workers)
    assert result.resumed_from == saved.checkpoint
    assert 0 < result.records < WORDS, "it goes on from the middle"
    # What the first one wrote after the savepoint is written anew, and not doubled.
    assert lines(job.folder / "out") == all_counts()


def test_the_same_command_again_goes_on_from_its_own_checkpoints(job: Job) -> None:
    with job("one", rate=1000).execute_async() as running:
        until_checkpoints(running, 2)
        running.stop(drain=False, savepoint=job.folder / "saved")
        running.wait()
    with job("two", rate=1000, restore_from=job.folder / "saved").execute_async() as running:
        until_checkpoints(running, 2)
        first = running.status().resumed_from
        running.stop(drain=False)
        running.wait()
    # The savepoint may be gone by then.
    shutil.move(job.folder / "saved", job.folder / "moved")
    again = job("two", restore_from=job.folder / "saved").execute()
    assert first is not None
    assert again.resumed_from is not None
    assert again.resumed_from > first
    assert lines(job.folder / "out") == all_counts()
    # And of a job that began elsewhere there is nothing to go on from here.
    with pytest.raises(errors.RestoreError, match="did not begin from"):
        job("one", restore_from=job.folder / "moved").execute()


def test_a_savepoint_is_whole_and_stays_as_it_is(job: Job) -> None:
    with job("one", rate=1000).execute_async() as running:
        until_checkpoints(running, 1)
        saved = running.savepoint(job.folder / "saved")
        with pytest.raises(errors.ConfigError, match="has checkpoints already"):
            running.savepoint(job.folder / "saved")
        with pytest.raises(errors.ConfigError, match="has checkpoints already"):
            running.savepoint(job.folder / "one")
        running.cancel()
    with pytest.raises(errors.ConfigError, match="is a savepoint, which stays as it is"):
        job("saved").execute()
    before = {file: file.read_bytes() for file in (job.folder / "saved").rglob("*") if file.is_file()}
    job("two", restore_from=saved.url).execute()
    assert {file: file.read_bytes() for file in (job.folder / "saved").rglob("*") if file.is_file()} == before
    assert lines(job.folder / "out") == all_counts()


def test_a_savepoint_without_uids_is_refused_with_the_names_of_operators(job: Job) -> None:
    with job("one", uids=False, rate=1000).execute_async() as running:
        with pytest.raises(errors.MissingUidError, match=r"'read_text', 'count', 'write_text'") as caught:
            running.savepoint(job.folder / "saved")
        with pytest.raises(errors.MissingUidError):
            running.stop(savepoint=job.folder / "saved")
        running.cancel()
    assert caught.value.operators == ("read_text", "count", "write_text")
    assert not (job.folder / "saved").exists()


def test_a_savepoint_needs_checkpoints_and_a_job_that_runs(job: Job) -> None:
    env = fn.Environment()
    env.from_collection([1]).print()
    with env.execute_async() as running, pytest.raises(errors.SavepointError, match="the job takes no checkpoints"):
        running.savepoint(job.folder / "saved")
    with job("one").execute_async() as running:
        running.wait()
        with pytest.raises(errors.SavepointError, match="has ended"):
            running.savepoint(job.folder / "saved")


def stopped(job: Job, storage: str = "one", **options: Any) -> Path:
    with job(storage, rate=1000, **options).execute_async() as running:
        until_checkpoints(running, 2)
        running.stop(drain=False, savepoint=job.folder / "saved")
        assert 0 < running.wait().records < WORDS
    return job.folder / "saved"


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_changed_dataflow_goes_on_by_uids(job: Job, parallelism: int) -> None:
    place = stopped(job)

    def more(words: fn.Stream[str]) -> fn.Stream[str]:
        lengths = words.key_by(len).count().uid("lengths")
        lengths.map(shown).write_text(job.folder / "lengths").uid("length files")
        return words.map(str.strip).filter(bool).disable_chaining()

    result = job("two", change=more, parallelism=parallelism, restore_from=place).execute()
    assert lines(job.folder / "out") == all_counts()
    # What is new starts empty.
    rest = lines(job.folder / "lengths")
    assert len(rest) == result.records < WORDS
    assert f"2 {len(rest)}" in rest
    assert "2 1" in rest


def test_state_of_an_operator_that_is_gone_is_dropped_only_when_that_is_said(job: Job) -> None:
    place = stopped(job)
    with pytest.raises(errors.DroppedStateError, match=r"no more: 'counts'; .*allow_non_restored_state=True") as caught:
        job("two", count_uid="others", restore_from=place).execute()
    assert caught.value.operators == ("counts",)
    assert not list((job.folder / "two").rglob("manifest")), "nothing was begun"
    job("two", count_uid="others", restore_from=place, allow_non_restored_state=True).execute()
    assert len(lines(job.folder / "out")) == WORDS
    assert "w0 1" in lines(job.folder / "out")


def test_a_changed_dataflow_needs_uids_and_operators_of_the_same_kind(job: Job) -> None:
    with job("one", uids=False, rate=1000).execute_async() as running:
        until_checkpoints(running, 2)
        running.stop(drain=False)
        running.wait()

    def doubled(words: fn.Stream[str]) -> fn.Stream[str]:
        return words.filter(bool).map(str)

    with pytest.raises(errors.MissingUidError, match="in the checkpoint these operators keep state and have no uid"):
        job("one", uids=False, change=doubled).execute()
    # As it was it goes on, with other chains and other subtasks.
    job("one", uids=False, parallelism=3).execute()
    assert lines(job.folder / "out") == all_counts()


def test_an_operator_that_does_something_else_cannot_read_the_state(job: Job) -> None:
    place = stopped(job)
    env = fn.Environment(parallelism=2)
    env.enable_checkpointing("50ms", storage=job.folder / "two", restore_from=place, allow_non_restored_state=True)
    words = env.read_text(job.folder / "in").uid("words")
    words.key_by(str).reduce(lambda one, other: one).uid("counts").write_text(job.folder / "out").uid("files")
    with pytest.raises(errors.RestoreError, match="operator 'counts' was count and is reduce now") as caught:
        env.execute()
    assert caught.value.operators == ("counts",)


def test_windows_that_are_kept_in_another_way_cannot_read_the_state(job: Job) -> None:
    """Those of a grid lie by time, sessions and what a trigger fires by key: neither finds what the other kept."""

    def counted(storage: str, window: Any, trigger: Any, **more: Any) -> fn.Environment:
        env = fn.Environment(parallelism=2, buffer_timeout="5ms")
        env.enable_checkpointing("50ms", storage=job.folder / storage, **more)
        strategy: Any = fn.WatermarkStrategy.for_monotonous_timestamps()
        strategy = strategy.with_timestamp_assigner(lambda _: 0)
        words = env.read_text(job.folder / "in", rate_limit=1000).uid("words")
        windows = words.assign_timestamps_and_watermarks(strategy).uid("times").key_by(str).window(window)
        windows = windows if trigger is None else windows.trigger(trigger)
        windows.count().uid("counts").map(str).write_text(job.folder / "out").uid("files")
        return env

    with counted("one", fn.Tumbling("1h"), None).execute_async() as running:
        until_checkpoints(running, 2)
        running.stop(drain=False, savepoint=job.folder / "saved")
        running.wait()
    for window, trigger in ((fn.Session("1h"), None), (fn.Tumbling("1h"), fn.triggers.CountTrigger(5))):
        with pytest.raises(
            errors.RestoreError, match="'counts' was count of windows of 3600000 ms and is count of windows by key"
        ):
            counted("two", window, trigger, restore_from=job.folder / "saved").execute()
    counted("two", fn.Tumbling("1h"), None, restore_from=job.folder / "saved").execute()
    assert lines(job.folder / "out")


@pytest.mark.parametrize(
    "window", [fn.Tumbling("30m"), fn.Sliding("1h", "30m"), fn.Tumbling("1h", offset="5m")], ids=str
)
@pytest.mark.parametrize("from_savepoint", [True, False])
def test_windows_cut_in_another_way_are_refused_at_the_start(job: Job, window: Any, from_savepoint: bool) -> None:
    """Records would count in windows that were cut in two ways, and some in none."""

    def counted(window: Any, **more: Any) -> fn.Environment:
        env = fn.Environment(buffer_timeout="5ms")
        env.enable_checkpointing("50ms", storage=job.folder / more.pop("storage", "one"), **more)
        strategy: Any = fn.WatermarkStrategy.for_monotonous_timestamps()
        words = env.read_text(job.folder / "in", rate_limit=1000).uid("words")
        timed = words.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(lambda _: 0)).uid("times")
        timed.key_by(str).window(window).count().uid("counts").map(str).write_text(job.folder / "out").uid("files")
        return env

    with counted(fn.Tumbling("1h")).execute_async() as running:
        until_checkpoints(running, 2)
        running.stop(drain=False, savepoint=job.folder / "saved")
        running.wait()
    there = {"storage": "two", "restore_from": job.folder / "saved"} if from_savepoint else {}
    with pytest.raises(errors.RestoreError, match="'counts' was count of windows of 3600000 ms and is") as caught:
        counted(window, **there).execute()
    assert caught.value.operators == ("counts",)


def test_other_key_groups_are_refused_and_taken_over_where_nothing_is_said(job: Job) -> None:
    place = stopped(job)
    env = job("two", restore_from=place)
    env._override({"max_parallelism": "64"})
    with pytest.raises(errors.RestoreError, match="it has 128 key groups, the job 64; set max_parallelism=128"):
        env.execute()
    # By itself such a job would have 256.
    job("two", restore_from=place, parallelism=90).execute()
    assert lines(job.folder / "out") == all_counts()


def test_what_is_nothing_to_begin_from_is_refused(job: Job) -> None:
    with pytest.raises(errors.ConfigError, match="there is no such folder"):
        job("one", restore_from=job.folder / "none").execute()
    (job.folder / "empty").mkdir()
    with pytest.raises(errors.ConfigError, match="no job can begin from it"):
        job("one", restore_from=job.folder / "empty").execute()
    with pytest.raises(errors.ConfigError, match="restore_from is set, but not checkpoint_interval"):
        fn.Environment()._override({"restore_from": str(job.folder)})


def command_line(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flownet", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)


def test_a_job_begins_from_an_older_checkpoint_that_is_kept(job: Job) -> None:
    stopped(job, retained=10)
    kept = json.loads(command_line("checkpoints", "one", "--json", folder=job.folder).stdout)
    older, last = kept[0]["checkpoint"], kept[-1]["checkpoint"]
    assert older < last
    saved = command_line("savepoint", "one", "before", "--checkpoint", older, folder=job.folder)
    assert saved.stdout.startswith(f"file://{job.folder / 'before'}: checkpoint {older}, "), saved.stderr
    result = job("two", restore_from=job.folder / "before").execute()
    assert result.resumed_from == older
    assert lines(job.folder / "out") == all_counts()
    refused = command_line("savepoint", "one", "other", "--checkpoint", last + 1, folder=job.folder)
    assert "has no such checkpoint, or none at all" in refused.stderr
    refused = command_line("savepoint", "http://127.0.0.1:1", "other", "--checkpoint", older, folder=job.folder)
    assert "--checkpoint is for a folder: a page takes a new one" in refused.stderr


def test_the_command_line_saves_and_begins_from_what_was_saved(job: Job) -> None:
    program = job.folder / "counting.py"
    program.write_text(
        "import sys, flownet as fn\n"
        "env = fn.Environment(parallelism=2)\n"
        f"words = env.read_text({str(job.folder / 'in')!r}).uid('words')\n"
        "counts = words.key_by(str).count().uid('counts')\n"
        f"counts.map(lambda pair: f'{{pair[0]}} {{pair[1]}}').write_text({str(job.folder / 'out')!r}).uid('files')\n"
    )

    def flownet(*arguments: object) -> subprocess.CompletedProcess[str]:
        return command_line(*arguments, folder=job.folder)

    stopped(job)
    shutil.rmtree(job.folder / "saved")
    saved = flownet("savepoint", job.folder / "one", job.folder / "saved")
    assert saved.returncode == 0, saved.stderr
    assert saved.stdout.startswith(f"file://{job.folder / 'saved'}: checkpoint ")
    listed = flownet("checkpoints", job.folder / "saved").stdout
    assert "counts" in listed
    assert "files" in listed
    assert "uid" in listed
    ran = flownet("run", "counting:env", "-r", job.folder / "two", "--from", job.folder / "saved")
    assert ran.returncode == 0, ran.stderr
    assert "went on from checkpoint" in ran.stderr
    assert lines(job.folder / "out") == all_counts()
    refused = flownet("savepoint", job.folder / "none", job.folder / "other")
    assert refused.returncode != 0
    assert "there is no such folder" in refused.stderr
