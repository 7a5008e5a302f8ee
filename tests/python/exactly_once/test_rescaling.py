"""Jobs that are stopped anywhere and go on with other parallelism and other workers: results as if undisturbed."""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import flownet as fn

from .failures import lines, manifests, run_until

RECORDS = 1500
"""Of each of the files."""
FILES = 3
KEYS = 40


def write_input(folder: Path, seed: int) -> None:
    """Files of ``time key number``, out of order by less than the watermarks allow."""
    draw = random.Random(seed)
    folder.mkdir()
    for file in range(FILES):
        rows = []
        for number in range(RECORDS):
            key = draw.randrange(KEYS)
            rows.append(f"{1_000_000 + 10 * number - draw.randrange(100)} k{key} {number * FILES + file}\n")
        (folder / f"{file}.txt").write_text("".join(rows))


@dataclass
class Row:
    """A record that is an instance of a class, also within state."""

    at: int
    key: str
    number: int

    @staticmethod
    def of(line: str) -> Row:
        at, key, number = line.split()
        return Row(int(at), key, int(number))


def key(row: Row) -> str:
    return row.key


class Told(fn.ProcessWindowFunction[str, Row, str]):
    def process(self, key: str, ctx: fn.WindowContext, values: list[Row]) -> list[str]:
        return [f"{key} {ctx.window.start_ms} {ctx.window.end_ms} {sorted(value.number for value in values)}"]


