"""Nexmark q3, local item suggestion: who sells in OR, ID or CA in category 10, and in which auctions.

python q3.py --events 100000 --workers 2 --parallelism 2
"""

import nexmark

import flownet as fn


class Offers(fn.KeyedCoProcessFunction):
    """Joins a person with the auctions of that seller, whichever comes first; emits (name, city, state, auction)."""

    def process1(self, person, ctx):
        """Keep the person for the auctions to come, and join those that wait."""
        ctx.state["person"] = person
        for auction in ctx.state.pop("auctions", []):
            yield self._offer(person, auction)

    def process2(self, auction, ctx):
        """Join the auction with its seller, or let it wait."""
        if "person" in ctx.state:
            yield self._offer(ctx.state["person"], auction)
        else:
            ctx.state["auctions"] = [*ctx.state.get("auctions", []), auction]

    def _offer(self, person, auction):
        return person.name, person.city, person.state, auction.id


def query(events):
    """Join persons of three states with their auctions of one category."""
    local = nexmark.persons(events).filter(lambda person: person.state in {"OR", "ID", "CA"})
    items = nexmark.auctions(events).filter(lambda auction: auction.category == 10)
    return (
        local.key_by(lambda person: person.id).connect(items.key_by(lambda auction: auction.seller)).process(Offers())
    )


if __name__ == "__main__":
    nexmark.main(query)
