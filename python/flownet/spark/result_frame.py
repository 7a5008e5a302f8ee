"""The DataFrames that a job returns: packed by the tasks of its stage, kept by Spark, unpacked where they are read.

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

from ..errors import PlanError
from . import packing, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkResult:
    """Result of ``to_spark(run=False)``: a DataFrame once ``execute()`` has returned.

    A further ``execute()`` brings another DataFrame. It and the rows of earlier ones are independent of each other.
    """

    def __init__(self, columns: StructType, number: int) -> None:
        self._columns, self._number = columns, number
        self._frame: DataFrame | None = None

    @property
    def frame(self) -> DataFrame:
        """The rows, as an ordinary DataFrame.

        Raises
        ------
        PlanError
            No job with this result has ended well.
        """
        if self._frame is None:
            raise PlanError(
                "the DataFrame of to_spark(run=False) is not there: it comes when a job inside Spark, such as "
                "env.execute(on=flownet.spark.cluster(spark, workers=2)), has ended well"
            )
        return self._frame

    def begin(self) -> None:
        """Forget the rows of an earlier job."""
        self._frame = None

    def fill(self, kept: DataFrame) -> None:
        """Take the rows of a job that has ended well."""
        packed = kept.where(kept["result"] == self._number).select("batch")
        self._frame = packed.mapInArrow(packing.unpacker(session.arrow_schema(self._columns)), self._columns)

    def __repr__(self) -> str:
        return f"SparkResult({self._columns.simpleString()}, {'empty' if self._frame is None else 'with its frame'})"


def keep(packed: DataFrame, partitions: int) -> DataFrame:
    """Run the stage, and have Spark keep its packed results.

    Parameters
    ----------
    packed
        The barrier stage, of `packing.RESULT_COLUMNS`.
    partitions
        Number of partitions of the results: the number of workers.
    """
    spark = packed.sparkSession
    shuffled = shuffle(packed, partitions, functions.spark_partition_id())
    if session.checkpoint_directory(spark) is not None:
        return shuffled.checkpoint(eager=True)
    return shuffled.localCheckpoint(eager=True, storageLevel=_storage_level(spark))


def shuffle(packed: DataFrame, partitions: int, target: Any) -> DataFrame:
    """Move rows to the partitions that an expression says; those from one partition to another stay in order."""
    by_id: Any = getattr(packed, "repartitionById", None)
    # Before PySpark 4.1 partitions whose numbers have one hash end up together.
    return packed.repartition(partitions, target) if by_id is None else by_id(partitions, target)


def _storage_level(spark: SparkSession) -> StorageLevel:
    """Two copies survive the loss of an executor. A local session has one executor, the driver."""
    return StorageLevel.MEMORY_AND_DISK if session.is_local(spark) else StorageLevel.MEMORY_AND_DISK_2
