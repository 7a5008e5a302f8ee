"""Nexmark q7, highest bid: the bids with the highest price in each 10 seconds.

python q7.py --events 100000 --workers 2 --parallelism 2
"""

import nexmark

import flownet as fn


def highest(auction, window, bids):
    price = max(bid.price for bid in bids)
    return [bid for bid in bids if bid.price == price]


def query(events):
    """Find the highest bids for each auction, in parallel, then the highest of these."""
    by_auction = nexmark.bids(events).key_by(lambda bid: bid.auction).window(fn.Tumbling("10s")).process(highest)
    return by_auction.key_by(lambda bid: "all").window(fn.Tumbling("10s")).process(highest)


if __name__ == "__main__":
    nexmark.main(query)
