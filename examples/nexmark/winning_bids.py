"""What q4 and q6 share: the price at which each auction closes."""

from typing import NamedTuple

import nexmark

import flownet as fn


class Sale(NamedTuple):
    """An auction has closed, at its highest bid."""

    auction: int
    seller: int
    category: int
    price: int
    time_ms: int


class WinningBids(fn.KeyedCoProcessFunction):
    """Joins an auction with the bids for it that came while it was open, and emits a `Sale` once it has closed."""

    def process1(self, auction, ctx):
        """Open the auction. Bids that belong to it may have come before it."""
        ctx.state["auction"] = auction
        ctx.timer_service().register_event_time_timer(auction.expires_ms)
        for bid in ctx.state.pop("bids", []):
            self._take(bid, auction, ctx)

    def process2(self, bid, ctx):
        """Keep the bid if it is the highest. One whose auction is not known waits until it should be."""
        if "auction" in ctx.state:
            self._take(bid, ctx.state["auction"], ctx)
        else:
            ctx.state["bids"] = [*ctx.state.get("bids", []), bid]
            ctx.timer_service().register_event_time_timer(bid.time_ms)

    def on_timer(self, timestamp_ms, ctx):
        """Close the auction, or forget bids for one that is closed already or was not open yet."""
        auction = ctx.state.get("auction")
        if auction is None:
            ctx.state["bids"] = [bid for bid in ctx.state.get("bids", []) if bid.time_ms > timestamp_ms]
            if not ctx.state["bids"]:
                ctx.state.clear()
        elif timestamp_ms == auction.expires_ms:
            if "price" in ctx.state:
                yield Sale(auction.id, auction.seller, auction.category, ctx.state["price"], auction.expires_ms)
            ctx.state.clear()

    def _take(self, bid, auction, ctx):
        if auction.time_ms <= bid.time_ms <= auction.expires_ms:
            ctx.state["price"] = max(bid.price, ctx.state.get("price", 0))


def sales(events: fn.Stream[nexmark.Event]) -> fn.Stream[Sale]:
    """Make a stream of the auctions that found a buyer."""
    auctions = nexmark.auctions(events).key_by(lambda auction: auction.id)
    bids = nexmark.bids(events).key_by(lambda bid: bid.auction)
    return auctions.connect(bids).process(WinningBids())
