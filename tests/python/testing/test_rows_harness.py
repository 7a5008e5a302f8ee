"""The harness drives operators of rows: in front of the exchange and behind it, by steps that the test says."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import flownet as fn
from flownet.errors import FlownetError, OperatorError, PlanError
from flownet.testing import EmittedRecord, Harness, HarnessState, Idle, Record, RowsHarness, Watermark

LATE, LEFT, RIGHT = fn.OutputTag("late"), fn.OutputTag("left"), fn.OutputTag("right")
TICKS = {"of": "utf8", "price": "int64"}
OTHER = {"of": "utf8", "rate": "float64!"}


def ticks(*rows: tuple[str, int]) -> list[dict[str, Any]]:
    return [{"of": of, "price": price} for of, price in rows]


def test_columns_become_others_and_rows_go() -> None:
    def doubled(rows: fn.Rows) -> fn.Rows:
        return rows.filter(fn.col("price") > 1).select("of", twice=fn.col("price") * 2)

    with RowsHarness(doubled, TICKS) as harness:
        assert harness.send(ticks(("a", 1), ("b", 2), ("c", 3)), [5, 6, 7]) == [
            {"of": "b", "twice": 4},
            {"of": "c", "twice": 6},
        ]
        assert harness.send({"of": "d", "price": None}) == []
        assert harness.emitted[0] == EmittedRecord({"of": "b", "twice": 4}, 6)
        assert harness.collected.to_arrow().to_pydict() == {"of": ["b", "c"], "twice": [4, 6]}
        assert repr(harness) == "<RowsHarness of 1 streams, 2 records emitted>"


@pytest.mark.parametrize("make", [pa.table, pl.DataFrame, pa.RecordBatch.from_pydict])
def test_tables_of_others_arrive(make: Any) -> None:
    given = make({"of": ["a", "b"], "price": [1, 2]})
    with RowsHarness(lambda rows: rows.with_columns(price=fn.col("price") + 1), given) as harness:
        assert harness.send(given, "price") == ticks(("a", 2), ("b", 3))
        assert [emitted.timestamp_ms for emitted in harness.emitted] == [1, 2]
        assert harness.collected.to_polars().schema == {"of": pl.String, "price": pl.Int64}


def windowed(rows: fn.Rows) -> fn.Rows:
    cut = rows.key_by("of").window(fn.Tumbling("1s")).allowed_lateness("1s").side_output_late_data(LATE)
    return cut.agg(n=fn.count(), sum=fn.sum("price"))


def sums(rows: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    return [(row["of"], row["n"], row["sum"]) for row in rows]


def test_windows_fire_when_the_watermark_says_and_what_is_later_is_late() -> None:
    with RowsHarness(windowed, TICKS, side_outputs=[LATE]) as harness:
        assert harness.send(ticks(("a", 1), ("a", 2), ("b", 4)), [0, 900, 1_000]) == []
        assert harness.watermark(998) == []
        assert sums(harness.watermark(999)) == [("a", 2, 3)]
        assert harness.emitted[-1].timestamp_ms == 999
        assert sums(harness.send(ticks(("a", 8)), 5)) == [("a", 3, 11)]
        assert sums(harness.watermark(1_999)) == [("b", 1, 4)]
        assert harness.watermark_ms == 1_999
        assert harness.send(ticks(("a", 16)), 5) == []
        assert harness.side_output(LATE) == ticks(("a", 16))
        assert harness.side_output_emitted(LATE) == [EmittedRecord({"of": "a", "price": 16}, 5)]
        assert harness.end() == []
        with pytest.raises(FlownetError, match="has come to its end"):
            harness.send(ticks(("a", 1)), 1)


def test_rows_that_nobody_asked_for_are_counted() -> None:
    def counted(rows: fn.Rows) -> fn.Rows:
        return rows.key_by("of").window(fn.Tumbling("1s")).agg(n=fn.count())

    with RowsHarness(counted, TICKS) as harness:
        harness.watermark(5_000)
        harness.send(ticks(("a", 1), ("a", 2), ("b", 1)), 7)
        assert harness.late_records == 3


def test_processing_time_passes_when_the_test_says() -> None:
    def counted(rows: fn.Rows) -> fn.Rows:
        return rows.key_by("of").window(fn.Tumbling("10s")).agg(n=fn.count()).select("n")

    with RowsHarness(counted, TICKS, timestamps=False, now_ms=5_000) as harness:
        harness.send(ticks(("a", 1), ("a", 2)))
        assert harness.advance("4s") == []
        assert harness.advance("1s") == [{"n": 2}]
        assert harness.now_ms == 10_000
        with pytest.raises(PlanError, match="its rows have no times"):
            harness.send(ticks(("a", 1)), 1)


def test_assigned_times_make_watermarks() -> None:
    def counted(rows: fn.Rows) -> fn.Rows:
        timed = rows.assign_timestamps("price", delay="1s")
        return timed.key_by("of").window(fn.Tumbling("1s")).agg(n=fn.count()).select("n")

    with RowsHarness(counted, TICKS, timestamps=False) as harness:
        assert harness.send(ticks(("a", 0), ("a", 1), ("a", 1_500))) == []
        harness.send(ticks(("a", 2_000)))
        # Watermarks are made now and then, by the clock.
        assert harness.advance("1s") == [{"n": 2}]


class Frames:
    """A function over batches that notes what it got; the harness uses it as it is."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, frame: pl.DataFrame) -> pl.DataFrame:
        self.sizes.append(len(frame))
        return frame.select(total=pl.col("price").sum())


