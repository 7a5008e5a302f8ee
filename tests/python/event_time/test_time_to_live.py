"""State with a time to live on streams with timestamps: the same at any speed, beside a loop over the records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

import flownet as fn
from flownet import testing

STRATEGY = fn.WatermarkStrategy.for_bounded_out_of_orderness("1s").with_timestamp_assigner(1)
# Key and time, in the order in which they arrive, and how far time has come behind each, if it is said.
records = st.lists(st.tuples(st.sampled_from("ab"), st.integers(-2_000, 5_000)), max_size=30)
watermarks = st.lists(st.none() | st.integers(-2_000, 5_000), min_size=30, max_size=30)


def passed(given: list[tuple[str, int]], ttl_ms: int) -> list[tuple[str, int]]:
    """In the order of time, let a record pass that is at least the time to live behind the last of its key that did."""
    found: list[tuple[str, int]] = []
    for key, time_ms in sorted(given, key=lambda record: record[1]):
        if all(other != key or time_ms - at_ms >= ttl_ms for other, at_ms in found):
            found.append((key, time_ms))
    return found


def sent(harness: Any, given: list[tuple[str, int]], said: list[int | None], make: Any) -> list[tuple[str, int]]:
    """Send records with watermarks between them, and give those that are not late."""
    in_time, now_ms = [], -(2**63)
    for (key, time_ms), watermark_ms in zip(given, said, strict=False):
        harness.send(make(key, time_ms), time_ms)
        harness.advance("10s")
        if time_ms > now_ms:
            in_time.append((key, time_ms))
        if watermark_ms is not None and watermark_ms > now_ms:
            now_ms = watermark_ms
            harness.watermark(now_ms)
    harness.end()
    return in_time


@given(records, watermarks, st.integers(1, 1_500))
def test_deduplicate_goes_by_the_times_of_records(
    given: list[tuple[str, int]], said: list[int | None], ttl_ms: int
) -> None:
    with testing.Harness(lambda stream: stream.key_by(0).deduplicate(ttl=f"{ttl_ms}ms")) as harness:
        in_time = sent(harness, given, said, lambda key, time_ms: (key, time_ms))
        assert sorted(emitted.value for emitted in harness.emitted) == sorted(passed(in_time, ttl_ms))
        assert [emitted.timestamp_ms for emitted in harness.emitted] == sorted(
            emitted.value[1] for emitted in harness.emitted
        )


@given(records, watermarks, st.integers(1, 1_500))
def test_deduplicate_of_rows_goes_by_the_times_of_rows(
    given: list[tuple[str, int]], said: list[int | None], ttl_ms: int
) -> None:
    schema = {"k": "utf8", "ms": "int64"}
    with testing.RowsHarness(lambda rows: rows.key_by("k").deduplicate(ttl=f"{ttl_ms}ms"), schema) as harness:
        in_time = sent(harness, given, said, lambda key, time_ms: {"k": key, "ms": time_ms})
        found = [(row.value["k"], row.value["ms"]) for row in harness.emitted]
        assert sorted(found) == sorted(passed(in_time, ttl_ms))
        assert [time_ms for _, time_ms in found] == sorted(time_ms for _, time_ms in found)


# Many have equal keys and times, and differ in what they hold.
tied = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 5), st.integers(0, 9)), max_size=30)


@given(tied, st.randoms(), st.integers(1, 4))
def test_the_order_of_arrival_does_not_matter(given: list[tuple[str, int, int]], chance: Any, ttl_ms: int) -> None:
    mixed = list(given)
    chance.shuffle(mixed)
    schema = {"k": "utf8", "ms": "int64", "n": "int64"}
    found: list[list[Any]] = []
    for records in (given, mixed):
        with testing.Harness(lambda stream: stream.key_by(0).deduplicate(ttl=f"{ttl_ms}ms")) as harness:
            for record in records:
                harness.send(record, record[1])
            harness.end()
            objects = sorted(emitted.value for emitted in harness.emitted)
        with testing.RowsHarness(lambda rows: rows.key_by("k").deduplicate(ttl=f"{ttl_ms}ms"), schema) as of_rows:
            for key, time_ms, number in records:
                of_rows.send({"k": key, "ms": time_ms, "n": number}, time_ms)
            of_rows.end()
            found.append([objects, sorted(tuple(row.value.values()) for row in of_rows.emitted)])
    assert found[0] == found[1]
    expected = sorted(passed([record[:2] for record in given], ttl_ms))
    assert [[record[:2] for record in each] for each in found[0]] == [expected, expected]


def test_late_records_are_dropped_and_counted() -> None:
    env = fn.Environment()
    steps = [testing.Record(("a", 10), 10), testing.Watermark(20), testing.Record(("a", 5), 5)]
    stream = env.from_script(steps)
    objects = stream.key_by(0).deduplicate(ttl="1s").collect()
    rows = stream.to_rows({"k": "utf8", "ms": "int64"}).key_by("k").deduplicate(ttl="1s").collect()
    result = env.execute(workers=0)
    assert list(objects) == [("a", 10)]
    assert rows.to_arrow().to_pylist() == [{"k": "a", "ms": 10}]
    assert sum(task.late_records for task in result.tasks) == 2


@pytest.mark.parametrize("rate", [None, 200])
@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_answer_is_the_same_at_any_speed(rate: int | None, parallelism: int, workers: int) -> None:
    given = [(f"k{at % 5}", 1_700_000_000_000 + at * 1000) for at in range(60)]
    ttls = {"1s": 1_000, "5s": 5_000, "6s": 6_000, "1d": 86_400_000}
    env = fn.Environment(parallelism=parallelism)
    stream = env.from_iterable(given, rate_limit=rate).assign_timestamps_and_watermarks(STRATEGY)
    objects = {ttl: stream.key_by(0).deduplicate(ttl=ttl).collect() for ttl in ttls}
    rows = stream.to_rows({"k": "utf8", "ms": "int64"})
    tables = {ttl: rows.key_by("k").deduplicate(ttl=ttl).collect() for ttl in ttls}
    env.execute(workers)
    for ttl, ttl_ms in ttls.items():
        expected = sorted(passed(given, ttl_ms))
        assert sorted(objects[ttl]) == expected
        assert sorted((row["k"], row["ms"]) for row in tables[ttl].to_arrow().to_pylist()) == expected


class Kinds(fn.KeyedProcessFunction[str, tuple[str, int], Any]):
    """Emits what is left of all kinds of state, then adds to each."""

    def open(self, ctx: fn.OpenContext) -> None:
        self.last = ctx.get_state(fn.ValueStateDescriptor("last", ttl="1s"))
        self.all = ctx.get_list_state(fn.ListStateDescriptor("all", ttl="1s"))
        self.map = ctx.get_map_state(fn.MapStateDescriptor("map", ttl="1s"))
        self.sum = ctx.get_reducing_state(fn.ReducingStateDescriptor("sum", lambda a, b: a + b, ttl="1s"))

    def process(self, value: tuple[str, int], ctx: fn.ProcessContext[str]) -> Iterable[Any]:
        yield self.last.value(), self.all.get(), dict(self.map), self.sum.get()
        self.last.update(value[1])
        self.all.add(value[1])
        self.map[value[1]] = True
        self.sum.add(1)


def test_all_kinds_of_state_expire_by_event_time_and_are_freed_by_watermarks() -> None:
    with testing.Harness(lambda stream: stream.key_by(0).process(Kinds())) as harness:
        assert harness.send(("a", 0), 0) == [(None, [], {}, None)]
        harness.advance("1h")
        assert harness.send(("a", 600), 600) == [(0, [0], {0: True}, 1)]
        assert harness.send(("a", 1_000), 1_000) == [(600, [600], {600: True}, 2)]
        assert harness.send(("a", 2_000), 2_000) == [(None, [], {}, None)]
        harness.watermark(2_999)
        assert harness.state("a") != {}
        harness.watermark(3_000)
        assert harness.states == {}


def test_a_timer_of_event_time_sees_what_lives_at_its_time() -> None:
    class AtTimer(fn.KeyedProcessFunction[str, tuple[str, int], Any]):
        def open(self, ctx: fn.OpenContext) -> None:
            self.last = ctx.get_state(fn.ValueStateDescriptor("last", ttl="1s"))

        def process(self, value: tuple[str, int], ctx: fn.ProcessContext[str]) -> None:
            self.last.update(value[1])
            for after in (999, 1_000):
                ctx.timer_service().register_event_time_timer(value[1] + after)

        def on_timer(self, timestamp_ms: int, ctx: fn.ProcessContext[str]) -> Iterable[Any]:
            yield timestamp_ms, self.last.value()

    with testing.Harness(lambda stream: stream.key_by(0).process(AtTimer())) as harness:
        harness.send(("a", 0), 0)
        assert harness.watermark(5_000) == [(999, 0), (1_000, None)]


@settings(max_examples=20)
@given(records, st.integers(0, 30), st.none() | st.integers(-2_000, 5_000))
def test_a_snapshot_changes_nothing(given: list[tuple[str, int]], half: int, watermark_ms: int | None) -> None:
    def build(stream: Any) -> Any:
        return stream.key_by(0).deduplicate(ttl="1s")

    def build_rows(rows: Any) -> Any:
        return rows.key_by("k").deduplicate(ttl="1s")

    schema = {"k": "utf8", "ms": "int64"}
    of_objects = (lambda kept: testing.Harness(build, restored=kept)), lambda key, time_ms: (key, time_ms)
    of_rows = (
        lambda kept: testing.RowsHarness(build_rows, schema, restored=kept),
        lambda key, time_ms: {"k": key, "ms": time_ms},
    )
    for begin, make in (of_objects, of_rows):
        found, in_time, kept, now_ms = [], [], None, -(2**63)
        for part in (given[:half], given[half:]):
            with begin(kept) as harness:
                for key, time_ms in part:
                    harness.send(make(key, time_ms), time_ms)
                    if time_ms > now_ms:
                        in_time.append((key, time_ms))
                if kept is None:
                    if watermark_ms is not None:
                        now_ms = watermark_ms
                        harness.watermark(now_ms)
                    kept = harness.snapshot()
                else:
                    harness.end()
                found += [emitted.value for emitted in harness.emitted]
        pairs = [row if isinstance(row, tuple) else (row["k"], row["ms"]) for row in found]
        assert sorted(pairs) == sorted(passed(in_time, 1_000))


def test_the_end_of_the_input_forgets_no_key() -> None:
    with testing.Harness(lambda stream: stream.key_by(0).deduplicate(ttl="1s").uid("first")) as harness:
        harness.send(("a", 5), 5)
        assert harness.states == {"a": {"waiting": {5: ("a", 5)}}}
        harness.end()
        assert list(harness.states["a"]) == ["seen"]


def test_a_key_is_forgotten_when_event_time_is_the_time_to_live_behind_it() -> None:
    with testing.Harness(lambda stream: stream.key_by(0).deduplicate(ttl="1s")) as harness:
        harness.send(("a", 5), 5)
        assert harness.watermark(1_004) == [("a", 5)]
        assert harness.states != {}
        harness.watermark(1_005)
        assert harness.states == {}


def test_without_timestamps_a_time_to_live_goes_by_the_wall_clock() -> None:
    with testing.Harness(lambda stream: stream.key_by(0).deduplicate(ttl="1s"), timestamps=False) as harness:
        assert harness.send(("a", 1)) == [("a", 1)]
        harness.advance("999ms")
        assert harness.send(("a", 2)) == []
        harness.advance("1ms")
        assert harness.send(("a", 3)) == [("a", 3)]


def test_rows_without_a_time_beside_others_that_have_one_are_an_error() -> None:
    env = fn.Environment()
    timed = env.from_arrow(pa.table({"a": [1, 3]}), event_time="a")
    timed.union(env.from_arrow(pa.table({"a": [2]}))).key_by("a").deduplicate(ttl="1s").collect()
    with pytest.raises(fn.errors.OperatorError, match="without an event time, where others have one"):
        env.execute(workers=0)
