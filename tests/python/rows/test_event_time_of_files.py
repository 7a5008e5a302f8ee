"""Event time of rows over many files: nothing is late, whatever the order of rows, files and reading.

Each job is held against a loop over the same rows. Some read slowly, since watermarks are told every 200 ms: a job that
is over sooner shows nothing.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import flownet as fn
from flownet.errors import PlanError
from flownet.rows import parquet, splits
from flownet.rows.parquet_times import least_times

from .halves import stop_on_the_way

Row = dict[str, int]
Reader = Callable[[fn.Environment], fn.Rows]

SIZE_MS = 50
GAP_MS = 3


def some_files(seed: int) -> list[list[Row]]:
    """Make files of rows: some overlap in time, some are sorted, some are empty."""
    random_numbers = random.Random(seed)
    files = []
    for _ in range(random_numbers.randint(2, 7)):
        begin, length = random_numbers.randint(-1_000, 1_000), random_numbers.choice([0, 1, 30, 200])
        times = [begin + random_numbers.randint(0, 400) for _ in range(length)]
        if random_numbers.random() < 0.5:
            times.sort()
        files.append([{"key": random_numbers.randint(0, 3), "ms": time_ms} for time_ms in times])
    return files if any(files) else [[{"key": 0, "ms": 5}]]


def table_of(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=pa.schema({"key": pa.int64(), "ms": pa.int64()}))


def write_parquet(folder: Path, files: list[list[Row]]) -> None:
    for number, rows in enumerate(files):
        # Names that sort otherwise than they were written, and row groups that overlap.
        pq.write_table(table_of(rows), folder / f"part-{number * 7 % 10}-{number}.parquet", row_group_size=25)


def write_csv(folder: Path, files: list[list[Row]]) -> None:
    for number, rows in enumerate(files):
        pyarrow.csv.write_csv(table_of(rows), folder / f"{number}.csv")


def write_json(folder: Path, files: list[list[Row]]) -> None:
    for number, rows in enumerate(files):
        (folder / f"{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


FORMATS: dict[str, tuple[Callable[[Path, list[list[Row]]], None], Callable[..., fn.Rows]]] = {
    "parquet": (write_parquet, fn.Environment.read_parquet),
    "csv": (write_csv, fn.Environment.read_csv),
    "json": (write_json, fn.Environment.read_json),
}


def counts_of(rows: list[Row]) -> Counter[tuple[int, int]]:
    """Count rows by key and tumbling window."""
    return Counter((row["key"], row["ms"] // SIZE_MS * SIZE_MS) for row in rows)


def sessions_of(rows: list[Row]) -> Counter[tuple[int, int, int]]:
    """Count rows by key and session."""
    found: Counter[tuple[int, int, int]] = Counter()
    for key in {row["key"] for row in rows}:
        times = sorted(row["ms"] for row in rows if row["key"] == key)
        begin = 0
        for place, time_ms in enumerate(times):
            if place + 1 == len(times) or times[place + 1] >= time_ms + GAP_MS:
                found[key, times[begin], time_ms + GAP_MS] = place + 1 - begin
                begin = place + 1
    return found


def milliseconds(rows: fn.rows.CollectedRows, *columns: str) -> Counter[tuple[int, ...]]:
    """Take key, bounds of the window and count out of a result."""
    table = rows.to_arrow()
    bounds = (table[column].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_pylist() for column in columns)
    found: Counter[tuple[int, ...]] = Counter()
    for *window, n in zip(table["key"].to_pylist(), *bounds, table["n"].to_pylist(), strict=True):
        found[tuple(window)] += n
    return found


def late(result: fn.observation.JobResult) -> int:
    return sum(task.late_records for task in result.tasks)


def read_slowly(monkeypatch: pytest.MonkeyPatch, pause_s: float) -> None:
    """Make each batch of a file take some time, so that watermarks are told between them."""
    read = splits.FileAssignment.read

    def slowly(self: splits.FileAssignment, path: str, part: int | None) -> pa.RecordBatchReader:
        reader = read(self, path, part)

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in reader:
                time.sleep(pause_s)
                yield batch

        return pa.RecordBatchReader.from_batches(reader.schema, batches())

    monkeypatch.setattr(splits.FileAssignment, "read", slowly)


@pytest.fixture(params=[False, True], ids=["fast", "slow"])
def pace(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read as fast as it goes, and slowly."""
    if request.param:
        read_slowly(monkeypatch, pause_s=0.03)


