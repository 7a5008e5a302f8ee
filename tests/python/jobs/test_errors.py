"""Bad input and faults: each is a typed error that names the culprit, and nothing of the job is left."""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import flownet as fn
from flownet import errors
from flownet.planning import graph


class Point:
    def __init__(self, x: int) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and other.x == self.x

    def __hash__(self) -> int:
        return self.x


def parse(line: str) -> float:
    return float(line.split(";")[1])


def test_an_exception_of_the_user_comes_with_operator_subtask_record_and_traceback(
    env: fn.Environment, workers: int
) -> None:
    env.from_collection(["2026-11-20;1.5", "2026-11-20;;oops"]).map(parse).name("parse").print()
    with pytest.raises(errors.OperatorError) as caught:
        env.execute(workers)
    error = caught.value
    assert (error.operator, error.parallelism, error.record) == ("parse", 2, "'2026-11-20;;oops'")
    assert error.subtask in (0, 1)
    assert (error.error_type, error.message) == ("ValueError", "could not convert string to float: ''")
    first, *frames, last = str(error).split("\n")
    assert first.startswith(f"operator 'parse' (subtask {error.subtask + 1} of 2")
    assert first.endswith("failed on record '2026-11-20;;oops'")
    assert any("test_errors.py" in frame and "in parse" in frame for frame in frames)
    assert "return float(line" in str(error)
    assert last == "ValueError: could not convert string to float: ''"
    assert "Traceback (most recent call last)" not in str(error)


def test_a_failure_does_not_wait_for_a_neighbour_that_sleeps(env: fn.Environment) -> None:
    def sleep_or_raise(n: int) -> int:
        if n == 0:
            time.sleep(3600)
        raise ValueError(n)

    # The neighbour's worker is killed; were it waited for, so would this test be until its own time is up.
    env.from_collection([0, 1]).rebalance().map(sleep_or_raise).name("sleep or raise").collect()
    with pytest.raises(errors.OperatorError, match="'sleep or raise'"):
        env.execute(workers=2)


def test_a_worker_is_named_when_the_failure_was_in_one(env: fn.Environment) -> None:
    env.from_collection(["x"]).map(int).print()
    with pytest.raises(errors.OperatorError) as caught:
        env.execute(workers=2)
    assert caught.value.worker is not None
    assert "worker" in str(caught.value).split("\n")[0]


def test_a_long_record_is_shortened(env: fn.Environment, workers: int) -> None:
    env.from_collection(["x" * 10_000]).map(int).print()
    with pytest.raises(errors.OperatorError) as caught:
        env.execute(workers)
    assert caught.value.record is not None
    assert len(caught.value.record) <= 210


def test_a_failure_ends_a_job_whose_sources_have_no_end(workers: int) -> None:
    def fail(n: int) -> int:
        if n == 1000:
            raise ArithmeticError(n)
        return n

    env = fn.Environment(buffer_timeout="1ms")
    env.from_iterable(itertools.count()).rebalance().filter(lambda n: fail(n) < 0).print()
    with pytest.raises(errors.OperatorError, match="ArithmeticError: 1000"):
        env.execute(workers)


@pytest.mark.parametrize("error_type", [SystemExit, KeyboardInterrupt, StopIteration])
def test_no_exception_of_a_user_ends_more_than_the_job(
    env: fn.Environment, workers: int, error_type: type[BaseException]
) -> None:
    def fail(n: int) -> int:
        raise error_type("why")

    env.from_collection([1]).map(fail).print()
    with pytest.raises(errors.OperatorError) as caught:
        env.execute(workers)
    assert caught.value.error_type == error_type.__name__


def test_a_type_without_a_codec_names_the_operator_the_type_and_the_way_out(env: fn.Environment, workers: int) -> None:
    env.from_collection([1]).map(Point).name("points").rebalance().map(lambda point: point.x).print()
    with pytest.raises(errors.CodecError, match="Point") as caught:
        env.execute(workers)
    assert caught.value.operator == "points"
    assert 'codec="pickle"' in str(caught.value)


