"""Records and keys that are instances of classes, through jobs."""

from __future__ import annotations

import dataclasses
import enum
import pstats
import uuid
from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest

import flownet as fn
from flownet.errors import CodecError

from ..conftest import Run


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclasses.dataclass(frozen=True)
class Key:
    colour: Colour
    number: int


@dataclasses.dataclass
class Reading:
    key: Key
    value: int


class Total(NamedTuple):
    key: Key
    value: int


def reading(number: int) -> Reading:
    return Reading(Key(Colour.RED if number % 2 else Colour.BLUE, number % 3), number)


def test_instances_of_the_scripts_classes_cross_exchanges(env: fn.Environment, run: Run) -> None:
    readings = env.from_collection(range(100)).rebalance().map(reading).rebalance().map(lambda reading: reading)
    records = run(readings)
    assert sorted(record.value for record in records) == list(range(100))
    assert {type(record) for record in records} == {Reading}
    assert all(record == reading(record.value) for record in records)


def test_instances_are_keys_in_every_process(env: fn.Environment, run: Run) -> None:
    keyed = env.from_collection(range(60)).rebalance().map(reading).key_by(lambda reading: reading.key)
    counts = run(keyed.window(fn.Tumbling("1h")).count())
    assert dict(counts) == {reading(number).key: 10 for number in range(6)}


def test_state_and_windows_keep_instances(env: fn.Environment, run: Run) -> None:
    class Sums(fn.KeyedProcessFunction[Key, Reading, Total]):
        def process(self, value: Reading, ctx: fn.ProcessContext[Key]) -> Iterable[Total]:
            ctx.state["sum"] = ctx.state.get("sum", 0) + value.value
            ctx.set_timer(ctx.now_ms() + 3_600_000)
            return ()

        def on_timer(self, timestamp_ms: int, ctx: fn.ProcessContext[Key]) -> Iterable[Total]:
            yield Total(ctx.key, ctx.state.pop("sum", 0))

    def total(key: Key, window: fn.Window, values: list[Total]) -> Iterable[Total]:
        yield Total(key, sum(value.value for value in values))

    keyed = env.from_collection(range(60)).rebalance().map(reading).key_by(lambda reading: reading.key)
    totals = keyed.process(Sums()).key_by(lambda total: total.key).window(fn.Tumbling("1h")).process(total)
    found = {record.key: record.value for record in run(totals) if record.value}
    assert found == {reading(number).key: sum(range(number, 60, 6)) for number in range(6)}


def test_instances_of_importable_classes_cross_by_name(env: fn.Environment, run: Run) -> None:
    def profile(number: int) -> Any:
        return pstats.FunctionProfile(str(number), 0.5, 0.5, 0.5, 0.5, "file", number)

    records = run(
        env.from_collection([1, 2]).map(profile).rebalance().map(lambda profile: (profile, uuid.SafeUUID.safe))
    )
    assert sorted(records, key=lambda pair: pair[0].line_number) == [(profile(n), uuid.SafeUUID.safe) for n in (1, 2)]


def test_a_collection_of_instances_is_a_source(env: fn.Environment, run: Run) -> None:
    given = [reading(number) for number in range(4)]
    assert run(env.from_collection(given)) == given


def test_a_class_of_many_bytes_arrives_in_parts(env: fn.Environment, run: Run) -> None:
    text = "x" * 20_000

    @dataclasses.dataclass
    class Large:
        number: int

        def size(self) -> int:
            return len(text)

    larges = env.from_collection(range(10)).rebalance().map(Large).rebalance().map(lambda large: large.size())
    assert run(larges) == [20_000] * 10


def test_a_broadcast_tells_all_of_a_class(env: fn.Environment, run: Run) -> None:
    records = run(env.from_collection([1]).map(reading).broadcast().map(lambda reading: reading).set_parallelism(3))
    assert records == [reading(1)] * 3


@pytest.mark.parametrize("flow_control", ["tcp", "drop", "unbounded"])
def test_classes_are_known_under_every_flow_control(flow_control: Any) -> None:
    env = fn.Environment(flow_control=flow_control, receive_buffer="64KiB")
    readings = env.from_collection(range(5000)).map(reading).disable_chaining().place_on(1)
    got = readings.map(lambda reading: reading.key.colour.name).disable_chaining().place_on(2).collect()
    env.execute(workers=2)
    assert set(got) == {"RED", "BLUE"}


class Plain:
    """Only pickle knows how it travels."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.inner = reading(number)


def test_pickle_moves_other_classes_and_sends_each_once(run: Run, workers: int) -> None:
    env = fn.Environment(codec="pickle", status_interval="10ms")
    plain = env.from_collection(range(1000)).map(Plain).disable_chaining()
    numbers = plain.map(lambda plain: plain.number + plain.inner.value).disable_chaining().collect()
    result = env.execute(workers)
    assert sorted(numbers) == [2 * number for number in range(1000)]
    moved = result.tasks[-2]
    assert (moved.bytes_tcp + moved.bytes_local) / 1000 < 250


def test_other_classes_are_refused_by_name_and_with_the_operator(env: fn.Environment, workers: int) -> None:
    env.from_collection([1]).map(Plain).name("make").rebalance().print()
    with pytest.raises(CodecError, match="Plain cannot cross an exchange") as caught:
        env.execute(workers)
    assert caught.value.operator == "make"
