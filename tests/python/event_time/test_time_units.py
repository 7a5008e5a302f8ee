"""Integers given as event time that are plainly seconds, microseconds or nanoseconds are questioned."""

from __future__ import annotations

import warnings

import pyarrow as pa
import pytest

import flownet as fn
from flownet.errors import OperatorError, UsageWarning

SECOND = 1_700_000_000
UNITS = {"s": ("seconds", 1), "us": ("microseconds", 10**6), "ns": ("nanoseconds", 10**9)}


@pytest.mark.parametrize("unit", UNITS)
def test_a_column_in_another_unit_is_refused_and_right_once_it_is_cast(unit: str) -> None:
    name, per_second = UNITS[unit]
    table = pa.table({"at": [SECOND * per_second, (SECOND + 5) * per_second]})
    env = fn.Environment()
    env.from_arrow(table, event_time="at").collect()
    date = f"{name} are 2023-11-14 22:13:20 UTC"
    with pytest.raises(OperatorError, match=rf"column 'at' .*{date}.*cast\(\{{'at': 'timestamp\[{unit}\]'\}}\)"):
        env.execute()
    env = fn.Environment()
    timed = env.from_arrow(table).cast({"at": f"timestamp[{unit}]"}).assign_timestamps("at")
    windows = timed.with_columns(key=fn.lit(1)).key_by("key").window(fn.Tumbling("10s")).agg(n=fn.count()).collect()
    env.execute()
    assert windows.to_arrow()["n"].to_pylist() == [2]


def test_milliseconds_of_january_1970_can_be_said_to_be_right() -> None:
    env = fn.Environment()
    table = pa.table({"at": [SECOND, SECOND + 5]})
    rows = env.from_arrow(table).cast({"at": "timestamp[ms]"}).assign_timestamps("at").collect()
    env.execute()
    assert rows.to_arrow().num_rows == 2


@pytest.mark.parametrize("times", [[0, 1], [1_700_000_000_000, 1], [5, SECOND], [-SECOND, SECOND]])
def test_other_numbers_are_milliseconds(times: list[int]) -> None:
    env = fn.Environment()
    rows = env.from_arrow(pa.table({"at": times}), event_time="at", delay="1d").collect()
    env.execute()
    assert rows.to_arrow().num_rows == 2


def objects(first: int) -> None:
    env = fn.Environment()
    strategy = fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(1)
    stream = env.from_collection([("a", first), ("b", first + 1)]).assign_timestamps_and_watermarks(strategy)
    records = stream.collect()
    env.execute(workers=0)
    assert len(records) == 2


@pytest.mark.parametrize("unit", UNITS)
def test_objects_in_another_unit_are_warned_of(unit: str) -> None:
    name, per_second = UNITS[unit]
    with pytest.warns(UsageWarning, match=rf"{name} are 2023-11-14 22:13:20 UTC\. Give milliseconds"):
        objects(SECOND * per_second)


def test_milliseconds_of_objects_are_not_warned_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        objects(SECOND * 1000)
