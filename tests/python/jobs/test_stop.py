"""A job that is stopped ends well: its sources end, what is in flight is worked off, its sinks complete."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import flownet as fn
from flownet import errors


class Log(fn.Sink[Any]):
    """Writes down what its methods were called with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, ctx: fn.TaskContext) -> None:
        self.file = open(self.folder / f"{ctx.subtask}", "w")

    def write(self, records: list[Any]) -> None:
        self.file.writelines(f"{record}\n" for record in records)

    def flush(self) -> None:
        self.file.write("flushed\n")

    def close(self) -> None:
        self.file.close()


class Numbers:
    """Counts without end, says when it has begun and when it was closed."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.closed = False
        self.count = 0

    def __iter__(self) -> Iterator[int]:
        try:
            for number in itertools.count():
                self.begun.set()
                self.count += 1
                yield number
        finally:
            self.closed = True


def test_a_stop_loses_nothing_and_sinks_flush(workers: int, tmp_path: Path) -> None:
    env = fn.Environment(parallelism=2, buffer_timeout="1ms")
    numbers = Numbers()
    env.from_iterable(numbers).rebalance().map(lambda n: n).sink_to(Log(tmp_path))
    with env.execute_async(workers) as job:
        assert numbers.begun.wait(30)
        job.stop()
        result = job.wait()
    assert numbers.closed
    lines = [file.read_text().splitlines() for file in tmp_path.iterdir()]
    assert [subtask[-1] for subtask in lines] == ["flushed", "flushed"]
    assert sorted(int(line) for subtask in lines for line in subtask[:-1]) == list(range(numbers.count))
    assert (result.state, result.tasks[0].records_out) == ("ended", numbers.count)


def count_on(folder: Path, storage: str, source: str = "numbers", **settings: Any) -> fn.Environment:
    """Describe a job with a window that is open until its input has ended."""
    env = fn.Environment(name="hours")
    env.enable_checkpointing("50ms", storage=folder / storage, **settings)
    strategy = fn.WatermarkStrategy[int].for_monotonous_timestamps().with_timestamp_assigner(lambda n: n * 1000)
    numbers = env.from_generator(upwards).uid(source).assign_timestamps_and_watermarks(strategy).uid("times")
    counts = numbers.key_by(lambda n: 0).window(fn.Tumbling("24h")).count().uid("counts")
    counts.map(str).write_text(folder / "out").uid("out")
    return env


def upwards(position: int | None) -> Iterator[tuple[int, int]]:
    for number in range(position or 0, 1_000_000):
        time.sleep(0.002)
        yield number + 1, number


@pytest.mark.parametrize("drain", [None, True])
def test_a_job_with_checkpoints_resumes_after_a_stop_unless_it_was_drained(
    drain: bool | None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with count_on(tmp_path, "kept").execute_async() as job:
        while job.status().records == 0:
            time.sleep(0.01)
        job.stop(drain=drain, savepoint=tmp_path / "saved")
        job.wait()
    assert (list((tmp_path / "out").glob("*.txt")) == []) == (drain is None), "the window fires as it is drained"
    assert "nothing is left to do" not in capfd.readouterr().err
    with count_on(tmp_path, "again", restore_from=tmp_path / "saved").execute_async() as job:
        if drain is None:
            while job.status().records == 0:
                time.sleep(0.01)
            job.stop()
        assert (job.wait().records > 0) == (drain is None)
    assert ("nothing is left to do" in capfd.readouterr().err) == (drain is True)


def test_another_source_after_a_finished_job_is_read_without_a_warning(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with count_on(tmp_path, "history").execute_async() as job:
        while job.status().records == 0:
            time.sleep(0.01)
        job.stop(drain=True, savepoint=tmp_path / "saved")
        job.wait()
    then: dict[str, Any] = {"restore_from": tmp_path / "saved", "allow_non_restored_state": True}
    with count_on(tmp_path, "live", source="live numbers", **then).execute_async() as job:
        while job.status().records == 0:
            time.sleep(0.01)
        job.stop()
        assert job.wait().records > 0
    assert "nothing is left to do" not in capfd.readouterr().err


@pytest.mark.parametrize("how", ["stop", "drain", "cancel"])
def test_a_job_that_is_ended_between_attempts_tells_its_cause(how: str, tmp_path: Path) -> None:
    env = fn.Environment(restart="fixed:3:10min")
    env.enable_checkpointing("50ms", storage=tmp_path / "kept")
    env.from_collection([1, 0]).map(lambda n: 1 // n).write_text(tmp_path / "out")
    with env.execute_async() as job:
        while job.status().state != "restarting":
            time.sleep(0.01)
        if how == "cancel":
            job.cancel()
        else:
            job.stop(drain=how == "drain")
        with pytest.raises(errors.OperatorError, match="ZeroDivisionError"):
            job.wait()


@pytest.mark.parametrize("drain", [True, False])
def test_windows_that_are_open_fire_if_the_job_is_drained(workers: int, drain: bool, tmp_path: Path) -> None:
    env = fn.Environment(parallelism=2, buffer_timeout="1ms")
    numbers = Numbers()
    stream = env.from_iterable(numbers)
    stream.key_by(lambda n: n % 4).window(fn.Tumbling("1h")).count().sink_to(Log(tmp_path))
    with env.execute_async(workers) as job:
        assert numbers.begun.wait(30)
        job.stop(drain=drain)
        job.wait()
    lines = [file.read_text().splitlines() for file in tmp_path.iterdir()]
    assert [subtask[-1] for subtask in lines] == ["flushed", "flushed"]
    counts = [eval(line)[1] for subtask in lines for line in subtask[:-1]]  # noqa: S307 - pairs of numbers
    assert sum(counts) == (numbers.count if drain else 0)


def test_a_job_that_is_stopped_before_it_runs_ends_well(workers: int) -> None:
    env = fn.Environment(parallelism=2)
    env.from_iterable(itertools.count()).rebalance().map(lambda n: n).collect()
    with env.execute_async(workers) as job:
        job.stop()
        assert job.wait().state == "ended"
        job.stop()


def test_a_stop_that_takes_too_long_cancels_and_names_who_has_not_ended(workers: int) -> None:
    env = fn.Environment(stop_timeout="100ms", buffer_timeout="1ms")
    begun, released = threading.Event(), threading.Event()

    def waiting() -> Iterator[int]:
        begun.set()
        released.wait()
        yield 1

    env.from_iterable(waiting()).rebalance().map(lambda n: n).name("double").collect()
    with env.execute_async(workers) as job:
        try:
            assert begun.wait(30)
            job.stop()
            with pytest.raises(
                errors.StopTimeoutError, match=r"did not stop within 100ms.*raise stop_timeout"
            ) as caught:
                job.wait()
        finally:
            released.set()
    assert caught.value.seconds == 0.1
    assert caught.value.tasks[0] == "from_iterable (1/1)"


SCRIPT = """
import itertools, sys, threading, time
import flownet as fn

