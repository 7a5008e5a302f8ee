"""Samples of a subtask: what they find where, who may ask for them, and that nothing of them stays."""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import flownet as fn
from flownet import errors
from flownet.client import Client as RemoteJobs
from flownet.observation import Flame

from .test_server import Client, request, until

FAST = {"samples": 40, "every_ms": 10}


@pytest.fixture
def client(ui: fn.observation.Ui) -> Client:
    return Client(ui)


@pytest.fixture
def remote(ui: fn.observation.Ui) -> RemoteJobs:
    return RemoteJobs(ui.url)


def burn(rounds: int) -> int:
    return sum(number * number for number in range(rounds))


def work(number: int) -> int:
    burn(20_000)
    return number


def sleep(number: int) -> int:
    time.sleep(0.01)
    return number


def hold(number: int) -> int:
    # Unlike time.sleep it does not let the interpreter go.
    ctypes.PyDLL(None).usleep(300_000)
    return number


async def fetch(number: int) -> int:
    burn(2_000)
    await asyncio.sleep(0.005)
    return number


def endless(function: Callable[[int], int]) -> fn.Environment:
    env = fn.Environment(status_interval="50ms")
    numbers = env.from_iterable(itertools.count()).rebalance()
    numbers.map(function).name("work").filter(lambda _: False).collect()
    return env


def found(flame: Flame, what: str) -> int:
    """Samples of all frames of a function or a state, which is not within itself."""
    return sum(frame.samples for frame in flame.frames if what in {frame.function, frame.state})


def test_a_function_that_burns_is_found_in_most_samples(
    ui: fn.observation.Ui, remote: RemoteJobs, workers: int
) -> None:
    with endless(work).execute_async(workers, ui=ui) as job:
        until(lambda: job.status().tasks[1].records_in > 0)
        flame = remote.flame("1", 1, 0, **FAST)
    assert (flame.asked, flame.every_seconds, flame.has_ended) == (40, 0.01, False)
    assert 0 < flame.taken <= flame.asked
    assert found(flame, "work") > flame.taken / 2
    assert found(flame, "burn") > flame.taken / 2
    # Its first line is where it is found as it begins, which is seldom.
    burning = [frame for frame in flame.frames if frame.function == "burn"]
    assert burn.__code__.co_firstlineno + 1 in {frame.line for frame in burning}
    for frame in burning:
        assert frame.below is not None
        assert flame.frames[frame.below].function == "work"
        assert frame.file == __file__
    # There may be several: a finaliser, or a state of the task, is a stack of its own.
    beginning = f"work (web/test_flame.py:{work.__code__.co_firstlineno + 1});burn (web/test_flame.py:"
    samples = {stack: int(count) for stack, _, count in (line.rpartition(" ") for line in flame.folded())}
    inner = {stack: count for stack, count in samples.items() if "burn.<locals>.<genexpr>" in stack}
    assert inner
    assert sum(count for stack, count in inner.items() if stack.startswith(beginning)) > sum(inner.values()) / 2, inner
    assert sum(samples.values()) == flame.taken


def test_a_function_that_sleeps_is_found_there_and_who_waits_for_it_is_found_waiting(
    ui: fn.observation.Ui, remote: RemoteJobs, workers: int
) -> None:
    with endless(sleep).execute_async(workers, ui=ui) as job:
        until(lambda: job.status().tasks[0].back_pressured > 0.9)
        source, sleeper = remote.flame("1", 0, 0, **FAST), remote.flame("1", 1, 0, **FAST)
    assert found(sleeper, "sleep") > sleeper.taken / 2
    assert (sleeper.back_pressured or 0) < 0.1
    assert source.back_pressured is not None
    assert source.back_pressured > 0.5, "HIGH by its samples"
    assert source.ledger_back_pressured is not None
    assert source.ledger_back_pressured > 0.5, "HIGH by its ledger"
    waits = found(source, "soft_back_pressured") + found(source, "hard_back_pressured")
    assert waits == round(source.back_pressured * source.taken)