def test_any_type_passes_between_operators_of_one_task(env: fn.Environment, workers: int) -> None:
    collected = env.from_collection([1, 2]).map(Point).map(lambda point: point.x).collect()
    env.execute(workers)
    assert sorted(collected) == [1, 2]


def test_the_pickle_codec_moves_what_the_typed_one_refuses(workers: int) -> None:
    env = fn.Environment(parallelism=2, codec="pickle")
    collected = env.from_collection([1, 2]).map(Point).rebalance().map(lambda point: point).collect()
    env.execute(workers)
    assert sorted(point.x for point in collected) == [1, 2]


def test_a_record_larger_than_the_limit_names_both_sizes(workers: int) -> None:
    env = fn.Environment(max_record_size="100KiB")
    env.from_collection([1]).map(lambda _: bytes(200_000)).name("large").rebalance().map(len).print()
    with pytest.raises(errors.RecordTooLargeError) as caught:
        env.execute(workers)
    assert caught.value.bytes is not None
    assert caught.value.bytes >= 200_000
    assert caught.value.max_bytes == 100 << 10
    assert "raise max_record_size" in str(caught.value)


def test_a_record_larger_than_all_memory_of_the_pool_passes_in_pieces(workers: int) -> None:
    env = fn.Environment(network_memory="256KiB", segment_size="4KiB", parallelism=2)
    sizes = env.from_collection([1]).map(lambda _: bytes(1 << 20)).rebalance().map(len).disable_chaining().collect()
    env.execute(workers)
    assert sizes == [1 << 20]


def test_memory_that_does_not_suffice_is_refused_with_the_numbers_before_the_job_starts(
    env: fn.Environment,
) -> None:
    small = fn.Environment(parallelism=8, network_memory="128KiB", segment_size="32KiB")
    small.from_collection(range(10)).rebalance().map(str).rebalance().map(len).print()
    with pytest.raises(errors.InsufficientBuffersError, match="network_memory") as caught:
        small.execute(workers=2)
    error = caught.value
    assert (error.total, error.segment_bytes) == (4, 32 << 10)
    assert error.needed is not None
    assert error.needed > 4


def test_what_would_be_refused_is_explained_to_the_end_and_ends_with_the_refusal() -> None:
    small = fn.Environment(parallelism=8, network_memory="128KiB", segment_size="32KiB")
    small.from_collection(range(10)).rebalance().map(str).name("text").rebalance().map(len).print()
    *plan, refusal = small.explain(workers=2).splitlines()
    assert [line for line in plan if line.startswith("task ") and "text" in line]
    assert any(line.startswith("buffers: needs ") for line in plan)
    with pytest.raises(errors.InsufficientBuffersError) as caught:
        small.execute(workers=2)
    assert refusal == f"refused: {caught.value}"
    for word in (str(caught.value.needed), "network_memory", "segment_size", "parallelism"):
        assert word in refusal


def test_more_subtasks_than_key_groups_are_refused_before_the_job_starts() -> None:
    env = fn.Environment(parallelism=4, max_parallelism=2)
    env.from_collection([1]).key_by(lambda n: n).count().print()
    with pytest.raises(errors.PlanError, match="max_parallelism is 2"):
        env.execute(workers=0)


def test_more_subtasks_than_slots_are_refused_before_the_job_starts() -> None:
    env = fn.Environment(parallelism=8, slots_per_worker=2)
    env.from_collection([1]).rebalance().map(str).print()
    with pytest.raises(errors.PlanError, match="slots_per_worker"):
        env.execute(workers=2)


def test_an_empty_dataflow_says_how_to_begin(env: fn.Environment, workers: int) -> None:
    with pytest.raises(errors.PlanError, match="begin with a source"):
        env.execute(workers)
    with pytest.raises(errors.PlanError, match="begin with a source"):
        env.explain()


def test_a_source_that_nobody_reads_is_refused(env: fn.Environment, workers: int) -> None:
    env.from_collection([1])
    with pytest.raises(errors.PlanError, match="'from_collection' has neither an input nor an output"):
        env.execute(workers)


