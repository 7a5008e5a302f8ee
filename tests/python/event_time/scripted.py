"""A stream whose records and watermarks come exactly as a list says, and windows of flownet as the oracle's."""

from __future__ import annotations

from datetime import timedelta
from itertools import accumulate
from typing import Any, TypeAlias

import flownet as fn
from flownet import testing

from . import oracle
from .oracle import Assigner, Record, Watermark

Item: TypeAlias = tuple[str, str, int, int]
"""``"record"``, key, value, timestamp."""


class Punctual(fn.WatermarkGenerator[Item]):
    """Emits after each record the watermark that a bound on the disorder allows, not only now and then."""

    def __init__(self, bound_ms: int) -> None:
        self.bound_ms = bound_ms
        self.latest_ms: int | None = None

    def on_event(self, value: Item, timestamp_ms: int, output: Any) -> None:
        self.latest_ms = timestamp_ms if self.latest_ms is None else max(self.latest_ms, timestamp_ms)
        output.emit_watermark(self.latest_ms - self.bound_ms - 1)

    def on_periodic_emit(self, output: Any) -> None:
        pass


def play(env: fn.Environment, arrivals: list[Record | Watermark], chained: bool = True) -> fn.Stream[Item]:
    """Make a stream of the records, from one subtask, with the watermarks at their places among them."""
    records = env.from_script([_step(arrival) for arrival in arrivals])
    return records if chained else records.disable_chaining()


def spread(
    env: fn.Environment, records: list[Record], strategy: fn.WatermarkStrategy[Any], chained: bool = True
) -> fn.Stream[Item]:
    """Make a stream of the records, dealt to all subtasks, each of which has watermarks of its own."""
    items = env.from_collection([_item(record) for record in records]).rebalance().map(lambda item: item)
    timed = items.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(lambda item: item[3]))
    return timed if chained else timed.disable_chaining()


def disorder_of(records: list[Record]) -> int:
    """Find by how much the most belated record is behind the latest before it."""
    timestamps = [record.timestamp for record in records]
    latest = accumulate(timestamps, max)
    return max((before - timestamp for before, timestamp in zip(latest, timestamps, strict=True)), default=0)


def window_of(assigner: Assigner) -> Any:
    """Make flownet's assigner of the oracle's."""
    match assigner:
        case oracle.Tumbling(size, offset):
            return fn.Tumbling(ms(size), offset=ms(offset), time="event")
        case oracle.Sliding(size, slide, offset):
            return fn.Sliding(ms(size), ms(slide), offset=ms(offset), time="event")
        case oracle.Session(int(gap)):
            return fn.Session(ms(gap), time="event")
        case oracle.Session(gap_of) if callable(gap_of):
            return fn.Session(lambda item: gap_of(item[2]), time="event")


def ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


def _item(record: Record) -> Item:
    return "record", str(record.key), record.value, record.timestamp


def _step(arrival: Record | Watermark) -> testing.Step:
    if isinstance(arrival, Watermark):
        return testing.Watermark(arrival.timestamp)
    return testing.Record(_item(arrival), arrival.timestamp)
