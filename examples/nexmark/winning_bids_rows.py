"""What q4 and q6 on rows share: the price at which each auction closes."""

from datetime import timedelta

import nexmark_rows
from winning_bids import Sale

import flownet as fn


def closed(streams: nexmark_rows.Streams) -> fn.Rows:
    """Make rows of the auctions that found a buyer: `Sale` by columns, at the time at which each closes."""
    bids = streams.bids.select("auction", "price", bid_ms=fn.col("time_ms"))
    near = streams.auctions.key_by("id").interval_join(bids.key_by("auction"), "0ms", streams.longest)
    valid = near.filter(fn.col("bid_ms") <= fn.col("expires_ms"))
    # There is no window that ends when an auction does. But bids for one are no further apart than it is long, so they
    # are one session, which ends when it has closed for sure.
    session = fn.Session(streams.longest + timedelta(milliseconds=1))
    won = valid.key_by("id", "seller", "category", "expires_ms").window(session).agg(price=fn.max("price"))
    # Sessions come in the order of bids, and an auction closes at most `longest` after any bid for it.
    timed = won.assign_timestamps("expires_ms", delay=streams.longest)
    return timed.select("id", "seller", "category", "price", "expires_ms")


def sales(streams: nexmark_rows.Streams) -> fn.Stream[Sale]:
    """Make a stream of them, for what is done with single ones, in the order of time and with state: by objects."""
    return closed(streams).to_objects(as_dicts=False).map(lambda sale: Sale(*sale))
