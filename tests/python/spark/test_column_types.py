"""Types of Spark that rows and records do not have: kept on their way through a job, or refused by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import flownet as fn
from flownet.errors import OperatorError, PlanError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.usefixtures("leaves_nothing")

SHOWN = [
    "id",
    "map_entries(pairs)",
    "transform(map_entries(nested.deep), pair -> (pair.key, map_entries(pair.value)))",
    "transform(many, pairs -> map_entries(pairs))",
    "to_json(any)",
    "transform(anys, any -> to_json(any))",
    "to_json(inner.any)",
]
"""The columns in a form that can be compared."""


@pytest.fixture(scope="module")
def frame(local: SparkSession) -> DataFrame:
    return local.range(0, 500, 1, 3).selectExpr(
        "id",
        "if(id % 5 = 0, null, map(concat('a', id), id, 'b', null)) AS pairs",
        "named_struct('deep', map(id, map('x', id / 2, 'y', null))) AS nested",
        "array(map(id, true), null, map()) AS many",
        "if(id % 7 = 0, null, parse_json(concat('{\"a\": [', id, ', null]}'))) AS any",
        "array(parse_json('1'), null, parse_json(concat('\"', id, '\"'))) AS anys",
        "struct(parse_json('{\"b\": 2.5}') AS any, id AS id) AS inner",
    )


def shown(frame: DataFrame) -> list[str]:
    return sorted(map(str, frame.selectExpr(*SHOWN).collect()))


@pytest.mark.parametrize("workers", [1, 2])
def test_maps_and_variants_go_through_rows(frame: DataFrame, workers: int) -> None:
    rows = fn.Environment(parallelism=workers).from_spark(frame, as_rows=True)
    assert rows.schema["pairs"] == "list[struct[map_key: utf8, map_value: int64]]"
    assert rows.schema["any"] == "struct[variant_value: binary, variant_metadata: binary]"
    kept = rows.filter(fn.col("id") < 400).select(*reversed(frame.columns)).rebalance().select(*frame.columns)
    result = kept.to_spark(workers=workers)
    assert result.dtypes == frame.dtypes
    assert shown(result) == shown(frame.where("id < 400"))


def test_maps_and_variants_go_through_records(frame: DataFrame) -> None:
    records = fn.Environment(parallelism=2).from_spark(frame, as_dicts=True)

    def check(record: dict[str, object]) -> dict[str, object]:
        number = record["id"]
        assert record["pairs"] == (None if number % 5 == 0 else {f"a{number}": number, "b": None})  # type: ignore[operator]
        assert record["nested"]["deep"][number]["y"] is None  # type: ignore[index]
        return record

    result = records.rebalance().map(check).to_spark(frame.schema, workers=2)
    assert result.dtypes == frame.dtypes
    assert shown(result) == shown(frame)


def test_a_job_can_make_maps(local: SparkSession) -> None:
    entries = pa.list_(pa.struct([("map_key", pa.string()), ("map_value", pa.int64())]))
    table = pa.table({"pairs": pa.array([[{"map_key": "a", "map_value": 1}], [], None], entries)})
    result = fn.Environment().from_arrow(table).to_spark(workers=1)
    assert result.dtypes == [("pairs", "map<string,bigint>")]
    assert [row.pairs for row in result.collect()] == [{"a": 1}, {}, None]
    broken = pa.table({"pairs": pa.array([[{"map_key": None, "map_value": 1}]], entries)})
    with pytest.raises(OperatorError, match="TypeError: rows with the columns .* 'map_key' .* has nulls"):
        fn.Environment().from_arrow(broken).to_spark(workers=1)


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("collate('Abc', 'UTF8_LCASE')", "column 'c' has the collation UTF8_LCASE"),
        ("struct(array(collate('Abc', 'UNICODE_CI')) AS a)", "column 'c.a.element' has the collation UNICODE_CI"),
        ("map(collate('Abc', 'UTF8_LCASE'), 1)", "column 'c.key' has the collation UTF8_LCASE"),
        ("map(1, collate('Abc', 'UTF8_LCASE'))", "column 'c.value' has the collation UTF8_LCASE"),
        ("INTERVAL '3' MONTH", "column 'c' is of type interval month, which Spark does not hand over as Arrow"),
    ],
)
@pytest.mark.parametrize("as_rows", [True, False])
def test_a_type_that_would_lose_its_meaning_is_refused(
    local: SparkSession, expression: str, complaint: str, as_rows: bool
) -> None:
    frame = local.sql(f"SELECT 1 AS n, {expression} AS c")
    with pytest.raises(PlanError, match=f"from_spark: {complaint}") as raised:
        fn.Environment().from_spark(frame, as_rows=as_rows)  # type: ignore[call-overload]
    assert "cast it before" in str(raised.value)


def test_the_way_out_of_a_collation_works(local: SparkSession) -> None:
    frame = local.sql("SELECT collate(x, 'UTF8_LCASE') AS c FROM VALUES ('Abc'), ('aBC') AS t(x)")
    plain = frame.withColumn("c", frame["c"].cast("string"))
    result = fn.Environment().from_spark(plain, as_rows=True).to_spark(workers=1)
    assert sorted(row.c for row in result.collect()) == ["Abc", "aBC"]
