"""Run jobs inside Apache Spark: its tasks host the workers, flownet moves the records between them.

>>> import flownet.spark
>>> with flownet.spark.cluster(spark, workers=4) as cluster:  # doctest: +SKIP
...     result = env.execute(on=cluster)

`pack` writes flownet into an archive for executors that do not have it.

A job and a streaming query meet in an `Outlet` or an `Inlet`, for which `register` adds the format ``flownet``.

Spark places the workers, one a task of a single barrier stage; the coordinator runs in the process of the caller. Needs
PySpark 4.0 or later: ``pip install 'flownet-streams[spark]'``. docs/operations/spark-failures.md lists failures.
"""

try:
    import pyspark  # noqa: F401 - only to know that it is there
except ImportError:
    raise ImportError("flownet.spark needs PySpark: pip install 'flownet-streams[spark]'") from None

from .cluster import Cluster, cluster
from .inlet import Inlet
from .outlet import Outlet
from .pack import pack
from .register import register
from .result_frame import SparkResult

__all__ = ["Cluster", "Inlet", "Outlet", "SparkResult", "cluster", "pack", "register"]