class Seconds(fn.KeyedProcessFunction[str, Row, str]):
    """Tells of each key and second which records were in it, by timers, typed state and the mapping of the key."""

    def open(self, ctx: fn.OpenContext) -> None:
        self.rows = ctx.get_map_state(fn.MapStateDescriptor("rows"))
        self.count = ctx.get_state(fn.ValueStateDescriptor("count"))

    def process(self, value: Row, ctx: fn.ProcessContext[str]) -> None:
        second = value.at // 1000
        self.rows[second] = [*self.rows.get(second, []), value]
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(second * 1000 + 999)

    def on_timer(self, timestamp_ms: int, ctx: fn.ProcessContext[str]) -> Iterable[str]:
        ctx.state["fired"] = ctx.state.get("fired", 0) + 1
        rows = self.rows.pop(timestamp_ms // 1000)
        return [f"{ctx.key} {timestamp_ms} {ctx.state['fired']} {sorted(row.number for row in rows)}"]


def windowed(window: Any) -> Callable[[fn.Stream[Row]], fn.Stream[str]]:
    return lambda rows: rows.key_by(key).window(window).process(Told())


def counted(window: Any) -> Callable[[fn.Stream[Row]], fn.Stream[str]]:
    def of(rows: fn.Stream[Row]) -> fn.Stream[str]:
        return rows.key_by(key).window(window).count().map(str)

    return of


def joined(rows: fn.Stream[Row]) -> fn.Stream[str]:
    left = rows.filter(lambda row: row.number % 2 == 0).key_by(key)
    right = rows.filter(lambda row: row.number % 2 == 1).key_by(key)
    pairs = left.interval_join(right).between("-100ms", "100ms")
    return pairs.process(lambda one, other: f"{one.number} {other.number}")


def as_of(rows: fn.Stream[Row]) -> fn.Stream[str]:
    left = rows.filter(lambda row: row.number % 2 == 0).key_by(key)
    right = rows.filter(lambda row: row.number % 2 == 1).map(lambda row: (row.key, row.number)).key_by(0)
    # One version a millisecond and key: of several the last one counts, and which is last depends on the exchange.
    versions = right.window(fn.Tumbling("1ms")).max(1)
    return left.as_of_join(versions.key_by(0)).process(lambda row, version: f"{row.number} {version}")


def best(rows: fn.Stream[Row]) -> fn.Stream[str]:
    tops = rows.key_by(key).window(fn.Tumbling("2s")).top_n(2, lambda row: row.number)
    return tops.map(lambda top: f"{top[0]} {[row.number for row in top[1]]}")


def running(rows: fn.Stream[Row]) -> fn.Stream[str]:
    return rows.key_by(key).count().map(lambda pair: f"{pair[0]} {pair[1]}")


def distinct(rows: fn.Stream[Row]) -> fn.Stream[str]:
    return rows.map(lambda row: f"{row.key} {row.number % 7}").key_by(str).deduplicate()


DAYS = "days of a zone"

JOBS: dict[str, Callable[[fn.Stream[Row]], fn.Stream[str]]] = {
    "running": running,
    "tumbling": counted(fn.Tumbling("1s")),
    DAYS: counted(fn.Tumbling("1d", zone="Australia/Lord_Howe")),
    "sliding": counted(fn.Sliding("2s", "500ms")),
    "processed": windowed(fn.Sliding("2s", "1s")),
    "sessions": windowed(fn.Session("150ms")),
    "joined": joined,
    "as_of": as_of,
    "timers": lambda rows: rows.key_by(key).process(Seconds()),
    "best": best,
    "distinct": distinct,
    "taken": lambda rows: rows.take(700).map(lambda _: "one"),
}


def job(
    what: str,
    folder: Path,
    out: str,
    parallelism: int = 2,
    rate: int | None = None,
    chained: bool = True,
    **checkpointing: Any,
) -> fn.Environment:
    env = fn.Environment(parallelism=parallelism, buffer_timeout="5ms")
    env.enable_checkpointing("40ms", storage=folder / f"checkpoints-{out}", **checkpointing)
    # Within a few seconds there is one day.
    spread = 40_000 if what == DAYS else 1
    strategy: Any = fn.WatermarkStrategy.for_bounded_out_of_orderness(f"{200 * spread}ms")
    strategy = strategy.with_timestamp_assigner(lambda row: row.at * spread)
    rows = env.read_text(folder / "in", rate_limit=rate).map(Row.of).assign_timestamps_and_watermarks(strategy)
    rows = rows.filter(lambda row: True)
    if not chained:
        rows = rows.disable_chaining()
    JOBS[what](rows).write_text(folder / out)
    return env


@pytest.mark.parametrize("what", JOBS)
def test_a_job_goes_on_with_any_parallelism_and_any_workers(what: str, tmp_path: Path) -> None:
    seed = sorted(JOBS).index(what)
    write_input(tmp_path / "in", seed)
    job(what, tmp_path, "undisturbed").execute()
    expected = lines(tmp_path / "undisturbed")
    assert len(expected) >= 150, "the job has something to say"
    draw = random.Random(seed)
    before = 0
    for parallelism, workers in [(2, 2), (3, 0), (5, 3), (1, 0), (2, 1)]:
        env = job(what, tmp_path, "disturbed", parallelism, rate=4000, chained=draw.random() < 0.5)
        run_until(env, workers, draw.randrange(2, 5), abruptly=draw.random() < 0.5)
        so_far = len(lines(tmp_path / "disturbed"))
        assert so_far >= before, "what counts stays"
        before = so_far
    result = job(what, tmp_path, "disturbed", 3).execute(2)
    assert result.resumed_from is not None
    assert lines(tmp_path / "disturbed") == expected


OVERTAKES: list[dict[str, Any]] = [{}, {"unaligned": True}, {"aligned_timeout": "2ms"}]
"""When checkpoints overtake records: never, at once, and when they have taken too long."""


def has_in_flight(storage: Path) -> bool:
    """Say whether a checkpoint that is kept has overtaken records: exchanges may not become part of a task then."""
    return any(b"in_flight." in manifest for manifest in manifests(storage))


SEED = int(os.environ.get("SEED", 200_012))
RUNS = int(os.environ.get("RUNS", 3))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(SEED, SEED + RUNS))
def test_a_job_goes_on_whatever_was_done_to_it(seed: int, tmp_path: Path) -> None:
    # Where the machine is busy one seed does not do the same twice: the first has found a loss in two of eight runs.
    draw = random.Random(seed)
    what = draw.choice(sorted(JOBS))
    write_input(tmp_path / "in", seed)
    job(what, tmp_path, "undisturbed").execute()
    done: list[Any] = [what]
    # One subtask takes, which shares a task with what is before it where that is one, too.
    least, chained = 2 if what == "taken" else 1, True
    for _ in range(draw.randrange(3, 8)):
        parallelism, may_chain = draw.randrange(least, 6), draw.random() < 0.5
        # What lay between two operators has nowhere to go where they share a task.
        chained = may_chain and (chained or not has_in_flight(tmp_path / "checkpoints-disturbed"))
        workers = min(draw.randrange(4), parallelism)
        checkpoints, abruptly, overtakes = draw.randrange(1, 6), draw.random() < 0.5, draw.choice(OVERTAKES)
        done.append((parallelism, workers, chained, checkpoints, abruptly, overtakes))
        rate = draw.choice([2000, 4000, 8000])
        env = job(what, tmp_path, "disturbed", parallelism, rate=rate, chained=chained, **overtakes)
        run_until(env, workers, checkpoints, abruptly=abruptly)
    chained = chained or not has_in_flight(tmp_path / "checkpoints-disturbed")
    job(what, tmp_path, "disturbed", draw.randrange(least, 5), chained=chained).execute(draw.randrange(3))
    assert lines(tmp_path / "disturbed") == lines(tmp_path / "undisturbed"), done


