"""Nexmark q1, currency conversion: the price of every bid in euros, at 0.908 euros a dollar.

python q1.py --events 100000 --workers 2 --parallelism 2
"""

from decimal import Decimal

import nexmark

EUROS_A_DOLLAR = Decimal("0.908")


def in_euros(bid):
    return bid._replace(price=EUROS_A_DOLLAR * bid.price)


def query(events):
    """Convert each bid from dollars to euros."""
    return nexmark.bids(events).map(in_euros)


if __name__ == "__main__":
    nexmark.main(query)
