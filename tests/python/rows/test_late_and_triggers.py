"""Late rows as a side output, and triggers, on windows of rows: as those of objects."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, cast

import pytest

import flownet as fn
from flownet.errors import ConfigError, PlanError
from flownet.testing import Record, RowsHarness, Watermark

from .halves import ROWS as HALF_ROWS, FailsOnce, Half
from .sums import Sums, collected
from .test_aggregates import WINDOWS, Row, some_rows, table_of

LATE = fn.OutputTag("late")
SECOND = fn.Tumbling("1s")


def scripted(env: fn.Environment, rows: list[Row], delay_ms: int = 20) -> fn.Rows:
    """Rows of keys, times and values, each with a watermark behind it that is so far behind the newest."""
    steps, newest = list[Any](), 0
    for row in rows:
        newest = max(newest, row[1])
        steps += [Record(row, row[1]), Watermark(newest - delay_ms)]
    return env.from_script(steps).to_rows({"key": "int64", "ms": "int64", "value": "int64"})


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize("state_backend", ["memory", "disk"])
def test_each_row_is_in_a_window_or_late_and_whole(window: Any, state_backend: Any, workers: int) -> None:
    given = some_rows(11, 400)
    env = fn.Environment(parallelism=2, state_backend=state_backend)
    rows = scripted(env, given).with_columns(twice=fn.col("value") * 2)
    cut = rows.key_by("key").window(window).side_output_late_data(LATE)
    results = cut.agg(values=fn.collect("value"), n=fn.count(), own=Sums().of(n="value"), total=fn.sum("value"))
    late = results.side_output(LATE)
    assert late.schema == {"key": "int64", "ms": "int64", "value": "int64", "twice": "int64"}
    found, late_rows = results.collect(), late.collect()
    result = env.execute(workers=workers)
    assert sum(task.late_records for task in result.tasks) == 0
    shown = late_rows.to_arrow().to_pylist()
    assert all(row["twice"] == 2 * row["value"] for row in shown)
    assert [row["own"] for row in collected(found)] == [row["total"] for row in collected(found)]
    if isinstance(window, fn.Sliding):
        return
    assert 0 < len(shown) < len(given)
    taken = [(row["key"], value) for row in found.to_arrow().to_pylist() for value in row["values"]]
    expected = sorted(((key, value) for key, _, value in given), key=repr)
    assert sorted([*taken, *((row["key"], row["value"]) for row in shown)], key=repr) == expected


def test_late_rows_go_on_with_their_times() -> None:
    env = fn.Environment()
    rows = scripted(env, [(1, 10_000, 0), (2, 10_100, 0), (1, 5, 0), (1, 700, 0)]).key_by("key")
    counts = rows.window(SECOND).side_output_late_data(LATE).agg(n=fn.count())
    times = counts.side_output(LATE).to_objects().process(TimeOf()).collect()
    tops = rows.window(SECOND).side_output_late_data(LATE).top_n(1, "ms")
    found, late_of_top = counts.collect(), tops.side_output(LATE).collect()
    env.execute()
    assert {(row["key"], row["n"]) for row in found.to_arrow().to_pylist()} == {(1, 1), (2, 1)}
    assert sorted(times) == [(5, 5), (700, 700)]
    assert sorted(row["ms"] for row in late_of_top.to_arrow().to_pylist()) == [5, 700]


class TimeOf(fn.ProcessFunction[Any, Any]):
    def process(self, record: Any, ctx: Any) -> Any:
        yield record["ms"], ctx.timestamp


def test_lateness_gives_windows_out_again_and_what_is_later_is_late() -> None:
    env = fn.Environment()
    rows = scripted(env, [(1, 100, 0), (1, 1_500, 0), (1, 200, 0), (1, 20_000, 0), (1, 300, 0)]).key_by("key")
    counts = rows.window(SECOND).allowed_lateness("2s").side_output_late_data(LATE).agg(n=fn.count())
    found, late = counts.collect(), counts.side_output(LATE).collect()
    env.execute()
    of_first = [row["n"] for row in found.to_arrow().to_pylist() if row["window_start"].timestamp() == 0]
    assert of_first == [1, 2]
    assert late.to_arrow().to_pylist() == [{"key": 1, "ms": 300, "value": 0}]


ROWS = [(n % 2, n * 200, n) for n in range(10)]


@pytest.mark.parametrize(
    ("window", "trigger"),
    [
        (fn.Global(), fn.triggers.CountTrigger(2)),
        (fn.Global(), fn.triggers.PurgingTrigger(fn.triggers.CountTrigger(2))),
        (fn.Tumbling("1s"), fn.triggers.EventTimeTrigger()),
        (fn.Tumbling("1s"), fn.triggers.PurgingTrigger(fn.triggers.CountTrigger(2))),
        (fn.Sliding("1s", "400ms"), fn.triggers.CountTrigger(2)),
        (fn.Session("10s"), fn.triggers.PurgingTrigger(fn.triggers.EventTimeTrigger())),
        (fn.Tumbling("2s"), fn.triggers.ContinuousEventTimeTrigger("600ms")),
        (fn.Tumbling("2s"), fn.triggers.PurgingTrigger(fn.triggers.ContinuousEventTimeTrigger("600ms"))),
    ],
)
@pytest.mark.parametrize("own", [False, True], ids=["flownet's", "one's own"])
def test_triggers_say_when_results_go_out_as_of_objects(window: Any, trigger: Any, own: bool) -> None:
    env = fn.Environment()
    rows = scripted(env, ROWS, delay_ms=1)
    of_objects = rows.to_objects(as_dicts=False).key_by(0).window(window).trigger(trigger).sum(2).collect()
    total = Sums().of(n="value") if own else fn.sum("value")
    sums = rows.key_by("key").window(window).trigger(trigger).agg(total=total)
    assert ("window_start" in sums.columns) == (not isinstance(window, fn.Global))
    found = sums.collect()
    env.execute(workers=0)
    shown = [(row["key"], row["total"]) for row in found.to_arrow().to_pylist()]
    assert len(shown) > 3 or isinstance(window, fn.Session)
    assert sorted(shown) == sorted(of_objects)


def test_the_best_so_far_go_out_when_a_trigger_says() -> None:
    env = fn.Environment()
    rows = scripted(env, ROWS).key_by("key").window(fn.Global()).trigger(fn.triggers.CountTrigger(4))
    best = rows.top_n(2, "value").collect()
    env.execute(workers=0)
    # And once more with all of them, when the input ends.
    assert [(row["key"], row["value"]) for row in best.to_arrow().to_pylist()][:4] == [(0, 6), (0, 4), (1, 7), (1, 5)]


def test_it_fires_on_with_what_a_checkpoint_has(tmp_path: Path) -> None:
    env = fn.Environment(parallelism=2, restart="fixed:3:10ms")
    env.enable_checkpointing("50ms", storage=tmp_path / "checkpoints")
    source = env.from_arrow(Half(), schema={"key": "int64", "ms": "int64", "n": "int64"})
    rows = source.map_batches(FailsOnce(tmp_path)).key_by("key")
    counts = rows.window(fn.Global()).trigger(fn.triggers.CountTrigger(100)).agg(n=fn.count()).collect()
    result = env.execute()
    assert result.restarted == 1
    assert {row["n"] for row in counts.to_arrow().to_pylist()} == {100, 200, 300, 400}
    assert HALF_ROWS == 400 * 100


class Own(fn.triggers.Trigger[Any]):
    pass


def test_what_cannot_be_is_refused_where_it_is_written() -> None:
    env = fn.Environment()
    rows = env.from_arrow(table_of(ROWS), event_time="ms")
    windows = rows.key_by("key").window(SECOND)
    counts, forever = windows.agg(n=fn.count()), rows.key_by("key").window(fn.Global())
    seven, text = cast(Any, 7), cast(Any, "late")
    for made, said in [
        (lambda: windows.trigger(Own()), r"trigger\(Own\): windows of rows have no triggers that look at records"),
        (
            lambda: windows.trigger(fn.triggers.DeltaTrigger(1, lambda one, other: 0)),
            "windows of rows have no triggers that look",
        ),
        (
            lambda: windows.trigger(seven),
            r"trigger\(\) needs a trigger such as flownet.triggers.CountTrigger\(100\), not",
        ),
        (
            lambda: windows.trigger(fn.triggers.ProcessingTimeTrigger()),
            "goes by processing time, and these windows by event",
        ),
        (lambda: windows.side_output_late_data(text), r"side_output_late_data\(\) needs a flownet.OutputTag"),
        (
            lambda: forever.agg(n=fn.count()),
            r"agg\(\) of flownet.Global\(\) gives nothing",
        ),
        (
            lambda: forever.top_n(1, "value"),
            r"top_n\(\) of flownet.Global\(\) gives nothing",
        ),
        (lambda: rows.key_by("key").join(rows.key_by("key"), fn.Global()), "leave the window out"),
        (lambda: counts.side_output(LATE), r"side_output\('late'\): operator 'agg' has no such side output"),
        (lambda: counts.side_output(text), "reads a flownet.OutputTag, not str"),
        (
            lambda: rows.key_by("key").window(fn.Tumbling("1s", time="processing")).allowed_lateness("1s"),
            "is for windows of event time",
        ),
    ]:
        with pytest.raises(PlanError, match=said):
            made()  # type: ignore[no-untyped-call]
    with pytest.raises(ConfigError, match="whole number of milliseconds"):
        windows.allowed_lateness("1us")


@pytest.mark.parametrize("lateness", ["0ms", "100ms"])
@pytest.mark.parametrize("seed", range(4))
def test_sessions_of_parts_are_those_of_objects_whatever_is_late(seed: int, lateness: str) -> None:
    draw, steps, newest = random.Random(seed), list[Any](), 0
    for row in some_rows(seed, 1000):
        newest = max(newest, row[1])
        steps.append(Record(row, row[1]))
        if draw.random() < 0.1:
            steps.append(Watermark(newest - draw.randint(0, 200)))
    env = fn.Environment(parallelism=1)
    rows = env.from_script(steps).to_rows({"key": "int64", "ms": "int64", "value": "int64"})
    window = fn.Session("50ms")

    def summed(key: Any, window: fn.Window, records: list[Row]) -> list[tuple[Any, ...]]:
        return [(key, window.start_ms, window.end_ms, len(records), sum(value for _, _, value in records))]

    objects = rows.to_objects(as_dicts=False).key_by(0).window(window).allowed_lateness(lateness).process(summed)
    sums = rows.key_by("key").window(window).allowed_lateness(lateness).agg(n=fn.count(), total=fn.sum("value"))
    epochs = {name: fn.col(name).dt.epoch() for name in ("window_start", "window_end")}
    expected, found = objects.collect(), sums.select("key", "n", "total", **epochs).collect()
    result = env.execute(workers=0)
    late = [task.late_records for task in result.tasks if task.late_records]
    assert len(late) == 2
    assert late[0] == late[1]
    shown = [
        (key, start, end, n, total) for key, n, total, start, end in map(dict.values, found.to_arrow().to_pylist())
    ]
    assert sorted(shown, key=repr) == sorted(expected, key=repr)


def test_rows_of_a_session_travel_as_few_parts() -> None:
    env = fn.Environment(parallelism=2)
    table = table_of([(n % 10, n, 1) for n in range(10_000)])
    sums = env.from_arrow(table, event_time="ms").set_parallelism(1).key_by("key").window(fn.Session("1s"))
    found = sums.agg(n=fn.count()).collect()
    result = env.execute(workers=0)
    assert [row["n"] for row in found.to_arrow().to_pylist()] == [1_000] * 10
    # One of each key for each second, of which there are ten.
    (of_parts,) = [task for task in result.tasks if "partial agg" in task.name]
    assert (of_parts.rows_in, of_parts.rows_out) == (10_000, 100)


def test_a_row_that_is_late_for_its_session_stays_late_in_a_job_that_goes_on() -> None:
    def sums(rows: fn.Rows) -> fn.Rows:
        return rows.key_by("key").window(fn.Session("50ms")).agg(n=fn.count(), first=fn.min("ms")).select("n", "first")

    columns = {"key": "int64", "ms": "int64"}
    # The first one's session is over; the second one's is not, and would take in the first, if they came as one part.
    rows = [{"key": 1, "ms": 920}, {"key": 1, "ms": 960}]
    with RowsHarness(sums, columns) as harness:
        harness.watermark(1_000)
        kept = harness.snapshot()
        harness.send(rows, "ms")
        expected = harness.watermark(2_000), harness.late_records
    with RowsHarness(sums, columns, restored=kept) as harness:
        harness.send(rows, "ms")
        assert (harness.watermark(2_000), harness.late_records) == expected == ([{"n": 1, "first": 960}], 1)
