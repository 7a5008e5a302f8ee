"""What `flownet.state.read` shows of a checkpoint is what the job had counted when it was taken."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import flownet as fn
from flownet import errors, state

RECORDS = 900
KEYS = 7


@dataclass
class Row:
    at: int
    key: str
    number: int


def key(row: Row) -> str:
    return row.key


class Remembers(fn.KeyedProcessFunction[str, Row, Row]):
    def open(self, ctx: fn.OpenContext) -> None:
        self.last = ctx.get_state(fn.ValueStateDescriptor("last", ttl="1h"))
        self.numbers = ctx.get_list_state(fn.ListStateDescriptor("numbers"))

    def process(self, value: Row, ctx: fn.ProcessContext[str]) -> Iterable[Row]:
        self.last.update(value)
        self.numbers.add(value.number)
        ctx.state["count"] = ctx.state.get("count", 0) + 1
        ctx.timer_service().register_event_time_timer(10_000_000)
        return []

    def on_timer(self, timestamp_ms: int, ctx: fn.ProcessContext[str]) -> None:
        """No timer is due before the savepoint."""


def rows() -> list[Row]:
    return [Row(1_000 + 10 * number, f"k{number % KEYS}", number) for number in range(RECORDS)]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A savepoint of a job with state of every kind, taken in the middle."""
    folder = tmp_path_factory.mktemp("kept")
    env = fn.Environment(parallelism=2, buffer_timeout="5ms", name="kept", restart="none")
    env.enable_checkpointing("50ms", storage=folder / "checkpoints", retained=3)
    # Watermarks stay behind all records: nothing fires.
    strategy: Any = fn.WatermarkStrategy.for_bounded_out_of_orderness("1h").with_timestamp_assigner(lambda row: row.at)
    source = env.from_collection(rows(), rate_limit=150).uid("rows").assign_timestamps_and_watermarks(strategy)
    by_key = source.key_by(key)
    by_key.count().uid("count").print()
    by_key.reduce(lambda one, other: other).uid("newest").collect()
    numbers = source.map(lambda row: (row.key, row.number)).key_by(0)
    numbers.window(fn.EndOfInput()).mean(1).uid("mean").collect()
    numbers.window(fn.EndOfInput()).max_by(1).uid("greatest").collect()
    by_key.window(fn.Tumbling("1s")).count().uid("tumbling").collect()
    by_key.window(fn.Session("1h")).count().uid("sessions").collect()
    by_key.process(Remembers()).uid("remembers").collect()
    other = source.filter(lambda row: row.number < 10).key_by(key)
    by_key.interval_join(other).between("1ms", "2h").process(lambda one, other: 0).uid("join").collect()
    with env.execute_async() as job:
        while job.status().checkpoints_made < 2 or job.status().records < 100:
            time.sleep(0.005)
        job.savepoint(folder / "saved")
        job.cancel()
    return folder


def test_values_and_timers_are_those_of_the_records_that_had_come(kept: Path) -> None:
    read = state.read(kept / "saved")
    (position,) = [one.value for one in read.entries("rows", "position")]
    assert 0 < position < RECORDS
    came = rows()[:position]
    counts = Counter(row.key for row in came)
    newest = {row.key: row for row in came}
    assert read.values("count") == counts
    assert read.values("newest") == newest
    numbers = {key: [row.number for row in came if row.key == key] for key in counts}
    means = {key: mean for (key, _), mean in read.values("mean").items()}
    assert means == {key: (sum(of), len(of)) for key, of in numbers.items()}
    greatest = {key: record for (key, _), record in read.values("greatest").items()}
    assert greatest == {key: (key, of[-1]) for key, of in numbers.items()}
    tumbling: Counter[tuple[str, int]] = Counter()
    for (key, window), count in read.values("tumbling").items():
        assert window.end_ms is None
        tumbling[key, window.start_ms] += count
    assert tumbling == Counter((row.key, row.at // 1000 * 1000) for row in came)
    sessions = read.values("sessions")
    assert {key: count for (key, _), count in sessions.items()} == counts
    first = {key: min(row.at for row in came if row.key == key) for key in counts}
    assert {key: window.start_ms for key, window in sessions} == first
    assert read.values("remembers", "last") == newest
    assert read.values("remembers", "numbers") == numbers
    assert read.values("remembers", "count") == counts
    assert all(one.time_ms is not None for one in read.entries("remembers", "last")), "they expire"
    timers = [one for one in read.timers("remembers") if one.state == "timers.event"]
    assert sorted((one.key, one.time_ms) for one in timers) == sorted((key, 10_000_000) for key in counts)
    right = [one.value for one in read.entries("join", "right")]
    assert sorted(row.number for row in right) == list(range(10))
    assert all(one.what == "record" and one.time_ms == one.value.at for one in read.entries("join"))


def test_the_checkpoints_of_a_job_are_read_by_number_and_what_is_not_there_is_refused(kept: Path) -> None:
    last = state.read(kept / "checkpoints")
    before = state.read(kept / "checkpoints", checkpoint=last.checkpoint - 1)
    assert before.checkpoint == last.checkpoint - 1
    assert sum(before.values("count").values()) <= sum(last.values("count").values())
    assert (last.job, last.max_parallelism) == ("kept", 128)
    named = {operator.uid: operator.kind for operator in last.operators if operator.uid}
    assert named["tumbling"] == "count of windows of 1000 ms"
    assert named["newest"] == "reduce"
    assert "remembers" in str(last)
    assert "numbers" in str(last)
    assert f"checkpoint {last.checkpoint}" in repr(last)
    with pytest.raises(errors.ConfigError, match="no operator 'other' in checkpoint .*'count'"):
        last.entries("other")
    with pytest.raises(errors.ConfigError, match="no such checkpoint"):
        state.read(kept / "checkpoints", checkpoint=10_000)
    with pytest.raises(errors.ConfigError, match="there is no such folder"):
        state.read(kept / "none")


def test_what_is_kept_is_a_table_of_arrow(kept: Path) -> None:
    pytest.importorskip("pyarrow")
    read = state.read(kept / "saved")
    table = read.to_arrow("count")
    assert dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)) == read.values("count")
    assert set(table["uid"].to_pylist()) == {"count"}
    everything = read.to_arrow()
    assert everything.num_rows == len(read.entries())


def test_a_damaged_file_is_told(kept: Path) -> None:
    for file in (kept / "saved").glob("gen-*/chk-*/*.snap"):
        file.write_bytes(bytes(file.stat().st_size))
    with pytest.raises(errors.RestoreError, match="is damaged"):
        state.read(kept / "saved")
