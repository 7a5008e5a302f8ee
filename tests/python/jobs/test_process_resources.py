"""What a job tells of its processes: what they take of the machine, and what Python's garbage costs."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import flownet as fn
from flownet.observation import WorkerSample

COLLECTIONS = 5


class Wasteful(fn.MapFunction[int, int]):
    """Computes, holds threads and files, and leaves garbage that it has collected."""

    def open(self, ctx: fn.TaskContext) -> None:
        self.files = [Path(os.devnull).open() for _ in range(50)]
        self.leave = threading.Event()
        self.threads = [threading.Thread(target=self.leave.wait) for _ in range(20)]
        for thread in self.threads:
            thread.start()

    def map(self, value: int) -> int:
        until = time.process_time() + 0.2
        while time.process_time() < until:
            pass
        for _ in range(COLLECTIONS):
            gc.collect()
        return value

    def close(self) -> None:
        self.leave.set()
        for thread in self.threads:
            thread.join()
        for file in self.files:
            file.close()


def test_a_process_tells_what_it_takes_of_the_machine(workers: int, tmp_path: Path) -> None:
    env = fn.Environment(status_interval="20ms")
    place = 1 if workers else 0
    mapped = env.from_collection([1]).map(Wasteful())
    # What comes later keeps the files open until somebody has looked.
    gate = str(tmp_path / "seen")
    mapped.map(lambda value: until_there(gate)).collect()
    # This process has run other tests before.
    files, threads = (0, 0) if workers else (how_many("fd"), how_many("task"))

    def is_wasteful(process: WorkerSample) -> bool:
        # Linux before 6.2 does not tell how many files are open.
        has_opened = process.open_files is None or process.open_files > files + 40
        has_started = (process.threads or 0) > threads + 15
        return has_opened and has_started and process.gc_collections >= COLLECTIONS and process.cpu_seconds > 0.2

    with env.execute_async(workers) as job:
        while not (found := [one for one in job.sample().workers if one.worker == place and is_wasteful(one)]):
            time.sleep(0.01)
        (used,) = found
        Path(gate).touch()
        result = job.wait()
        (seen,) = (one for one in job.sample().workers if one.worker == place)
    # By the clock: beside others a collection takes longer than it computes.
    assert used.gc_seconds > 0
    if workers:
        assert used.gc_seconds < result.seconds
    assert (seen.cpu_seconds, seen.gc_collections) >= (used.cpu_seconds, used.gc_collections)


def how_many(of: str) -> int:
    return len(os.listdir(f"/proc/self/{of}"))


def until_there(path: str) -> None:
    while not os.path.exists(path):
        time.sleep(0.01)


def test_collections_are_noted_once_whatever_jobs_a_process_runs() -> None:
    for _ in range(2):
        env = fn.Environment()
        env.from_collection([1]).map(lambda value: gc.collect()).collect()
        env.execute()
    noting = [callback for callback in gc.callbacks if getattr(callback, "__name__", "") == "note_collection"]
    assert len(noting) == 1


def test_many_tasks_keep_the_interpreter_for_longer_and_it_is_as_before_behind_them() -> None:
    before = sys.getswitchinterval()
    is_longer = threading.Event()

    def numbers(subtask: int, _: int) -> Iterator[int]:
        # All stay until one of them has seen it: it becomes shorter as they leave.
        while not is_longer.is_set():
            if sys.getswitchinterval() > before:
                is_longer.set()
            time.sleep(0.001)
        yield subtask

    env = fn.Environment(parallelism=150, object_reuse=True)
    collected = env.from_iterable(numbers).rebalance().map(abs).collect()
    env.execute()
    assert sorted(collected) == list(range(150))
    assert sys.getswitchinterval() == before
