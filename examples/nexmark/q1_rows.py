"""Nexmark q1 on rows, currency conversion: the price of every bid in euros, at 0.908 euros a dollar.

python q1_rows.py --events 100000 --workers 2 --parallelism 2
"""

from decimal import Decimal

import nexmark_rows

import flownet as fn


def query(streams):
    """Convert each bid from dollars to euros."""
    euros = (fn.col("price") * Decimal("0.908")).cast("decimal(15, 3)")
    return streams.bids.with_columns(price=euros)


if __name__ == "__main__":
    nexmark_rows.main(query)
