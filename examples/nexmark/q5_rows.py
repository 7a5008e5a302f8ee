"""Nexmark q5 on rows, hot items: the auctions with the most bids in the last 10 seconds, every 2 seconds.

Emits the end of the 10 seconds, auction and bids; several auctions where they have equally many.

python q5_rows.py --events 100000 --workers 2 --parallelism 2
"""

import nexmark_rows

import flownet as fn


def query(streams):
    """Count the bids of each auction in windows that slide, then find the highest count of each window."""
    windows = streams.bids.key_by("auction").window(fn.Sliding("10s", "2s")).agg(bids=fn.count())
    counts = windows.select("auction", "bids", end_ms=fn.col("window_end").dt.epoch())
    # A count's time is the last of its window: those of one window are together again in the last 2 seconds of it.
    hottest = counts.key_by("end_ms").window(fn.Tumbling("2s")).top_n(1, "bids", ties=True)
    return hottest.select("end_ms", "auction", "bids")


if __name__ == "__main__":
    nexmark_rows.main(query)
