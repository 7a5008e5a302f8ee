"""Nexmark q8, monitor new users: who registered and opened an auction in the same 10 seconds.

Emits (person, name, start of the 10 seconds).

python q8.py --events 100000 --workers 2 --parallelism 2
"""

import nexmark

import flownet as fn

PERIOD = fn.Tumbling("10s")


def query(events):
    """Join the persons and the sellers of each window."""
    persons = nexmark.persons(events)
    sellers = nexmark.auctions(events).key_by(lambda auction: auction.seller).window(PERIOD).count()
    new = persons.join(sellers).where(lambda person: person.id).equal_to(lambda seller: seller[0]).window(PERIOD)
    return new.apply(lambda person, seller: (person.id, person.name, person.time_ms // 10_000 * 10_000))


if __name__ == "__main__":
    nexmark.main(query)
