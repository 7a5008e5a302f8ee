"""The harness drives the operators that ship: each kind of function, both clocks, state, timers, errors, the end."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest

import flownet as fn
from flownet import testing
from flownet.testing import Active, EmittedRecord, Harness, Idle, OpenWindow, PendingTimer, Record, Watermark

LATE = fn.OutputTag("late")
NOTHING: Any = None


def test_plain_functions() -> None:
    with Harness(lambda words: words.flat_map(str.split).filter(len).map(str.upper)) as harness:
        assert harness.send("to be", 7) == ["TO", "BE"]
        assert harness.send("") == []
        assert harness.emitted == [EmittedRecord("TO", 7), EmittedRecord("BE", 7)]
        assert repr(harness) == "<Harness of 1 streams, 2 records emitted>"


def test_running_folds_and_their_state() -> None:
    with Harness(lambda pairs: pairs.key_by(0).sum(1)) as harness:
        assert harness.send(("a", 1)) == [("a", 1)]
        assert harness.send(("a", 2)) == [("a", 3)]
        assert harness.send(("b", 5)) == [("b", 5)]
        assert harness.states == {"a": {"value": 3}, "b": {"value": 5}}


class Spans(fn.KeyedProcessFunction[str, tuple[str, int], Any]):
    """State of every kind, timers of both clocks, a side output."""

    def open(self, ctx: fn.OpenContext) -> None:
        self.place = (ctx.operator, ctx.subtask, ctx.parallelism, ctx.worker)
        self.first = ctx.get_state(fn.ValueStateDescriptor("first", ttl="10s"))
        self.all = ctx.get_list_state(fn.ListStateDescriptor("all", ttl="20s"))
        self.by_value = ctx.get_map_state(fn.MapStateDescriptor("by value", ttl="30s"))
        self.most = ctx.get_reducing_state(fn.ReducingStateDescriptor("most", max))

    def process(self, value: tuple[str, int], ctx: fn.ProcessContext[str]) -> Iterable[Any]:
        if self.first.value() is None:
            self.first.update(value[1])
        self.all.add(value[1])
        self.by_value[value[1]] = ctx.now_ms()
        self.most.add(value[1])
        timers = ctx.timer_service()
        timers.register_event_time_timer((ctx.timestamp or 0) + 100)
        timers.register_processing_time_timer(ctx.now_ms() + 5_000)
        ctx.output(LATE, (ctx.key, ctx.current_watermark()))
        yield (ctx.key, ctx.timestamp)

    def on_timer(self, timestamp_ms: int, ctx: fn.ProcessContext[str]) -> Iterable[Any]:
        yield (ctx.time_domain, timestamp_ms, ctx.now_ms())


def test_a_keyed_process_function_with_all_that_it_keeps() -> None:
    function = Spans()
    with Harness(lambda s: s.key_by(0).process(function).name("spans"), side_outputs=[LATE], now_ms=1_000) as harness:
        assert function.place == ("spans", 0, 1, "harness")
        assert harness.send(("a", 5), 50) == [("a", 50)]
        assert harness.state("a") == {"first": 5, "all": [5], "by value": {5: 1_000}, "most": 5}
        assert harness.timers == [
            PendingTimer("event", 150, "a", None),
            PendingTimer("processing", 6_000, "a", None),
        ]
        assert harness.watermark(149) == []
        assert harness.watermark(150) == [("event", 150, 1_000)]
        assert harness.watermark_ms == 150
        assert harness.send(("b", 1), 120) == [("b", 120)]
        assert harness.side_output(LATE) == [("a", -(2**63)), ("b", 150)]
        assert harness.side_output_emitted(LATE)[1] == EmittedRecord(("b", 150), 120)
        assert harness.advance("5s") == [("processing", 6_000, 6_000), ("processing", 6_000, 6_000)]
        assert harness.emitted[-1].timestamp_ms is None


def test_state_with_a_time_to_live_is_freed_at_its_time_and_no_sooner() -> None:
    with Harness(lambda stream: stream.key_by(0).process(Spans()), timestamps=False) as harness:
        harness.send(("a", 5))
        harness.advance("9999ms")
        assert harness.state("a")["first"] == 5
        harness.advance("1ms")
        assert "first" not in harness.state("a")
        harness.advance("15s")
        assert harness.state("a") == {"by value": {5: 0}, "most": 5}
        harness.advance("5s")
        assert harness.state("a") == {"most": 5}


def test_a_timer_that_sets_the_next_one_fires_at_each_of_its_times() -> None:
    class Ticks(fn.KeyedProcessFunction[str, str, int]):
        def process(self, value: str, ctx: fn.ProcessContext[str]) -> None:
            ctx.set_timer(ctx.now_ms() + 1_000)

        def on_timer(self, timestamp_ms: int, ctx: fn.ProcessContext[str]) -> Iterable[int]:
            ctx.set_timer(ctx.now_ms() + 1_000)
            yield timestamp_ms

    with Harness(lambda stream: stream.key_by(str).process(Ticks())) as harness:
        harness.send("a")
        assert harness.advance("3500ms") == [1_000, 2_000, 3_000]
        assert harness.now_ms == 3_500


def test_windows_of_event_time_late_records_and_lateness() -> None:
    def build(stream: fn.Stream[str]) -> fn.Stream[Any]:
        window = stream.key_by(str).window(fn.Tumbling("10s")).allowed_lateness("5s")
        return window.side_output_late_data(LATE).count()

    with Harness(build, side_outputs=[LATE]) as harness:
        assert harness.send("a", 1_000) == []
        assert harness.windows == [OpenWindow("a", fn.Window(0, 10_000), 1, {}, {})]
        assert harness.timers == [PendingTimer("event", 9_999, None, fn.Window(0, 10_000))]
        assert harness.watermark(9_999) == [("a", 1)]
        assert harness.emitted == [EmittedRecord(("a", 1), 9_999)]
        assert harness.send("a", 2_000) == [("a", 2)]
        assert harness.watermark(14_999) == []
        assert harness.windows == []
        assert harness.send("a", 3_000) == []
        assert harness.side_output(LATE) == ["a"]
        assert harness.late_records == 0
    with Harness(lambda stream: stream.key_by(str).window(fn.Tumbling("10s")).count()) as harness:
        harness.watermark(9_999)
        harness.send("a", 3_000)
        assert harness.late_records == 1


def test_windows_of_processing_time_fire_when_the_test_moves_the_clock() -> None:
    with Harness(lambda s: s.key_by(str).window(fn.Tumbling("10s")).count(), timestamps=False) as harness:
        harness.advance("8s")
        harness.send("a")
        assert harness.advance("1999ms") == []
        assert harness.advance("1ms") == [("a", 1)]
        with pytest.raises(fn.errors.PlanError, match="timestamps=False"):
            harness.send("a", 1)


def test_sliding_windows_show_what_each_of_them_holds() -> None:
    with Harness(lambda s: s.key_by(str).window(fn.Sliding("20s", "10s")).count()) as harness:
        harness.send("a", 1_000)
        harness.send("a", 11_000)
        assert [(each.window.start_ms, each.value) for each in harness.windows] == [(-10_000, 1), (0, 2), (10_000, 1)]


class Sizes(fn.ProcessWindowFunction[str, str, Any]):
    """Keeps something for the window and for the key."""

    def process(self, key: str, ctx: fn.WindowContext, values: list[str]) -> Iterable[Any]:
        ctx.window_state["firings"] = ctx.window_state.get("firings", 0) + 1
        ctx.global_state["firings"] = ctx.global_state.get("firings", 0) + 1
        yield (key, ctx.window.start_ms, values, ctx.window_state["firings"], ctx.global_state["firings"], ctx.now_ms())


class Twice(fn.triggers.Trigger[str]):
    """Fires for every second record, and at the end."""

    def on_element(
        self, value: str, timestamp_ms: int, window: fn.Window, ctx: fn.triggers.TriggerContext
    ) -> fn.triggers.TriggerResult:
        ctx.state["seen"] = ctx.state.get("seen", 0) + 1
        ctx.delete_event_time_timer(ctx.state.get("end", 0))
        ctx.state["end"] = window.end_ms - 1
        ctx.register_event_time_timer(window.end_ms - 1)
        return fn.triggers.TriggerResult.FIRE if ctx.state["seen"] % 2 == 0 else fn.triggers.TriggerResult.CONTINUE

    def on_event_time(
        self, time_ms: int, window: fn.Window, ctx: fn.triggers.TriggerContext
    ) -> fn.triggers.TriggerResult:
        return fn.triggers.TriggerResult.FIRE_AND_PURGE


def test_sessions_with_trigger_evictor_function_and_their_state() -> None:
    def build(stream: fn.Stream[str]) -> fn.Stream[Any]:
        windows = stream.key_by(lambda word: word[0]).window(fn.Session("10s")).trigger(Twice())
        return windows.evictor(fn.triggers.CountEvictor(2)).process(Sizes())

    with Harness(build, now_ms=77) as harness:
        assert harness.send("a1", 1_000) == []
        assert harness.send("a2", 2_000) == [("a", 1_000, ["a1", "a2"], 1, 1, 77)]
        assert harness.send("a3", 3_000) == []
        (window,) = harness.windows
        assert window.window == fn.Window(1_000, 13_000)
        assert (window.value, window.state, window.trigger_state) == (
            ["a1", "a2", "a3"],
            {"firings": 1},
            {"seen": 3, "end": 12_999},
        )
        assert harness.global_state("a") == {"firings": 1}
        assert harness.watermark(12_999) == [("a", 1_000, ["a2", "a3"], 2, 2, 77)]
        assert (harness.windows, harness.global_state("a")) == ([], {"firings": 2})


def test_a_purge_forgets_the_records_of_a_window_and_not_its_state() -> None:
    def build(stream: fn.Stream[str]) -> fn.Stream[Any]:
        windows = stream.key_by(lambda word: word[0]).window(fn.Global())
        return windows.trigger(fn.triggers.PurgingTrigger(fn.triggers.CountTrigger(1))).process(Sizes())

    with Harness(build) as harness:
        assert harness.send("a1", 1) == [("a", -(2**63), ["a1"], 1, 1, 0)]
        assert harness.send("a2", 2) == [("a", -(2**63), ["a2"], 2, 2, 0)]


def test_two_inputs_and_the_event_time_of_the_one_behind() -> None:
    class Names(fn.KeyedCoProcessFunction[int, tuple[int, str], tuple[int, str], Any]):
        def process1(self, value: tuple[int, str], ctx: fn.ProcessContext[int]) -> Iterable[Any]:
            yield (*value, ctx.state.get("name", "?"))

        def process2(self, value: tuple[int, str], ctx: fn.ProcessContext[int]) -> None:
            ctx.state["name"] = value[1]

    with Harness(lambda orders, names: orders.key_by(0).connect(names.key_by(0)).process(Names())) as harness:
        assert harness.send((7, "tea"), input=0) == [(7, "tea", "?")]
        harness.send((7, "Ann"), input=1)
        assert harness.send((7, "tea")) == [(7, "tea", "Ann")]
        assert harness.state(7) == {"name": "Ann"}
        harness.watermark(100, input=0)
        assert harness.watermark_ms is None
        harness.watermark(50, input=1)
        assert harness.watermark_ms == 50
        harness.idle(input=1)
        assert harness.watermark_ms == 100
        harness.active(input=1)
        harness.watermark(70, input=1)
        assert harness.watermark_ms == 100
        with pytest.raises(fn.errors.PlanError, match="input=2: the harness has 2 streams"):
            harness.send(1, input=2)


def test_a_join_shows_the_records_that_it_keeps_and_lets_go_of() -> None:
    def build(views: fn.Stream[Any], sales: fn.Stream[Any]) -> fn.Stream[Any]:
        return views.key_by(0).interval_join(sales.key_by(0)).between("0s", "10s").process(lambda view, sale: sale[1])

    with Harness(build) as harness:
        harness.send(("a", "view"), 1_000)
        assert harness.send(("a", "sale"), 5_000, input=1) == ["sale"]
        assert harness.states == {"a": {"left": [("a", "view")], "right": [("a", "sale")]}}
        harness.watermark(11_000)
        assert harness.states == {}

    def versions(orders: fn.Stream[Any], prices: fn.Stream[Any]) -> fn.Stream[Any]:
        return orders.key_by(0).as_of_join(prices.key_by(0)).process(lambda order, price: price[1])

    with Harness(versions) as harness:
        harness.send(("tea", 7), 1_000, input=1)
        harness.send(("tea", "order"), 2_000)
        assert harness.state("tea") == {"left": [("tea", "order")], "right": [("tea", 7)]}
        assert harness.watermark(2_000) == [7]
        assert harness.state("tea") == {"right": [("tea", 7)]}


def test_a_broadcast_side_and_what_it_keeps() -> None:
    class Rules(fn.KeyedBroadcastProcessFunction[int, int, int, Any]):
        def process(self, value: int, ctx: fn.ProcessContext[int]) -> Iterable[int]:
            yield value * ctx.broadcast_state.get("factor", 1)

        def process_broadcast(self, value: int, ctx: fn.ProcessContext[int]) -> None:
            ctx.broadcast_state["factor"] = value

    def build(numbers: fn.Stream[int], rules: fn.Stream[int]) -> fn.Stream[Any]:
        return numbers.key_by(lambda number: number).connect(rules.broadcast()).process(Rules())

    with Harness(build) as harness:
        assert harness.send(2) == [2]
        harness.send(3, input=1)
        assert (harness.send(2), harness.broadcast_state) == ([6], {"factor": 3})


def test_several_tasks_between_input_and_output() -> None:
    def build(lines: fn.Stream[str]) -> fn.Stream[Any]:
        words = lines.flat_map(str.split).key_by(str).window(fn.Tumbling("10s")).count()
        return words.key_by(1).window(fn.Tumbling("10s")).count().set_parallelism(3)

    with Harness(build) as harness:
        harness.send("to be or not to be", 5)
        assert sorted(harness.watermark(9_999)) == [(1, 2), (2, 2)]


def test_the_end_fires_what_waits_for_either_clock_and_finishes() -> None:
    class All(Spans):
        def finish(self, ctx: fn.ProcessContext[str]) -> Iterable[Any]:
            yield "over"

    with Harness(lambda stream: stream.key_by(0).process(All())) as harness:
        harness.send(("a", 5), 50)
        assert harness.end() == [("event", 150, 0), ("processing", 5_000, 0), "over"]
        with pytest.raises(fn.errors.FlownetError, match="has come to its end"):
            harness.send(("a", 5), 50, input=0)


def test_a_script_is_played_in_its_order() -> None:
    with Harness(lambda stream: stream.key_by(str).window(fn.Tumbling("10s")).count()) as harness:
        script = [Record("a", 1), Watermark(9_999), Record("b", 2), Idle(), Active(), Record("c", 10_000)]
        assert harness.play(script) == [("a", 1)]
        assert (harness.late_records, harness.end()) == (1, [("c", 1)])


def test_own_timestamps_and_periodic_watermarks_go_by_the_clock_of_the_test() -> None:
    strategy = fn.WatermarkStrategy.for_bounded_out_of_orderness("1s").with_timestamp_assigner(1).with_idleness("5s")

    def build(clicks: fn.Stream[Any]) -> fn.Stream[Any]:
        return clicks.assign_timestamps_and_watermarks(strategy).key_by(0).window(fn.Tumbling("10s")).count()

    with Harness(build, timestamps=False) as harness:
        harness.send(("a", 1_000))
        harness.send(("b", 11_000))
        assert harness.advance("1s") == [("a", 1)]


def test_a_sink_is_fed_and_closed() -> None:
    written: list[Any] = []

    class Keep(fn.Sink[int]):
        def write(self, records: list[int]) -> None:
            written.extend(records)

        def flush(self) -> None:
            written.append("flushed")

        def close(self) -> None:
            written.append("closed")

    with Harness(lambda numbers: numbers.sink_to(Keep())) as harness:
        harness.send(1)
        assert written == [1]
        harness.end()
        assert written == [1, "flushed"]
    assert written == [1, "flushed", "closed"]


def test_what_a_function_raises_names_operator_and_record_and_closes_everything() -> None:
    closed: list[str] = []

    class Fails(fn.ProcessFunction[int, int]):
        def process(self, value: int, ctx: fn.RecordContext) -> Iterable[int]:
            yield 1 // value

        def close(self) -> None:
            closed.append("closed")

    harness = Harness(lambda numbers: numbers.process(Fails()).name("divide"))
    assert harness.send(1) == [1]
    with pytest.raises(fn.errors.OperatorError, match="division") as raised:
        harness.send(0)
    assert (raised.value.operator, raised.value.record, raised.value.worker) == ("divide", "0", None)
    assert closed == ["closed"]
    with pytest.raises(fn.errors.FlownetError, match="is closed, or a function in it has failed"):
        harness.send(1)
    harness.close()


@pytest.mark.parametrize(
    ("use", "advice"),
    [
        (lambda: Harness(lambda: NOTHING), "at least one stream"),
        (lambda: Harness(NOTHING), "needs a function of streams"),
        (lambda: Harness(lambda stream: NOTHING), "returns a stream or a sink"),
        (lambda: Harness(lambda stream: stream.map(str)).advance_to(-1), "does not go back"),
        (lambda: Harness(lambda stream: stream.map(str)).watermark(NOTHING), "a time is an int of milliseconds"),
        (lambda: Harness(lambda stream: stream.map(str)).side_output(LATE), "side_outputs="),
    ],
)
def test_mistakes_are_told_with_a_way_out(use: Callable[[], object], advice: str) -> None:
    with pytest.raises(fn.errors.PlanError, match=advice):
        use()


def test_a_function_that_calls_its_own_harness_is_refused() -> None:
    harness: list[Harness] = []
    harness.append(Harness(lambda numbers: numbers.map(lambda number: harness[0].send(number))))
    with pytest.raises(fn.errors.OperatorError, match="the harness is at work"):
        harness[0].send(1)


def test_neither_threads_nor_processes_are_left_and_nothing_sleeps(child_pids: Callable[[], set[int]]) -> None:
    threads, children = threading.active_count(), child_pids()
    with Harness(lambda s: s.key_by(str).window(fn.Tumbling("1h")).count(), timestamps=False) as harness:
        harness.send("a")
        assert harness.advance("365d") == [("a", 1)]
        assert (threading.active_count(), child_pids()) == (threads, children)


def test_it_is_used_from_any_thread_and_several_at_once() -> None:
    first, second = Harness(lambda numbers: numbers.map(str)), Harness(lambda numbers: numbers.map(repr))
    came_out: list[Any] = []
    thread = threading.Thread(target=lambda: came_out.extend(first.send(1)))
    thread.start()
    thread.join()
    assert (came_out, second.send("a"), first.send(2)) == (["1"], ["'a'"], ["2"])
    first.close()
    second.close()


def test_more_in_one_go_than_a_harness_holds_is_an_error_and_no_wait() -> None:
    def build(numbers: fn.Stream[int]) -> fn.Stream[Any]:
        return numbers.flat_map(lambda number: (b"x" * 1_000_000 for _ in range(number))).rebalance().map(len)

    with Harness(build) as harness:
        assert harness.send(10) == [1_000_000] * 10
        with pytest.raises(fn.errors.FlownetError, match="more was emitted in one go than a harness holds"):
            harness.send(1_000)


def test_importing_flownet_does_not_import_it(python: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    code = "import flownet, sys; print([name for name in sys.modules if name.startswith('flownet.testing')])"
    assert python("-c", code).stdout.strip() == "[]"


def test_what_arrives_together_is_one_batch_and_what_comes_out_is_the_same_as_in_a_job() -> None:
    def build(stream: fn.Stream[Any]) -> fn.Stream[Any]:
        return stream.key_by(0).window(fn.Session("10s")).aggregate(list, _append, merge=_both, result=sorted)

    script: list[testing.Step] = [Record((f"key {at % 5}", at), at * 700 % 9_001) for at in range(200)]
    script += [Watermark(5_000), *(Record((f"key {at % 7}", at), 5_000 + at * 300) for at in range(200))]
    env = fn.Environment(parallelism=2)
    collected = build(env.from_script(script)).collect()
    env.execute()
    with Harness(build) as harness:
        came_out = [*harness.play(script), *harness.end()]
    assert sorted(came_out) == sorted(collected)


def _append(times: list[int], record: tuple[str, int]) -> list[int]:
    return [*times, record[1]]


def _both(one: list[int], other: list[int]) -> list[int]:
    return one + other


@dataclass(frozen=True)
class Person:
    """A key whose canonical form is no value."""

    name: str
    age: int


class CountsOfKey(fn.KeyedProcessFunction[Person, Any, Any]):
    def process(self, value: Any, ctx: fn.ProcessContext[Any]) -> None:
        ctx.state["count"] = ctx.state.get("count", 0) + 1
        ctx.timer_service().register_event_time_timer(100)

    def on_timer(self, timestamp_ms: int, ctx: fn.ProcessContext[Any]) -> None:
        ctx.state["fired"] = timestamp_ms


class KeepsForKey(fn.ProcessWindowFunction[Person, Any, Any]):
    def process(self, key: Person, ctx: fn.WindowContext, values: list[Any]) -> list[int]:
        ctx.global_state["windows"] = ctx.global_state.get("windows", 0) + 1
        return [len(values)]


def test_state_is_shown_by_keys_of_ones_own_classes() -> None:
    ann = Person("ann", 30)
    with Harness(lambda people: people.key_by(lambda person: person).process(CountsOfKey())) as harness:
        harness.send(ann, 1)
        assert harness.state(ann) == {"count": 1}
        harness.watermark(100)
        assert harness.states == {ann: {"count": 1, "fired": 100}}
    keyed: Callable[[Any], Any] = lambda people: people.key_by(lambda person: person)  # noqa: E731
    with Harness(lambda people: keyed(people).window(fn.Tumbling("1s")).process(KeepsForKey())) as harness:
        harness.send(ann, 1)
        assert harness.watermark(2_000) == [1]
        assert harness.global_state(ann) == {"windows": 1}
    with Harness(lambda one, other: keyed(one).interval_join(keyed(other)).between("0ms", "9ms").process()) as harness:
        harness.send(ann, 1)
        assert harness.states == {ann: {"left": [ann]}}
    with Harness(lambda one, other: keyed(one).as_of_join(keyed(other)).process()) as harness:
        harness.send(ann, 1, input=1)
        assert harness.states == {ann: {"right": [ann]}}


def test_changes_come_out_and_what_they_keep_is_shown() -> None:
    insert, before, after, _ = fn.RowKind
    with Harness(lambda rows: rows.as_changelog().key_by(0).count()) as harness:
        assert harness.send(("a", 1)) == [(insert, ("a", 1))]
        assert harness.send(("a", 2)) == [(before, ("a", 1)), (after, ("a", 2))]
        assert harness.states == {"a": {"rows": 2, "accumulator": 2}}
    ann = Person("ann", 30)

    def join(people: fn.Stream[Any], visits: fn.Stream[Any]) -> fn.streams.ChangelogStream[Any]:
        joined = people.as_changelog().join(visits, "left").where(lambda person: person).equal_to(0)
        return joined.apply()

    with Harness(join) as harness:
        assert harness.send(ann) == [(insert, (ann, None))]
        assert list(harness.state(ann)) == ["left"]
        assert harness.send((ann, 7), input=1) == [(before, (ann, None)), (after, (ann, (ann, 7)))]
        assert sorted(harness.state(ann)) == ["left", "right"]
