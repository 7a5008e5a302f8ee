"""The metrics of a job for OpenTelemetry, pushed to a collector: ``pip install 'flownet-streams[otel]'``.

They are those of ``/metrics``, see docs/operations/monitoring.md, and those that functions count themselves. A job
does not notice who takes them, nor that nobody does.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from ..internal.extras import need

if TYPE_CHECKING:
    from ..api.job import Job
    from .exporter import Exporter

__all__ = ["export", "need_packages"]


def export(
    job: Job,
    *,
    endpoint: str | None = None,
    interval: str | timedelta | None = None,
    resource: Mapping[str, str] | None = None,
) -> Exporter:
    """Export the metrics of a job as long as it runs, by OTLP over HTTP.

    A thread of its own sends them, one request at a time, and their last numbers when the job has ended. Where they do
    not arrive it says so once, by the logger ``flownet.otel``, and tries again; nothing is kept for later but what the
    next request has anyway. Closing it, which leaving its ``with`` block and the end of the process do too, waits five
    seconds at most for the last numbers to arrive.

    Parameters
    ----------
    job
        A job of this process.
    endpoint
        Where the collector listens: ``"http://HOST:4318"``, or the whole address, with a path. Default: that of
        ``OTEL_EXPORTER_OTLP_METRICS_ENDPOINT`` or ``OTEL_EXPORTER_OTLP_ENDPOINT``, or ``http://localhost:4318``.
        Headers, timeout, compression and certificates are those of the other ``OTEL_EXPORTER_OTLP_*`` variables.
    interval
        From one export to the next, such as ``"10s"``, 100 ms at least. Default: that of
        ``OTEL_METRIC_EXPORT_INTERVAL``, in milliseconds, or 10 s.
    resource
        Attributes of the process for all of its metrics, over those of ``OTEL_RESOURCE_ATTRIBUTES``. ``service.name``
        is that of ``OTEL_SERVICE_NAME``, or ``flownet``; ``service.instance.id`` is a new one for each call.

    Raises
    ------
    FlownetError
        The extra ``otel`` is not installed.
    ConfigError
        The endpoint is no address, or the interval none.

    Examples
    --------
    >>> import flownet as fn
    >>> from flownet import otel
    >>> env = fn.Environment()
    >>> numbers = env.from_collection(range(10)).collect()
    >>> with env.execute_async() as job, otel.export(job, endpoint="http://collector:4318"):  # doctest: +SKIP
    ...     result = job.wait()
    """
    need_packages()
    from .exporter import Exporter

    return Exporter(job, endpoint, interval, resource or {})


def need_packages() -> None:
    """Raise `FlownetError` if the extra ``otel`` is not installed."""
    for module in ("opentelemetry.sdk.metrics", "opentelemetry.exporter.otlp.proto.http.metric_exporter"):
        need(module, "exporting metrics", "otel")