def test_a_cycle_made_by_hand_names_its_operators(env: fn.Environment, workers: int) -> None:
    stream = env.from_collection([1]).map(str).name("first")
    second = stream.map(str).name("second")
    stream._origins[0].node.inputs += second._origins
    with pytest.raises(errors.CycleError) as caught:
        env.execute(workers)
    assert set(caught.value.operators) == {"first", "second"}


def test_heartbeats_that_leave_no_room_are_refused() -> None:
    with pytest.raises(errors.ConfigError, match="heartbeat_timeout"):
        fn.Environment(heartbeat_interval="10s", heartbeat_timeout="1s")


def test_a_worker_killed_from_outside_is_named(child_pids: Callable[[], set[int]]) -> None:
    env = fn.Environment(parallelism=2, buffer_timeout="1ms", heartbeat_timeout="5s")
    arrived = threading.Event()

    class Arrived:
        def extend(self, records: list[int]) -> None:
            arrived.set()

    def endless() -> Iterator[int]:
        while True:
            yield 1

    env.from_iterable(endless()).rebalance().map(lambda n: n).collect(into=Arrived())
    before = child_pids()
    with env.execute_async(workers=2) as job:
        assert arrived.wait(30)
        victim = min(child_pids() - before)
        os.kill(victim, signal.SIGKILL)
        with pytest.raises(errors.WorkerLostError, match=f"{victim}") as caught:
            job.wait()
    assert caught.value.pid == victim
    assert "signal 9" in str(caught.value)


def test_a_worker_that_falls_silent_is_named_within_the_heartbeat_limit(child_pids: Callable[[], set[int]]) -> None:
    env = fn.Environment(parallelism=2, heartbeat_interval="100ms", heartbeat_timeout="1s")
    arrived = threading.Event()

    class Arrived:
        def extend(self, records: list[int]) -> None:
            arrived.set()

    env.from_iterable(itertools.count()).rebalance().map(lambda n: n).collect(into=Arrived())
    before = child_pids()
    with env.execute_async(workers=2) as job:
        assert arrived.wait(30)
        victim = min(child_pids() - before)
        os.kill(victim, signal.SIGSTOP)
        with pytest.raises(errors.WorkerLostError, match="silent for") as caught:
            job.wait()
    assert caught.value.pid == victim


def test_a_worker_that_stands_still_for_less_than_the_heartbeat_limit_is_kept(
    child_pids: Callable[[], set[int]],
) -> None:
    env = fn.Environment(parallelism=2, heartbeat_interval="100ms", heartbeat_timeout="1min")
    arrived, resumed = threading.Event(), threading.Event()
    received: list[int] = []

    class Arrived:
        def extend(self, records: list[int]) -> None:
            received.extend(records)
            arrived.set()

    def numbers() -> Iterator[int]:
        yield from range(50_000)
        assert resumed.wait(50)
        yield from range(50_000)

    env.from_iterable(numbers()).rebalance().map(lambda n: n).rebalance().collect(into=Arrived())
    before = child_pids()
    with env.execute_async(workers=2) as job:
        assert arrived.wait(30)
        victim = min(child_pids() - before)
        os.kill(victim, signal.SIGSTOP)
        # Long enough for many heartbeats that are not answered, on every connection.
        time.sleep(2)
        os.kill(victim, signal.SIGCONT)
        resumed.set()
        job.wait()
    assert sorted(received) == sorted([*range(50_000)] * 2)


def test_strangers_on_the_ports_of_a_job_change_nothing(child_pids: Callable[[], set[int]]) -> None:
    env = fn.Environment(parallelism=2, buffer_timeout="1ms")
    arrived, done = threading.Event(), threading.Event()

    class Counts:
        def __init__(self) -> None:
            self.records = 0

        def extend(self, records: list[int]) -> None:
            self.records += len(records)
            arrived.set()

    def numbers() -> Iterator[int]:
        yield from range(10_000)
        assert done.wait(50)
        yield from range(10_000)

    counts = Counts()
    env.from_iterable(numbers()).rebalance().map(lambda n: n).collect(into=counts)
    before = child_pids()
    with env.execute_async(workers=2) as job:
        assert arrived.wait(30)
        ports = {port for pid in {os.getpid(), *(child_pids() - before)} for port in listening_ports(pid)}
        assert len(ports) >= 3, "two workers and the coordinator listen"
        for port in ports:
            for noise in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096), b"\xff" * 64, b"fl"):
                with socket.create_connection(("127.0.0.1", port), timeout=10) as stranger:
                    stranger.sendall(noise)
        done.set()
        job.wait()
    assert counts.records == 20_000


