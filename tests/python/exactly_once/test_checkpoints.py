"""Checkpoints as users meet them: what is refused, what goes on, what the result and the command line say."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import flownet as fn
from flownet import errors
from flownet.observation import CheckpointUnderWay

from .failures import FailsOnce, lines, newest_line


def counting(tmp_path: Path, words: list[str], **settings: Any) -> fn.Environment:
    """Count words from a file into a folder."""
    env = fn.Environment(parallelism=2, buffer_timeout="5ms", **settings)
    env.enable_checkpointing("100ms", storage=tmp_path / "checkpoints")
    (tmp_path / "in.txt").write_text("".join(f"{word}\n" for word in words))
    source = env.read_text(tmp_path / "in.txt", rate_limit=1000)
    source.key_by(str).count().map(lambda pair: f"{pair[0]} {pair[1]}").write_text(tmp_path / "out")
    return env


def test_a_job_whose_function_raises_goes_on_from_its_last_checkpoint(workers: int, tmp_path: Path) -> None:
    env = fn.Environment(parallelism=2, buffer_timeout="5ms", restart="fixed:3:10ms")
    env.enable_checkpointing("50ms", storage=tmp_path / "checkpoints", retained=2)
    (tmp_path / "in.txt").write_text("".join(f"w{number}\n" for number in range(800)))
    source = env.read_text(tmp_path / "in.txt", rate_limit=1000)
    failing = source.map(FailsOnce("w500", tmp_path / "failed", tmp_path / "checkpoints"))
    failing.key_by(lambda word: word[:2]).count().map(lambda pair: f"{pair[0]} {pair[1]}").write_text(tmp_path / "out")
    result = env.execute(workers)
    assert lines(tmp_path / "out") == sorted(
        f"w{digit} {number + 1}"
        for digit in range(10)
        for number in range(sum(str(value).startswith(str(digit)) for value in range(800)))
    )
    assert result.restarted == 1
    (restart,) = result.restarts
    assert "ValueError: once" in restart.cause
    assert restart.resumed_from is not None
    assert result.checkpoints_made > 2
    assert result.checkpoints[-1].number == result.checkpoints_made + result.checkpoints_failed or result.checkpoints
    assert all(checkpoint.bytes > 0 and checkpoint.seconds < 60 for checkpoint in result.checkpoints)
    said = str(result)
    assert "restarts: 1; the last" in said
    assert f"checkpoints: {result.checkpoints_made}" in said


def test_a_run_with_the_storage_of_a_job_that_has_ended_does_nothing(tmp_path: Path) -> None:
    words = ["to", "be"] * 50
    counting(tmp_path, words).execute()
    before = lines(tmp_path / "out")
    assert before == sorted(f"{word} {number}" for word in ("to", "be") for number in range(1, 51))
    again = counting(tmp_path, words).execute()
    assert again.resumed_from is not None
    assert again.records == 0
    assert lines(tmp_path / "out") == before
    assert "went on from checkpoint" in str(again)


def test_a_stop_without_draining_is_gone_on_from_with_windows_that_were_open(tmp_path: Path) -> None:
    def job(rate: int) -> fn.Environment:
        env = fn.Environment(parallelism=2, buffer_timeout="5ms")
        env.enable_checkpointing("50ms", storage=tmp_path / "checkpoints")
        records = env.from_collection(list(range(600)), rate_limit=rate)
        counts = records.key_by(lambda number: number % 3).window(fn.EndOfInput()).count()
        counts.map(lambda pair: f"{pair[0]} {pair[1]}").write_text(tmp_path / "out")
        return env

    # Half a minute would be left to the end of it.
    with job(rate=20).execute_async() as running:
        while running.status().checkpoints_made < 2:
            time.sleep(0.01)
        running.stop(drain=False)
        stopped = running.wait()
    assert 0 < stopped.records < 600
    assert lines(tmp_path / "out") == []
    result = job(rate=1000).execute()
    assert result.resumed_from is not None
    assert lines(tmp_path / "out") == ["0 200", "1 200", "2 200"]


def test_what_cannot_be_loaded_where_a_job_goes_on_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "counts_of_yesterday.py"
    module.write_text("def double(number):\n    return 2 * number\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    double = importlib.import_module(module.stem).double

    def job(rate: int) -> fn.Environment:
        env = fn.Environment(restart="fixed:3:10ms")
        env.enable_checkpointing("20ms", storage=tmp_path / "checkpoints")
        numbers = env.from_collection(list(range(600)), rate_limit=rate)
        numbers.map(double).name("double").map(str).write_text(tmp_path / "out")
        return env

    with job(rate=20).execute_async(1) as running:
        while running.status().checkpoints_made < 1:
            time.sleep(0.01)
        running.stop(drain=False)
        running.wait()
    module.unlink()
    shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
    with job(rate=100).execute_async(1) as running:
        with pytest.raises(errors.OperatorError, match="No module named 'counts_of_yesterday'"):
            running.wait()
        assert running.status().restarted == 0, "it is no better the next time"
    module.write_text("def double(number):\n    return 2 * number\n")
    assert job(rate=10_000).execute(1).resumed_from is not None
    assert sorted(map(int, lines(tmp_path / "out"))) == [2 * number for number in range(600)]


class Recording(fn.TransactionalSink[int]):
    """Keeps transactions in files, each under a name that counts once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, ctx: fn.TaskContext) -> None:
        self.rows: list[int] = []
        self.subtask = ctx.subtask

    def write(self, records: list[int]) -> None:
        self.rows += records

    def prepare_commit(self) -> Any:
        rows, self.rows = self.rows, []
        return (f"{self.subtask}-{rows[0]}", rows)

    def commit(self, prepared: Any) -> None:
        name, rows = prepared
        (self.folder / name).write_text(json.dumps(rows))

    def abort(self) -> None:
        (self.folder / f"aborted-{self.subtask}").touch()


