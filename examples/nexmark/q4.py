"""Nexmark q4, average price for a category: the mean of the winning bids of all auctions that have closed.

Emits (category, time, mean) each time that auctions of the category close.

python q4.py --events 100000 --workers 2 --parallelism 2
"""

import nexmark
from winning_bids import sales

import flownet as fn


class MeanSoFar(fn.KeyedProcessFunction):
    """Takes the sales of a category in the order of their time, whatever the order in which they come."""

    def process(self, sale, ctx):
        """Let the sale wait for those of its time."""
        ctx.state.setdefault("prices", {}).setdefault(sale.time_ms, []).append(sale.price)
        ctx.timer_service().register_event_time_timer(sale.time_ms)

    def on_timer(self, timestamp_ms, ctx):
        """Take the sales of that time: all have come."""
        prices = ctx.state["prices"].pop(timestamp_ms)
        ctx.state["count"] = ctx.state.get("count", 0) + len(prices)
        ctx.state["sum"] = ctx.state.get("sum", 0) + sum(prices)
        yield ctx.key, timestamp_ms, ctx.state["sum"] / ctx.state["count"]


def query(events):
    """Average the prices of the auctions of each category."""
    return sales(events).key_by(lambda sale: sale.category).process(MeanSoFar())


if __name__ == "__main__":
    nexmark.main(query)
