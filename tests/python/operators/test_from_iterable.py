from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import flownet as fn

if TYPE_CHECKING:
    from tests.python.conftest import Run


def test_a_generator_is_read_to_its_end_in_order(env: fn.Environment, run: Run) -> None:
    assert run(env.from_iterable(n * n for n in range(5000))) == [n * n for n in range(5000)]


def test_an_iterable_that_can_be_read_again_runs_again(env: fn.Environment, workers: int) -> None:
    collected = env.from_iterable([1, 2]).collect()
    for _ in range(2):
        env.execute(workers)
        assert collected == [1, 2]


def test_a_generator_is_pulled_only_as_fast_as_downstream_takes(workers: int) -> None:
    env = fn.Environment(network_memory="256KiB", segment_size="1KiB", buffer_timeout=0)
    pulled = 0
    seen_when_first_arrived: list[int] = []
    release = threading.Event()

    def numbers() -> Iterator[bytes]:
        nonlocal pulled
        while pulled < 20_000:
            pulled += 1
            yield bytes(100)

    class Slow:
        def extend(self, records: list[bytes]) -> None:
            release.wait(30)
            seen_when_first_arrived.append(pulled)

    env.from_iterable(numbers()).rebalance().map(lambda n: n).disable_chaining().collect(into=Slow())
    with env.execute_async(workers) as job:
        before = -1
        # The source has stopped once it has not moved between two looks, each a round trip to the coordinator.
        while pulled == 0 or pulled != before:
            before = pulled
            with pytest.raises(TimeoutError):
                job.wait(0.3)
        assert pulled < 15_000, "2 MB were pulled through 256 KiB of buffers although nobody took them"
        release.set()
        job.wait()
    assert pulled == 20_000


def test_an_endless_generator_ends_with_the_job(env: fn.Environment, workers: int) -> None:
    arrived = threading.Event()

    class Arrived:
        def extend(self, records: list[int]) -> None:
            arrived.set()

    env.from_iterable(itertools.count()).rebalance().map(lambda n: n).collect(into=Arrived())
    with env.execute_async(workers) as job:
        assert arrived.wait(30)
        job.cancel()
        with pytest.raises(fn.errors.CancelledError):
            job.wait()


def test_an_exception_of_the_generator_is_an_operator_error(env: fn.Environment, run: Run) -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise RuntimeError("the well is dry")

    with pytest.raises(fn.errors.OperatorError, match="operator 'well'") as caught:
        run(env.from_iterable(broken()).name("well"))
    assert (caught.value.error_type, caught.value.message) == ("RuntimeError", "the well is dry")


def test_what_cannot_be_iterated_over_is_refused_at_once(env: fn.Environment) -> None:
    with pytest.raises(fn.errors.PlanError, match="something to iterate over, not int 5"):
        env.from_iterable(5)  # type: ignore[arg-type]


def test_a_function_makes_the_iterable_of_each_subtask_where_it_runs(env: fn.Environment, run: Run) -> None:
    def share(subtask: int, subtasks: int) -> Iterator[tuple[int, int]]:
        # A generator: it could not be sent to a worker itself.
        yield from ((number, subtasks) for number in range(subtask, 5000, subtasks))

    records = run(env.from_iterable(share).set_parallelism(3))
    assert sorted(records) == [(number, 3) for number in range(5000)]


def test_a_function_runs_anew_in_each_run_and_by_the_parallelism_of_the_environment(workers: int) -> None:
    env = fn.Environment(parallelism=2)
    collected = env.from_iterable(lambda subtask, subtasks: [subtask, subtasks]).collect()
    for _ in range(2):
        env.execute(workers)
        assert sorted(collected) == [0, 1, 2, 2]


def test_what_is_callable_and_iterable_is_iterated_over(env: fn.Environment, run: Run) -> None:
    class Both(list[int]):
        def __call__(self, subtask: int, subtasks: int) -> list[int]:
            raise AssertionError

    assert run(env.from_iterable(Both([1, 2]))) == [1, 2]


@pytest.mark.parametrize(
    ("function", "error_type", "message"),
    [
        (lambda subtask, subtasks: 1 // 0, "ZeroDivisionError", "division"),
        (lambda subtask, subtasks: 5, "TypeError", "'int' object is not iterable"),
        (lambda: [1], "TypeError", "takes 0 positional arguments but 2 were given"),
    ],
)
def test_a_function_that_makes_no_iterable_is_an_operator_error(
    env: fn.Environment, run: Run, function: Any, error_type: str, message: str
) -> None:
    with pytest.raises(fn.errors.OperatorError, match="operator 'well'") as caught:
        run(env.from_iterable(function).name("well"))
    assert caught.value.error_type == error_type
    assert message in caught.value.message


def test_the_generators_that_a_function_makes_are_closed_with_the_job() -> None:
    # The subtasks share the list and the barrier.
    env = fn.Environment(parallelism=2, object_reuse=True)
    closed = list[int]()
    # A generator that has not begun has nothing to close, so the job is cancelled once both have.
    begun = threading.Barrier(3, timeout=30)

    def endless(subtask: int, subtasks: int) -> Iterator[int]:
        try:
            begun.wait()
            yield from itertools.count()
        finally:
            closed.append(subtask)

    env.from_iterable(endless).map(lambda n: n).collect()
    with env.execute_async() as job:
        begun.wait()
        job.cancel()
        with pytest.raises(fn.errors.CancelledError):
            job.wait()
    assert sorted(closed) == [0, 1]


@pytest.mark.parametrize("burst", [1, 1000])
def test_a_generator_that_waits_is_idle_and_one_that_works_is_busy(workers: int, burst: int) -> None:
    def waits() -> Iterator[int]:
        for number in range(5 * burst):
            if number % burst == 0:
                time.sleep(0.3)
            yield number

    def works() -> Iterator[int]:
        for number in range(20):
            yield sum(range(2_000_000)) + number

    shares = []
    for generator in (waits(), works()):
        env = fn.Environment()
        env.from_iterable(generator).disable_chaining().collect()
        shares.append(env.execute(workers).tasks[0])
    waiting, working = shares
    # Who waits for a processor is busy: a few long waits are still most of the time where other work takes both cores.
    assert waiting.idle > waiting.busy, waiting
    assert working.busy > waiting.busy, (waiting, working)


class Sizes:
    """Keeps how many records came at a time."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def extend(self, records: list[int]) -> None:
        self.sizes.append(len(records))


def test_a_sink_behind_an_iterable_that_never_waits_gets_batches() -> None:
    sink = Sizes()
    env = fn.Environment()
    env.from_iterable(range(10_000)).collect(into=sink)
    env.execute()
    assert sum(sink.sizes) == 10_000
    assert len(sink.sizes) < 1000
