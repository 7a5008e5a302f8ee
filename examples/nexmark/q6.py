"""Nexmark q6, average selling price by seller: the mean of a seller's last 10 closed auctions.

Emits (seller, auction, mean) for each auction that closes.

python q6.py --events 100000 --workers 2 --parallelism 2
"""

import nexmark
from winning_bids import sales

import flownet as fn


class MeanOfLast(fn.KeyedProcessFunction):
    """Takes the sales of a seller in the order of their time, and in that of the auctions where it is the same."""

    def process(self, sale, ctx):
        """Let the sale wait for those that came before it."""
        ctx.state.setdefault("waiting", []).append(sale)
        ctx.timer_service().register_event_time_timer(sale.time_ms)

    def on_timer(self, timestamp_ms, ctx):
        """Take the sales of that time: all have come."""
        closed = sorted(sale for sale in ctx.state["waiting"] if sale.time_ms == timestamp_ms)
        ctx.state["waiting"] = [sale for sale in ctx.state["waiting"] if sale.time_ms > timestamp_ms]
        for sale in closed:
            ctx.state["prices"] = prices = [*ctx.state.get("prices", []), sale.price][-10:]
            yield ctx.key, sale.auction, sum(prices) / len(prices)


def query(events):
    """Average the prices of the last auctions of each seller."""
    return sales(events).key_by(lambda sale: sale.seller).process(MeanOfLast())


if __name__ == "__main__":
    nexmark.main(query)
