"""What functions print and log in workers reaches whoever submitted the job, marked, whole and in order."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import flownet as fn
from flownet import errors

GUIDE = Path(__file__).parents[3] / "docs" / "operations" / "logging.md"
LOG = logging.getLogger("flownet_tests.jobs")


def says(number: int) -> int:
    print("line", number)
    return number


def test_lines_of_workers_are_printed_here_with_who_said_them(capsys: pytest.CaptureFixture[str]) -> None:
    env = fn.Environment(parallelism=2)
    env.from_collection(range(100)).rebalance().map(says).name("say").collect()
    env.execute(workers=2)
    lines = capsys.readouterr().out.splitlines()
    expected = [f"[say {1 + number % 2}/2] line {number}" for number in range(100)]
    assert sorted(lines) == sorted(expected)
    for subtask in ("[say 1/2]", "[say 2/2]"):
        own = [line for line in lines if line.startswith(subtask)]
        assert own == [line for line in expected if line.startswith(subtask)], "each subtask's in their order"


def test_what_the_sink_prints_is_printed_as_it_is_and_is_no_news(capsys: pytest.CaptureFixture[str]) -> None:
    env = fn.Environment()
    env.from_collection(["to", "be", "ä" * 100_000]).rebalance().map(str).print()
    with env.execute_async(workers=1) as job:
        job.wait()
    assert capsys.readouterr().out.splitlines() == ["to", "be", "ä" * 100_000]
    assert job.log() == ()


def test_records_of_workers_are_logged_here_as_this_process_says(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def log(number: int) -> int:
        LOG.info("number %d", number)
        LOG.debug("nobody wants this")
        if number == 2:
            try:
                int("two")
            except ValueError:
                LOG.exception("failed")
        return number

    env = fn.Environment()
    env.from_collection(range(3)).rebalance().map(log).name("log").collect()
    with caplog.at_level(logging.INFO, LOG.name), env.execute_async(workers=1) as job:
        job.wait()
    heard = [record for record in caplog.records if record.name == LOG.name]
    *numbers, failed = [(record.levelname, record.getMessage()) for record in heard]
    assert numbers == [("INFO", f"[log] number {number}") for number in range(3)]
    assert failed[0] == "ERROR"
    assert failed[1].startswith("[log] failed\nTraceback")
    assert failed[1].endswith("ValueError: invalid literal for int() with base 10: 'two'")
    kept = [entry for entry in job.log() if entry.logger == LOG.name]
    assert [(entry.level, entry.kind, entry.worker, entry.subtask) for entry in kept] == [
        *[("info", "python", 1, 0)] * 3,
        ("error", "python", 1, 0),
    ]
    assert [vars(record)["flownet_worker"] for record in heard] == [1] * 4
    assert [entry.text for entry in job.log(level="error")] == [kept[-1].text]
    assert [entry.number for entry in job.log(after=kept[1].number)] == [kept[2].number, kept[3].number]


def test_what_functions_log_in_this_process_is_in_the_log_of_their_job(caplog: pytest.LogCaptureFixture) -> None:
    def log(number: int) -> int:
        LOG.warning("here %d", number)
        return number

    env = fn.Environment()
    env.from_collection([1]).map(log).name("log").collect()
    with env.execute_async() as job:
        job.wait()
    LOG.warning("of no job")
    assert [record.getMessage() for record in caplog.records if record.name == LOG.name] == ["here 1", "of no job"]
    assert [(entry.worker, entry.text) for entry in job.log() if entry.kind == "python"] == [(0, "here 1")]


def test_a_record_whose_text_cannot_be_made_is_no_error_of_whoever_logs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    env = fn.Environment()
    env.from_collection([1]).collect()
    env.execute()
    monkeypatch.setattr(logging, "raiseExceptions", False)
    logger = logging.Logger("flownet_tests.alone")
    logger.addHandler(logging.StreamHandler())
    logger.warning("%d", "no number")


def test_a_record_is_formatted_by_its_handlers_as_if_nobody_overheard_it() -> None:
    env = fn.Environment()
    env.from_collection([1]).collect()
    env.execute()
    try:
        int("two")
    except ValueError:
        record = LOG.makeRecord(LOG.name, logging.ERROR, "", 0, "failed", (), sys.exc_info())
    assert record.exc_text is None


def test_standard_error_warnings_threads_and_half_lines_are_heard(capsys: pytest.CaptureFixture[str]) -> None:
    def speak(number: int) -> int:
        print("half", end="", flush=True)
        print("of", end=" ")
        print("a line", file=sys.stdout)
        print("oh", file=sys.stderr)
        warnings.warn("careful", stacklevel=1)
        helper = threading.Thread(target=print, args=("from a thread",))
        helper.start()
        helper.join()
        print("surrogate \udcff")
        return number

    env = fn.Environment()
    env.from_collection([1]).rebalance().map(speak).name("speak").collect()
    env.execute(workers=1)
    out, err = capsys.readouterr()
    mark = out.splitlines()[0].partition("]")[0] + "]"
    assert out.splitlines() == [
        f"{mark} half",
        f"{mark} of a line",
        "[worker 1] from a thread",
        f"{mark} surrogate ?",
    ]
    assert f"{mark} oh\n" in err
    assert "UserWarning: careful" in err


def test_a_function_that_prints_much_waits_and_nothing_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    def flood(number: int) -> int:
        for line in range(20):
            print(number, line, "x" * 1000)
        return number

    env = fn.Environment(parallelism=2)
    env.from_collection(range(500)).rebalance().map(flood).collect()
    with env.execute_async(workers=2) as job:
        job.wait()
    lines = [line.partition("] ")[2].split() for line in capsys.readouterr().out.splitlines()]
    assert sorted((int(number), int(line)) for number, line, _ in lines) == [
        (number, line) for number in range(500) for line in range(20)
    ]
    kept = job.log(most=10_000)
    assert 100 < len(kept) < 3000, "the newest are kept"
    assert kept[-1].number == 10_000


STUCK = """
import itertools, sys, flownet as fn
env = fn.Environment()
env.from_iterable(itertools.count()).rebalance().map(lambda number: print("x" * 10_000)).collect()
with env.execute_async(workers=1) as job:
    while len(job.log()) < 20:
        pass
    job.cancel()
    while job.status().state != "ended":
        pass
    print("ended", file=sys.stderr, flush=True)
