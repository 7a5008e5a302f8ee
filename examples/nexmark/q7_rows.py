"""Nexmark q7 on rows, highest bid: the bids with the highest price in each 10 seconds.

python q7_rows.py --events 100000 --workers 2 --parallelism 2
"""

import nexmark_rows

import flownet as fn

PERIOD = fn.Tumbling("10s")


def query(streams):
    """Find the highest price of each window, then the bids in it that have this price."""
    highest = streams.bids.key_by(of=fn.lit("all")).window(PERIOD).agg(price=fn.max("price")).select("price")
    return streams.bids.key_by("price").join(highest.key_by("price"), PERIOD)


if __name__ == "__main__":
    nexmark_rows.main(query)
