"""Nexmark q4 on rows, average price for a category: the mean of the winning bids of all auctions that have closed.

Emits (category, time, mean) for each time at which auctions of the category close, second by second.

python q4_rows.py --events 100000 --workers 2 --parallelism 2
"""

from itertools import groupby

import nexmark_rows
from winning_bids_rows import closed

import flownet as fn


class MeanSoFar(fn.KeyedProcessFunction):
    """Takes the sales of a category second by second, in the order of their time."""

    def process(self, sold, ctx):
        """Take those of a second, of each time together."""
        category, prices, times_ms = sold
        count, total = ctx.state.get("count", 0), ctx.state.get("sum", 0)
        for time_ms, sales in groupby(zip(times_ms, prices, strict=True), lambda sale: sale[0]):
            for _, price in sales:
                count, total = count + 1, total + price
            yield category, time_ms, total / count
        ctx.state.update(count=count, sum=total)


def query(streams):
    """Average the prices of the auctions of each category."""
    # Windows fire in the order of time, and what they collect is in it. Few calls of Python, each with many sales.
    seconds = closed(streams).key_by("category").window(fn.Tumbling("1s"))
    sold = seconds.agg(prices=fn.collect("price"), times_ms=fn.collect("expires_ms"))
    by_category = sold.select("category", "prices", "times_ms").to_objects(as_dicts=False).key_by(0)
    return by_category.process(MeanSoFar())


if __name__ == "__main__":
    nexmark_rows.main(query)
