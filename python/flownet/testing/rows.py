"""Operators of rows by themselves: fed with tables or dicts, step by step, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..api.environment import Environment
from ..api.functions import OutputTag
from ..errors import PlanError
from ..rows.collected import CollectedRows
from ..rows.stream import Rows
from ..streams.handle import StreamSink
from .harness_base import HarnessBase, HarnessState, parameters
from .script import Record

if TYPE_CHECKING:
    from ..rows.schemas import SchemaLike


class RowsHarness(HarnessBase):
    """Feeds operators of rows, and shows the rows that they emitted.

    It is to `Rows` what `Harness` is to streams of objects: what runs are the operators of a job, in front of the
    exchange and behind it, on the caller's thread; every call does all that there is to do, and returns what came out.
    Event time passes by `watermark` alone and the wall's by `advance` alone.

    Parameters
    ----------
    build
        Called with `Rows` for each of its parameters; returns the rows that are wanted, or a sink:
        ``lambda trades: trades.key_by("symbol").window(fn.Tumbling("1min")).agg(n=fn.count())``. Functions and
        aggregates of one's own are used as they are and not copied.
    *schemas
        The columns of each of these: ``{"symbol": "utf8", "price": "float64"}``, or anything with a schema of Arrow.
    side_outputs
        Tags of what is wanted besides, for `side_output`.
    timestamps
        Whether rows have event times; windows then go by these unless they say otherwise. False for windows of
        processing time, and for `Rows.assign_timestamps`. Default: True.
    now_ms
        What the clock of processing time shows at first, in milliseconds since 1970-01-01 UTC. Default: 0.
    restored
        What `snapshot` of another harness of the same operators has given: they begin with that. Default: with nothing.

    Raises
    ------
    PlanError
        What ``build`` describes cannot run, or there are not as many schemas as it has parameters.

    Examples
    --------
    >>> import flownet as fn
    >>> from flownet import testing
    >>> def counts(pages):
    ...     return pages.key_by("user").window(fn.Tumbling("10s")).agg(n=fn.count(), ms=fn.sum("ms"))
    >>> with testing.RowsHarness(counts, {"user": "utf8", "ms": "int64"}) as harness:
    ...     harness.send([{"user": "ann", "ms": 30}, {"user": "ann", "ms": 12}], [1_000, 9_000])
    ...     harness.send({"user": "bob", "ms": 7}, 12_000)
    ...     [(row["user"], row["n"], row["ms"]) for row in harness.watermark(9_999)]
    []
    []
    [('ann', 2, 42)]
    """

    def __init__(
        self,
        build: Callable[..., Rows | StreamSink],
        *schemas: SchemaLike,
        side_outputs: Iterable[OutputTag] = (),
        timestamps: bool = True,
        now_ms: int = 0,
        restored: HarnessState | None = None,
    ) -> None:
        wanted = parameters("RowsHarness", build)
        if len(schemas) != wanted:
            raise PlanError(
                f"RowsHarness() was given {len(schemas)} schemas for the {wanted} streams of its function: say the "
                'columns of each, as in RowsHarness(build, {"user": "utf8", "spent": "float64"})'
            )
        super().__init__(Environment(name="harness"), wanted, timestamps=timestamps)
        built = build(*(stream.to_rows(schema) for stream, schema in zip(self._streams(), schemas, strict=True)))
        self._collected: CollectedRows | None = None
        if isinstance(built, Rows):
            self._collected = built.collect()
            self._note(built.to_objects(), {tag: built.side_output(tag).to_objects() for tag in side_outputs})
        elif not isinstance(built, StreamSink):
            raise PlanError(
                f"RowsHarness() needs a function that returns rows or a sink, and it returned {built!r:.100}"
            )
        self._open(now_ms, restored)

    def send(
        self, rows: Any, timestamp_ms: int | Sequence[int] | str | None = None, *, input: int = 0
    ) -> list[dict[str, Any]]:
        """Let rows arrive together, and return what came out, as dicts.

        Parameters
        ----------
        rows
            A dict, a list of dicts, or what has the Arrow PyCapsule interface, such as a table or batch of pyarrow or a
            frame of polars, for which pyarrow has to be installed.
        timestamp_ms
            Their event time, in milliseconds since 1970-01-01 UTC: one for all, one for each, or the name of a column
            of such ints. Default: they have none.
        input
            By which of the streams, from 0. Default: the first.

        Raises
        ------
        PlanError
            They are no rows, or there are not as many times as rows.
        """
        if timestamp_ms is not None and not self._timestamps:
            raise PlanError("send(): this harness was made with timestamps=False, so its rows have no times")
        dicts = _dicts(rows)
        times = _times(dicts, timestamp_ms)
        return self.play([Record(row, time_ms) for row, time_ms in zip(dicts, times, strict=True)], input=input)

    @property
    def collected(self) -> CollectedRows:
        """All rows that came out so far, with the types of their columns: `CollectedRows.to_arrow` and the like."""
        if self._collected is None:
            raise PlanError("this harness was made of a sink, so no rows come out of it")
        return self._collected


def _dicts(rows: Any) -> list[dict[str, Any]]:
    if isinstance(rows, dict):
        return [rows]
    if hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__"):
        import pyarrow

        table = pyarrow.table(rows)
        dicts: list[dict[str, Any]] = table.to_pylist()
        return dicts
    if isinstance(rows, list) and all(isinstance(row, dict) for row in rows):
        return rows
    raise PlanError(f"send() takes a dict, a list of dicts, or a table with the Arrow interface, not {rows!r:.100}")


def _times(rows: list[dict[str, Any]], given: int | Sequence[int] | str | None) -> Sequence[int | None]:
    if isinstance(given, str):
        try:
            return [row[given] for row in rows]
        except KeyError:
            raise PlanError(f"send(): not each of the rows has a {given!r} to be its time") from None
    if given is None or isinstance(given, int):
        return [given] * len(rows)
    if len(given) != len(rows):
        raise PlanError(f"send(): there are {len(rows)} rows and {len(given)} times for them")
    return given
