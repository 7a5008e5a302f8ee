"""Nexmark q2, selection: auction and price of the bids for every 123rd auction.

python q2.py --events 100000 --workers 2 --parallelism 2
"""

import nexmark


def query(events):
    """Find the bids with certain auction ids."""
    chosen = nexmark.bids(events).filter(lambda bid: bid.auction % 123 == 0)
    return chosen.map(lambda bid: (bid.auction, bid.price))


if __name__ == "__main__":
    nexmark.main(query)
