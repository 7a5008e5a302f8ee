"""Results depend on the input alone: not on chaining, workers, parallelism, or on who changes or keeps an object."""

from __future__ import annotations

import collections
import dataclasses
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flownet as fn

Record = tuple[int, list[Any]]


@dataclasses.dataclass
class Basket:
    items: list[Any]


class Keeps:
    """Emits what it keeps, and goes on changing it: one list a key."""

    def __init__(self) -> None:
        self.kept: dict[int, list[Any]] = {}

    def __call__(self, record: Record) -> Record:
        kept = self.kept.setdefault(record[0], [])
        kept.append(len(record[1]))
        return (record[0], kept)


class Remembers:
    """Keeps what it was given, and changes it later."""

    def __init__(self) -> None:
        self.before: dict[int, list[Any]] = {}

    def __call__(self, record: Record) -> Record:
        before = self.before.get(record[0], [])
        before.append("later")
        self.before[record[0]] = record[1]
        return (record[0], [len(before)])


class KeepsInState(fn.KeyedProcessFunction[int, Record, Record]):
    def process(self, value: Record, ctx: fn.ProcessContext[int]) -> Iterator[Record]:
        kept = ctx.state.setdefault("kept", [])
        kept.append(list(value[1])[-2:])
        yield (value[0], kept)
        kept.append("after")


def appends(record: Record) -> Record:
    record[1].append(len(record[1]))
    return record


def clears(record: Record) -> Record:
    seen = len(record[1])
    record[1].clear()
    record[1].append(seen)
    return record


def unwraps(record: Record) -> Record:
    """Hands on a part of an object that it changes."""
    basket = Basket([record[1]])
    basket.items.append("more")
    record[1].append(len(basket.items))
    return (record[0], basket.items[0])


def twice(record: Record) -> list[Record]:
    return [record, record, (record[0], [record[1], record[1]])]


def pops_while_it_looks(record: Record) -> bool:
    if len(record[1]) > 1:
        record[1].pop()
    return True


def joins(so_far: Record, record: Record) -> Record:
    """Changes what is kept, and returns it."""
    so_far[1].append(list(record[1])[-3:])
    del so_far[1][:-4]
    return so_far


def shows(record: Record) -> tuple[int, str]:
    return (record[0], repr(record[1]))


def key(record: Record) -> int:
    return record[0]


Stream = fn.Stream[Record]

PLAIN: list[Callable[[Stream], Stream]] = [
    lambda stream: stream.map(appends),
    lambda stream: stream.map(clears),
    lambda stream: stream.map(Keeps()),
    lambda stream: stream.map(Remembers()),
    lambda stream: stream.map(unwraps),
    lambda stream: stream.flat_map(twice),
    lambda stream: stream.filter(pops_while_it_looks),
]
KEYED: list[Callable[[Stream], Stream]] = [
    lambda stream: stream.key_by(key).reduce(joins),
    lambda stream: stream.key_by(key).process(KeepsInState()),
    lambda stream: stream.key_by(key).map(appends),
    lambda stream: stream.key_by(key).reduce(lambda first, _: first),
]


def describe(env: fn.Environment, seed: int, chained: bool) -> list[fn.streams.CollectedRecords[tuple[int, str]]]:
    """A random tree of operators. Keyed ones come first, so that every key stays where it is and in order."""
    rng = random.Random(seed)
    collected = []

    def grow(stream: Stream, depth: int) -> None:
        for _ in range(rng.choice([1, 1, 2]) if depth else 0):
            step = rng.choice(KEYED if rng.random() < 0.3 else PLAIN)
            follower = step(stream)
            if not chained:
                follower.disable_chaining()
            grow(follower, depth - 1)
        if rng.random() < 0.5 or not depth:
            collected.append(stream.map(shows).collect())

    records: list[Record] = [(at % 5, [at]) for at in range(25)]
    source = env.from_collection(records).key_by(key).map(appends)
    grow(source, 5)
    return collected


