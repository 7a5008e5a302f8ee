"""Nexmark q5, hot items: the auctions with the most bids in the last 10 seconds, every 2 seconds.

Emits (end of the 10 seconds, auction, bids); several auctions where they have equally many.

python q5.py --events 100000 --workers 2 --parallelism 2
"""

import nexmark

import flownet as fn


def hottest(end_ms, window, counts):
    most = max(bids for _, _, bids in counts)
    return [count for count in counts if count[2] == most]


def query(events):
    """Count the bids of each auction in windows that slide, then find the highest count of each window."""
    by_auction = nexmark.bids(events).key_by(lambda bid: bid.auction)
    counts = by_auction.window(fn.Sliding("10s", "2s")).with_window().count()
    ends = counts.map(lambda count: (count[1].end_ms, count[0], count[2]))
    # A count's timestamp is the last of its window: those of one window are together again in the last 2 seconds of it.
    return ends.key_by(lambda count: count[0]).window(fn.Tumbling("2s")).process(hottest)


if __name__ == "__main__":
    nexmark.main(query)
