"""Objects as rows: of every kind and type, with their times, once, and refused where they do not fit."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

import flownet as fn
from flownet.errors import OperatorError, PlanError

if TYPE_CHECKING:
    from tests.python.conftest import Run

TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int8": (pa.int8(), [-128, 127]),
    "int16": (pa.int16(), [-(2**15), 2**15 - 1]),
    "int32": (pa.int32(), [-(2**31), 2**31 - 1]),
    "int64": (pa.int64(), [-(2**63), 2**63 - 1]),
    "uint8": (pa.uint8(), [0, 255]),
    "uint32": (pa.uint32(), [0, 2**32 - 1]),
    "uint64": (pa.uint64(), [0, 2**64 - 1]),
    "float32": (pa.float32(), [0.5, -1.0]),
    "float64": (pa.float64(), [0.1, -1e300]),
    "bool": (pa.bool_(), [True, False]),
    "text": (pa.utf8(), ["", "to be — or not"]),
    "bytes": (pa.binary(), [b"", b"\x00\xff"]),
    "date": (pa.date32(), [date(1, 1, 1), date(2026, 11, 23)]),
    "time": (pa.time64("us"), [time(0), time(23, 59, 59, 999_999)]),
    "timestamp": (pa.timestamp("us"), [datetime(1960, 1, 1), datetime(2026, 11, 23, 7, 30, 0, 1)]),
    "zoned": (pa.timestamp("us", "UTC"), [datetime(1960, 1, 1, tzinfo=UTC), datetime(2026, 11, 23, tzinfo=UTC)]),
    "duration": (pa.duration("us"), [timedelta(days=-1), timedelta(microseconds=1)]),
    "decimal": (pa.decimal128(10, 2), [Decimal("1.10"), Decimal("-99999999.99")]),
    "fixed": (pa.binary(2), [b"ab", b"\x00\x01"]),
    "list": (pa.list_(pa.int64()), [[], [1, None]]),
    "struct": (pa.struct({"a": pa.int64(), "b": pa.utf8()}), [{"a": 1, "b": "x"}, {"a": None, "b": None}]),
}


@pytest.mark.parametrize(("kind", "values"), TYPES.values(), ids=TYPES)
def test_values_of_every_type_are_what_they_were(kind: pa.DataType, values: list[Any]) -> None:
    env = fn.Environment(parallelism=1)
    records = [{"v": value} for value in (*values, None)]
    rows = env.from_collection(records).to_rows(pa.schema({"v": kind})).collect()
    env.execute(workers=0)
    assert rows.to_arrow().schema.field("v").type == kind
    assert rows.to_arrow().to_pylist() == records


class Named(NamedTuple):
    word: str
    number: int | None


@dataclass
class Data:
    number: int | None
    word: str


RECORDS: dict[str, Any] = {
    "dict": {"number": 1, "word": "to", "other": "left out"},
    "another mapping": OrderedDict(word="to", number=1),
    "tuple": ("to", 1),
    "list": ["to", 1],
    "named tuple": Named("to", 1),
    "dataclass": Data(1, "to"),
    "numbers of numpy": {"word": np.str_("to"), "number": np.int64(1)},
}


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_rows_are_made_of_records_of_any_kind(record: Any) -> None:
    env = fn.Environment(parallelism=1)
    records = env.from_iterable([record, {"word": "be"}, ("or", None)])
    rows = records.to_rows({"word": "utf8", "number": "int64"}).collect()
    env.execute(workers=0)
    expected = [{"word": "to", "number": 1}, {"word": "be", "number": None}, {"word": "or", "number": None}]
    assert rows.to_arrow().to_pylist() == expected


def test_many_records_come_once_and_may_become_objects_again(run: Run, env: fn.Environment) -> None:
    draw = random.Random(3)
    records = [{"n": number, "s": draw.choice(["a", None, "bc" * 50]), "f": draw.random()} for number in range(20_000)]
    rows = env.from_collection(records).rebalance().map(dict).to_rows({"n": "int32", "s": "utf8", "f": "float64"})
    odd = rows.filter(fn.col("n") % 2 == 1).to_objects()
    both = run(rows.to_objects().map(lambda record: {**record, "n": -record["n"]}).union(odd))
    assert sorted((record for record in both if record["n"] > 0), key=lambda record: record["n"]) == records[1::2]
    rest = [{**record, "n": -record["n"]} for record in both if record["n"] <= 0]
    assert sorted(rest, key=lambda record: record["n"]) == records


def test_rows_have_the_times_of_their_records(workers: int, env: fn.Environment) -> None:
    draw = random.Random(5)
    records = [(draw.randrange(20), at * 7, draw.randrange(1000)) for at in range(5000)]
    strategy = fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(1)
    timed = env.from_collection(records).assign_timestamps_and_watermarks(strategy)
    by_rows = timed.to_rows({"key": "int64", "ms": "int64", "n": "int64"}).key_by("key").window(fn.Tumbling("1s"))
    by_objects = timed.key_by(0).window(fn.Tumbling("1s")).sum(2).collect()
    sums = by_rows.agg(n=fn.sum("n")).collect()
    # Behind windows of objects: what they emit as time passes is there before that time is.
    counts = timed.key_by(0).window(fn.Tumbling("1s")).count().to_rows({"key": "int64", "n": "int64"})
    counted = counts.key_by("key").window(fn.Tumbling("5s")).agg(n=fn.sum("n")).collect()
    result = env.execute(workers=workers)
    assert all(task.late_records == 0 for task in result.tasks)
    expected = sorted((record[0], record[-1]) for record in by_objects)
    assert sorted((row["key"], row["n"]) for row in sums.to_arrow().to_pylist()) == expected
    assert sum(counted.to_arrow()["n"].to_pylist()) == len(records)


def test_records_that_come_one_by_one_do_not_wait_for_each_other(env: fn.Environment) -> None:
    seen: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(5):
            yield number
            # This one has come through before the next is asked for.
            while len(seen) <= number:
                sleep(0.001)

    class Into(fn.Sink[Any]):
        def write(self, records: list[Any]) -> None:
            seen.extend(value for batch in records for value in batch["n"].to_pylist())

    env = fn.Environment(parallelism=1, buffer_timeout="1ms", object_reuse=True)
    env.from_iterable(numbers()).map(lambda n: (n,)).to_rows({"n": "int64"}).sink_to(Into())
    env.execute(workers=0)
    assert seen == list(range(5))


class FailsOnce:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __call__(self, number: int) -> tuple[int, int]:
        if number == 700 and not self.mark.exists():
            self.mark.touch()
            raise ValueError("once")
        return number % 7, number


def test_rows_of_records_count_once_behind_a_restart(workers: int, tmp_path: Path) -> None:
    env = fn.Environment(parallelism=2, restart="fixed:3:10ms", buffer_timeout="5ms")
    env.enable_checkpointing("50ms", storage=tmp_path / "checkpoints")
    records = env.from_collection(list(range(1000)), rate_limit=1500).rebalance().map(FailsOnce(tmp_path / "failed"))
    rows = records.to_rows({"key": "int64", "n": "int64"})
    sums = rows.key_by("key").window(fn.EndOfInput()).agg(n=fn.sum("n"), count=fn.count()).collect()
    result = env.execute(workers=workers)
    assert result.restarted == 1
    found = {row["key"]: (row["n"], row["count"]) for row in sums.to_arrow().to_pylist()}
    assert found == {key: (sum(range(key, 1000, 7)), len(range(key, 1000, 7))) for key in range(7)}


MISFITS: dict[str, tuple[Any, Any, str]] = {
    "text for a number": ({"v": "x"}, "int64", "column 'v' is of type int64, and 'x' does not fit"),
    "too large": ({"v": 128}, "int8", "column 'v' is of type int8, and 128 does not fit"),
    "below zero": ({"v": -1}, "uint64", "column 'v' is of type uint64, and -1 does not fit"),
    "a fraction": ({"v": 1.5}, "int32", "column 'v' is of type int32, and 1.5 does not fit"),
    "a number for a text": ({"v": 1}, "utf8", "column 'v' is of type utf8, and 1 does not fit"),
    "no UTF-8": ({"v": "\ud800"}, "utf8", "column 'v' is of type utf8, and '.ud800' does not fit"),
    "a number for a bool": ({"v": 1}, "bool", "column 'v' is of type bool, and 1 does not fit"),
    "a text for a time": ({"v": "now"}, "timestamp[us]", "column 'v' is of type timestamp.*'now' does not fit"),
    "no zone": (
        {"v": datetime(2020, 1, 1)},
        "timestamp[us, UTC]",
        "'v' .*datetime.* a time with a zone and one without",
    ),
    "a zone": (
        {"v": datetime(2020, 1, 1, tzinfo=UTC)},
        "timestamp[us]",
        "a time with a zone and one without never mix",
    ),
    "a zone in a list": (
        {"v": [datetime(2020, 1, 1), datetime(2020, 1, 1, tzinfo=UTC)]},
        "list[timestamp[us]]",
        "a time with a zone and one without never mix",
    ),
    "no zone in a struct": (
        {"v": {"at": datetime(2020, 1, 1)}},
        pa.struct({"at": pa.timestamp("us", "UTC")}),
        "a time with a zone and one without never mix",
    ),
    "too many": ((1, 2), "int64", "it has 2 values, where there are 1 columns"),
    "no attribute": (Data(1, "to"), "int64", "it is of type Data and has no 'v': rows are made of dicts, of tuples"),
}


@pytest.mark.parametrize(("record", "kind", "text"), MISFITS.values(), ids=MISFITS)
def test_what_does_not_fit_is_told_with_column_and_record(
    record: Any, kind: Any, text: str, env: fn.Environment
) -> None:
    schema = {"v": kind} if isinstance(kind, str) else pa.schema({"v": kind})
    env.from_iterable([record]).to_rows(schema).collect()
    with pytest.raises(OperatorError, match=text) as raised:
        env.execute(workers=0)
    assert raised.value.operator == "to_rows"


def test_what_has_to_be_there_is_asked_for(env: fn.Environment) -> None:
    schema = pa.schema([pa.field("v", pa.int64(), nullable=False)])
    env.from_collection([{"w": 1}]).to_rows(schema).collect()
    with pytest.raises(OperatorError, match="column 'v' has no value, where the schema says that all are there"):
        env.execute(workers=0)


def test_a_schema_that_is_none_is_refused_at_once(env: fn.Environment) -> None:
    with pytest.raises(PlanError, match="to_rows: column 'n': int65 is no type of rows"):
        env.from_collection([1]).to_rows({"n": "int65"})
