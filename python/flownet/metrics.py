"""Custom metrics of user functions: counters, meters, gauges and histograms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol


class Counter(Protocol):
    """Count events: a number that only grows."""

    def inc(self, by: int = 1) -> None:
        """Add ``by``, 1 by default. Raises ``ValueError`` if ``by`` is negative."""

    @property
    def value(self) -> int:
        """Count of this subtask."""


class Meter(Protocol):
    """Count events and report their rate per second."""

    def mark(self, by: int = 1) -> None:
        """Add ``by``, 1 by default. Raises ``ValueError`` if ``by`` is negative."""

    @property
    def value(self) -> int:
        """Count of this subtask."""


class Gauge(Protocol):
    """Report a current value, which can rise and fall."""

    def set(self, to: float) -> None:
        """Set the gauge to a value."""

    def inc(self, by: float = 1.0) -> None:
        """Add ``by``, 1.0 by default. An unset gauge starts at 0."""

    def dec(self, by: float = 1.0) -> None:
        """Subtract ``by``, 1.0 by default."""

    @property
    def value(self) -> float | None:
        """Current value, or None if the gauge is not set."""


class Histogram(Protocol):
    """Record the distribution of numbers: bucket counts, sum and maximum."""

    def observe(self, value: float) -> None:
        """Record a number. NaN is ignored."""

    @property
    def count(self) -> int:
        """Number of values that this subtask has recorded."""

    @property
    def sum(self) -> float:
        """Sum of the values that this subtask has recorded."""


class Metrics(Protocol):
    """Create the metrics of a function with ``ctx.metrics``.

    Create a metric in ``open`` and store it. Counting then costs tens of nanoseconds, takes no lock and sends nothing.
    The values are sent with the status of the job, each ``status_interval``. Each subtask of an operator counts
    separately. If you use a name again, you get the same metric.

    A name has 1 to 100 characters of a to z, A to Z, 0 to 9 and ``_``, and does not begin with a digit. Each method
    raises ``ValueError`` for another name, for a name that has another kind of metric, and for more than 100 metrics in
    a subtask. For values that vary with the records, such as counts by key, use a stream instead.

    Examples
    --------
    >>> import flownet as fn
    >>> class Parse(fn.ProcessFunction[str, int]):
    ...     def open(self, ctx):
    ...         self.bad_lines = ctx.metrics.counter("bad_lines")
    ...
    ...     def process(self, value, ctx):
    ...         if value.isdigit():
    ...             yield int(value)
    ...         else:
    ...             self.bad_lines.inc()
    >>> env = fn.Environment()
    >>> numbers = env.from_collection(["1", "x", "3"]).process(Parse()).name("parse").collect()
    >>> [(metric.operator, metric.name, metric.value) for metric in env.execute().metrics]
    [('parse', 'bad_lines', 1)]
    """

    def counter(self, name: str) -> Counter:
        """Create a counter, which only grows, such as bad lines or failed calls."""

    def meter(self, name: str) -> Meter:
        """Create a meter, a counter with a rate, such as calls or bytes fetched."""

    def gauge(self, name: str) -> Gauge:
        """Create a gauge, a current value such as cache entries or open connections."""

    def histogram(self, name: str, buckets: Sequence[float] | None = None) -> Histogram:
        """Create a histogram, which counts values by bucket.

        Parameters
        ----------
        name
            Name of the metric.
        buckets
            Inclusive upper bounds of the buckets: 1 to 50 ascending numbers. Values above the last bound have an extra
            bucket. Default: the buckets of Prometheus for seconds, 0.005 to 10.
        """


@dataclass(frozen=True, slots=True)
class UserMetric:
    """Report the value of a custom metric.

    It is the value of one subtask in `TaskSample`, and of all subtasks in `JobStatus` and `JobResult`.
    """

    operator: str
    """Name of the operator that counts."""
    name: str
    """Name of the metric."""
    kind: Literal["counter", "meter", "gauge", "histogram"]
    """Kind of the metric."""
    value: int | float | None = None
    """Value of a counter, a meter or a gauge. None if a gauge is not set."""
    per_second: float | None = None
    """Meter in one subtask: growth per second since the previous report."""
    count: int | None = None
    """Histogram: number of recorded values."""
    sum: float | None = None
    """Histogram: sum of the values."""
    max: float | None = None
    """Histogram: largest value, or None without values."""
    bounds: tuple[float, ...] = ()
    """Histogram: inclusive upper bounds of the buckets."""
    buckets: tuple[int, ...] = ()
    """Histogram: number of values in each bucket, and above the last bound."""

    @property
    def mean(self) -> float | None:
        """Histogram: mean of the values, or None without values."""
        return self.sum / self.count if self.count and self.sum is not None else None

    def __str__(self) -> str:
        if self.count is None:
            return "not set" if self.value is None else f"{self.value:,}"
        return (
            f"{self.count:,}"
            if self.mean is None
            else f"{self.count:,}, mean {self.mean:,.4g}, at most {self.max:,.4g}"
        )

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> UserMetric:
        """Build a metric from the report of a job."""
        return cls(**{**told, **{part: tuple(told.get(part, ())) for part in ("bounds", "buckets")}})