def test_every_error_has_the_base_class_and_travels_through_pickle() -> None:
    classes = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert len(classes) > 10
    for error_class in classes:
        assert issubclass(error_class, (errors.FlownetError, errors.StalledWarning, errors.UsageWarning))
        error = error_class("text")
        assert str(pickle.loads(pickle.dumps(error))) == str(error) == "text"
    error = errors.WorkerLostError("gone", worker="worker 1", pid=7)
    copied = pickle.loads(pickle.dumps(error))
    assert (copied.worker, copied.pid, copied.reason) == ("worker 1", 7, None)


def test_standard_base_classes_let_callers_catch_what_they_know() -> None:
    for error_class, base in {
        errors.ConfigError: ValueError,
        errors.PlanError: ValueError,
        errors.NotShippableError: TypeError,
        errors.InputError: OSError,
        errors.ConnectionLostError: ConnectionError,
        errors.CodecError: ValueError,
    }.items():
        assert issubclass(error_class, base)


def test_the_graph_is_plain_data() -> None:
    operator = graph.Operator(0, None, "map", "map", b"", None, None, None, 1)
    assert (operator.chaining, operator.on_driver) == ("always", False)


def listening_ports(pid: int) -> set[int]:
    """Ports of the sockets that a process listens on."""
    inodes = set[str]()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(link)
        except FileNotFoundError:
            continue  # closed meanwhile
        if target.startswith("socket:["):
            inodes.add(target.removeprefix("socket:[").removesuffix("]"))
    rows: list[Any] = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return {int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A" and row[9] in inodes}


def test_the_cause_is_told_before_user_code_has_closed(workers: int, tmp_path: Path) -> None:
    """And not what the failure did to others meanwhile, however long `close` takes."""
    released = tmp_path / "released"

    class SlowToClose(fn.KeyedProcessFunction[int, int, int]):
        def process(self, value: int, ctx: fn.ProcessContext[int]) -> list[int]:
            raise ValueError("the cause")

        def close(self) -> None:
            while not released.exists():
                time.sleep(0.01)

    env = fn.Environment(parallelism=2, buffer_timeout="1ms")
    env.from_iterable(itertools.count()).key_by(lambda n: n).process(SlowToClose()).rebalance().collect()
    try:
        with pytest.raises(errors.OperatorError, match="the cause"):
            env.execute(workers)
    finally:
        released.touch()


def in_a_folder_that_is_gone(script: str, tmp_path: Path) -> str:
    folder = tmp_path / "gone"
    folder.mkdir()
    leave = f"import os, flownet as fn; os.chdir({str(folder)!r}); os.rmdir({str(folder)!r})"
    code = f"{leave}; env = fn.Environment(); {script}"
    ran = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    return ran.stderr.strip().rpartition("\n")[2]


def test_a_working_directory_that_is_gone_is_named(tmp_path: Path) -> None:
    run_it = "env.from_collection([1]).print(); env.execute(workers=1)"
    assert "LaunchError: the working directory of this process is gone" in in_a_folder_that_is_gone(run_it, tmp_path)
    read_it = "env.read_text('words.txt')"
    assert "InputError: cannot read 'words.txt': it is relative, and" in in_a_folder_that_is_gone(read_it, tmp_path)


def test_a_message_that_is_no_utf_8_keeps_its_traceback(env: fn.Environment, workers: int) -> None:
    def fail(record: object) -> object:
        raise ValueError("half a pair: \ud800")

    env.from_collection([1]).map(fail).print()
    with pytest.raises(errors.OperatorError, match="half a pair") as caught:
        env.execute(workers)
    assert "in fail" in str(caught.value)
