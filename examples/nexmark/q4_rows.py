"""Nexmark q4 on rows, average price for a category: the mean of the winning bids of all auctions that have closed.

Emits (category, time, mean) each time that auctions of the category close.

python q4_rows.py --events 100000 --workers 2 --parallelism 2
"""

import nexmark_rows
from q4 import MeanSoFar
from winning_bids_rows import sales


def query(streams):
    """Average the prices of the auctions of each category."""
    return sales(streams).key_by(lambda sale: sale.category).process(MeanSoFar())


if __name__ == "__main__":
    nexmark_rows.main(query)
