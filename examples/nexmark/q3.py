"""Nexmark q3, local item suggestion: who sells in OR, ID or CA in category 10, and in which auctions.

python q3.py --events 100000 --workers 2 --parallelism 2
"""

import nexmark


def offer(person, auction):
    """Say who offers what."""
    return person.name, person.city, person.state, auction.id


def query(events):
    """Join persons of three states with their auctions of one category."""
    local = nexmark.persons(events).filter(lambda person: person.state in {"OR", "ID", "CA"})
    items = nexmark.auctions(events).filter(lambda auction: auction.category == 10)
    both = local.as_changelog().join(items).where(lambda person: person.id).equal_to(lambda auction: auction.seller)
    # Nobody leaves and no auction is withdrawn: each change is a result that stays.
    return both.apply(offer).to_stream().map(lambda change: change.value)


if __name__ == "__main__":
    nexmark.main(query)
