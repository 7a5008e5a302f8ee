"""Metrics of users' functions: what they count with, and what is shown of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol


class Counter(Protocol):
    """A number that only grows."""

    def inc(self, by: int = 1) -> None:
        """Add to it. ``ValueError`` for less than 0."""

    @property
    def value(self) -> int:
        """What this subtask has counted."""


class Meter(Protocol):
    """A number that only grows, which is shown with its rate per second."""

    def mark(self, by: int = 1) -> None:
        """Add to it. ``ValueError`` for less than 0."""

    @property
    def value(self) -> int:
        """What this subtask has counted."""


class Gauge(Protocol):
    """A number that goes up and down: what something is now."""

    def set(self, to: float) -> None:
        """Set it."""

    def inc(self, by: float = 1.0) -> None:
        """Add to it; to 0, if it was not set."""

    def dec(self, by: float = 1.0) -> None:
        """Take from it."""

    @property
    def value(self) -> float | None:
        """What it was set to; None before."""


class Histogram(Protocol):
    """How numbers are spread: how many fell into each bucket, their sum and the greatest."""

    def observe(self, value: float) -> None:
        """Count a number in. One that is none (NaN) is passed over."""

    @property
    def count(self) -> int:
        """Numbers that this subtask has counted in."""

    @property
    def sum(self) -> float:
        """Their sum."""


class Metrics(Protocol):
    """Where a function gets its metrics: ``ctx.metrics``.

    Ask in ``open`` and keep what is returned: counting then costs some tens of nanoseconds, takes no lock and sends
    nothing. What was counted travels with the status of the job, each ``status_interval``.

    Of an operator each subtask counts for itself. Asking again for the same name gives the same metric. ``ValueError``
    for a name that is not made of 1 to 100 letters of a to z and A to Z, digits and ``_``, or begins with a digit, for
    one that is of another kind already, and for more than 100 metrics in a subtask: what varies with the records, such
    as keys, belongs into a stream.

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
        """Return a number that only grows: lines that were bad, calls that failed."""

    def meter(self, name: str) -> Meter:
        """Return a number that only grows, of which the rate matters: calls, bytes fetched."""

    def gauge(self, name: str) -> Gauge:
        """Return a number that goes up and down: entries of a cache, connections that are open."""

    def histogram(self, name: str, buckets: Sequence[float] | None = None) -> Histogram:
        """Return what counts numbers by size.

        Parameters
        ----------
        name
            Its name.
        buckets
            Upper bounds of the buckets, each included: 1 to 50 numbers, each above the one before; what is above them
            all has a bucket of its own. Default: those of Prometheus for seconds, 0.005 to 10.
        """


@dataclass(frozen=True, slots=True)
class UserMetric:
    """What functions have counted: of a subtask in `TaskSample`, over all subtasks in `JobStatus` and `JobResult`."""

    operator: str
    """Name of the operator whose function it is."""
    name: str
    """Its name."""
    kind: Literal["counter", "meter", "gauge", "histogram"]
    """What it is."""
    value: int | float | None = None
    """Of a counter, a meter or a gauge; None of a gauge that was not set."""
    per_second: float | None = None
    """Of a meter in one subtask: how fast it grew since the report before, per second."""
    count: int | None = None
    """Of a histogram: numbers counted in."""
    sum: float | None = None
    """Of a histogram: their sum."""
    max: float | None = None
    """Of a histogram: the greatest of them; None if there are none."""
    bounds: tuple[float, ...] = ()
    """Of a histogram: upper bounds of its buckets, each included."""
    buckets: tuple[int, ...] = ()
    """Of a histogram: how many fell into each, and above the last bound."""

    @property
    def mean(self) -> float | None:
        """Of a histogram: mean of the numbers; None if there are none."""
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
        """Take one as a job tells it."""
        return cls(**{**told, **{part: tuple(told.get(part, ())) for part in ("bounds", "buckets")}})