class Committing(fn.TransactionalSink[Any]):
    """Appends what it commits to a file of its own, once for each transaction."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, ctx: fn.TaskContext) -> None:
        self.rows: list[str] = []

    def write(self, records: list[Any]) -> None:
        self.rows += records

    def prepare_commit(self) -> Any:
        rows, self.rows = self.rows, []
        return (uuid.uuid4().hex, rows)

    def commit(self, prepared: Any) -> None:
        name, rows = prepared
        (self.folder / f"{name}.txt").write_text("".join(f"{row}\n" for row in rows))


def test_transactions_are_committed_once_and_broadcast_state_is_there_whatever_the_parallelism(tmp_path: Path) -> None:
    class Rules(fn.KeyedBroadcastProcessFunction[str, Row, str, str]):
        def process(self, value: Row, ctx: fn.ProcessContext[str]) -> list[str]:
            return [f"{value.number} {ctx.broadcast_state.get('rule')}"]

        def process_broadcast(self, value: str, ctx: fn.ProcessContext[str]) -> None:
            ctx.broadcast_state["rule"] = value

    write_input(tmp_path / "in", 1)
    (tmp_path / "out").mkdir()

    def job(parallelism: int, rate: int | None) -> fn.Environment:
        env = fn.Environment(parallelism=parallelism, buffer_timeout="5ms")
        env.enable_checkpointing("40ms", storage=tmp_path / "checkpoints")
        rules = env.from_collection(["strict"])
        rows = env.read_text(tmp_path / "in", rate_limit=rate).map(Row.of).key_by(key)
        rows.connect(rules.broadcast()).process(Rules()).sink_to(Committing(tmp_path / "out"))
        return env

    for parallelism, workers in [(2, 0), (3, 2), (5, 0), (1, 1)]:
        run_until(job(parallelism, 4000), workers, 3, abruptly=parallelism % 2 == 0)
    job(2, None).execute()
    written = [line.split() for line in lines(tmp_path / "out")]
    assert sorted(int(number) for number, _ in written) == list(range(RECORDS * FILES))
    # The rule came with the first records, long before the last checkpoint.
    by_number = {int(number): rule for number, rule in written}
    assert {by_number[number] for number in range(RECORDS * FILES - 100, RECORDS * FILES)} == {"strict"}