@pytest.mark.parametrize("checkpoints", [False, True])
def test_a_transactional_sink_commits_all_and_once(checkpoints: bool, workers: int, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    env = fn.Environment(parallelism=2, restart="fixed:3:10ms")
    numbers: fn.Stream[Any] = env.from_collection(list(range(500)), rate_limit=1000)
    if checkpoints:
        env.enable_checkpointing("50ms", storage=tmp_path / "checkpoints")
        numbers = numbers.map(lambda number: f"{number}").map(FailsOnce("400", tmp_path / "failed")).map(int)
    numbers.rebalance().sink_to(Recording(folder))
    result = env.execute(workers)
    assert result.restarted == int(checkpoints)
    written = [row for file in folder.iterdir() if "aborted" not in file.name for row in json.loads(file.read_text())]
    assert sorted(written) == list(range(500))


@pytest.mark.parametrize("lower", [False, True])
def test_files_of_a_job_before_are_replaced_whatever_its_parallelism(lower: bool, tmp_path: Path) -> None:
    def job(checkpoints: bool, parallelism: int, words: list[str]) -> None:
        env = fn.Environment(parallelism=parallelism)
        if checkpoints:
            env.enable_checkpointing("1h", storage=tmp_path / f"checkpoints{parallelism}")
        env.from_collection(words).rebalance().map(str).write_text(tmp_path / "out")
        env.execute()

    job(not lower, 4, [f"old{number}" for number in range(100)])
    job(lower, 2, [f"new{number}" for number in range(100)])
    assert lines(tmp_path / "out") == sorted(f"new{number}" for number in range(100))
    job(not lower, 1, ["newest"])
    assert lines(tmp_path / "out") == ["newest"]


def test_without_checkpoints_a_failure_ends_the_job(tmp_path: Path) -> None:
    env = fn.Environment()
    env.from_collection(["a"]).map(FailsOnce("a", tmp_path / "failed")).print()
    with pytest.raises(errors.OperatorError, match="once"):
        env.execute()


def test_without_checkpoints_a_job_may_be_restarted_anew(tmp_path: Path) -> None:
    env = fn.Environment(restart="fixed:1:10ms")
    env.from_collection(["a", "b"]).map(FailsOnce("b", tmp_path / "failed")).write_text(tmp_path / "out")
    result = env.execute()
    assert (result.restarted, result.restarts[0].resumed_from) == (1, None)
    assert lines(tmp_path / "out") == ["a", "b"]


def test_failures_beyond_what_restart_allows_end_the_job_with_the_last_cause(tmp_path: Path) -> None:
    def always(word: str) -> str:
        raise ValueError("always")

    env = fn.Environment(restart="fixed:2:10ms")
    env.enable_checkpointing("50ms", storage=tmp_path / "checkpoints")
    env.from_collection(["a"]).map(always).print()
    with env.execute_async() as job, pytest.raises(errors.OperatorError, match="always"):
        job.wait()
    assert job.status().restarted == 2


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        (lambda env: env.from_iterable(iter([1])), "from_iterable"),
        (lambda env: env.socket_text("localhost", 9), "socket_text"),
    ],
)
def test_a_source_that_cannot_be_repeated_is_refused_by_name(source: Any, kind: str, tmp_path: Path) -> None:
    env = fn.Environment()
    env.enable_checkpointing("1s", storage=tmp_path)
    source(env).name("mine").print()
    with pytest.raises(errors.PlanError, match=rf"source 'mine' \({kind}\) cannot be repeated") as caught:
        env.execute()
    assert caught.value.operator == "mine"