def test_a_function_that_keeps_the_interpreter_is_found_all_the_same(ui: fn.observation.Ui, remote: RemoteJobs) -> None:
    env = fn.Environment(status_interval="50ms")
    env.from_iterable(itertools.count()).rebalance().map(hold).name("work").filter(lambda _: False).collect()
    with env.execute_async(1, ui=ui) as job:
        until(lambda: job.status().tasks[1].records_in > 0)
        flame = remote.flame("1", 1, 0, samples=100, every_ms=20)
        job.cancel()
        with pytest.raises(errors.CancelledError):
            job.wait()
    assert flame.asked == 100
    assert found(flame, "hold") > flame.taken / 2


def test_beside_calls_that_are_waited_for_their_event_loop_is_shown(
    ui: fn.observation.Ui, remote: RemoteJobs, workers: int
) -> None:
    env = fn.Environment(status_interval="50ms")
    numbers = env.from_iterable(itertools.count()).rebalance()
    numbers.map_async(fetch, capacity=4).name("work").filter(lambda _: False).collect()
    with env.execute_async(workers, ui=ui) as job:
        until(lambda: job.status().tasks[1].records_in > 0)
        flame = remote.flame("1", 1, 0, **FAST)
    loops = [frame for frame in flame.frames if frame.function == "BaseEventLoop.run_forever"]
    assert loops
    outermost = []
    for frame in loops:
        below = frame
        while below.below is not None:
            below = flame.frames[below.below]
        outermost.append(below.state)
    assert set(outermost) <= {"awaiting", "idle"}


def test_rows_without_python_have_states_and_no_functions(
    ui: fn.observation.Ui, remote: RemoteJobs, workers: int, tmp_path: Path
) -> None:
    def batches(subtask: int, subtasks: int) -> pa.RecordBatchReader:
        batch = pa.record_batch({"x": list(range(1000))})
        return pa.RecordBatchReader.from_batches(batch.schema, itertools.repeat(batch))

    env = fn.Environment(status_interval="50ms")
    rows = env.from_arrow(batches, schema={"x": "int64"}).rebalance()
    rows.filter(fn.col("x") % 7 == 0).key_by("x").running_agg(seen=fn.count()).filter(fn.col("seen") < 0).write_csv(
        tmp_path
    )
    with env.execute_async(workers, ui=ui) as job:
        until(lambda: len(job.status().tasks) > 1 and job.status().tasks[1].records_in > 0)
        flame = remote.flame("1", 1, 0, **FAST)
        job.cancel()
        with pytest.raises(errors.CancelledError):
            job.wait()
    assert flame.taken > 0
    assert {frame.function for frame in flame.frames} == {None}
    assert sum(frame.samples for frame in flame.frames) == flame.taken


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("0/0?samples=0", 400, "samples = 0: take 1 to 1000"),
        ("0/0?samples=1001", 400, "samples = 1001: take 1 to 1000"),
        ("0/0?samples=-1", 400, 'samples = "-1" is to be a whole number'),
        ("0/0?samples=", 400, 'samples = "" is to be a whole number'),
        ("0/0?samples=99999999999999999999", 400, "is to be a whole number"),
        ("0/0?every_ms=9", 400, "every_ms = 9: take 10 to 1000"),
        ("0/0?every_ms=1001", 400, "every_ms = 1001: take 10 to 1000"),
        ("0/0?every_ms=5e1", 400, "is to be a whole number"),
        ("0/0?samples=100&every_ms=601", 400, "100 samples 601 ms apart take 60.1 s: it may be 60 s at most"),
        ("0/0?samples=1&samples=2", 400, "duplicate field"),
        ("0/2", 404, "there is no subtask 2 of task 0: it has 1, from 0"),
        ("9/0", 404, "there is no task 9 in this job: it has 3, from 0"),
        ("0/x", 404, "are to be the numbers of a task and a subtask"),
        ("-1/0", 404, "are to be the numbers of a task and a subtask"),
    ],
)
def test_what_cannot_be_sampled_is_refused_with_a_sentence(
    ui: fn.observation.Ui, client: Client, path: str, status: int, said: str
) -> None:
    with endless(sleep).execute_async(ui=ui) as job:
        until(lambda: job.status().records > 0)
        answered, _, text = client.ask(f"/api/v1/jobs/1/flame/{path}")
        assert (answered, said in json.loads(text)["error"]) == (status, True), text


