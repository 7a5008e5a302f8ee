"""Windows by day, week and month of a time zone: beside polars, and beside a loop over instants by `zoneinfo`."""

from __future__ import annotations

import collections
import datetime as dt
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings, strategies as st

import flownet as fn
from flownet import testing
from flownet.errors import ConfigError

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
# Days on which clocks of a zone change: by an hour, by half an hour, over midnight, in the north and in the south.
CHANGES = {
    "America/New_York": ["2026-03-08", "2026-11-01"],
    "Europe/Berlin": ["2026-03-29", "2026-10-25"],
    "Australia/Lord_Howe": ["2026-04-05", "2026-10-04"],
    "America/Sao_Paulo": ["2018-02-18", "2018-11-04"],
    "Asia/Beirut": ["2026-03-29", "2026-10-25"],
    "America/Havana": ["2026-03-08", "2026-11-01"],
    "Asia/Kolkata": ["2026-03-29"],
    "America/St_Johns": ["1987-04-05", "1987-10-25"],
    "Pacific/Apia": ["2011-12-30"],
    "Europe/London": ["1968-02-18", "1971-10-31"],
    "UTC": ["1969-12-31", "2026-03-29"],
}
# Midnight is skipped there, or shown twice with another day between: polars has an error, or windows that overlap.
NOT_AS_POLARS = {"America/Sao_Paulo", "Asia/Beirut", "Pacific/Apia", "America/Havana", "America/St_Johns"}
SIZES = ["1d", "1w", "1mo", "2d", "3mo"]


def around(zone: str, day: str, step_ms: int = HOUR_MS // 2) -> list[int]:
    """Instants from three days before to three days after, in an order that is not that of time."""
    at_ms = int(dt.datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone)).timestamp()) * 1000
    times = list(range(at_ms - 3 * DAY_MS, at_ms + 3 * DAY_MS, step_ms))
    return times[1::2] + times[::2]


def shown(zone: str, at_ms: int) -> dt.datetime:
    at = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=at_ms)
    return at.astimezone(ZoneInfo(zone)).replace(tzinfo=None)