@pytest.mark.usefixtures("pace")
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("parallelism", [1, 2, 4])
@pytest.mark.parametrize("order", ["event_time", "as listed"])
def test_windows_over_files_in_any_order_have_all_rows(
    tmp_path: Path, format: str, parallelism: int, order: Any
) -> None:
    seed = list(FORMATS).index(format) * 10 + parallelism
    files = some_files(seed)
    write, read = FORMATS[format]
    write(tmp_path, files)
    env = fn.Environment(parallelism=parallelism)
    schema = {} if format == "parquet" else {"schema": {"key": "int64", "ms": "int64"}}
    keyed = read(env, tmp_path, event_time="ms", order=order, **schema).key_by("key")
    tumbling = keyed.window(fn.Tumbling(f"{SIZE_MS}ms")).agg(n=fn.count()).collect()
    sessions = keyed.window(fn.Session(f"{GAP_MS}ms")).agg(n=fn.count()).collect()
    result = env.execute()
    rows = [row for file in files for row in file]
    assert milliseconds(tumbling, "window_start") == counts_of(rows), f"seed {seed}"
    assert milliseconds(sessions, "window_start", "window_end") == sessions_of(rows), f"seed {seed}"
    assert late(result) == 0


@pytest.mark.usefixtures("pace")
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_files_that_keep_a_promise_of_order_have_all_rows(tmp_path: Path, format: str, parallelism: int) -> None:
    # Ten files that overlap: more than are open at once.
    files = [[{"key": time_ms % 3, "ms": time_ms * 10 + start} for time_ms in range(40)] for start in range(0, 200, 20)]
    for rows in files:
        rows[10], rows[11] = rows[11], rows[10]
    write, read = FORMATS[format]
    write(tmp_path, files)
    env = fn.Environment(parallelism=parallelism)
    keyed = read(env, tmp_path, event_time="ms", delay="10ms").key_by("key")
    counts = keyed.window(fn.Tumbling(f"{SIZE_MS}ms")).agg(n=fn.count()).collect()
    result = env.execute()
    assert milliseconds(counts, "window_start") == counts_of([row for file in files for row in file])
    assert late(result) == 0


@pytest.mark.usefixtures("pace")
@pytest.mark.parametrize("parallelism", [1, 2])
def test_an_interval_join_of_files_finds_all_pairs(tmp_path: Path, parallelism: int) -> None:
    sides = {"left": some_files(1), "right": some_files(2)}
    for side, files in sides.items():
        (tmp_path / side).mkdir()
        write_parquet(tmp_path / side, files)
    env = fn.Environment(parallelism=parallelism)
    left = env.read_parquet(tmp_path / "left", event_time="ms").key_by("key")
    right = env.read_parquet(tmp_path / "right", event_time="ms").rename({"ms": "other_ms"}).key_by("key")
    pairs = left.interval_join(right, "-20ms", "30ms").collect()
    result = env.execute()
    ours = Counter((row["key"], row["ms"], row["other_ms"]) for row in pairs.to_arrow().to_pylist())
    one, other = ([row for file in files for row in file] for files in sides.values())
    wanted = Counter(
        (a["key"], a["ms"], b["ms"])
        for a in one
        for b in other
        if a["key"] == b["key"] and -20 <= b["ms"] - a["ms"] <= 30
    )
    assert ours == wanted
    assert late(result) == 0