def test_a_function_over_batches_gets_what_was_sent_together() -> None:
    frames = Frames()
    with RowsHarness(
        lambda rows: rows.map_batches(frames, format="polars", schema={"total": "int64"}), TICKS
    ) as harness:
        assert harness.send(ticks(("a", 1), ("b", 2), ("c", 3))) == [{"total": 6}]
        assert harness.send(ticks(("a", 5))) == [{"total": 5}]
    assert frames.sizes == [3, 1]


def test_what_a_function_raises_is_raised_by_the_call() -> None:
    def fails(frame: pl.DataFrame) -> pl.DataFrame:
        raise LookupError("no such price")

    harness = RowsHarness(lambda rows: rows.map_batches(fails, format="polars", schema=TICKS), TICKS)
    with pytest.raises(OperatorError, match="no such price"):
        harness.send(ticks(("a", 1)))
    with pytest.raises(FlownetError, match="the harness is closed"):
        harness.send(ticks(("a", 1)))
    with (
        RowsHarness(lambda rows: rows, TICKS) as harness,
        pytest.raises(OperatorError, match="price"),
    ):
        harness.send({"of": "a", "price": "much"})


class Mean(fn.BatchAggregate):
    state = {"sum": "float64", "n": "int64"}
    returns = "float64"

    def __init__(self) -> None:
        self.calls: list[str] = []

    def accumulate(self, rows: Any, groups: Any, count: int) -> Any:
        self.calls.append("accumulate")
        return {"sum": np.bincount(groups, rows["price"], count), "n": np.bincount(groups, minlength=count)}

    def merge(self, states: Any, groups: Any, count: int) -> Any:
        self.calls.append("merge")
        sums, numbers = (np.bincount(groups, states[name], count) for name in ("sum", "n"))
        return {"sum": sums, "n": numbers.astype(np.int64)}

    def result(self, states: Any) -> Any:
        self.calls.append("result")
        return states["sum"] / states["n"]


def test_an_aggregate_of_ones_own_by_window() -> None:
    mean = Mean()

    def means(rows: fn.Rows) -> fn.Rows:
        return rows.key_by("of").window(fn.Tumbling("1s")).agg(mean=mean.of(price="price")).select("of", "mean")

    with RowsHarness(means, TICKS) as harness:
        harness.send(ticks(("a", 1), ("a", 2)), 1)
        harness.send(ticks(("a", 6), ("b", 1)), 2)
        assert harness.watermark(999) == [{"of": "a", "mean": 3.0}, {"of": "b", "mean": 1.0}]
    assert mean.calls[:2] == ["accumulate", "accumulate"]
    assert set(mean.calls) == {"accumulate", "merge", "result"}