def outcome(seed: int, workers: int, parallelism: int, chained: bool) -> list[dict[int, list[str]]]:
    """What arrives of each key, in order, at each end of the tree."""
    env = fn.Environment(parallelism=parallelism)
    results = describe(env, seed, chained)
    env.execute(workers=workers)
    outcomes = []
    for collected in results:
        by_key = collections.defaultdict(list)
        for record_key, shown in collected:
            by_key[record_key].append(shown)
        outcomes.append(dict(by_key))
    return outcomes


@pytest.mark.parametrize("seed", range(12))
def test_a_random_dataflow_gives_the_same_chained_or_not_and_in_any_parallelism(seed: int) -> None:
    expected = outcome(seed, workers=0, parallelism=1, chained=False)
    assert any(expected)
    for parallelism in (1, 2, 3):
        for chained in (True, False):
            assert outcome(seed, 0, parallelism, chained) == expected, (parallelism, chained)


@pytest.mark.parametrize("seed", range(100, 102))
@pytest.mark.parametrize("workers", [1, 2])
def test_a_random_dataflow_gives_the_same_in_any_number_of_workers(seed: int, workers: int) -> None:
    expected = outcome(seed, workers=0, parallelism=1, chained=False)
    for parallelism, chained in ((1, True), (2, False), (3, True)):
        assert outcome(seed, workers, parallelism, chained) == expected, (parallelism, chained)


@pytest.mark.parametrize("chained", [True, False])
def test_what_reduce_keeps_is_not_what_it_emits(chained: bool) -> None:
    env = fn.Environment()
    lists = env.from_collection([("a", [n]) for n in range(5)]).key_by(lambda pair: pair[0])

    def length(pair: tuple[str, list[int]]) -> int:
        count = len(pair[1])
        pair[1].clear()
        return count

    lengths = lists.reduce(lambda a, b: (a[0], [*a[1], *b[1]])).map(length)
    if not chained:
        lengths.disable_chaining()
    collected = lengths.collect()
    env.execute()
    assert list(collected) == [1, 2, 3, 4, 5]


def changes(items: list[Any]) -> list[Any]:
    items.append("changed")
    return items


@pytest.mark.parametrize("workers", [0, 1])
def test_siblings_do_not_see_what_one_of_them_does_to_a_record(workers: int) -> None:
    env = fn.Environment()
    lists: fn.Stream[list[Any]] = env.from_collection([[1], [2]]).map(lambda items: [*items])
    changed = lists.map(changes).collect()
    beside = lists.rebalance().map(lambda items: items).collect()
    keyed = lists.key_by(lambda items: items.pop()).map(lambda items: items).collect()
    after = lists.map(lambda items: items).collect()
    env.execute(workers)
    assert sorted(beside) == sorted(after) == [[1], [2]]
    assert list(keyed) == [[], []]
    assert sorted(changed) == [[1, "changed"], [2, "changed"]]


@pytest.mark.parametrize("workers", [0, 1])
def test_every_subtask_has_a_callable_of_its_own(workers: int) -> None:
    class Counts:
        def __init__(self) -> None:
            self.seen = 0

        def __call__(self, _: int) -> int:
            self.seen += 1
            return self.seen

    counts = Counts()
    env = fn.Environment(parallelism=4)
    numbers = env.from_collection(range(400)).partition_custom(lambda number, subtasks: number % subtasks)
    highest = numbers.map(counts).collect()
    for _ in range(2):
        env.execute(workers)
        assert max(highest) == 100
    assert counts.seen == 0


def test_object_reuse_hands_everything_on_as_it_is() -> None:
    seen: list[int] = []

    def looks(items: list[Any]) -> list[Any]:
        seen.append(len(items))
        return items

    env = fn.Environment(object_reuse=True)
    lists = env.from_collection([[1], [2]]).map(looks)
    lists.map(changes).collect()
    second = lists.map(lambda items: items).collect()
    env.execute()
    assert list(second) == [[1, "changed"], [2, "changed"]]
    assert seen == [1, 1]


