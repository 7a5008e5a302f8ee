from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import flownet as fn

if TYPE_CHECKING:
    from tests.python.conftest import Run

WORDS = ["to", "be", "or", "not", "to", "be"]
LONG = fn.Tumbling("1d")


def windowed(env: fn.Environment, window: fn.Tumbling = LONG) -> fn.streams.WindowedStream[str, str]:
    return env.from_collection(WORDS).rebalance().key_by(lambda word: word).window(window)


def summed(pairs: list[tuple[str, int]]) -> Counter[str]:
    totals: Counter[str] = Counter()
    for word, count in pairs:
        totals[word] += count
    return totals


def test_the_window_that_is_open_at_the_end_of_the_input_fires(env: fn.Environment, run: Run) -> None:
    assert summed(run(windowed(env).count())) == Counter(WORDS)


def test_a_window_fires_while_the_source_is_silent(env: fn.Environment, workers: int) -> None:
    fired = threading.Event()

    class Fired:
        def extend(self, records: list[tuple[str, int]]) -> None:
            assert records == [("word", 1)]
            fired.set()

    def words() -> Iterator[str]:
        yield "word"
        assert fired.wait(30), "the window did not fire before the source went on"

    env.from_iterable(words()).key_by(lambda word: word).window(fn.Tumbling("20ms")).count().collect(into=Fired())
    env.execute(workers)
    assert fired.is_set()


def test_nothing_is_lost_or_doubled_over_many_windows(env: fn.Environment, run: Run) -> None:
    words = [f"word {n % 97}" for n in range(20_000)]
    stream = env.from_iterable(iter(words)).rebalance().key_by(lambda word: word).window(fn.Tumbling("1ms")).count()
    assert summed(run(stream)) == Counter(words)


def test_reduce_emits_key_and_value(env: fn.Environment, run: Run) -> None:
    longest = (
        env.from_collection(WORDS)
        .key_by(lambda word: word[0])
        .window(LONG)
        .reduce(lambda a, b: max(a, b, key=lambda word: (len(word), word)))
    )
    assert sorted(run(longest)) == [("b", "be"), ("n", "not"), ("o", "or"), ("t", "to")]


def test_sum_min_and_max_emit_key_and_value(env: fn.Environment, workers: int) -> None:
    pairs = env.from_collection([("a", 3), ("a", 1), ("a", 2)]).key_by(lambda pair: pair[0]).window(LONG)
    collected = [pairs.sum(1).collect(), pairs.min(1).collect(), pairs.max(1).collect()]
    env.execute(workers)
    assert collected == [[("a", 6)], [("a", 1)], [("a", 3)]]


def test_process_sees_all_records_of_a_window_in_their_order(env: fn.Environment, run: Run) -> None:
    def describe(key: int, window: fn.Window, values: list[int]) -> Iterator[tuple[int, int, list[int]]]:
        yield key, window.end_ms - window.start_ms, values

    numbers = env.from_collection(range(10)).key_by(lambda n: n % 2).window(LONG)
    assert sorted(run(numbers.process(describe))) == [
        (0, 86_400_000, [0, 2, 4, 6, 8]),
        (1, 86_400_000, [1, 3, 5, 7, 9]),
    ]


def test_windows_are_aligned_to_the_epoch(env: fn.Environment, run: Run) -> None:
    starts = run(windowed(env, fn.Tumbling("10ms")).process(lambda key, window, values: [window.start_ms]))
    assert all(start % 10 == 0 for start in starts)


@pytest.mark.parametrize(
    ("size", "milliseconds"),
    [("5s", 5000), ("250ms", 250), ("2min", 120_000), ("1.5 s", 1500), (timedelta(hours=1), 3_600_000)],
)
def test_sizes_are_durations(size: str | timedelta, milliseconds: int) -> None:
    assert fn.Tumbling(size).size_ms == milliseconds


@pytest.mark.parametrize("size", ["0s", "-5s", "5", "five", "100us", "1.5ms", 5, None, timedelta(seconds=-1)])
def test_sizes_that_are_none_are_refused_at_once(size: Any) -> None:
    with pytest.raises(fn.errors.ConfigError):
        fn.Tumbling(size)


def test_window_wants_a_window(env: fn.Environment) -> None:
    with pytest.raises(fn.errors.PlanError, match=r"window\(\) needs a window such as flownet.Tumbling"):
        env.from_collection(WORDS).key_by(str).window("5s")  # type: ignore[arg-type]


def test_the_end_of_input_is_a_window_of_one_result_a_key(env: fn.Environment, run: Run) -> None:
    words = env.from_collection(["to", "be", "to"] * 50).rebalance().key_by(lambda word: word).window(fn.EndOfInput())
    assert sorted(run(words.count())) == [("be", 50), ("to", 100)]


def test_the_end_of_input_tells_process_of_all_time(env: fn.Environment, run: Run) -> None:
    whole = env.from_collection([3, 4]).key_by(lambda _: "all").window(fn.EndOfInput())
    assert run(whole.process(lambda key, window, values: [(window.start_ms, window.end_ms, sum(values))])) == [
        (0, 2**63 - 1, 7)
    ]