def test_running_aggregates_and_firsts() -> None:
    with RowsHarness(lambda rows: rows.key_by("of").running_agg(sum=fn.sum("price")), TICKS) as harness:
        assert harness.send(ticks(("a", 1), ("a", 2))) == [{"of": "a", "sum": 3}]
        assert harness.send(ticks(("a", 4))) == [{"of": "a", "sum": 7}]
    with RowsHarness(lambda rows: rows.key_by("of").deduplicate("1h"), TICKS, timestamps=False) as harness:
        assert harness.send(ticks(("a", 1), ("a", 2), ("b", 3))) == ticks(("a", 1), ("b", 3))
        assert harness.send(ticks(("a", 4))) == []
        harness.advance("1h")
        assert harness.send(ticks(("a", 5))) == ticks(("a", 5))


def priced(left: fn.Rows, right: fn.Rows) -> fn.Rows:
    return left.key_by("of").as_of_join(
        right.key_by("of"), how="left", side_output_left_late_data=LEFT, side_output_right_late_data=RIGHT
    )


def test_joins_of_two_streams_and_their_late_rows() -> None:
    with RowsHarness(priced, TICKS, OTHER, side_outputs=[LEFT, RIGHT]) as harness:
        assert harness.send(ticks(("a", 1), ("b", 2)), [50, 60]) == []
        assert harness.send({"of": "a", "rate": 0.5}, 40, input=1) == []
        assert harness.watermark(100, input=0) == []
        first, second = {"of": "a", "price": 1, "rate": 0.5}, {"of": "b", "price": 2, "rate": None}
        assert harness.watermark(100, input=1) == [first, second]
        assert harness.send({"of": "b", "rate": 2.0}, 99, input=1) == []
        assert harness.send(ticks(("b", 3)), 100) == []
        assert harness.side_output(LEFT) == ticks(("b", 3))
        # Whole, though pairs have the key from the first stream.
        assert harness.side_output_emitted(RIGHT) == [EmittedRecord({"of": "b", "rate": 2.0}, 99)]
        assert harness.late_records == 0


@pytest.mark.parametrize("tag", [None, RIGHT])
def test_a_join_by_window_tells_late_rows_of_either_stream_apart(tag: fn.OutputTag | None) -> None:
    def pairs(left: fn.Rows, right: fn.Rows) -> fn.Rows:
        return left.key_by("of").join(right.key_by("of"), fn.Tumbling("1s"), side_output_right_late_data=tag)

    with RowsHarness(pairs, TICKS, OTHER, side_outputs=[] if tag is None else [tag]) as harness:
        harness.watermark(2_000)
        harness.send(ticks(("a", 1)), 7)
        harness.send({"of": "a", "rate": 0.5}, 8, input=1)
        assert harness.late_records == (2 if tag is None else 1)
        if tag is not None:
            assert harness.side_output_emitted(tag) == [EmittedRecord({"of": "a", "rate": 0.5}, 8)]


def test_a_stream_that_is_idle_holds_nobody_up() -> None:
    with RowsHarness(priced, TICKS, OTHER, side_outputs=[]) as harness:
        harness.send(ticks(("a", 1)), 50)
        harness.watermark(100, input=0)
        assert harness.idle(input=1) == [{"of": "a", "price": 1, "rate": None}]


def test_scripts_are_played() -> None:
    with RowsHarness(windowed, TICKS) as harness:
        script = [Record({"of": "a", "price": 1}, 5), Watermark(999), Idle()]
        assert sums(harness.play(script)) == [("a", 1, 1)]


def test_another_harness_goes_on_with_what_one_kept() -> None:
    with RowsHarness(windowed, TICKS, side_outputs=[LATE]) as first:
        first.send(ticks(("a", 1), ("b", 2)), [10, 1_010])
        first.watermark(500)
        kept = first.snapshot()
        assert isinstance(kept, HarnessState)
        # It goes on by itself.
        assert sums(first.watermark(999)) == [("a", 1, 1)]
    for _ in range(2):
        with RowsHarness(windowed, TICKS, side_outputs=[LATE], restored=kept) as second:
            second.send(ticks(("a", 4)), 20)
            assert sums(second.watermark(1_999)) == [("a", 2, 5), ("b", 1, 2)]
    with RowsHarness(priced, TICKS, OTHER) as join:
        join.send({"of": "a", "rate": 0.5}, 10, input=1)
        join.watermark(20)
        kept = join.snapshot()
    with RowsHarness(priced, TICKS, OTHER, restored=kept) as join:
        join.send(ticks(("a", 1)), 30)
        assert join.watermark(30) == [{"of": "a", "price": 1, "rate": 0.5}]


