"""Nexmark q7 on rows, highest bid: the bids with the highest price in each 10 seconds.

python q7_rows.py --events 100000 --workers 2 --parallelism 2
"""

import nexmark_rows

import flownet as fn


def query(streams):
    """Find the best bids of each window: of a batch, only its best travel."""
    by_all = streams.bids.key_by(of=fn.lit("all")).window(fn.Tumbling("10s"))
    return by_all.top_n(1, "price", ties=True).drop("of")


if __name__ == "__main__":
    nexmark_rows.main(query)