def begins(day: dt.date, size: str) -> dt.date:
    count = int(size.rstrip("dwmo"))
    if size.endswith("mo"):
        month = (day.year * 12 + day.month - 1) // count * count
        return dt.date(month // 12, month % 12 + 1, 1)
    first = dt.date(1970, 1, 5) if size.endswith("w") else dt.date(1970, 1, 1)
    length = count * 7 if size.endswith("w") else count
    return first + (day - first) // dt.timedelta(length) * dt.timedelta(length)


def brute_starts(times: list[int], zone: str, size: str, offset_ms: int = 0) -> dict[int, int]:
    """Find where the window of each instant begins, by walking through time minute by minute."""
    shift = dt.timedelta(milliseconds=offset_ms)
    begin = min(times) - {"d": 3, "w": 15, "o": 120}[size[-1]] * DAY_MS
    newest, start, starts = None, None, {}
    wanted = sorted(times)
    step = 60_000 if size.endswith("d") else 1_800_000
    for at_ms in range(begin // DAY_MS * DAY_MS, wanted[-1] + step, step):
        piece = begins((shown(zone, at_ms) - shift).date(), size)
        # A day that clocks show once more is over.
        if newest is None or piece > newest:
            newest, start = piece, at_ms
        while wanted and wanted[0] < at_ms + step:
            assert start is not None
            starts[wanted.pop(0)] = start
    return starts


def counted(times: list[int], zone: str, size: str, **settings: Any) -> dict[int, int]:
    env = fn.Environment(parallelism=settings.pop("parallelism", 1))
    rows = env.from_arrow(pa.table({"ms": times, "k": [0] * len(times)}), event_time="ms", delay="400d")
    counts = rows.key_by("k").window(fn.Tumbling(size, zone=zone, **settings)).agg(n=fn.count()).collect()
    env.execute(workers=0)
    table = counts.to_arrow()
    assert table.schema.field("window_start").type == pa.timestamp("ms", zone)
    ends = {row["window_start"].timestamp(): row["window_end"].timestamp() for row in table.to_pylist()}
    assert all(start < end for start, end in ends.items())
    return {int(row["window_start"].timestamp() * 1000): row["n"] for row in table.to_pylist()}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("zone", CHANGES)
def test_windows_of_a_zone_are_those_of_a_walk_through_time(zone: str, size: str) -> None:
    for day in CHANGES[zone]:
        times = around(zone, day)
        expected = collections.Counter(brute_starts(times, zone, size).values())
        assert counted(times, zone, size) == expected, day


@pytest.mark.parametrize("offset_hours", [6, 23])
@pytest.mark.parametrize("zone", ["America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo"])
def test_offsets_are_those_that_clocks_show(zone: str, offset_hours: int) -> None:
    for day in CHANGES[zone]:
        times = around(zone, day)
        expected = collections.Counter(brute_starts(times, zone, "1d", offset_hours * HOUR_MS).values())
        assert counted(times, zone, "1d", offset=f"{offset_hours}h") == expected, day


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("zone", sorted(set(CHANGES) - NOT_AS_POLARS))
def test_windows_of_a_zone_are_those_of_polars(zone: str, size: str) -> None:
    for day in CHANGES[zone]:
        times = around(zone, day)
        frame = pl.DataFrame({"at": times}).select(pl.from_epoch("at", time_unit="ms").dt.replace_time_zone("UTC"))
        frame = frame.select(pl.col("at").dt.convert_time_zone(zone)).sort("at")
        grouped = frame.group_by_dynamic("at", every=size).agg(n=pl.len())
        expected = {int(row["at"].timestamp() * 1000): row["n"] for row in grouped.to_dicts()}
        assert counted(times, zone, size) == expected, day


zones = st.sampled_from(sorted(CHANGES))
moments = st.integers(-2_000_000_000_000, 4_000_000_000_000)


@settings(max_examples=60)
@given(zones, st.lists(moments, min_size=1, max_size=20), st.sampled_from(["1d", "1w", "1mo"]))
@example("America/New_York", [-1, 0, 1], "1mo")
def test_every_time_is_in_one_window_of_objects_that_begins_at_its_first_instant(
    zone: str, times: list[int], size: str
) -> None:
    with testing.Harness(
        lambda stream: (
            stream.key_by(lambda _: 0)
            .window(fn.Tumbling(size, zone=zone))
            .process(lambda key, window, values: [(window.start_ms, window.end_ms, sorted(values))])
        )
    ) as harness:
        for time_ms in times:
            harness.send(time_ms, time_ms)
        found = harness.end()
    assert sorted(value for *_, values in found for value in values) == sorted(times)
    assert len({start for start, *_ in found}) == len(found)
    for start, end, values in found:
        assert all(start <= value < end for value in values)
        assert begins(shown(zone, start).date(), size) > begins(shown(zone, start - 1).date(), size)


def windowed(rows: Any, objects: Any, zone: str) -> list[Any]:
    window = fn.Tumbling("1d", zone=zone)
    keyed = rows.key_by("k")
    other = rows.with_columns(ms2=fn.col("ms")).select("k", "ms2").key_by("k")
    return [
        keyed.window(window).agg(n=fn.count(), all=fn.collect("ms")),
        keyed.window(window).top_n(2, "ms"),
        keyed.window(window).trigger(fn.triggers.PurgingTrigger(fn.triggers.CountTrigger(5))).agg(n=fn.count()),
        keyed.join(other, window),
        objects.key_by(0).window(window).with_window().count(),
        objects.key_by(0)
        .window(window)
        .evictor(fn.triggers.CountEvictor(1_000))
        .process(lambda key, window, values: [(key, window.start_ms, len(values))]),
    ]


def test_all_operators_of_windows_take_them_at_any_parallelism() -> None:
    zone = "America/New_York"
    times = around(zone, "2026-03-08", HOUR_MS)
    found = []
    for parallelism, workers in [(1, 0), (3, 0), (2, 2)]:
        env = fn.Environment(parallelism=parallelism)
        table = pa.table({"ms": times, "k": [at % 3 for at in range(len(times))]})
        rows = env.from_arrow(table, event_time="ms", delay="30d")
        strategy = fn.WatermarkStrategy.for_bounded_out_of_orderness("30d").with_timestamp_assigner(1)
        objects = env.from_collection([(at % 3, ms) for at, ms in enumerate(times)])
        streams = windowed(rows, objects.assign_timestamps_and_watermarks(strategy), zone)
        results = [stream.collect() for stream in streams]
        env.execute(workers=workers)
        lists = [result.to_arrow().to_pylist() if hasattr(result, "to_arrow") else list(result) for result in results]
        found.append([sorted(map(repr, records)) for records in lists])
    assert found[0] == found[1] == found[2]
    starts = brute_starts(times, zone, "1d")
    by_key = collections.Counter((at % 3, starts[ms]) for at, ms in enumerate(times))
    assert found[0][5] == sorted(repr((key, start, n)) for (key, start), n in by_key.items())


def test_open_days_go_on_from_a_snapshot() -> None:
    zone = "America/New_York"
    times = sorted(around(zone, "2026-11-01", HOUR_MS))
    expected = collections.Counter((ms % 5, start) for ms, start in brute_starts(times, zone, "1d").items())

    def build(stream: Any) -> Any:
        return stream.key_by(lambda ms: ms % 5).window(fn.Tumbling("1d", zone=zone)).with_window().count()

    half = len(times) // 2
    with testing.Harness(build) as harness:
        found = [result for ms in times[:half] for result in harness.send(ms, ms) + harness.watermark(ms - 1)]
        kept = harness.snapshot()
    with testing.Harness(build, restored=kept) as harness:
        found += [result for ms in times[half:] for result in harness.send(ms, ms) + harness.watermark(ms - 1)]
        found += harness.end()
    assert collections.Counter({(key, window.start_ms): n for key, window, n in found}) == expected


def test_windows_of_processing_time_go_by_the_zone_too() -> None:
    window = fn.Tumbling("1d", time="processing", zone="America/New_York")
    begin = int(dt.datetime(2026, 3, 8, 5, tzinfo=dt.UTC).timestamp()) * 1000
    with testing.Harness(
        lambda stream: stream.key_by(lambda _: 0).window(window).count(), timestamps=False, now_ms=begin
    ) as harness:
        harness.send("a")
        assert harness.advance_to(begin + 23 * HOUR_MS - 1) == []
        assert harness.advance_to(begin + 23 * HOUR_MS) == [(0, 1)]


@pytest.mark.parametrize(
    ("make", "advice"),
    [
        (lambda: fn.Tumbling("1d", zone="Nowhere/Land"), "'Nowhere/Land' must be a time zone by its name"),
        (lambda: fn.Tumbling("1d", zone=dt.timezone(dt.timedelta(hours=2))), "must be a time zone by its name"),
        (lambda: fn.Tumbling("5h", zone="UTC"), "are days, weeks or months: '1d', '1w' or '1mo'"),
        (lambda: fn.Tumbling(dt.timedelta(days=1), zone="UTC"), "are days, weeks or months"),
        (lambda: fn.Tumbling("0d", zone="UTC"), "are days, weeks or months"),
        (lambda: fn.Tumbling("1mo"), r"say Tumbling\('1mo', zone='UTC'\)"),
        (lambda: fn.Sliding("1mo", "1d"), "for Tumbling windows alone"),
        (lambda: fn.Session("1w"), "for Tumbling windows alone"),
        (lambda: fn.Tumbling("1d", "24h", zone="UTC"), "must be a whole number of milliseconds below 86,400,000"),
        (lambda: fn.Tumbling("1mo", "28d", zone="UTC"), "must be a whole number of milliseconds below 2,419,200,000"),
    ],
)
def test_sizes_and_zones_that_do_not_fit_are_refused(make: Any, advice: str) -> None:
    with pytest.raises(ConfigError, match=advice):
        make()


def test_a_zone_may_be_given_as_an_object() -> None:
    window = fn.Tumbling("2w", offset="6h", zone=ZoneInfo("Europe/Berlin"))
    assert (window.zone, window.offset_ms, str(window)) == ("Europe/Berlin", 6 * HOUR_MS, "2 weeks of Europe/Berlin")
