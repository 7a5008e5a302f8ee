"""What goes through the operators of a task: counted by each, whatever chain, worker or medium they are in."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import flownet as fn
from flownet.observation import OperatorReport

WORKERS = pytest.mark.parametrize("workers", [0, 2])


def operators(result: fn.observation.JobStatus) -> dict[str, OperatorReport]:
    """All of a job by their names, of which no two are the same here, but for sinks."""
    every = [operator for task in result.tasks for operator in task.operators if operator.records_out is not None]
    named = {operator.name: operator for operator in every}
    assert len(named) == len(every)
    return named


def taken_by_sinks(result: fn.observation.JobStatus) -> list[int]:
    return sorted(one.rows_in for task in result.tasks for one in task.operators if one.rows_out is None)


def passed(operator: OperatorReport) -> tuple[int, int | None]:
    return operator.records_in, operator.records_out


def hold_against_tasks(result: fn.observation.JobStatus) -> None:
    """What enters a task enters its head, and what leaves it was handed out or taken by its sinks."""
    for task in result.tasks:
        head = task.operators[0]
        entered = head.records_in or head.records_out
        assert entered == task.records_in, task
        assert all(operator.name in task.name for operator in task.operators), task


@WORKERS
@pytest.mark.parametrize("parallelism", [1, 3])
def test_each_operator_of_a_chain_counts_what_comes_and_what_it_hands_on(workers: int, parallelism: int) -> None:
    env = fn.Environment(parallelism=parallelism)
    numbers = env.from_collection(range(100)).name("numbers").rebalance()
    threes = numbers.flat_map(lambda n: [n] * 3).name("threes").filter(lambda n: n % 2 == 0).name("even")
    threes.map(lambda n: n + 1).name("odd").collect()
    result = env.execute(workers=workers)
    of = operators(result)
    assert passed(of["numbers"]) == (0, 100)
    assert passed(of["threes"]) == (100, 300)
    assert passed(of["even"]) == (300, 150)
    assert passed(of["odd"]) == (150, 150)
    assert taken_by_sinks(result) == [150]
    assert [of["even"].rows_in, of["even"].rows_out] == [300, 150]
    hold_against_tasks(result)


@WORKERS
def test_a_record_that_goes_several_ways_is_handed_on_once(workers: int) -> None:
    odd = fn.OutputTag("odd")

    class Split(fn.ProcessFunction[int, int]):
        def process(self, value: int, ctx: fn.RecordContext) -> Iterator[int]:
            if value % 2:
                ctx.output(odd, value)
            else:
                yield value

    env = fn.Environment(parallelism=2)
    split = env.from_collection(range(90)).name("numbers").rebalance().process(Split()).name("split")
    split.map(lambda n: n).name("one way").collect()
    split.key_by(lambda n: n % 7).count().name("other way").collect()
    split.side_output(odd).map(lambda n: n).name("odd way").collect()
    split.side_output(odd).map(lambda n: n).name("odd way too").collect()
    result = env.execute(workers=workers)
    of = operators(result)
    assert passed(of["split"]) == (90, 45 + 45), "evens and odds, each once"
    assert taken_by_sinks(result) == [45] * 4
    for way in ("one way", "other way", "odd way", "odd way too"):
        assert passed(of[way]) == (45, 45)
    hold_against_tasks(result)


def test_a_side_output_that_nobody_reads_is_not_handed_on() -> None:
    class Split(fn.ProcessFunction[int, int]):
        def process(self, value: int, ctx: fn.RecordContext) -> Iterator[int]:
            ctx.output(fn.OutputTag("unread"), value)
            yield value

    env = fn.Environment()
    env.from_collection(range(9)).process(Split()).name("split").collect()
    assert passed(operators(env.execute())["split"]) == (9, 9)


def test_who_only_looks_at_records_counts_them_and_inputs_of_a_union_come_together() -> None:
    env = fn.Environment(parallelism=2)
    strategy = fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda n: n)
    left = env.from_collection(range(50)).name("left").assign_timestamps_and_watermarks(strategy).name("timed")
    right = env.from_collection(range(30)).name("right").assign_timestamps_and_watermarks(strategy).name("timed too")
    both = left.union(right).map(lambda n: n).name("both")
    both.key_by(lambda n: n % 5).window(fn.Tumbling("1s")).count().name("windows").collect()
    result = env.execute()
    of = operators(result)
    assert passed(of["timed"]) == (50, 50)
    assert passed(of["timed too"]) == (30, 30)
    assert passed(of["both"]) == (80, 80)
    assert passed(of["windows"]) == (80, 5)
    hold_against_tasks(result)


@WORKERS
def test_arrays_are_counted_by_their_rows(workers: int) -> None:
    env = fn.Environment(parallelism=2)
    arrays = env.from_collection([np.arange(10), np.arange(0), np.array(7)]).name("arrays").rebalance()
    arrays.map(lambda array: array).name("same").collect()
    result = env.execute(workers=workers)
    of = operators(result)
    # An array without dimensions is one row.
    assert (of["same"].records_in, of["same"].rows_in) == (3, 11)
    assert (of["same"].records_out, of["same"].rows_out) == (3, 11)
    assert taken_by_sinks(result) == [11]


@WORKERS
def test_operators_of_rows_count_rows(workers: int) -> None:
    env = fn.Environment(parallelism=2)
    table = np.zeros(10_000, dtype=[("key", "i8"), ("value", "f8")])
    table["key"] = np.arange(10_000) % 100
    rows = env.from_numpy(table).filter(fn.col("key") < 50)
    rows.key_by("key").running_agg(n=fn.count()).collect()
    result = env.execute(workers=workers)
    head, *others = [operator for task in result.tasks for operator in task.operators]
    assert head.rows_out == 10_000
    steps, partial = others[0], others[1]
    assert (steps.rows_in, steps.rows_out) == (10_000, 5_000)
    assert partial.rows_in == 5_000
    for task in result.tasks:
        entered = task.operators[0].rows_in or task.operators[0].rows_out
        assert entered == task.rows_in, task


def test_rates_are_of_the_last_seconds_while_it_runs_and_of_all_at_its_end() -> None:
    env = fn.Environment(status_interval="50ms")
    numbers = env.from_iterable(iter(range(10**9)), rate_limit=2000).name("numbers")
    numbers.flat_map(lambda n: [n, n]).name("twice").sink_to(_Nothing()).name("end")
    with env.execute_async() as job:
        twice = wait_for_rate(job)
        assert twice.rows_out_per_second is not None
        assert twice.rows_out_per_second == pytest.approx(2 * twice.rows_in_per_second)
        operators = [operator for task in job.sample().tasks for operator in task.operators]
        assert [operator.name for operator in operators] == ["numbers", "twice", "end"]
        job.cancel()


class _Nothing(fn.Sink[int]):
    def write(self, records: list[int]) -> None:
        pass


def wait_for_rate(job: fn.Job) -> OperatorReport:
    while True:
        for task in job.status().tasks:
            for operator in task.operators:
                if operator.name == "twice" and operator.rows_in_per_second > 0:
                    return operator
