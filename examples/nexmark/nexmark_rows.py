"""The streams of Nexmark as rows: persons, auctions and bids, each from a table.

The queries on rows are those of the programs beside them, ``q5_rows.py`` of ``q5.py``, over the same events, and find
the same. Needs pyarrow.
"""

from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import cached_property

import nexmark
import pyarrow as pa

import flownet as fn

DELAY = timedelta(milliseconds=nexmark.DISORDER_MS)


class Streams:
    """Rows that have their timestamps, of each kind of event; a query reads the kinds that it asks for."""

    def __init__(self, read: Callable[[type[nexmark.Event]], fn.Rows], rate: int = 1_000) -> None:
        self._read = read
        self.longest = timedelta(milliseconds=nexmark.longest_ms(rate))
        """For how long an auction is open, at most."""

    @cached_property
    def persons(self) -> fn.Rows:
        """Who registers."""
        return self._read(nexmark.Person)

    @cached_property
    def auctions(self) -> fn.Rows:
        """What is offered."""
        return self._read(nexmark.Auction)

    @cached_property
    def bids(self) -> fn.Rows:
        """Which prices are offered."""
        return self._read(nexmark.Bid)


def table(kind: type[nexmark.Event], events: Iterable[nexmark.Event]) -> pa.Table:
    """Make a table of the events of a kind, in the order in which they come."""
    types = {int: pa.int64(), str: pa.string()}
    schema = pa.schema([pa.field(name, types[of], nullable=False) for name, of in kind.__annotations__.items()])
    of_kind = [event for event in events if isinstance(event, kind)]
    return pa.table({name: [getattr(event, name) for event in of_kind] for name in schema.names}, schema=schema)


def streams(env: fn.Environment, count: int, seed: int = 1, rate: int = 1_000) -> Streams:
    """Make a stream of each kind of event."""
    events = list(nexmark.generate(count, seed, rate))
    return Streams(lambda kind: env.from_arrow(table(kind, events), event_time="time_ms", delay=DELAY), rate)


def main(query) -> None:
    """Run a query as the command line says, and print the rows that it finds."""
    nexmark.main(query, streams)
