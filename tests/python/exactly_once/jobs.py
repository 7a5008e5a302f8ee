"""Jobs that are killed: each reads files and writes files, and is run by ``flownet run`` again and again."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from typing import Any

import flownet as fn

INPUT, OUTPUT, RATE = (os.environ.get(f"CHAOS_{name}", "") for name in ("INPUT", "OUTPUT", "RATE"))


PARALLELISM = int(os.environ.get("CHAOS_PARALLELISM", "2"))


def _env() -> fn.Environment:
    return fn.Environment(
        parallelism=PARALLELISM,
        max_parallelism=32,
        buffer_timeout="5ms",
        restart="fixed:10000:20ms",
        heartbeat_timeout="30s",
    )


def running_counts() -> fn.Environment:
    """Every word with how often it has come so far: each number once."""
    env = _env()
    words = env.read_text(INPUT, rate_limit=RATE or None).map(lambda line: line.split()[1])
    words.key_by(lambda word: word).count().map(lambda pair: f"{pair[0]} {pair[1]}").write_text(OUTPUT)
    return env


class _Fails:
    """Raises for one record of many, whichever that is."""

    def __call__(self, line: str) -> str:
        if random.random() < 0.0005:
            raise ValueError("drawn")
        return line


def pipelines() -> fn.Environment:
    """Three that share nothing but the workers, two of which fail by themselves: each begins anew alone."""
    env = _env()
    env.read_text(INPUT, rate_limit=RATE or None).map(_Fails()).rebalance().write_text(f"{OUTPUT}/failing")
    words = env.read_text(INPUT, rate_limit=RATE or None).map(lambda line: line.split()[1])
    counts = words.key_by(lambda word: word).count().map(lambda pair: f"{pair[0]} {pair[1]}")
    counts.map(_Fails()).write_text(f"{OUTPUT}/counts")
    placed = env.read_text(INPUT, rate_limit=RATE or None).place_on(2).map(lambda line: line).place_on(2)
    placed.write_text(f"{OUTPUT}/placed").place_on(2)
    return env


class _Counted(fn.ProcessWindowFunction[str, str, str]):
    def process(self, key: str, ctx: fn.WindowContext, values: list[str]) -> list[str]:
        return [f"{key} {ctx.window.start_ms} {len(values)}"]


def windowed_counts() -> fn.Environment:
    """How often each word came in each second of event time."""
    env = _env()
    strategy: Any = fn.WatermarkStrategy.for_bounded_out_of_orderness("2s")
    lines = env.read_text(INPUT, rate_limit=RATE or None).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(lambda line: int(line.split()[0]))
    )
    windows = lines.key_by(lambda line: line.split()[1]).window(fn.Tumbling("1s"))
    windows.process(_Counted()).write_text(OUTPUT)
    return env


def _timed(env: fn.Environment, delay: str) -> fn.Stream[str]:
    strategy: Any = fn.WatermarkStrategy.for_bounded_out_of_orderness(delay)
    return env.read_text(INPUT, rate_limit=RATE or None).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(lambda line: int(line.split()[0]))
    )


def _word(line: str) -> str:
    return line.split()[1]


class _Each(fn.ProcessWindowFunction[str, str, str]):
    def process(self, key: str, ctx: fn.WindowContext, values: list[str]) -> list[str]:
        return values


def late_windows() -> fn.Environment:
    """Every line, out of its window or as one that came too late, of which there are many."""
    env = _env()
    late = fn.OutputTag("late")
    windows = _timed(env, "300ms").key_by(_word).window(fn.Tumbling("500ms")).side_output_late_data(late)
    in_time = windows.process(_Each())
    in_time.union(in_time.side_output(late)).write_text(OUTPUT)
    return env


def sessions() -> fn.Environment:
    """Each session of a word: its first line, its last one, and how many there are."""
    env = _env()

    def told(key: str, window: fn.Window, values: list[str]) -> list[str]:
        return [f"{key} {window.start_ms} {window.end_ms} {len(values)}"]

    _timed(env, "2s").key_by(_word).window(fn.Session("100ms")).process(told).write_text(OUTPUT)
    return env


class _Timers(fn.KeyedProcessFunction[str, str, str]):
    """Tells of the second after each line when it has passed, and how many lines there were in the one before."""

    def process(self, value: str, ctx: fn.ProcessContext[str]) -> None:
        second = int(value.split()[0]) // 1000
        ctx.state[str(second)] = ctx.state.get(str(second), 0) + 1
        ctx.timer_service().register_event_time_timer(1000 * (second + 1))

    def on_timer(self, timestamp_ms: int, ctx: fn.ProcessContext[str]) -> Iterator[str]:
        yield f"{ctx.key} {timestamp_ms} {ctx.state.pop(str(timestamp_ms // 1000 - 1))}"


def timers() -> fn.Environment:
    """How many lines each word has in each second, by a function with timers and state."""
    env = _env()
    _timed(env, "2s").key_by(_word).process(_Timers()).write_text(OUTPUT)
    return env


def interval_join() -> fn.Environment:
    """Each pair of lines of one word of which the second one is up to 100 ms later."""
    env = _env()
    lines = _timed(env, "2s")
    other = lines.map(lambda line: line)
    pairs = lines.key_by(_word).interval_join(other.key_by(_word)).between("1ms", "100ms")
    pairs.process(lambda one, two: f"{one} {two}").write_text(OUTPUT)
    return env


async def _slowly(line: str) -> str:
    await asyncio.sleep(0.001 * (len(line) % 3))
    return line


def calls() -> fn.Environment:
    """Every line, behind a call that waits; half of them in order."""
    env = _env()
    lines = env.read_text(INPUT, rate_limit=RATE or None)
    ordered = lines.filter(lambda line: len(line) % 2).map_async(_slowly, capacity=50)
    others = lines.filter(lambda line: len(line) % 2 == 0).map_async(_slowly, capacity=50, ordered=False)
    ordered.union(others).write_text(OUTPUT)
    return env


def rounds() -> fn.Environment:
    """Every line, when it has gone round five times by its word."""
    env = _env()
    lines = env.read_text(INPUT, rate_limit=RATE or None).map(lambda line: (line, 0))
    gone = lines.iterate(
        lambda each: each.key_by(lambda record: _word(record[0])).map(lambda record: (record[0], record[1] + 1)),
        until=lambda record: record[1] == 5,
    )
    gone.map(lambda record: record[0]).write_text(OUTPUT)
    return env


def _files() -> list[str]:
    return sorted(os.listdir(INPUT))


def _lines(name: str, position: int | None) -> Iterator[tuple[int, str]]:
    with open(os.path.join(INPUT, name), encoding="utf-8") as file:
        for number, line in enumerate(file):
            if number >= (position or 0):
                yield number + 1, line.rstrip("\n")


def into_csv() -> fn.Environment:
    """Every line of a source of one's own, as values."""
    env = _env()
    lines = env.from_generator(_lines, splits=_files(), rate_limit=RATE or None)
    lines.map(lambda line: line.split()).rebalance().write_csv(OUTPUT, delimiter=" ")
    return env


def into_sqlite() -> fn.Environment:
    """Every line of a source of one's own, as a row; and of each word how often it came, as a row that is replaced."""
    env = _env()
    os.makedirs(OUTPUT, exist_ok=True)
    lines = env.from_generator(_lines, splits=_files(), rate_limit=RATE or None)
    path = os.path.join(OUTPUT, "lines.db")
    lines.rebalance().sink_to(fn.SqliteSink(path, "lines", columns=["line"]))
    counts = lines.key_by(_word).count()
    counts.sink_to(fn.SqliteSink(path, "counts", columns=["word", "number"], key=["word"]))
    return env
