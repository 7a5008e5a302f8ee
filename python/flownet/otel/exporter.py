"""The thread that exports the metrics of one job."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import uuid
import weakref
from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, ResourceMetrics, ScopeMetrics
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from .. import __version__, _flownet
from ..errors import ConfigError
from ..internal.config import duration_us, format_duration
from . import points

if TYPE_CHECKING:
    from ..api.job import Job


class Exporter:
    """Exports the metrics of a job as long as it runs; see `export`."""

    def __init__(
        self, job: Job, endpoint: str | None, interval: str | timedelta | None, resource: Mapping[str, str]
    ) -> None:
        self._metrics = _flownet.JobMetrics(_handle(job))
        self._name = job.status().name
        self._where = _whole_address(endpoint)
        self._seconds = _interval_us(interval) / 1e6
        self._resource = _resource(resource)
        self._collector = OTLPMetricExporter(endpoint=self._where)
        self._closing = threading.Event()
        self._told = _ClientLogFilter()
        self._is_cut_off = False
        self._is_given_up = False
        self._submitted_ns: int | None = None
        self._thread = threading.Thread(target=self._run, name="flownet-otel", daemon=True)
        _OPEN.add(self)
        self._thread.start()

    def close(self) -> None:
        """Export the last numbers and end; waits five seconds at most. The job goes on. Harmless when called again."""
        if self._is_given_up:
            return
        self._closing.set()
        self._thread.join(_SECONDS_TO_FLUSH)
        if self._thread.is_alive():
            self._is_given_up = True
            # The thread is left to what holds it up, and makes no further attempt.
            self._collector.shutdown()
            self._warn(f"no answer within {_SECONDS_TO_FLUSH} s to the last numbers")

    def __enter__(self) -> Exporter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        self._told.thread = threading.get_ident()
        _COLLECTORS_LOGGER.addFilter(self._told)
        try:
            while self._waits():
                self._export()
            self._export()
        finally:
            self._collector.shutdown()
            _COLLECTORS_LOGGER.removeFilter(self._told)

    def _waits(self) -> bool:
        """Wait for the next export; false where it is the last one."""
        due_at = time.monotonic() + self._seconds
        while (left := due_at - time.monotonic()) > 0:
            if self._closing.is_set() or self._metrics.wait(int(min(left, _SECONDS_BETWEEN_LOOKS) * 1000)):
                return False
        return True

    def _export(self) -> None:
        self._told.reason = None
        try:
            arrived = self._collector.export(self._measured()) is MetricExportResult.SUCCESS
        except Exception as error:  # A thread that has ended says nothing any more, whatever was wrong.
            arrived, self._told.reason = False, repr(error)
        if not arrived:
            self._warn(self._told.reason or "it does not say why")
        elif self._is_cut_off:
            self._is_cut_off = False
            _LOGGER.warning("metrics of job %r reach %s again", self._name, self._place())

    def _warn(self, reason: str) -> None:
        """Say that metrics do not arrive, once until they do."""
        if not self._is_cut_off:
            self._is_cut_off = True
            every = format_duration(round(self._seconds * 1e6))
            _LOGGER.warning(
                "metrics of job %r do not reach %s (%s); the job goes on, and they are sent anew every %s",
                self._name,
                self._place(),
                reason,
                every,
            )

    def _place(self) -> str:
        variables = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
        return self._where or next(filter(None, map(os.environ.get, variables)), "http://localhost:4318")

    def _measured(self) -> MetricsData:
        seconds, began, families = self._metrics.now()
        now_ns = time.time_ns()
        if self._submitted_ns is None:
            # Once for all exports: a counter that has another beginning each time has begun anew to who collects it.
            self._submitted_ns = now_ns - int(seconds * 1e9)
        submitted_ns = self._submitted_ns
        began_ns = {str(task): submitted_ns + int(of_task * 1e9) for task, of_task in enumerate(began)}

        def since(labels: Mapping[str, str]) -> int:
            """Say when this began to count: what is of a task, with each of its attempts."""
            return began_ns.get(labels.get("task_id", ""), submitted_ns)

        scope = ScopeMetrics(
            scope=InstrumentationScope("flownet", __version__),
            metrics=[points.metric(family, since, now_ns) for family in families if family[3]],
            schema_url="",
        )
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])


class _ClientLogFilter(logging.Filter):
    """Keeps to itself what the collector's client logs in one thread: it would log every attempt."""

    def __init__(self) -> None:
        super().__init__()
        self.thread: int | None = None
        """Whose log lines these are."""
        self.reason: str | None = None
        """The first that it said of this export."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether others hear of it, too."""
        if record.thread != self.thread:
            return True
        self.reason = self.reason or record.getMessage()
        return False


def _handle(job: Job) -> _flownet.JobHandle:
    return cast("_flownet.JobHandle", job._handle)


def _whole_address(endpoint: str | None) -> str | None:
    """Add the path of metrics to an address that has none; None leaves the address to the environment."""
    if endpoint is None:
        return None
    parts = urlsplit(endpoint)
    try:
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise ConfigError(
            f"endpoint is {endpoint!r}: give the address of a collector for OTLP over HTTP, such as "
            "'http://collector:4318'",
            setting="endpoint",
            value=endpoint,
        )
    return endpoint if parts.path.strip("/") else f"{endpoint.rstrip('/')}/v1/metrics"


def _interval_us(interval: str | timedelta | None) -> int:
    given: object = interval
    setting = "interval"
    if interval is None:
        setting = "OTEL_METRIC_EXPORT_INTERVAL"
        variable = os.environ.get(setting)
        given = f"{variable}ms" if variable else _INTERVAL
    microseconds = duration_us(setting, given)
    if not _LEAST_INTERVAL_US <= microseconds <= _MOST_INTERVAL_US:
        raise ConfigError(
            f"{setting} is {given!r}, must lie between {format_duration(_LEAST_INTERVAL_US)} and "
            f"{format_duration(_MOST_INTERVAL_US)}",
            setting=setting,
            value=given,
        )
    return microseconds


def _resource(given: Mapping[str, str]) -> Resource:
    made = Resource.create({"service.instance.id": str(uuid.uuid4()), **given})
    if str(made.attributes.get("service.name", "")).startswith("unknown_service"):
        return made.merge(Resource({"service.name": "flownet"}))
    return made


@atexit.register
def _close_all() -> None:
    """Before the jobs that are left running are ended."""
    for exporter in list(_OPEN):
        exporter.close()


_OPEN: Final[weakref.WeakSet[Exporter]] = weakref.WeakSet()

_LOGGER: Final = logging.getLogger("flownet.otel")
_COLLECTORS_LOGGER: Final = logging.getLogger("opentelemetry.exporter.otlp.proto.http.metric_exporter")

_INTERVAL: Final = "10s"
_LEAST_INTERVAL_US: Final = 100_000
_MOST_INTERVAL_US: Final = 3_600_000_000
_SECONDS_TO_FLUSH: Final = 5
_SECONDS_BETWEEN_LOOKS: Final = 0.5
"""How soon it sees that it is closed."""
