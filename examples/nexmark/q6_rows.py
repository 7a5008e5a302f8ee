"""Nexmark q6 on rows, average selling price by seller: the mean of a seller's last 10 closed auctions.

Emits (seller, auction, mean) for each auction that closes.

python q6_rows.py --events 100000 --workers 2 --parallelism 2
"""

import nexmark_rows
from q6 import MeanOfLast
from winning_bids_rows import sales


def query(streams):
    """Average the prices of the last auctions of each seller."""
    return sales(streams).key_by(lambda sale: sale.seller).process(MeanOfLast())


if __name__ == "__main__":
    nexmark_rows.main(query)
