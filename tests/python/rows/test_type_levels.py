"""Types that nest deep: so many levels come through, and one more is refused wherever a schema comes in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flownet as fn
from flownet.errors import OperatorError, PlanError

MOST = 62
REFUSED = f"column 'a': its type nests more than {MOST} levels deep.*flatten it"


def nested(levels: int, kind: str = "list") -> pa.DataType:
    data_type = pa.int64()
    for _ in range(levels):
        data_type = pa.list_(data_type) if kind == "list" else pa.struct([("b", pa.string()), ("a", data_type)])
    return data_type


def table(levels: int, kind: str = "list") -> pa.Table:
    return pa.table({"flat": [1, 2], "a": pa.array([None, None], nested(levels, kind))})


@pytest.mark.parametrize("kind", ["list", "struct"])
def test_the_deepest_type_comes_through_workers_and_back(kind: str, env: fn.Environment, workers: int) -> None:
    given = table(MOST, kind)
    found = env.from_arrow(given).rebalance().map_batches(lambda batch: batch).to_arrow(workers=workers)
    assert found.schema.equals(given.schema)
    assert found.num_rows == 2


@pytest.mark.parametrize("kind", ["list", "struct"])
@pytest.mark.parametrize("levels", [MOST + 1, 300])
def test_a_deeper_type_is_refused_where_a_schema_comes_in(levels: int, kind: str, env: fn.Environment) -> None:
    deep = table(levels, kind)
    reader = pa.RecordBatchReader.from_batches(deep.schema, deep.to_batches())
    rows = env.from_arrow(table(1))
    objects = env.from_collection([{"a": None}])
    refused: list[Callable[[], object]] = [
        lambda: env.from_arrow(deep),
        lambda: env.from_arrow(reader),
        lambda: rows.map_batches(lambda _: deep),
        lambda: rows.map_batches(lambda batch: batch, schema=deep.schema),
        lambda: objects.to_rows(deep.schema),
        lambda: objects.to_rows({"a": nested(levels, kind)}),
        lambda: objects.to_rows({"a": "list[" * levels + "int64" + "]" * levels}),
    ]
    for attempt in refused:
        with pytest.raises(PlanError, match=REFUSED):
            attempt()
    with pytest.raises(PlanError, match=f"nests more than {MOST} levels"):
        rows.with_columns(c=fn.col("flat").cast("list[" * levels + "int64" + "]" * levels))


def test_a_batch_with_a_deeper_type_than_was_said_is_refused(env: fn.Environment, workers: int) -> None:
    def deeper(batch: pa.RecordBatch) -> pa.Table:
        return table(300) if batch.num_rows else table(1)

    rows = env.from_arrow(table(1)).rebalance().map_batches(deeper)
    with pytest.raises(OperatorError, match=REFUSED):
        rows.to_arrow(workers=workers)


def test_a_file_with_a_deeper_type_is_refused(env: fn.Environment, tmp_path: Path) -> None:
    pq.write_table(table(MOST + 1, "struct"), tmp_path / "deep.parquet")
    with pytest.raises(PlanError, match=REFUSED):
        env.read_parquet(tmp_path / "deep.parquet").to_arrow()
    rows = env.read_parquet(tmp_path / "deep.parquet", columns=["flat"])
    assert rows.to_arrow()["flat"].to_pylist() == [1, 2]
