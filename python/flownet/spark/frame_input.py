"""The DataFrames that a job reads, as the input of its barrier stage."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from ..errors import ConfigError
from . import packing, session
from .result_frame import shuffle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, eq=False)
class FrameInput:
    """A DataFrame that a source reads."""

    frame: DataFrame
    source: int
    """Number of the source in its dataflow."""
    is_ordered: bool = False
    """Event time follows the rows, so each worker must read one partition."""


def is_dealt_out(inputs: Sequence[FrameInput], workers: int) -> bool:
    """Whether the rows pass a shuffle: there are several DataFrames, or not one partition for each worker."""
    return len(inputs) > 1 or (len(inputs) == 1 and session.partitions(inputs[0].frame) != workers)


def check_order(inputs: Sequence[FrameInput], workers: int) -> None:
    """Refuse DataFrames in whose order event time cannot follow the rows.

    Raises
    ------
    ConfigError
        Workers would read rows of several partitions.
    """
    if not any(given.is_ordered for given in inputs) or not is_dealt_out(inputs, workers):
        return
    if len(inputs) > 1:
        reason, way_out = f"the job reads {len(inputs)}", "leave out ordered=True, or join them in Spark"
    else:
        count = session.partitions(inputs[0].frame)
        known = "a number of partitions that is not known before it runs" if count is None else f"{count} partitions"
        reason = f"it has {known}, for {workers} workers"
        way_out = f"sort it within {workers} partitions and make these known by df.localCheckpoint()"
    raise ConfigError(
        f"from_spark(ordered=True) needs one DataFrame with one partition for each worker, and {reason}: {way_out}",
        setting="ordered",
    )


def stage_input(spark: SparkSession, inputs: Sequence[FrameInput], workers: int, is_packed: bool) -> DataFrame:
    """Return the DataFrame whose partitions the workers read, one each: packed if the rows are dealt out."""
    if not inputs:
        return spark.range(0, workers, 1, workers)
    if not is_packed:
        return inputs[0].frame
    packed = [
        each.frame.mapInArrow(packing.input_packer(each.source, workers), packing.INPUT_COLUMNS) for each in inputs
    ]
    # Spark runs a barrier stage over a union only behind a shuffle.
    together = functools.reduce(lambda one, other: one.unionAll(other), packed)
    return shuffle(together, workers, together["worker"])
