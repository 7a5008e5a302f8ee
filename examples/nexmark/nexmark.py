"""Nexmark: an online auction as a stream of persons who register, auctions that open and bids, made up from a seed.

The queries q0.py to q8.py beside this file are those of the benchmark of that name (Tucker, Tufte, Papadimos, Maier:
"NEXMark, a benchmark for queries over data streams"), in the form that Apache Beam gave it: of 50 events one is a
person, 3 are auctions and 46 are bids, and windows are of 10 seconds.

Events have a time of their own, and come in another order: one is up to `DISORDER_MS` later than it should be. Prices
are in cents.
"""

import argparse
import heapq
import math
import random
from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

import flownet as fn

DISORDER_MS = 3_000
"""How much later than its own time an event may come."""

START_MS = 1_577_836_800_000
"""Time of the first event: 2020-01-01, UTC."""

FIRST_ID = 1_000
FIRST_CATEGORY = 10

_PLACES = {
    "AZ": ["Phoenix", "Tucson"],
    "CA": ["Los Angeles", "San Francisco"],
    "ID": ["Boise"],
    "OR": ["Portland", "Bend"],
    "WA": ["Seattle", "Kent"],
    "WY": ["Cheyenne"],
}
_FIRST_NAMES = ["Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hana", "Ivo", "Jo"]
_LAST_NAMES = ["Abel", "Berg", "Cole", "Dunn", "Egan", "Ford", "Gray", "Holt"]


class Person(NamedTuple):
    """Somebody registers."""

    id: int
    name: str
    city: str
    state: str
    time_ms: int


class Auction(NamedTuple):
    """A person offers an item, until it expires."""

    id: int
    seller: int
    category: int
    initial_bid: int
    time_ms: int
    expires_ms: int


class Bid(NamedTuple):
    """A person offers a price for the item of an auction."""

    auction: int
    bidder: int
    price: int
    time_ms: int


Event = Person | Auction | Bid


def generate(count: int, seed: int = 1, rate: int = 1_000) -> Iterator[Event]:
    """Make events, ``rate`` a second of their own time, in an order in which they may come."""
    chance = random.Random(seed)
    on_their_way: list[tuple[int, int, Event]] = []
    for number in range(count):
        time_ms = START_MS + number * 1_000 // rate
        while on_their_way and on_their_way[0][0] < time_ms:
            yield heapq.heappop(on_their_way)[2]
        event = _event(number, time_ms, rate, chance)
        # Most are on time.
        delay_ms = chance.choice([0, 0, 0, chance.randint(0, DISORDER_MS)])
        heapq.heappush(on_their_way, (time_ms + delay_ms, number, event))
    while on_their_way:
        yield heapq.heappop(on_their_way)[2]


def _event(number: int, time_ms: int, rate: int, chance: random.Random) -> Event:
    """Make the event of that number: of each 50 the first is a person, then come 3 auctions and 46 bids."""
    group, place = divmod(number, 50)
    persons, auctions = group + 1, 3 * group + min(place, 3)
    if place == 0:
        state = chance.choice(list(_PLACES))
        name = f"{chance.choice(_FIRST_NAMES)} {chance.choice(_LAST_NAMES)}"
        return Person(FIRST_ID + group, name, chance.choice(_PLACES[state]), state, time_ms)
    if place <= 3:
        length_ms = 1 + chance.randrange(longest_ms(rate))
        seller = _recent(persons, among=1_000, hot=4, chance=chance)
        category = FIRST_CATEGORY + chance.randrange(5)
        return Auction(FIRST_ID + auctions - 1, seller, category, _price(chance), time_ms, time_ms + length_ms)
    auction = _recent(auctions, among=100, hot=2, chance=chance)
    return Bid(auction, _recent(persons, among=1_000, hot=4, chance=chance), _price(chance), time_ms)


def longest_ms(rate: int) -> int:
    """Say for how long an auction is open, at most: on average for about as long as it takes for 100 others to open."""
    return 2 * 100 * 50 * 1_000 // (3 * rate)


def _recent(count: int, among: int, hot: int, chance: random.Random) -> int:
    """Choose an id among the last ones: a hot one ``hot - 1`` times out of ``hot``, else any, even one to come."""
    if chance.randrange(hot):
        return FIRST_ID + (count - 1) // 10 * 10
    return FIRST_ID + chance.randrange(max(count - among, 0), count + 10)


def _price(chance: random.Random) -> int:
    return round(math.exp(chance.uniform(0, math.log(1_000_000))) * 100)


def timed(events: fn.Stream[Event]) -> fn.Stream[Event]:
    """Give events their timestamps."""
    late = fn.WatermarkStrategy.for_bounded_out_of_orderness(timedelta(milliseconds=DISORDER_MS))
    return events.assign_timestamps_and_watermarks(late.with_timestamp_assigner(lambda event: event.time_ms))


def events(env: fn.Environment, count: int, seed: int = 1, rate: int = 1_000) -> fn.Stream[Event]:
    """Make a stream of events that have their timestamps."""
    return timed(env.from_iterable(generate(count, seed, rate)))


def persons(events: fn.Stream[Event]) -> fn.Stream[Person]:
    return events.filter(lambda event: isinstance(event, Person))


def auctions(events: fn.Stream[Event]) -> fn.Stream[Auction]:
    return events.filter(lambda event: isinstance(event, Auction))


def bids(events: fn.Stream[Event]) -> fn.Stream[Bid]:
    return events.filter(lambda event: isinstance(event, Bid))


def main(query, streams=events) -> None:
    """Run a query over these streams as the command line says, and print what it finds."""
    parser = argparse.ArgumentParser(description=query.__doc__)
    parser.add_argument("--events", type=int, default=10_000, help="how many (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the generator (%(default)s)")
    parser.add_argument("--workers", type=int, default=0, help="processes; 0: all in this one (%(default)s)")
    parser.add_argument("--parallelism", type=int, default=1, help="subtasks of each operator (%(default)s)")
    options = parser.parse_args()
    env = fn.Environment(parallelism=options.parallelism, name=f"nexmark {query.__name__}")
    found = query(streams(env, options.events, options.seed))
    (found.to_objects() if isinstance(found, fn.Rows) else found).print()
    env.execute(workers=options.workers)
