"""The DataFrame of a micro-batch, inside ``foreachBatch``. PySpark keeps the sockets by which it calls the function."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import flownet as fn

from .conftest import eventually, slots_are_free, threads_of_flownet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_the_frame_of_a_micro_batch_goes_in_and_out(local: SparkSession, tmp_path: Path) -> None:
    local.range(0, 1000, 1, 2).write.parquet(str(tmp_path / "in"))
    doubled = list[int]()

    def double(frame: DataFrame, batch: int) -> None:
        rows = fn.Environment(parallelism=2).from_spark(frame).map(lambda row: row[0] * 2)
        doubled.extend(row.n for row in rows.to_spark("n long", workers=2).collect())

    stream = local.readStream.schema("id long").parquet(str(tmp_path / "in")).writeStream.foreachBatch(double)
    query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert sorted(doubled) == list(range(0, 2000, 2))
    eventually("no thread of flownet", lambda: not threads_of_flownet())
    eventually("no busy slot", slots_are_free)