class Slotted:
    __slots__ = ("items",)

    def __init__(self, items: list[int]) -> None:
        self.items = items


@dataclasses.dataclass(frozen=True)
class Frozen:
    number: int
    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenAround:
    items: list[int]


class Named(collections.namedtuple("Named", "number items")):  # noqa: PYI024
    __slots__ = ()


IMMUTABLE = [1, "text", 2.5, None, True, b"bytes", (1, ("a", None)), Frozen(1, "a"), frozenset({1, 2}), Named(1, ())]
MUTABLE: list[Callable[[list[int]], Any]] = [
    lambda items: items,
    lambda items: (1, items),
    lambda items: {"items": items},
    lambda items: collections.OrderedDict(items=items),
    lambda items: collections.deque([items]),
    lambda items: Named(1, items),
    lambda items: Basket(items),
    lambda items: Slotted(items),
    lambda items: FrozenAround(items),
    lambda items: [[[items]]],
]


def innermost(value: Any) -> list[int]:
    """The list of ints somewhere inside."""
    while not (isinstance(value, list) and (not value or isinstance(value[0], int))):
        if isinstance(value, dict):
            value = value["items"]
        elif hasattr(value, "items"):
            value = value.items
        else:
            value = value[-1]
    return value


def grows(value: Any) -> Any:
    innermost(value).append(2)
    return value


@pytest.mark.parametrize("value", IMMUTABLE, ids=lambda value: type(value).__name__)
def test_what_cannot_be_changed_is_not_copied(value: Any) -> None:
    env = fn.Environment()
    kept = env.from_collection([0, 1]).map(lambda _: (id(value), value))
    same = kept.map(lambda pair: pair[0] == id(pair[1])).collect()
    env.execute()
    assert list(same) == [True, True]


@pytest.mark.parametrize("make", MUTABLE, ids=range(len(MUTABLE)))
def test_what_a_function_keeps_is_its_own_however_deep(make: Callable[[list[int]], Any]) -> None:
    value = make([1])
    env = fn.Environment()
    changed = env.from_collection([0, 1]).map(lambda _: value).map(grows)
    lengths = changed.map(lambda value: len(innermost(value))).collect()
    env.execute()
    assert list(lengths) == [2, 2]


@pytest.mark.parametrize("make", MUTABLE[:6], ids=range(6))
def test_what_nobody_else_has_is_not_copied(make: Callable[[list[int]], Any]) -> None:
    env = fn.Environment()
    # The address of a list that is gone may be given to its copy; one that is handed on keeps it.
    made = env.from_collection(range(100)).map(lambda number: make([number]))
    same = made.map(lambda value: (id(innermost(value)), value)).map(lambda pair: pair[0] == id(innermost(pair[1])))
    collected = same.collect()
    env.execute()
    assert all(collected)


class Node:
    """Of a tree whose nodes know their parents."""

    def __init__(self, parent: Node | None, depth: int) -> None:
        self.parent = parent
        self.children = [Node(self, depth - 1) for _ in range(3)] if depth else []
        self.visits = 0


def visits(node: Node) -> Node:
    node.visits += 1
    for child in node.children:
        assert child.parent is node
        visits(child)
    return node


def test_what_contains_itself_is_copied_with_its_shape() -> None:
    tree = Node(None, 4)
    env = fn.Environment()
    visited = env.from_collection([0, 1]).map(lambda _: tree).map(visits)
    counts = visited.map(lambda node: (node.visits, node.children[0].children[0].visits)).collect()
    env.execute()
    assert list(counts) == [(1, 1), (1, 1)]


def test_what_cannot_be_copied_is_handed_on() -> None:
    env = fn.Environment()
    generators = env.from_collection([3]).map(lambda number: (n for n in range(number)))
    collected = generators.flat_map(lambda generator: generator).collect()
    env.execute()
    assert list(collected) == [0, 1, 2]
