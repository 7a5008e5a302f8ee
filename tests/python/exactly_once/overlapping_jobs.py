"""Jobs over many files that overlap in time: each has readers, an operator by event time and a sink.

``flownet run overlapping_jobs.py:killed`` runs the job that ``CHAOS_PLAN`` describes. ``overlapping_files.py`` writes
the files, ``overlapping_answers.py`` computes the expected results.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import flownet as fn

FIRST_NUMBER = 300
"""The filter drops rows with lower numbers: all rows of some files and row groups."""
DELAY_MS = 50

Record = tuple[int, int, int]
"""Key, milliseconds and number of a row."""
Read = Callable[[str], Any]
"""Reads the files of a side, ``left`` or ``right``: `Rows`, or a stream of records."""


@dataclass(frozen=True)
class Plan:
    """A job, apart from its parallelism and pace."""

    operator: str
    """Key of `ON_ROWS` or `ON_OBJECTS`."""
    layer: str
    """``rows`` or ``objects``."""
    formats: tuple[str, str]
    """Of the files of both sides."""
    time_type: str
    """Of the column of event times."""
    shape: str
    """Steps between the files and the operator."""
    keeps_delay: bool
    """Whether the files are in order but for `DELAY_MS`; the job then gives this delay."""
    order: str
    sink: str
    backend: str
    seed: int

    @classmethod
    def draw(cls, seed: int) -> Plan:
        """Draw a job."""
        draw = random.Random(seed)
        layer = draw.choice(["rows", "objects"])
        keeps_delay = draw.random() < 0.3
        # A function of batches knows nothing of files, so a promise of each file's order does not hold behind it.
        shapes = ["plain", "filtered", "rebalanced", "union", "renamed", *([] if keeps_delay else ["assigned"])]
        return cls(
            operator=draw.choice(sorted(ON_ROWS if layer == "rows" else ON_OBJECTS)),
            layer=layer,
            formats=(draw.choice(FORMATS), draw.choice(FORMATS)),
            time_type=draw.choice(["int64", "timestamp[ms]", "timestamp[us, UTC]"]),
            shape=draw.choice(shapes),
            keeps_delay=keeps_delay,
            order=draw.choice(["event_time", "event_time", "as listed"]),
            sink=draw.choice(["csv", "text", "sqlite", *(["json", "parquet"] if layer == "rows" else [])]),
            backend=draw.choice(["auto", "auto", "disk"]),
            seed=seed,
        )

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def of_json(cls, text: str) -> Plan:
        told = json.loads(text)
        return cls(**{**told, "formats": tuple(told["formats"])})


FORMATS = ["parquet", "csv", "json"]


class UnevenPace:
    """Delays some batches more than others, for a given rate on average."""

    def __init__(self, rows_per_second: float, seed: int) -> None:
        self.rows_per_second, self.seed = rows_per_second, seed

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if len(batch):
            first = batch["n"][0].as_py()
            share = random.Random(f"{self.seed} {first}").choice([0, 0, 0.5, 1, 3.5])
            time.sleep(share * len(batch) / self.rows_per_second)
        return batch


def read(env: fn.Environment, plan: Plan, folder: Path, side: str, rows_per_second: float) -> fn.Rows:
    """Read the files of a side: rows of key, milliseconds and number, with their event times."""
    format = plan.formats[side == "right"]
    columns = {"key": "int64", "at": plan.time_type, "n": "int64"}
    schemas: dict[str, Any] = {
        "csv": {"schema": {**columns, "pad": "utf8"}, "columns": [*columns]},
        "json": {"schema": columns},
    }
    schema = schemas.get(format, {})
    filtered = {"filter": fn.col("n") >= FIRST_NUMBER} if plan.shape == "filtered" else {}
    time_column = {} if plan.shape == "assigned" else {"event_time": "at"}
    delay = {"delay": f"{DELAY_MS}ms"} if plan.keeps_delay else {}

    def of(folders: list[Path]) -> fn.Rows:
        opened = getattr(env, f"read_{format}")
        rows: fn.Rows = opened(folders, order=plan.order, **schema, **filtered, **time_column, **delay)
        return rows.map_batches(UnevenPace(rows_per_second, plan.seed))

    halves = [folder / side / half for half in ("a", "b")]
    rows = of(halves[:1]).union(of(halves[1:])) if plan.shape == "union" else of(halves)
    if plan.shape == "assigned":
        rows = rows.assign_timestamps("at")
    if plan.shape == "rebalanced":
        rows = rows.rebalance()
    if plan.shape == "renamed":
        rows = rows.rename({"at": "moment"}).rename({"moment": "at"})
    at = fn.col("at")
    return rows.select("key", "n", ms=at if plan.time_type == "int64" else at.dt.epoch()).select("key", "ms", "n")


def start_ms() -> fn.Expr:
    return fn.col("window_start").dt.epoch()


def tumbling(read: Read) -> fn.Rows:
    windows = read("left").key_by("key").window(fn.Tumbling("50ms"))
    counts: fn.Rows = windows.agg(n=fn.count(), total=fn.sum("n"), least=fn.min("n"), most=fn.max("n"))
    return counts.select("key", "n", "total", "least", "most", start=start_ms())


def sliding(read: Read) -> fn.Rows:
    counts: fn.Rows = read("left").key_by("key").window(fn.Sliding("60ms", "20ms")).agg(n=fn.count(), total=fn.sum("n"))
    return counts.select("key", "n", "total", start=start_ms())


def sessions(read: Read) -> fn.Rows:
    counts: fn.Rows = read("left").key_by("key").window(fn.Session("7ms")).agg(n=fn.count(), total=fn.sum("n"))
    return counts.select("key", "n", "total", start=start_ms(), end=fn.col("window_end").dt.epoch())


def best(read: Read) -> fn.Rows:
    tops: fn.Rows = read("left").key_by("key").window(fn.Tumbling("200ms")).top_n(3, "n")
    return tops.select("key", "ms", "n")


def windows_of_windows(read: Read) -> fn.Rows:
    inner = read("left").key_by("key").window(fn.Tumbling("50ms")).agg(n=fn.count(), total=fn.sum("n"))
    outer: fn.Rows = inner.key_by("key").window(fn.Tumbling("200ms")).agg(n=fn.sum("n"), total=fn.sum("total"))
    return outer.select("key", "n", "total", start=start_ms())


def _other(read: Read) -> Any:
    """Name the columns of the second side, so that none has the name of one of the first."""
    return read("right").rename({"ms": "other_ms", "n": "m"}).key_by("key")


def interval_join(read: Read) -> fn.Rows:
    pairs: fn.Rows = read("left").key_by("key").interval_join(_other(read), "-20ms", "30ms")
    return pairs.select("key", "n", "m")


def window_join(read: Read) -> fn.Rows:
    pairs: fn.Rows = read("left").key_by("key").join(_other(read), fn.Tumbling("20ms"))
    return pairs.select("key", "n", "m")


def session_join(read: Read) -> fn.Rows:
    pairs: fn.Rows = read("left").key_by("key").join(_other(read), fn.Session("4ms"))
    return pairs.select("key", "n", "m")


def as_of_join(read: Read) -> fn.Rows:
    pairs: fn.Rows = read("left").key_by("key").as_of_join(_other(read), how="left")
    return pairs.select("key", "n", m=fn.col("m").fill_null(-1))


def joined_windows(read: Read) -> fn.Rows:
    pairs = read("left").key_by("key").interval_join(_other(read), "-20ms", "30ms")
    counts: fn.Rows = pairs.key_by("key").window(fn.Tumbling("50ms")).agg(n=fn.count(), total=fn.sum("m"))
    return counts.select("key", "n", "total", start=start_ms())


ON_ROWS: dict[str, Callable[[Read], fn.Rows]] = {
    "tumbling": tumbling,
    "sliding": sliding,
    "sessions": sessions,
    "best": best,
    "windows_of_windows": windows_of_windows,
    "interval_join": interval_join,
    "window_join": window_join,
    "session_join": session_join,
    "as_of_join": as_of_join,
    "joined_windows": joined_windows,
}


def _windowed(window: Any, tell: Callable[[int, Any, list[int]], tuple[int, ...]]) -> Callable[[Read], fn.Stream[Any]]:
    """Describe windows of records; each result is made of key, window and numbers."""

    def of(read: Read) -> fn.Stream[Any]:
        def told(key: int, window: fn.Window, records: list[Record]) -> list[tuple[int, ...]]:
            return [tell(key, window, [number for _, _, number in records])]

        stream: fn.Stream[Any] = read("left").key_by(0).window(window).process(told)
        return stream

    return of


def _full(key: int, window: Any, numbers: list[int]) -> tuple[int, ...]:
    return key, len(numbers), sum(numbers), min(numbers), max(numbers), window.start_ms


def _summed(key: int, window: Any, numbers: list[int]) -> tuple[int, ...]:
    return key, len(numbers), sum(numbers), window.start_ms


def _session(key: int, window: Any, numbers: list[int]) -> tuple[int, ...]:
    return key, len(numbers), sum(numbers), window.start_ms, window.end_ms


def best_objects(read: Read) -> fn.Stream[Any]:
    tops: fn.Stream[Any] = read("left").key_by(0).window(fn.Tumbling("200ms")).top_n(3, 2)
    return tops.flat_map(lambda top: top[1])


def windows_of_windows_of_objects(read: Read) -> fn.Stream[Any]:
    inner: Any = _windowed(fn.Tumbling("50ms"), _summed)(read)

    def told(key: int, window: fn.Window, values: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        return [(key, sum(value[1] for value in values), sum(value[2] for value in values), window.start_ms)]

    stream: fn.Stream[Any] = inner.key_by(0).window(fn.Tumbling("200ms")).process(told)
    return stream


def _pair(one: Record, other: Record | None) -> tuple[int, int, int]:
    return one[0], one[2], -1 if other is None else other[2]


def interval_join_of_objects(read: Read) -> fn.Stream[Any]:
    stream: fn.Stream[Any] = (
        read("left").key_by(0).interval_join(read("right").key_by(0)).between("-20ms", "30ms").process(_pair)
    )
    return stream


def as_of_join_of_objects(read: Read) -> fn.Stream[Any]:
    stream: fn.Stream[Any] = read("left").key_by(0).as_of_join(read("right").key_by(0), how="left").process(_pair)
    return stream


def _joined_in(window: Any) -> Callable[[Read], fn.Stream[Any]]:
    def of(read: Read) -> fn.Stream[Any]:
        stream: fn.Stream[Any] = read("left").join(read("right")).where(0).equal_to(0).window(window).apply(_pair)
        return stream

    return of


class Slices(fn.KeyedProcessFunction[int, Record, Any]):
    """Emits how many records each key has in 50 milliseconds, and their sum, by timers and state."""

    def process(self, value: Record, ctx: fn.ProcessContext[int]) -> None:
        start = value[1] // 50 * 50
        count, total = ctx.state.get(str(start), (0, 0))
        ctx.state[str(start)] = count + 1, total + value[2]
        ctx.timer_service().register_event_time_timer(start + 49)

    def on_timer(self, timestamp_ms: int, ctx: fn.ProcessContext[int]) -> Iterator[Any]:
        start = timestamp_ms - 49
        yield (ctx.key, *ctx.state.pop(str(start)), start)


def timers(read: Read) -> fn.Stream[Any]:
    stream: fn.Stream[Any] = read("left").key_by(0).process(Slices())
    return stream


ON_OBJECTS: dict[str, Callable[[Read], fn.Stream[Any]]] = {
    "tumbling": _windowed(fn.Tumbling("50ms"), _full),
    "sliding": _windowed(fn.Sliding("60ms", "20ms"), _summed),
    "sessions": _windowed(fn.Session("7ms"), _session),
    "best": best_objects,
    "windows_of_windows": windows_of_windows_of_objects,
    "interval_join": interval_join_of_objects,
    "window_join": _joined_in(fn.Tumbling("20ms")),
    "session_join": _joined_in(fn.Session("4ms")),
    "as_of_join": as_of_join_of_objects,
    "timers": timers,
}


def describe(env: fn.Environment, plan: Plan, folder: Path, out: Path, rows_per_second: float) -> None:
    """Describe a job.

    Parameters
    ----------
    env
        Its environment.
    plan
        What it is made of.
    folder
        Where its files are.
    out
        Where its results go.
    rows_per_second
        How many rows of a side a subtask reads, about; infinity for as many as it can.
    """
    if plan.layer == "rows":
        _write_rows(ON_ROWS[plan.operator](lambda side: read(env, plan, folder, side, rows_per_second)), plan, out)
        return

    def records(side: str) -> Any:
        return read(env, plan, folder, side, rows_per_second).to_objects(as_dicts=False)

    _write_objects(ON_OBJECTS[plan.operator](records), plan, out)


def _write_rows(results: fn.Rows, plan: Plan, out: Path) -> None:
    if plan.sink in ("text", "sqlite"):
        _write_objects(results.to_objects(as_dicts=False), plan, out)
    else:
        getattr(results, f"write_{plan.sink}")(out)


def _write_objects(results: fn.Stream[Any], plan: Plan, out: Path) -> None:
    if plan.sink == "csv":
        results.map(list).write_csv(out)
        return
    lines = results.map(lambda values: " ".join(map(str, values)))
    if plan.sink == "sqlite":
        out.mkdir(exist_ok=True)
        lines.map(lambda line: (line,)).sink_to(fn.SqliteSink(out / "lines.db", "lines", columns=["line"]))
    else:
        lines.write_text(out)


def killed() -> fn.Environment:
    """Describe the job that is killed, as its environment says."""
    plan = Plan.of_json(os.environ["CHAOS_PLAN"])
    env = fn.Environment(
        parallelism=int(os.environ["CHAOS_PARALLELISM"]),
        max_parallelism=16,
        buffer_timeout="5ms",
        restart="fixed:10000:20ms",
        heartbeat_timeout="30s",
        state_backend=plan.backend,  # type: ignore[arg-type]
    )
    folder, out, rate = (os.environ[f"CHAOS_{name}"] for name in ("INPUT", "OUTPUT", "RATE"))
    describe(env, plan, Path(folder), Path(out), float(rate))
    return env
