"""Times that functions give as `datetime` instead of milliseconds."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pandas as pd
import pytest

import flownet as fn
from flownet.errors import OperatorError

NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)
BERLIN = timezone(timedelta(hours=2))
BEFORE_1970 = datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=UTC)


def milliseconds(when: datetime) -> int:
    return (when - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def times(records: list[Any], assigner: Any) -> list[Any]:
    class Times(fn.ProcessFunction[Any, Any]):
        def process(self, record: Any, ctx: fn.RecordContext) -> Iterator[Any]:
            yield ctx.timestamp

    env = fn.Environment()
    strategy: Any = fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(assigner)
    found = env.from_collection(records).assign_timestamps_and_watermarks(strategy).process(Times()).collect()
    env.execute()
    return list(found)


@pytest.mark.parametrize(
    "when",
    [
        NOON,
        NOON.astimezone(BERLIN),
        NOON + timedelta(microseconds=1_999),
        BEFORE_1970,
        pd.Timestamp("2026-03-29 12:00:00.123456789", tz="Europe/Berlin"),
        datetime.max.replace(tzinfo=UTC),
    ],
)
@pytest.mark.parametrize("assigner", [1, lambda record: record[1]])
def test_a_record_may_have_a_datetime_as_its_time(when: Any, assigner: Any) -> None:
    assert times([("a", when)], assigner) == [milliseconds(when)]


def test_a_datetime_without_a_time_zone_is_refused_with_the_way_out() -> None:
    with pytest.raises(OperatorError, match=r"has no time zone.*replace\(tzinfo=datetime\.UTC\)"):
        times([("a", datetime(2026, 3, 29))], 1)


def test_other_times_say_that_a_datetime_will_do() -> None:
    with pytest.raises(OperatorError, match="or a datetime with a time zone"):
        times([("a", "2026-03-29")], 1)


class Timers(fn.KeyedProcessFunction[str, datetime, Any]):
    """Sets a timer for each record's time, and takes it back for every other record."""

    def process(self, record: datetime, ctx: fn.ProcessContext[Any]) -> None:
        service = ctx.timer_service()
        service.register_event_time_timer(record)
        if record.second % 2:
            service.delete_event_time_timer(milliseconds(record))

    def on_timer(self, timestamp_ms: int, ctx: fn.ProcessContext[Any]) -> Iterator[Any]:
        yield timestamp_ms


def test_timers_are_set_for_datetimes_too() -> None:
    env = fn.Environment()
    whens = [NOON.astimezone(BERLIN) + timedelta(seconds=second) for second in range(4)]
    strategy: Any = fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda when: when)
    keyed = env.from_collection(whens).assign_timestamps_and_watermarks(strategy).key_by(lambda when: "all")
    found = keyed.process(Timers()).collect()
    env.execute()
    assert list(found) == [milliseconds(NOON), milliseconds(NOON) + 2_000]


class YieldsTag(fn.ProcessFunction[Any, Any]):
    def process(self, record: Any, ctx: fn.RecordContext) -> Iterator[Any]:
        yield fn.OutputTag("late"), record


def returns_tag(record: Any) -> list[Any]:
    return [(fn.OutputTag("late"), record)]


@pytest.mark.parametrize("of", [lambda s: s.process(YieldsTag()), lambda s: s.flat_map(returns_tag)])
def test_a_record_that_begins_with_a_tag_is_refused(of: Any) -> None:
    env = fn.Environment()
    of(env.from_collection([1])).collect()
    with pytest.raises(OperatorError, match=r"begins with OutputTag\(name='late'\): call ctx\.output\(tag, value\)"):
        env.execute()
