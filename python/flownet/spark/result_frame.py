"""The DataFrame that a job returns: packed by the tasks of the barrier stage, kept by Spark, unpacked where it is read.

Spark treats whatever derives from a barrier stage without a shuffle as a barrier stage of its own: ``show``, ``take``,
``limit`` and ``coalesce`` are refused, and reading needs all slots at once. So the results pass a shuffle. A shuffle
copies and compresses row by row; a row here is a whole Arrow batch in its IPC format, which makes it cheap.

The shuffled batches are kept, or reading the DataFrame again would run the job again: as a checkpoint where the session
has a checkpoint directory, else on two executors each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, functions
from pyspark.sql.types import StructType

from . import packing, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def keep(packed: DataFrame, columns: StructType, partitions: int) -> DataFrame:
    """Run the stage, have Spark keep its results, and return them.

    Parameters
    ----------
    packed
        The barrier stage, of `packing.COLUMNS`.
    columns
        The schema of the results.
    partitions
        Number of partitions of the results: the number of workers.
    """
    spark = packed.sparkSession
    shuffled = _shuffle(packed, partitions)
    if session.checkpoint_directory(spark) is not None:
        kept = shuffled.checkpoint(eager=True)
    else:
        kept = shuffled.localCheckpoint(eager=True, storageLevel=_storage_level(spark))
    return kept.mapInArrow(packing.unpacker(session.arrow_schema(columns)), columns)


def _shuffle(packed: DataFrame, partitions: int) -> DataFrame:
    """Move each partition as a whole, so that the rows of a worker stay in order."""
    partition: Any = functions.spark_partition_id()
    by_id: Any = getattr(packed, "repartitionById", None)
    # Before PySpark 4.1 partitions whose numbers have one hash end up together.
    return packed.repartition(partitions, partition) if by_id is None else by_id(partitions, partition)


def _storage_level(spark: SparkSession) -> StorageLevel:
    """Two copies survive the loss of an executor. A local session has one executor, the driver."""
    return StorageLevel.MEMORY_AND_DISK if session.is_local(spark) else StorageLevel.MEMORY_AND_DISK_2
