"""Event time from end to end: the same results whatever the chaining, the workers and the parallelism."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import flownet as fn
from flownet.testing import Harness, Record, Watermark

CLICKS = [("ann", 1000), ("bob", 4000), ("ann", 3000), ("ann", 65_000), ("bob", 70_000), ("ann", 66_000)]
SHAPES = [(0, 1, True), (0, 3, False), (2, 2, True)]
STRATEGY = fn.WatermarkStrategy.for_bounded_out_of_orderness("5s").with_timestamp_assigner(1)

Build = Callable[[fn.Stream[Any]], fn.Stream[Any]]


def run(build: Build, shape: tuple[int, int, bool] = (0, 1, True), records: list[Any] = CLICKS) -> list[Any]:
    """Run what is built of a stream of records at their times."""
    workers, parallelism, chained = shape
    env = fn.Environment(parallelism=parallelism)
    stream = env.from_collection(records).assign_timestamps_and_watermarks(STRATEGY)
    if not chained:
        stream.disable_chaining()
    results = build(stream).collect()
    env.execute(workers=workers)
    return sorted(results, key=repr)


def spans(result: tuple[Any, fn.Window, Any]) -> tuple[Any, int, int, Any]:
    key, window, value = result
    return (key, window.start_ms, window.end_ms, value)


def minutes(stream: fn.Stream[Any]) -> fn.streams.WindowedStream[Any, Any]:
    return stream.key_by(0).window(fn.Tumbling("60s"))


def sessions(stream: fn.Stream[Any]) -> fn.streams.WindowedStream[Any, Any]:
    return stream.key_by(0).window(fn.Session("10s"))


def of_bob(stream: fn.Stream[Any]) -> fn.KeyedStream[Any, Any]:
    return stream.filter(lambda click: click[0] == "bob").key_by(0)


def all_times(windowed: fn.streams.WindowedStream[Any, Any]) -> fn.Stream[Any]:
    return windowed.aggregate(
        list, lambda times, click: [*times, click[1]], merge=lambda one, other: one + other, result=sorted
    )


def window_join(stream: fn.Stream[Any]) -> fn.Stream[Any]:
    joined = stream.join(stream).where(0).equal_to(0).window(fn.Tumbling("60s"))
    return joined.apply(lambda one, other: one[1] - other[1])


def interval_join(stream: fn.Stream[Any]) -> fn.Stream[Any]:
    joined = stream.key_by(0).interval_join(stream.key_by(0)).between("-1s", "2s")
    return joined.process(lambda one, other: other[1] - one[1])


RESULTS: dict[str, tuple[Build, list[Any]]] = {
    "tumbling": (
        lambda stream: minutes(stream).with_window().count().map(spans),
        [("ann", 0, 60_000, 2), ("ann", 60_000, 120_000, 2), ("bob", 0, 60_000, 1), ("bob", 60_000, 120_000, 1)],
    ),
    "offset": (
        lambda stream: stream.key_by(0).window(fn.Tumbling("60s", offset="4s")).min(1),
        [("ann", 1000), ("ann", 65_000), ("bob", 4000), ("bob", 70_000)],
    ),
    "sliding": (lambda stream: of_bob(stream).window(fn.Sliding("4s", "2s")).count(), [("bob", 1)] * 4),
    "session": (
        lambda stream: sessions(stream).with_window().count().map(spans),
        [("ann", 1000, 13_000, 2), ("ann", 65_000, 76_000, 2), ("bob", 4000, 14_000, 1), ("bob", 70_000, 80_000, 1)],
    ),
    "session by record": (
        lambda stream: stream.key_by(0).window(fn.Session(lambda click: 62_001)).sum(1),
        [("ann", 135_000), ("bob", 4000), ("bob", 70_000)],
    ),
    "merging": (
        lambda stream: all_times(sessions(stream)),
        [("ann", [1000, 3000]), ("ann", [65_000, 66_000]), ("bob", [4000]), ("bob", [70_000])],
    ),
    "max_by": (
        lambda stream: minutes(stream).max_by(1),
        [("ann", ("ann", 3000)), ("ann", ("ann", 66_000)), ("bob", ("bob", 4000)), ("bob", ("bob", 70_000))],
    ),
    "all": (lambda stream: stream.window_all(fn.Tumbling("60s")).mean(1), [2666.6666666666665, 67_000.0]),
    "join": (window_join, [-1000, -2000, 0, 0, 0, 0, 0, 0, 1000, 2000]),
    "interval join": (interval_join, [-1000, 0, 0, 0, 0, 0, 0, 1000, 2000]),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", RESULTS)
def test_results_are_those_of_the_records_alone(name: str, shape: tuple[int, int, bool]) -> None:
    build, expected = RESULTS[name]
    assert run(build, shape) == sorted(expected, key=repr)


def timed(*records: tuple[str, int]) -> list[Record]:
    """Records at the times that are in them."""
    return [Record(record, record[1]) for record in records]


LATE = [
    *(*timed(("a", 1)), Watermark(9), *timed(("a", 2)), Watermark(12), *timed(("a", 3)), Watermark(20)),
    *timed(("a", 4), ("a", 25)),
]


def test_a_running_job_says_how_far_event_time_has_come_and_how_far_that_is_behind_the_clock() -> None:
    at_ms = int(time.time() * 1000) - 60_000
    may_end = threading.Event()

    def clicks() -> Iterator[tuple[str, int]]:
        while not may_end.wait(0.01):
            yield ("ann", at_ms)

    env = fn.Environment(status_interval="20ms")
    timed = env.from_iterable(clicks()).assign_timestamps_and_watermarks(STRATEGY)
    minutes(timed).count().collect()
    with env.execute_async(workers=0) as job:

        def said() -> list[tuple[int | None, float | None]]:
            # The source itself knows nothing of time yet.
            tasks = [(task.watermark_ms, task.watermark_lag_seconds) for task in job.status().tasks[1:]]
            return tasks + [(task.watermark_ms, task.watermark_lag_seconds) for task in job.sample().tasks[1:]]

        while any(watermark_ms is None for watermark_ms, _ in said()):
            time.sleep(0.01)
        status, seen = job.status(), said()
        passed = time.time() - at_ms / 1000
        for watermark_ms, lag in seen:
            assert watermark_ms == at_ms - 5001
            assert lag is not None
            assert 65 <= lag <= passed + 6
        assert (
            len(re.findall(r"event time of .*: \d{4}-.* behind the wall clock", str(status))) == len(status.tasks) - 1
        )
        may_end.set()
        result = job.wait()
    assert {task.watermark_ms for task in result.tasks} == {2**63 - 1}
    assert {task.watermark_lag_seconds for task in result.tasks} == {None}
    assert "event time" not in str(result)


def test_late_records_are_counted_and_dropped() -> None:
    env = fn.Environment()
    counts = env.from_script(LATE).key_by(0).window(fn.Tumbling("10ms")).count().collect()
    result = env.execute()
    assert list(counts) == [("a", 1), ("a", 1)]
    assert sum(task.late_records for task in result.tasks) == 3
    assert "late: 3 records came after their windows were given up" in str(result)
    assert [task.watermark_ms for task in result.tasks if "window" in task.name] == [2**63 - 1]


def test_within_the_allowed_lateness_each_record_gives_its_window_out_again() -> None:
    env = fn.Environment()
    late = fn.OutputTag("late")
    window = env.from_script(LATE).key_by(0).window(fn.Tumbling("10ms")).allowed_lateness("10ms")
    counts = window.side_output_late_data(late).count()
    results, too_late = counts.collect(), counts.side_output(late).collect()
    result = env.execute()
    assert list(results) == [("a", 1), ("a", 2), ("a", 3), ("a", 1)]
    assert list(too_late) == [("a", 4)]
    assert sum(task.late_records for task in result.tasks) == 0


def test_an_interval_join_counts_who_comes_too_late() -> None:
    env = fn.Environment()
    keyed = env.from_script([*timed(("a", 5)), Watermark(9), *timed(("a", 7), ("a", 10))]).key_by(0)
    pairs = keyed.interval_join(keyed).between("0ms", "5ms").process(lambda one, other: (one[1], other[1])).collect()
    result = env.execute()
    assert sorted(pairs) == [(5, 5), (5, 10), (10, 10)]
    assert sum(task.late_records for task in result.tasks) == 2


def test_late_records_of_a_join_go_to_the_side_output_of_their_input() -> None:
    env = fn.Environment()
    early, late = fn.OutputTag("early"), fn.OutputTag("late")
    keyed = env.from_script([*timed(("a", 5)), Watermark(9), *timed(("a", 7), ("a", 10))]).key_by(0)
    pairs = keyed.interval_join(keyed).between("0ms", "5ms")
    joined = pairs.side_output_left_late_data(early).side_output_right_late_data(late).process()
    versions = keyed.as_of_join(keyed, "left").side_output_left_late_data(early).process()
    found = [joined.side_output(tag).collect() for tag in (early, late)]
    newest, before = versions.collect(), versions.side_output(early).collect()
    result = env.execute()
    assert [list(records) for records in found] == [[("a", 7)], [("a", 7)]]
    assert (list(newest), list(before)) == ([(("a", 5), ("a", 5)), (("a", 10), ("a", 10))], [("a", 7)])
    assert sum(task.late_records for task in result.tasks) == 1, "the version that came too late"


def test_a_join_may_change_the_records_it_is_given() -> None:
    def name(one: list[Any], other: list[Any]) -> list[Any]:
        one[0], other[0] = one[0] + "1", other[0] + "2"
        return [*one, *other]

    env = fn.Environment()
    strategy = fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(1)
    lists = env.from_collection([["a", 1], ["a", 2], ["a", 3]]).assign_timestamps_and_watermarks(strategy).key_by(0)
    joined = lists.interval_join(lists).between("-1ms", "1ms").process(name).collect()
    windowed = lists.join(lists).where(0).equal_to(0).window(fn.EndOfInput()).apply(name).collect()
    env.execute()
    near = [["a1", one, "a2", other] for one in (1, 2, 3) for other in (1, 2, 3) if abs(one - other) <= 1]
    assert sorted(joined) == near
    assert sorted(windowed) == [["a1", one, "a2", other] for one in (1, 2, 3) for other in (1, 2, 3)]


@pytest.mark.parametrize(
    "build",
    [
        lambda keyed: keyed.interval_join(keyed).between("0s", "1s").process(),
        lambda keyed: keyed.as_of_join(keyed).process(),
    ],
)
def test_a_join_by_event_time_of_records_without_timestamps_names_operator_and_record(build: Any) -> None:
    env = fn.Environment()
    build(env.from_collection([("a", 1)]).key_by(0)).collect()
    with pytest.raises(fn.errors.OperatorError, match=r"a join by event time .* assign_timestamps") as raised:
        env.execute()
    assert raised.value.operator in ("interval_join", "as_of_join")
    assert raised.value.record == "('a', 1)"


def test_what_a_join_cannot_take_is_refused_when_it_is_described() -> None:
    env = fn.Environment()
    keyed = env.from_collection([("a", 1)]).key_by(0)
    between = keyed.interval_join(keyed).between("1s", "1s")
    with pytest.raises(fn.errors.ConfigError, match="without these ends there is nothing"):
        between.lower_bound_exclusive().process()
    with pytest.raises(fn.errors.ConfigError, match="must not be greater"):
        keyed.interval_join(keyed).between("2s", "1s")
    with pytest.raises(fn.errors.ConfigError, match='must be "inner" or "left"'):
        keyed.as_of_join(keyed, "outer")  # type: ignore[arg-type]
    with pytest.raises(fn.errors.PlanError, match="call key_by\\(\\) on it"):
        keyed.as_of_join(env.from_collection([1]))  # type: ignore[arg-type]
    with pytest.raises(fn.errors.PlanError, match="of the same environment"):
        keyed.interval_join(fn.Environment().from_collection([("a", 1)]).key_by(0))
    with pytest.raises(fn.errors.PlanError, match="OutputTag"):
        between.side_output_left_late_data("late")  # type: ignore[arg-type]


def test_windows_travel_between_tasks_and_are_keys(env: fn.Environment) -> None:
    counts = env.from_collection(range(10)).key_by(lambda number: number).window(fn.EndOfInput()).with_window().count()
    by_window = counts.key_by(1).count().collect()
    env.execute(workers=1)
    (window, _), *_ = by_window
    assert isinstance(window, fn.Window)
    assert max(by_window) == (fn.Window(0, 2**63 - 1), 10)


def test_an_accumulator_given_as_a_value_is_not_shared_between_keys(env: fn.Environment) -> None:
    def add(seen: list[int], number: int) -> list[int]:
        seen.append(number)
        return seen

    numbers = env.from_collection([1, 2, 3]).key_by(lambda number: number)
    lists = numbers.window(fn.EndOfInput()).aggregate([], add).collect()
    env.execute()
    assert sorted(lists) == [(1, [1]), (2, [2]), (3, [3])]


def test_a_join_in_sessions_asks_the_gap_of_the_records() -> None:
    results = run(
        lambda stream: (
            stream.join(stream)
            .where(0)
            .equal_to(0)
            .window(fn.Session(lambda click: 10_000 if click[0] == "ann" else 1))
        ).apply(lambda one, other: other[1] - one[1])
    )
    assert sorted(results) == [-2000, -1000, 0, 0, 0, 0, 0, 0, 1000, 2000]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_time_of_a_pair_is_the_later_one_whoever_comes_first(order: tuple[int, int]) -> None:
    env = fn.Environment()
    records = [("a", 5), ("a", 42)]
    keyed = env.from_script(timed(*(records[at] for at in order))).key_by(0)
    pairs = keyed.interval_join(keyed).between("37ms", "37ms").process(lambda one, other: "pair")
    starts = pairs.key_by(str).window(fn.Tumbling("10ms")).with_window().count().map(spans).collect()
    env.execute()
    assert list(starts) == [("pair", 40, 50, 1)]


@pytest.mark.parametrize(
    "guide", ["concepts/event-time", "concepts/watermark-alignment", "reference/windows", "concepts/joins"]
)
def test_the_example_of_the_guide_gives_what_it_says(guide: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[3] / "docs" / f"{guide}.md").read_text()
    names: dict[str, Any] = {}
    for example in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        (said,) = re.findall(r"# (.*)$", example.strip(), re.MULTILINE)
        exec(example, names)
        assert capsys.readouterr().out.strip() == said


class Both(fn.KeyedProcessFunction[str, tuple[str, int], Any]):
    """Timers of event time, and state by name."""

    def open(self, ctx: fn.OpenContext) -> None:
        self.times = ctx.get_list_state(fn.ListStateDescriptor("times"))

    def process(self, value: tuple[str, int], ctx: fn.ProcessContext[str]) -> None:
        assert ctx.timestamp == value[1]
        self.times.add(value[1])
        ctx.timer_service().register_event_time_timer(value[1] + 10_000)

    def on_timer(self, timestamp_ms: int, ctx: fn.ProcessContext[str]) -> Iterable[Any]:
        assert (ctx.time_domain, ctx.timestamp) == ("event", timestamp_ms)
        yield (ctx.key, timestamp_ms, sorted(self.times.get()))

    def finish(self, ctx: fn.ProcessContext[str]) -> Iterable[Any]:
        yield "over"


@pytest.mark.parametrize("shape", SHAPES)
def test_timers_of_event_time_fire_once_at_their_time(shape: tuple[int, int, bool]) -> None:
    results = run(lambda stream: stream.key_by(0).process(Both()), shape)
    ann = [at for key, at, _ in (result for result in results if result != "over") if key == "ann"]
    assert ann == [11_000, 13_000, 75_000, 76_000]
    assert results.count("over") == shape[1]


def test_what_a_timer_emits_has_its_time() -> None:
    env = fn.Environment()

    class Later(fn.KeyedProcessFunction[str, tuple[str, int], str]):
        def process(self, value: tuple[str, int], ctx: fn.ProcessContext[str]) -> None:
            ctx.timer_service().register_event_time_timer(value[1] + 100)

        def on_timer(self, timestamp_ms: int, ctx: fn.ProcessContext[str]) -> Iterable[str]:
            yield ctx.key

    later = env.from_script([*timed(("a", 1)), Watermark(300)]).key_by(0).process(Later())
    starts = later.key_by(str).window(fn.Tumbling("50ms")).with_window().count().map(spans).collect()
    env.execute()
    assert list(starts) == [("a", 100, 150, 1)]


@pytest.mark.parametrize(
    ("timestamp", "advice"),
    [
        (1.5, "is a float, and a timestamp is an int of milliseconds"),
        (float("nan"), "is a float"),
        (None, "is of type NoneType"),
        (2**63 - 1, "milliseconds since 1970 lie between"),
        (-(2**63), "lie between"),
        (2**80, "lie between"),
        (True, "is of type bool"),
    ],
)
def test_what_is_no_timestamp_is_an_error_with_operator_and_record(timestamp: object, advice: str) -> None:
    with pytest.raises(fn.errors.OperatorError, match=advice) as raised:
        run(lambda stream: stream, records=[("ann", timestamp)])
    assert raised.value.operator == "assign_timestamps_and_watermarks"
    assert "ann" in str(raised.value)


def test_a_record_without_a_timestamp_in_a_window_of_event_time_is_an_error(env: fn.Environment) -> None:
    env.from_collection([1]).key_by(str).window(fn.Tumbling("1s", time="event")).count().collect()
    with pytest.raises(fn.errors.OperatorError, match=r"call assign_timestamps_and_watermarks\(\)") as raised:
        env.execute()
    assert raised.value.record == "1"


def test_a_function_that_is_told_of_the_end_loses_nothing() -> None:
    env = fn.Environment()

    class Batches(fn.ProcessFunction[int, list[int]]):
        def open(self, ctx: fn.TaskContext) -> None:
            self.batch: list[int] = []

        def process(self, value: int, ctx: fn.RecordContext) -> Iterable[list[int]] | None:
            self.batch.append(value)
            if len(self.batch) < 300:
                return None
            batch, self.batch = self.batch, []
            return [batch]

        def finish(self, ctx: fn.RecordContext) -> Iterable[list[int]]:
            return [self.batch]

    batches = env.from_collection(range(1000)).process(Batches()).collect()
    env.execute()
    assert [len(batch) for batch in batches] == [300, 300, 300, 100]


def test_a_broadcast_side_reaches_every_key(env: fn.Environment) -> None:
    class Rules(fn.KeyedBroadcastProcessFunction[int, int, int, Any]):
        def open(self, ctx: fn.OpenContext) -> None:
            self.waiting: list[int] = []

        def process(self, value: int, ctx: fn.ProcessContext[int]) -> None:
            self.waiting.append(value)

        def process_broadcast(self, value: int, ctx: fn.ProcessContext[int]) -> None:
            ctx.broadcast_state["factor"] = value

        def finish(self, ctx: fn.ProcessContext[int]) -> Iterable[int]:
            return [value * ctx.broadcast_state["factor"] for value in self.waiting]

    numbers, rules = env.from_collection(range(20)), env.from_collection([3])
    connected = numbers.key_by(lambda number: number).connect(rules.broadcast())
    tripled = connected.process(Rules()).set_parallelism(3).collect()
    env.execute()
    assert sorted(tripled) == [3 * number for number in range(20)]


def test_state_with_a_time_to_live_is_freed_without_its_key_being_seen() -> None:
    class Remember(fn.KeyedProcessFunction[str, str, str]):
        def open(self, ctx: fn.OpenContext) -> None:
            self.last = ctx.get_state(fn.ValueStateDescriptor("last", ttl="50ms"))

        def process(self, value: str, ctx: fn.ProcessContext[str]) -> None:
            self.last.update(value)

    with Harness(lambda words: words.key_by(str).process(Remember())) as harness:
        harness.send("value")
        harness.advance("49ms")
        assert harness.states == {"value": {"last": "value"}}
        harness.advance("1ms")
        assert harness.states == {}


@pytest.mark.parametrize(
    ("say", "advice"),
    [
        (lambda keyed: keyed.window(fn.Tumbling("1s")).allowed_lateness("1s"), "for windows of event time"),
        (lambda keyed: keyed.window(fn.Session("1s")).aggregate(0, lambda sum, _: sum), "needs merge="),
        (lambda keyed: keyed.window(fn.Tumbling("1s")).trigger(fn.triggers.EventTimeTrigger()), "goes by event time"),
        (lambda keyed: keyed.window("1s"), "needs a window such as"),
        (lambda keyed: keyed.connect(keyed.map(str)).map(str, str), "connect\\(\\) takes two streams by key"),
        (lambda keyed: keyed.side_output("late"), "reads a flownet.OutputTag"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_runs(
    env: fn.Environment, say: Callable[[fn.KeyedStream[Any, Any]], Any], advice: str
) -> None:
    keyed = env.from_collection([("a", 1)]).key_by(0)
    with pytest.raises(fn.errors.PlanError, match=advice):
        say(keyed)


class Turns(fn.ProcessWindowFunction[Any, Any, Any]):
    """Counts the windows of a key."""

    def process(self, key: Any, ctx: fn.WindowContext, values: list[Any]) -> list[Any]:
        ctx.global_state["turns"] = ctx.global_state.get("turns", 0) + 1
        return [(key, ctx.global_state["turns"], len(values))]


def test_state_of_all_windows_of_a_key_is_of_equal_keys_in_any_form(workers: int) -> None:
    """Keys that equal ints are placed, and indexed, as the ints they equal."""
    env = fn.Environment(parallelism=3)
    keys = [*map(float, range(20)), True, False, *range(20)]
    counts = env.from_collection(keys).key_by(lambda key: key).count_window(1).process(Turns()).collect()
    env.execute(workers)
    turns = Counter((key, turn) for key, turn, _ in counts)
    assert turns == Counter({(key, turn): 1 for key in range(20) for turn in range(1, 4 if key < 2 else 3)})