"""


def test_a_job_ends_although_nobody_reads_what_it_prints() -> None:
    with subprocess.Popen([sys.executable, "-c", STUCK], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == b"ended\n"
        process.communicate()
    assert process.returncode == 0


def test_what_was_said_before_a_failure_is_printed_before_it_is_raised(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(number: int) -> int:
        print("about to divide")
        return 1 // number

    env = fn.Environment(restart="none")
    env.from_collection([0]).rebalance().map(fail).name("divide").collect()
    with pytest.raises(errors.OperatorError):
        env.execute(workers=1)
    assert capsys.readouterr().out.endswith("] about to divide\n")


def test_a_job_that_restarts_says_why(tmp_path: Path) -> None:
    mark = tmp_path / "failed"

    def once(number: int, mark: str = str(mark)) -> int:
        if not os.path.exists(mark):
            Path(mark).touch()
            raise ValueError("for the first time")
        return number

    env = fn.Environment(restart="fixed:3:10ms")
    env.from_collection([1]).map(once).name("once").collect()
    with env.execute_async() as job:
        job.wait()
    (said,) = [entry for entry in job.log(level="warning") if entry.kind == "rust"]
    assert said.text.startswith("the job failed and is restarted")
    assert "for the first time" in said.text
    assert said.task is None


def test_the_program_of_the_guide_runs(python: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    program, shown = re.findall(r"```(?:python)?\n(.*?)```\n", GUIDE.read_text(), re.DOTALL)[:2]
    (tmp_path / "guide.py").write_text(program)
    finished = python("guide.py")
    assert finished.returncode == 0, finished.stderr
    parsed, warned, *kept = shown.splitlines()
    assert finished.stdout.splitlines() == [parsed, *kept]
    assert finished.stderr.splitlines() == [warned]