def test_a_source_that_cannot_be_repeated_is_accepted_where_that_is_said(tmp_path: Path) -> None:
    env = fn.Environment()
    env.enable_checkpointing("50ms", storage=tmp_path / "checkpoints", allow_non_replayable=True)
    env.from_iterable(range(100), rate_limit=1000).write_text(tmp_path / "out")
    env.execute()
    assert len(lines(tmp_path / "out")) == 100


def test_what_is_no_storage_is_refused(tmp_path: Path) -> None:
    def run(storage: Any, error: type[Exception], text: str) -> None:
        env = fn.Environment()
        env.enable_checkpointing("1s", storage=storage)
        env.from_collection([1]).print()
        with pytest.raises(error, match=text):
            env.execute()

    run("s3:bucket/job", errors.ConfigError, "after s3: come a bucket and a folder")
    run("ftp://host/job", errors.ConfigError, "the scheme ftp: is unknown")
    (tmp_path / "file").touch()
    run(tmp_path / "file" / "sub", errors.ConfigError, "cannot make the folder")
    with pytest.raises(errors.ConfigError, match="checkpoint_interval is set, but not checkpoint_storage"):
        fn.Environment()._override({"checkpoint_interval": "1s"})
    with pytest.raises(errors.ConfigError, match="^restart=.often. must be"):
        fn.Environment(restart="often")
    with pytest.raises(errors.ConfigError, match="tolerable_failed_checkpoints"):
        fn.Environment().enable_checkpointing(storage=tmp_path, tolerable_failures=-1)
    with pytest.raises(errors.ConfigError, match="interval=None: say how long"):
        fn.Environment().enable_checkpointing(None, storage=tmp_path)  # type: ignore[arg-type]


def test_a_checkpoint_of_another_dataflow_is_refused_with_what_differs(tmp_path: Path) -> None:
    counting(tmp_path, ["a"]).execute()
    other = fn.Environment(parallelism=2)
    other.enable_checkpointing("1s", storage=tmp_path / "checkpoints")
    other.read_text(tmp_path / "in.txt").filter(bool).key_by(str).count().map(str).write_text(tmp_path / "out")
    with pytest.raises(errors.MissingUidError, match="in the checkpoint these .*: 'read_text', 'count', 'write_text'"):
        other.execute()


def test_a_damaged_checkpoint_is_told_and_not_used(tmp_path: Path) -> None:
    counting(tmp_path, ["a", "b"]).execute()
    for manifest in (tmp_path / "checkpoints").glob("gen-*/chk-*/manifest"):
        manifest.write_bytes(manifest.read_bytes()[:-1])
    with pytest.raises(errors.RestoreError, match=r"manifest.* is damaged: it has \d+ bytes of \d+") as caught:
        counting(tmp_path, ["a", "b"]).execute()
    assert caught.value.path is not None