def test_parts_that_wait_in_front_of_the_exchange_are_kept() -> None:
    def counted(rows: fn.Rows) -> fn.Rows:
        return rows.key_by("of").window(fn.EndOfInput()).agg(n=fn.count())

    with RowsHarness(counted, TICKS) as first:
        first.send(ticks(("a", 1), ("a", 2)), 1)
        kept = first.snapshot()
    with RowsHarness(counted, TICKS, restored=kept) as second:
        second.send(ticks(("a", 3)), 2)
        assert second.end() == [{"of": "a", "n": 3}]


class Counts(fn.KeyedProcessFunction[str, str, Any]):
    def process(self, value: str, ctx: fn.ProcessContext[str]) -> Any:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        ctx.set_timer(ctx.now_ms() + 1_000)
        yield ctx.state["n"]

    def on_timer(self, timestamp_ms: int, ctx: fn.ProcessContext[str]) -> Any:
        yield ctx.key, ctx.state["n"]


def test_a_harness_of_objects_goes_on_as_well_with_state_and_timers() -> None:
    with Harness(lambda words: words.key_by(str).process(Counts()).name("counts")) as first:
        assert (first.send("to"), first.send("to")) == ([1], [2])
        kept = first.snapshot()
    with Harness(lambda words: words.key_by(str).process(Counts()).name("counts"), restored=kept) as second:
        assert second.states == {"to": {"n": 2}}
        assert second.advance("1s") == [("to", 2)]
        assert second.send("to") == [3]


def test_rows_among_objects() -> None:
    def totals(records: fn.Stream[Any]) -> fn.Stream[Any]:
        rows = records.to_rows(TICKS).key_by("of").running_agg(sum=fn.sum("price"))
        return rows.to_objects().key_by(lambda row: row["of"]).process(Counts())

    with Harness(totals) as harness:
        assert harness.send({"of": "a", "price": 1}) == [1]
        assert harness.send(("a", 2)) == [2]
        assert harness.states == {"a": {"n": 2}}


class Sink(fn.Sink[Any]):
    def __init__(self) -> None:
        self.frames: list[Any] = []

    def write(self, records: list[Any]) -> None:
        self.frames += records


def test_a_sink_gets_what_leaves() -> None:
    sink = Sink()
    with RowsHarness(lambda rows: rows.select("price").sink_to(sink, format="arrow"), TICKS) as harness:
        assert harness.send(ticks(("a", 1))) == []
        with pytest.raises(PlanError, match="made of a sink"):
            _ = harness.collected
    assert [frame.to_pylist() for frame in sink.frames] == [[{"price": 1}]]


def test_what_cannot_be_is_refused() -> None:
    def same(rows: fn.Rows) -> fn.Rows:
        return rows

    text = cast(Any, "seven")
    for made, said in [
        (lambda: RowsHarness(same), r"0 schemas for the 1 streams"),
        (lambda: RowsHarness(text, TICKS), r"RowsHarness\(\) needs a function of streams"),
        (lambda: RowsHarness(lambda rows: text, TICKS), "returns rows or a sink, and it returned 'seven'"),
        (lambda: RowsHarness(same, text), "to_rows"),
        (lambda: RowsHarness(same, TICKS, restored=text), "what snapshot"),
        (lambda: RowsHarness(same, TICKS).send(text), "send\\(\\) takes a dict, a list of dicts"),
        (lambda: RowsHarness(same, TICKS).send(ticks(("a", 1)), [1, 2]), "there are 1 rows and 2 times"),
        (lambda: RowsHarness(same, TICKS).send(ticks(("a", 1)), "ms"), "not each of the rows has a 'ms'"),
        (lambda: RowsHarness(same, TICKS).send(ticks(("a", 1)), input=3), "counted from 0"),
        (lambda: RowsHarness(same, TICKS, side_outputs=[LATE]), "has no such side output"),
    ]:
        with pytest.raises(PlanError, match=said):
            made()  # type: ignore[no-untyped-call]
