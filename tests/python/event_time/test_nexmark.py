"""Nexmark's queries as flownet programs, on objects and on rows, each against plain Python over all events."""

from __future__ import annotations

import importlib
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from statistics import fmean
from types import ModuleType
from typing import Any

import pytest

import flownet as fn

EXAMPLES = Path(__file__).parents[3] / "examples" / "nexmark"
EVENTS, SEED, RATE = 3_000, 7, 75
"""Forty seconds."""

Events = list[Any]


@pytest.fixture
def nexmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module("nexmark")


@pytest.fixture
def events(nexmark: ModuleType) -> Events:
    return list(nexmark.generate(EVENTS, SEED, RATE))


def of(events: Events, kind: str) -> Events:
    return [event for event in events if type(event).__name__ == kind]


def pass_through(events: Events) -> Iterator[Any]:
    yield from of(events, "Bid")


def currency(events: Events) -> Iterator[Any]:
    for bid in of(events, "Bid"):
        yield bid.auction, bid.bidder, Decimal("0.908") * bid.price, bid.time_ms


def selection(events: Events) -> Iterator[Any]:
    for bid in of(events, "Bid"):
        if bid.auction % 123 == 0:
            yield bid.auction, bid.price


def local_item_suggestion(events: Events) -> Iterator[Any]:
    for person in of(events, "Person"):
        for auction in of(events, "Auction"):
            if auction.seller == person.id and auction.category == 10 and person.state in ("OR", "ID", "CA"):
                yield person.name, person.city, person.state, auction.id


def winning_bids(events: Events) -> list[tuple[Any, int]]:
    """Auctions that found a buyer, with the highest bid, in the order of their closing."""
    bids = defaultdict(list)
    for bid in of(events, "Bid"):
        bids[bid.auction].append(bid)
    won = []
    for auction in sorted(of(events, "Auction"), key=lambda auction: (auction.expires_ms, auction.id)):
        prices = [bid.price for bid in bids[auction.id] if auction.time_ms <= bid.time_ms <= auction.expires_ms]
        if prices:
            won.append((auction, max(prices)))
    return won


def average_price_for_a_category(events: Events) -> Iterator[Any]:
    won = winning_bids(events)
    for category, time_ms in {(auction.category, auction.expires_ms) for auction, _ in won}:
        until_then = [price for auction, price in won if auction.category == category and auction.expires_ms <= time_ms]
        yield category, time_ms, sum(until_then) / len(until_then)


def hot_items(events: Events) -> Iterator[Any]:
    counts: dict[int, Counter[int]] = defaultdict(Counter)
    for bid in of(events, "Bid"):
        end_ms = bid.time_ms - bid.time_ms % 2_000 + 2_000
        while end_ms <= bid.time_ms + 10_000:
            counts[end_ms][bid.auction] += 1
            end_ms += 2_000
    for end_ms, by_auction in counts.items():
        for auction, count in by_auction.items():
            if count == max(by_auction.values()):
                yield end_ms, auction, count


def average_selling_price_by_seller(events: Events) -> Iterator[Any]:
    prices = defaultdict(list)
    for auction, price in winning_bids(events):
        prices[auction.seller].append(price)
        yield auction.seller, auction.id, fmean(prices[auction.seller][-10:])


def highest_bid(events: Events) -> Iterator[Any]:
    bids = of(events, "Bid")
    for start_ms in {bid.time_ms // 10_000 * 10_000 for bid in bids}:
        inside = [bid for bid in bids if start_ms <= bid.time_ms < start_ms + 10_000]
        yield from (bid for bid in inside if bid.price == max(other.price for other in inside))


def monitor_new_users(events: Events) -> Iterator[Any]:
    opened = {(auction.seller, auction.time_ms // 10_000) for auction in of(events, "Auction")}
    for person in of(events, "Person"):
        if (person.id, person.time_ms // 10_000) in opened:
            yield person.id, person.name, person.time_ms // 10_000 * 10_000


QUERIES: dict[str, Callable[[Events], Iterator[Any]]] = {
    "q0": pass_through,
    "q1": currency,
    "q2": selection,
    "q3": local_item_suggestion,
    "q4": average_price_for_a_category,
    "q5": hot_items,
    "q6": average_selling_price_by_seller,
    "q7": highest_bid,
    "q8": monitor_new_users,
}


def on_objects(env: fn.Environment, query: str) -> fn.Stream[Any]:
    events = importlib.import_module("nexmark").events(env, EVENTS, SEED, RATE)
    stream: fn.Stream[Any] = importlib.import_module(query).query(events)
    return stream


def on_rows(env: fn.Environment, query: str) -> fn.Stream[Any]:
    streams = importlib.import_module("nexmark_rows").streams(env, EVENTS, SEED, RATE)
    found: fn.Rows | fn.Stream[Any] = importlib.import_module(f"{query}_rows").query(streams)
    return found.to_objects(as_dicts=False) if isinstance(found, fn.Rows) else found


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("program", [on_objects, on_rows])
@pytest.mark.parametrize("query", QUERIES)
def test_a_query_finds_what_plain_python_finds(
    events: Events,
    query: str,
    program: Callable[[fn.Environment, str], fn.Stream[Any]],
    parallelism: int,
    workers: int,
) -> None:
    env = fn.Environment(parallelism=parallelism)
    found = program(env, query).collect()
    result = env.execute(workers)
    assert sum(task.late_records for task in result.tasks) == 0
    expected = list(QUERIES[query](events))
    assert len(expected) >= 3, "the stream is too short to tell"
    assert Counter(found) == Counter(expected)


@pytest.mark.parametrize("program", ["q2", "q2_rows"])
def test_a_query_runs_as_its_first_lines_say(
    python: Callable[..., subprocess.CompletedProcess[str]], nexmark: ModuleType, program: str
) -> None:
    finished = python(
        str(EXAMPLES / f"{program}.py"), "--events", "2000", "--seed", "3", "--workers", "2", "--parallelism", "2"
    )
    assert (finished.returncode, finished.stderr) == (0, "")
    printed = Counter(line.split("> ")[1] for line in finished.stdout.splitlines())
    expected = selection(list(nexmark.generate(2_000, 3)))
    if program == "q2_rows":
        expected = ({"auction": auction, "price": price} for auction, price in expected)
    assert printed == Counter(map(str, expected))


def test_events_are_late_by_no_more_than_the_disorder_in_the_proportions_of_nexmark(
    nexmark: ModuleType, events: Events
) -> None:
    assert Counter(type(event).__name__ for event in events) == {"Person": 60, "Auction": 180, "Bid": 2_760}
    latest = 0
    delays = []
    for event in events:
        latest = max(latest, event.time_ms)
        delays.append(latest - event.time_ms)
    assert nexmark.DISORDER_MS / 2 < max(delays) <= nexmark.DISORDER_MS
    assert events == list(nexmark.generate(EVENTS, SEED, RATE)) != list(nexmark.generate(EVENTS, SEED + 1, RATE))