def is_waited_for():
    return sys._current_frames()[threading.main_thread().ident].f_code.co_name == "_look"

def numbers():
    for number in itertools.count():
        if number == 1000:
            # A signal that comes before somebody waits for the job cancels it at once; in a worker nobody waits.
            while not WORKERS and not is_waited_for():
                time.sleep(0.001)
            print("running", flush=True)
        yield number

env = fn.Environment(parallelism=2, buffer_timeout="1ms", stop_timeout="30s")
env.from_iterable(numbers()).rebalance().map(MAP).write_text(sys.argv[-1])
if __name__ == "__main__":
    try:
        env.execute(workers=WORKERS)
    except BaseException as ended:
        print(type(ended).__name__, flush=True)
        raise
"""


def hanging(folder: Path) -> str:
    """Text of a function that hangs at some record, and leaves a mark before that."""
    mark = f"open({str(folder / 'hangs')!r}, 'w').close()"
    return f"lambda n: ({mark}, __import__('time').sleep(1e6)) if n > 2000 else n"


def until_it_hangs(folder: Path) -> None:
    while not (folder / "hangs").exists():
        time.sleep(0.01)


def descendants(pid: int) -> set[int]:
    return {int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()}


def start(arguments: list[str]) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path(arguments[-1])
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    return process


def script(workers: int, function: str = "lambda n: n") -> str:
    return SCRIPT.replace("WORKERS", str(workers)).replace("MAP", function)


@pytest.mark.parametrize(
    ("number", "code", "raised"),
    [(signal.SIGINT, -signal.SIGINT, "KeyboardInterrupt"), (signal.SIGTERM, 143, "TerminationExit")],
)
def test_a_signal_stops_the_job_before_it_ends_the_program(
    workers: int, number: signal.Signals, code: int, raised: str, tmp_path: Path
) -> None:
    with start(["-c", script(workers), str(tmp_path)]) as process:
        process.send_signal(number)
        output, said = process.communicate()
    assert (process.returncode, output) == (code, f"{raised}\n")
    assert "job 'job': stopping: sources end" in said
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == ["part-0.txt", "part-1.txt"]
    written = sorted(int(line) for name in names for line in (tmp_path / name).read_text().splitlines())
    assert written == list(range(len(written)))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_cancels_the_job(workers: int, number: signal.Signals, tmp_path: Path) -> None:
    with start(["-c", script(workers, hanging(tmp_path)), str(tmp_path)]) as process:
        assert process.stderr is not None
        until_it_hangs(tmp_path)
        process.send_signal(number)
        assert "stopping" in process.stderr.readline()
        process.send_signal(number)
        assert "cancelled by a second" in process.stderr.readline()
        process.communicate()
    assert not list(tmp_path.glob("*.txt"))


def test_a_signal_after_which_the_job_takes_too_long_cancels_it_and_says_so(workers: int, tmp_path: Path) -> None:
    text = script(workers, hanging(tmp_path)).replace("30s", "100ms")
    with start(["-c", text, str(tmp_path)]) as process:
        until_it_hangs(tmp_path)
        process.send_signal(signal.SIGINT)
        output, said = process.communicate()
    assert output == "KeyboardInterrupt\n"
    assert "job 'job': the job did not stop within 100ms and was cancelled" in said


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_flownet_run_which_shows_what_was_done(
    workers: int, number: signal.Signals, code: int, tmp_path: Path
) -> None:
    (tmp_path / "job.py").write_text(script(workers))
    command = ["-m", "flownet", "run", "--workers", str(workers), "job:env", "--", str(tmp_path)]
    with start(command) as process:
        process.send_signal(number)
        _, said = process.communicate()
    assert process.returncode == code
    assert "flownet: job 'job': stopping" in said
    assert "records in" in said
    assert {file.name for file in tmp_path.glob("part*")} == {"part-0.txt", "part-1.txt"}


def test_sigterm_of_all_processes_stops_the_job_too(tmp_path: Path) -> None:
    """As whoever ends a service sends it."""
    with start(["-c", script(2), str(tmp_path)]) as process:
        pids = descendants(process.pid)
        assert len(pids) == 2
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert process.returncode == 143
    assert {file.name for file in tmp_path.iterdir()} == {"part-0.txt", "part-1.txt"}


def test_a_handler_of_the_program_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    try:
        env = fn.Environment()
        env.from_iterable(itertools.chain([1], iter(lambda: signal.raise_signal(signal.SIGTERM), None))).collect()
        env.execute()
        assert seen == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)
