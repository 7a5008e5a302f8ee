"""The Spark session of the command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..errors import FlownetError
from ..internal.extras import need, need_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def spark_session(purpose: str, master: str | None = None) -> Iterator[SparkSession]:
    """Open a session, quiet on the terminal, and stop it at the end.

    Parameters
    ----------
    purpose
        What needs it, for error texts.
    master
        Where Spark runs. Default: what ``spark-submit`` or Spark's own settings say, else all cores of this machine.

    Raises
    ------
    FlownetError
        PySpark or Java is missing, or there is no such master.
    """
    sql = need("pyspark.sql", purpose, "spark")
    need_java(purpose)
    # Spark would take the python3 of the PATH, which need not be this one, and may not know flownet.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = sql.SparkSession.builder.appName("flownet experiment")
    for name, value in _QUIET.items():
        builder = builder.config(name, value)
    try:
        spark: SparkSession = (builder.master(master) if master else builder).getOrCreate()
    except Exception as error:
        raise FlownetError(f"{purpose}: no Spark session with master {master or 'by default'}: {error}") from error
    try:
        yield spark
    finally:
        spark.stop()


_QUIET = {
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    # Rows are few and small: many partitions would only take time.
    "spark.sql.shuffle.partitions": "4",
}