def test_rows_of_a_table_are_in_time_in_any_order() -> None:
    rows = [row for file in some_files(3) for row in file] * 3
    table = pa.concat_tables(table_of(rows[start : start + 70]) for start in range(0, len(rows), 70))
    for parallelism in (1, 2):
        env = fn.Environment(parallelism=parallelism)
        keyed = env.from_arrow(table, event_time="ms").key_by("key")
        counts = keyed.window(fn.Tumbling(f"{SIZE_MS}ms")).agg(n=fn.count()).collect()
        result = env.execute()
        assert milliseconds(counts, "window_start") == counts_of(rows)
        assert late(result) == 0


def test_two_streams_of_one_source_may_take_their_times_from_two_columns(tmp_path: Path) -> None:
    rows = [{"key": 0, "ms": number, "other": 1_000 - number} for number in range(1_000)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet", row_group_size=100)
    sources: list[Reader] = [
        lambda env: env.read_parquet(tmp_path),
        lambda env: env.from_arrow(pa.Table.from_pylist(rows)),
    ]
    for read in sources:
        env = fn.Environment()
        source = read(env)
        results = [
            source.assign_timestamps(column).key_by("key").window(fn.Tumbling("100ms")).agg(n=fn.count()).collect()
            for column in ("ms", "other")
        ]
        assert late(env.execute()) == 0
        assert [sum(result.to_arrow()["n"].to_pylist()) for result in results] == [1_000, 1_000]


def test_row_groups_are_read_by_their_least_times(tmp_path: Path) -> None:
    for name, begin in (("part-10", 100), ("part-2", 0), ("part-9", 50)):
        pq.write_table(table_of([{"key": 0, "ms": begin + place} for place in range(4)]), tmp_path / f"{name}.parquet")
    wanted = ["part-2", "part-9", "part-10"]
    env = fn.Environment()
    rows = env.read_parquet(tmp_path).select(at=fn.col("ms")).assign_timestamps("at").select("at").collect()
    env.execute()
    assert rows.to_arrow()["at"].to_pylist() == [begin + place for begin in (0, 50, 100) for place in range(4)]
    files, _ = parquet.parquet_files(tmp_path, None, None, None)
    by_time = splits.FileAssignment(files)
    by_time.set_event_time("ms")
    assert [Path(split.path).stem for split, _ in by_time.mine(0, 1)] == wanted
    assert [lower for _, lower in by_time.mine(0, 1)] == [0, 50, 100]
    as_listed = splits.FileAssignment(files, "as listed")
    as_listed.set_event_time("ms")
    assert [(Path(split.path).stem, lower) for split, lower in as_listed.mine(0, 1)] == [
        ("part-10", None),
        ("part-2", None),
        ("part-9", None),
    ]


def test_statistics_give_the_least_times_of_row_groups(tmp_path: Path) -> None:
    numbers = pa.array([-2, 3])
    columns = {
        "seconds": numbers.cast(pa.timestamp("s")),
        "milliseconds": numbers.cast(pa.timestamp("ms", "Europe/Berlin")),
        "microseconds": pa.array([-1_001, 7]).cast(pa.timestamp("us")),
        "nanoseconds": pa.array([-1, 7]).cast(pa.timestamp("ns", "UTC")),
        "integers": numbers,
        "days": numbers.cast(pa.int32()).cast(pa.date32()),
        "small": numbers.cast(pa.int32()),
        "texts": pa.array(["a", "b"]),
        "unsigned": pa.array([2, 3], pa.uint64()),
        "nothing": pa.array([None, None], pa.int64()),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    metadata = pq.read_metadata(tmp_path / "a.parquet")
    found = {name: least_times(metadata, name)[0] for name in columns}
    assert found == {
        "seconds": -2_000,
        "milliseconds": -2,
        "microseconds": -2,
        "nanoseconds": -1,
        "integers": -2,
        "days": -2 * 86_400_000,
        "small": -2,
        "texts": None,
        "unsigned": None,
        "nothing": None,
    }
    assert least_times(metadata, "missing") == {0: None}
    pq.write_table(pa.table({"at": columns["nanoseconds"]}), tmp_path / "b.parquet", write_statistics=False)
    assert least_times(pq.read_metadata(tmp_path / "b.parquet"), "at") == {0: None}
    pq.write_table(
        pa.table({"at": columns["nanoseconds"]}), tmp_path / "c.parquet", use_deprecated_int96_timestamps=True
    )
    assert least_times(pq.read_metadata(tmp_path / "c.parquet"), "at") == {0: None}


def test_input_that_may_have_no_end_needs_a_delay(tmp_path: Path) -> None:
    table = table_of([{"key": 0, "ms": 1}])
    env = fn.Environment()

    def made(subtask: int, subtasks: int) -> pa.Table:
        return table.slice(0, 1 if subtask == 0 else 0)

    endless = [
        env.from_arrow(table.to_reader()),
        env.from_arrow(made, schema=table.schema),
        env.from_iterable(lambda subtask, subtasks: iter([(0, 1)])).to_rows({"key": "int64", "ms": "int64"}),
        env.from_arrow(table).union(env.from_arrow(table.to_reader())),
    ]
    for rows in endless:
        with pytest.raises(PlanError, match="may have none: give delay="):
            rows.assign_timestamps("ms")
        assert rows.assign_timestamps("ms", delay="1s").columns == ["key", "ms"]
    with pytest.raises(PlanError, match="idle_after= is for input that pauses"):
        env.from_arrow(table).assign_timestamps("ms", idle_after="1s")
    ended = [env.from_arrow(table), env.from_collection([(0, 1)]).to_rows({"key": "int64", "ms": "int64"})]
    for rows in ended:
        assert rows.assign_timestamps("ms").columns == ["key", "ms"]
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(PlanError, match=r"read_parquet\(order='newest'\): must be 'event_time' or 'as listed'"):
        env.read_parquet(tmp_path, order="newest")  # type: ignore[arg-type]


@pytest.mark.parametrize("delay", [None, "10ms"])
@pytest.mark.parametrize(("before", "after"), [(2, 2), (2, 3), (3, 1)])
def test_a_job_that_is_restored_holds_event_time_for_the_rows_that_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int, after: int, delay: str | None
) -> None:
    files = [[{"key": n % 3, "ms": n * 2 + start} for n in range(600)] for start in (0, 700, 30, 400)]
    (tmp_path / "files").mkdir()
    for number, rows in enumerate(files):
        pq.write_table(table_of(rows), tmp_path / "files" / f"{number}.parquet", row_group_size=100)

    def job(parallelism: int) -> tuple[fn.Environment, fn.rows.CollectedRows]:
        env = fn.Environment(parallelism=parallelism, max_parallelism=16)
        env.enable_checkpointing("50ms", storage=tmp_path / "checkpoints")
        rows = env.read_parquet(tmp_path / "files", event_time="ms", delay=delay)
        windows = rows.key_by("key").window(fn.Tumbling(f"{SIZE_MS}ms")).agg(n=fn.count())
        return env, windows.collect()

    with monkeypatch.context() as patched:
        read_slowly(patched, pause_s=0.2)
        env, first = job(before)
        stop_on_the_way(env, checkpoints=4)
    env, second = job(after)
    result = env.execute()
    assert result.resumed_from is not None
    # Results are collected at least once; each has all rows of its window.
    windows = [milliseconds(collected, "window_start") for collected in (first, second)]
    found = {(*window, n) for one in windows for window, n in one.items()}
    wanted = counts_of([row for file in files for row in file])
    assert found == {(*window, n) for window, n in wanted.items()}
    assert late(result) == 0
