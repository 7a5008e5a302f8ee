"""Makes the format ``flownet`` known to a session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from ..errors import ConfigError


def register(spark: SparkSession) -> None:
    """Let ``spark.readStream.format("flownet")`` and ``writeStream.format("flownet")`` reach outlets and inlets.

    Parameters
    ----------
    spark
        A session of PySpark 4.1 or later. Calling it again changes nothing.

    Raises
    ------
    ConfigError
        This PySpark is too old.

    Examples
    --------
    >>> flownet.spark.register(spark)  # doctest: +SKIP
    >>> rows = spark.readStream.format("flownet").option("endpoint", outlet.endpoint).load()  # doctest: +SKIP
    """
    try:
        from .datasource import FlownetDataSource
    except ImportError as error:
        import pyspark

        text = f"the format flownet needs PySpark 4.1 or later, not {pyspark.__version__}"
        raise ConfigError(text, setting="spark") from error
    spark.dataSource.register(FlownetDataSource)
