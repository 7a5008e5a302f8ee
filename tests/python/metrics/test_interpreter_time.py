"""Where the time of tasks goes: waiting for the interpreter, which those of a process share, is no work."""

from __future__ import annotations

import threading
import time

import flownet as fn


def heavy(number: int) -> int:
    return sum(range(20_000)) + number


def test_a_task_that_waits_for_the_interpreter_of_a_busy_one_is_not_the_bottleneck() -> None:
    env = fn.Environment(segment_size="1KiB", network_memory="64KiB", buffer_timeout="1ms", max_in_flight_time=None)
    env.from_iterable(range(20_000)).map(heavy).disable_chaining().name("heavy").collect()
    result = env.execute()
    source, slow = result.tasks[0], next(task for task in result.tasks if task.name.startswith("heavy"))
    assert source.busy < slow.busy
    assert source.interpreter > source.busy, source
    assert result.bottleneck is not None
    assert result.bottleneck.startswith(slow.name)


def test_a_large_window_lets_others_have_the_interpreter_while_it_fires() -> None:
    """No code of Python's runs meanwhile, at which it would change hands by itself."""
    env = fn.Environment()
    counts = env.from_iterable(range(300_000)).key_by(lambda n: n).window(fn.Tumbling("1d")).count().collect()
    seen = set[int]()
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            seen.add(len(counts))
            time.sleep(0.001)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        env.execute()
    finally:
        done.set()
        thread.join()
    assert len(counts) == 300_000
    assert len(seen - {0, 300_000}) > 5