def flownet(*arguments: str | Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flownet", *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ, **(env or {})})


SCRIPT = """
import flownet as fn, sys
env = fn.Environment(parallelism=2)
numbers = env.read_text({input!r}, rate_limit=500).key_by(str).count()
numbers.map(lambda pair: f"{{pair[0]}} {{pair[1]}}").write_text({output!r})
"""


def test_the_command_line_goes_on_where_a_killed_run_was_and_lists_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("to\nbe\n" * 400)
    (tmp_path / "count.py").write_text(SCRIPT.format(input=str(tmp_path / "in.txt"), output=str(tmp_path / "out")))
    command: list[str | Path] = ["run", f"{tmp_path / 'count.py'}:env", "-r", tmp_path / "checkpoints", "-s", "0.05"]
    with subprocess.Popen([sys.executable, "-m", "flownet", *map(str, command)], stderr=subprocess.DEVNULL) as first:
        while newest_line(tmp_path / "checkpoints") < 3:
            assert first.poll() is None
            time.sleep(0.005)
        first.send_signal(signal.SIGKILL)
    listed = flownet("checkpoints", tmp_path / "checkpoints")
    assert listed.returncode == 0, listed.stderr
    assert listed.stdout.split()[:6] == ["checkpoint", "job", "time", "size", "took", "operators"]
    assert "read_text (2), count (2), map (2), write_text (2)  last" in listed.stdout
    second = flownet(*command)
    assert second.returncode == 0, second.stderr
    assert "went on from checkpoint" in second.stderr
    expected = sorted(f"{word} {number}" for word in ("to", "be") for number in range(1, 401))
    assert lines(tmp_path / "out") == expected
    (last,) = json.loads(flownet("checkpoints", tmp_path / "checkpoints", "--json").stdout)
    assert (last["has_ended"], last["is_last"], last["job"]) == (True, True, "count")


def test_listing_what_is_no_folder_is_an_error_and_makes_none(tmp_path: Path) -> None:
    listed = flownet("checkpoints", tmp_path / "none")
    assert (listed.returncode, "there is no such folder" in listed.stderr) == (1, True)
    assert not (tmp_path / "none").exists()
    assert flownet("checkpoints", tmp_path).stdout.startswith("no checkpoints in")


@pytest.mark.parametrize("max_in_flight_time", [None, "1s"])
def test_checkpoints_that_take_too_long_count_as_failed_and_name_who_has_not_answered(
    max_in_flight_time: str | None, tmp_path: Path
) -> None:
    go_on = threading.Event()

    def work(number: int) -> int:
        if number == 7:
            go_on.wait()
        return number

    env = fn.Environment(
        parallelism=2, status_interval="50ms", max_in_flight_time=max_in_flight_time, object_reuse=True
    )
    env.enable_checkpointing(
        "50ms", storage=tmp_path, timeout="300ms", tolerable_failures=1000, allow_non_replayable=True
    )
    numbers = env.from_iterable(itertools.count(), rate_limit=1000).set_parallelism(1).rebalance()
    numbers.map(work).name("stuck").filter(lambda _: False).collect()
    with env.execute_async() as job:
        while (status := job.status()).checkpoints_failed < 2:
            assert status.state != "ended"
            time.sleep(0.02)
        assert status.last_failed_checkpoint is not None
        assert "tasks have not answered within 300ms" in status.last_failed_checkpoint

        def waits_for_stuck() -> CheckpointUnderWay | None:
            under_way = job.status().checkpoint_under_way
            # Before the others have answered it waits for them, too.
            stuck = [] if under_way is None else [task for task in under_way.unanswered if "stuck" in task.name]
            return under_way if [(task.count, len(task.subtasks)) for task in stuck] == [(1, 1)] else None

        while (under_way := waits_for_stuck()) is None:
            time.sleep(0.02)
        assert re.search(r"^\d+, for \d+\.\d s: waits for .*1 subtask of 'stuck.*' \([01]\)", str(under_way))
        go_on.set()
        made = job.status().checkpoints_made
        while job.status().checkpoints_made == made:
            time.sleep(0.02)
        job.cancel()