def test_a_job_that_is_not_there_and_one_that_has_ended_are_not_sampled(
    ui: fn.observation.Ui, client: Client, remote: RemoteJobs
) -> None:
    with pytest.raises(errors.NoSuchJobError):
        remote.flame("7", 0, 0)
    env = fn.Environment()
    env.from_collection([1]).collect()
    env.execute(ui=ui)
    status, _, text = client.ask("/api/v1/jobs/1/flame/0/0")
    assert (status, "does not run now" in json.loads(text)["error"]) == (409, True)
    with pytest.raises(errors.UiError, match="there is no task 7"):
        remote.flame("1", 7, 0)


def asked_elsewhere(client: Client, path: str) -> tuple[threading.Thread, list[tuple[int, Any]]]:
    answers: list[tuple[int, Any]] = []

    def ask() -> None:
        while not answers:
            status, _, text = client.ask(path)
            # Whoever looks whether it is its turn may have had it.
            if "one at a time" not in text:
                answers.append((status, json.loads(text)))

    thread = threading.Thread(target=ask)
    thread.start()
    return thread, answers


def is_being_sampled(client: Client) -> bool:
    status, _, text = client.ask("/api/v1/jobs/1/flame/1/0?samples=1&every_ms=10")
    assert status in {200, 409}
    return status == 409 and "one at a time" in json.loads(text)["error"]


def test_one_subtask_of_a_job_is_sampled_at_a_time_and_its_end_ends_that(
    ui: fn.observation.Ui, client: Client, workers: int
) -> None:
    with endless(sleep).execute_async(workers, ui=ui) as job:
        until(lambda: job.status().records > 0)
        thread, answers = asked_elsewhere(client, "/api/v1/jobs/1/flame/0/0?samples=60&every_ms=1000")
        until(lambda: answers or is_being_sampled(client))
        assert not answers
        job.cancel()
        with pytest.raises(errors.CancelledError):
            job.wait()
        thread.join()
    ((status, answer),) = answers
    if status == 200:
        assert answer["has_ended"]
        assert answer["taken"] < answer["asked"]
    else:
        assert (status, "does not run now" in answer["error"]) == (409, True)


def test_who_hangs_up_ends_it_and_its_thread_goes(
    ui: fn.observation.Ui, client: Client, runtime_threads: Callable[[], set[str]]
) -> None:
    with endless(sleep).execute_async(ui=ui) as job:
        until(lambda: job.status().records > 0)
        before = sys.getswitchinterval()
        with socket.create_connection(("127.0.0.1", ui.port)) as asking:
            asking.sendall(request(ui, "/api/v1/jobs/1/flame/1/0?samples=60&every_ms=1000"))
            until(lambda: "flownet-sample" in runtime_threads())
            assert is_being_sampled(client)
        until(lambda: not is_being_sampled(client))
        until(lambda: "flownet-sample" not in runtime_threads())
        assert sys.getswitchinterval() == before


def test_sampling_leaves_the_interpreter_as_it_was(
    ui: fn.observation.Ui, remote: RemoteJobs, runtime_threads: Callable[[], set[str]]
) -> None:
    before = sys.getswitchinterval()
    with endless(work).execute_async(ui=ui) as job:
        until(lambda: job.status().records > 0)
        remote.flame("1", 1, 0, **FAST)
        until(lambda: "flownet-sample" not in runtime_threads())
        assert sys.getswitchinterval() == before


def test_a_graph_whose_frames_lie_on_none_is_no_flownets() -> None:
    frames = [{"below": 0, "samples": 1, "function": "f", "file": "f.py", "line": 1, "state": None}]
    with pytest.raises(errors.UiError, match="a frame of a flame graph is on none"):
        RemoteJobs("http://127.0.0.1:1")._flame({"frames": frames})
