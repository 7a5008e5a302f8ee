"""Nexmark q2 on rows, selection: auction and price of the bids for every 123rd auction.

python q2_rows.py --events 100000 --workers 2 --parallelism 2
"""

import nexmark_rows

import flownet as fn


def query(streams):
    """Find the bids with certain auction ids."""
    return streams.bids.filter(fn.col("auction") % 123 == 0).select("auction", "price")


if __name__ == "__main__":
    nexmark_rows.main(query)
