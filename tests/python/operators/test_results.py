"""`execute_and_collect`: the records of a job that runs meanwhile."""

from __future__ import annotations

import gc
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import flownet as fn
from flownet import errors


def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        time.sleep(0.01)


def test_records_come_each_once_and_then_the_result(env: fn.Environment, workers: int) -> None:
    with env.from_collection(range(50_000)).rebalance().map(str).execute_and_collect(workers) as results:
        assert results.result is None
        assert sorted(map(int, results)) == list(range(50_000))
        assert results.result is not None
        assert results.result.records == 50_000
        assert list(results) == [], "there is nothing more"
    assert results.job.status().state == "ended"


def test_of_a_stream_without_an_end_one_takes_what_one_wants(env: fn.Environment, workers: int) -> None:
    numbers = env.from_iterable(itertools.count()).map(lambda number: number + 1).set_parallelism(1)
    with numbers.execute_and_collect(workers) as results:
        assert list(itertools.islice(results, 5)) == [1, 2, 3, 4, 5]
    assert results.job.status().state == "ended"


def test_the_job_waits_for_whoever_iterates(env: fn.Environment) -> None:
    drawn: list[int] = []

    def numbers() -> Iterator[int]:
        for number in itertools.count():
            drawn.append(number)
            yield number

    with env.from_iterable(numbers()).execute_and_collect() as results:
        assert next(results) == 0
        until(lambda: has_come_to_rest(drawn))
        waiting = len(drawn)
        # What waits here are four batches of it; the source and the sink are one task.
        assert waiting < 20_000
        assert list(itertools.islice(results, waiting)) == list(range(1, waiting + 1))
        until(lambda: len(drawn) > waiting)


def has_come_to_rest(drawn: list[int]) -> bool:
    before = len(drawn)
    time.sleep(0.3)
    return before == len(drawn)


def take_into(found: list[int], results: Iterator[int]) -> None:
    for number in results:
        found.append(number)


def test_what_ends_the_job_is_raised_behind_the_records_before_it(env: fn.Environment, workers: int) -> None:
    def fails(number: int) -> int:
        if number == 5_000:
            raise ValueError("five thousand")
        return number

    found: list[int] = []
    with env.from_collection(range(10_000)).map(fails).set_parallelism(1).execute_and_collect(workers) as results:
        with pytest.raises(errors.OperatorError, match="five thousand"):
            take_into(found, results)
        assert results.result is None
    assert found == list(range(len(found)))


def test_a_job_that_is_cancelled_elsewhere_ends_though_nobody_takes_its_records(env: fn.Environment) -> None:
    with env.from_iterable(itertools.count()).execute_and_collect() as results:
        next(results)
        results.job.cancel()
        until(lambda: results.job.status().state == "ended")
        with pytest.raises(errors.CancelledError):
            list(results)


def test_a_job_that_fails_ends_though_nobody_takes_its_records(env: fn.Environment, tmp_path: Path) -> None:
    def fails(number: int) -> int:
        if (tmp_path / "now").exists():
            raise ValueError("now")
        return number

    numbers = env.from_iterable(itertools.count()).rebalance().map(fails)
    with numbers.execute_and_collect() as results:
        next(results)
        (tmp_path / "now").touch()
        until(lambda: results.job.status().state == "ended")
        with pytest.raises(errors.OperatorError, match="now"):
            list(results)


def test_a_stop_brings_what_is_left(env: fn.Environment) -> None:
    with env.from_iterable(itertools.count()).execute_and_collect() as results:
        first = next(results)
        results.job.stop()
        rest = list(results)
        assert results.result is not None
    assert [first, *rest] == list(range(len(rest) + 1))


def test_one_that_is_forgotten_ends_its_job(env: fn.Environment) -> None:
    results = env.from_iterable(itertools.count()).execute_and_collect()
    next(results)
    job = results.job
    del results
    gc.collect()
    with pytest.raises(errors.CancelledError):
        job.wait()


def test_an_exception_of_whoever_iterates_ends_the_job(env: fn.Environment) -> None:
    results = env.from_iterable(itertools.count()).execute_and_collect()
    with pytest.raises(KeyError), results:
        raise KeyError(next(results))
    assert results.job.status().state == "ended"


def test_nothing_else_of_the_environment_runs(env: fn.Environment, tmp_path: Path) -> None:
    numbers = env.from_collection([1, 2, 3])
    written = numbers.map(str)
    written.write_text(tmp_path / "out")
    collected = written.collect()
    unread = env.from_collection([4]).map(str)
    with numbers.map(lambda number: -number).execute_and_collect() as results:
        assert sorted(results) == [-3, -2, -1]
    assert not (tmp_path / "out").exists()
    assert list(collected) == []
    unread.collect()
    env.execute()
    assert sorted(collected) == ["1", "2", "3"], "and it is left as it was"


def test_records_that_go_round_are_waited_for(env: fn.Environment) -> None:
    halved = env.from_collection([8, 5]).iterate(lambda numbers: numbers.map(lambda n: n // 2), lambda n: n <= 2)
    with halved.execute_and_collect() as results:
        assert sorted(results) == [2, 2]


def test_a_job_with_checkpoints_takes_none_and_is_not_begun_again(tmp_path: Path) -> None:
    env = fn.Environment(restart="fixed:3:10ms")
    env.enable_checkpointing("10ms", storage=tmp_path / "checkpoints")
    shares = env.from_collection(range(100, -1, -1), rate_limit=1000).map(lambda number: 100 // number)
    with shares.execute_and_collect() as results:
        with pytest.raises(errors.OperatorError, match="ZeroDivisionError"):
            list(results)
        assert results.job.status().restarted == 0
    assert not (tmp_path / "checkpoints").exists()


def test_any_thread_may_iterate(env: fn.Environment) -> None:
    found: list[int] = []
    with env.from_collection(range(20_000)).execute_and_collect() as results:
        reader = threading.Thread(target=lambda: found.extend(results))
        reader.start()
        reader.join()
    assert found == list(range(20_000))
