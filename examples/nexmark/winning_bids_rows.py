"""What q4 and q6 on rows share: the price at which each auction closes."""

from datetime import timedelta

import nexmark_rows
from winning_bids import Sale

import flownet as fn


def sales(streams: nexmark_rows.Streams) -> fn.Stream[Sale]:
    """Make a stream of the auctions that found a buyer."""
    bids = streams.bids.select("auction", "price", bid_ms=fn.col("time_ms"))
    near = streams.auctions.key_by("id").interval_join(bids.key_by("auction"), "0ms", streams.longest)
    valid = near.filter(fn.col("bid_ms") <= fn.col("expires_ms"))
    # There is no window that ends when an auction does. But bids for one are no further apart than it is long, so they
    # are one session, which ends when it has closed for sure.
    session = fn.Session(streams.longest + timedelta(milliseconds=1))
    closed = valid.key_by("id", "seller", "category", "expires_ms").window(session).agg(price=fn.max("price"))
    # Sessions come in the order of bids, and an auction closes at most `longest` after any bid for it.
    timed = closed.assign_timestamps("expires_ms", delay=streams.longest)
    # What q4 and q6 do with sales they do in the order of time, with state of their own: that is for objects.
    columns = timed.select("id", "seller", "category", "price", "expires_ms")
    return columns.to_objects(as_dicts=False).map(lambda sale: Sale(*sale))
