"""A source by script in whole jobs: the same results whatever the chaining, the workers and the parallelism."""

from __future__ import annotations

from typing import Any

import pytest

import flownet as fn
from flownet.testing import Active, Idle, Record, Watermark

SHAPES = [(0, 1, True), (0, 3, False), (2, 2, True)]
SCRIPT = [Record("a", 1), Watermark(9), Record("a", 2), Watermark(12), Watermark(5), Record("a", 13), Record("b", 25)]


@pytest.mark.parametrize("shape", SHAPES)
def test_records_and_watermarks_come_in_the_order_of_the_script(shape: tuple[int, int, bool]) -> None:
    workers, parallelism, is_chained = shape
    env = fn.Environment(parallelism=parallelism)
    stream = env.from_script(SCRIPT)
    if not is_chained:
        stream.disable_chaining()
    counts = stream.key_by(str).window(fn.Tumbling("10ms")).count().collect()
    result = env.execute(workers=workers)
    assert sorted(counts) == [("a", 1), ("a", 1), ("b", 1)]
    assert sum(task.late_records for task in result.tasks) == 1


@pytest.mark.parametrize("workers", [0, 2])
def test_each_subtask_has_its_script_and_an_idle_one_holds_nobody_up(workers: int) -> None:
    env = fn.Environment()
    quick = [Record("a", 1), Watermark(100), Record("a", 200), Watermark(300)]

    class Seen(fn.KeyedProcessFunction[str, str, Any]):
        def process(self, value: str, ctx: fn.ProcessContext[str]) -> Any:
            yield (value, ctx.timestamp)

    stream = env.from_script(quick, [Idle(), Active(), Idle()])
    seen = stream.key_by(str).process(Seen()).collect()
    env.execute(workers=workers)
    assert list(seen) == [("a", 1), ("a", 200)]


def test_without_times_windows_go_by_the_wall() -> None:
    env = fn.Environment()
    counts = env.from_script([Record("a"), Record("b")]).key_by(str).window(fn.Tumbling("1h")).count().collect()
    env.execute()
    assert sorted(counts) == [("a", 1), ("b", 1)]


@pytest.mark.parametrize(
    ("scripts", "advice"),
    [
        ((), "a script for each subtask"),
        ((["a"],), "its steps are flownet.testing.Record"),
        (([Record("a", True)],), "a time is an int of milliseconds"),
        (([Watermark(2**63 - 1)],), "a time is an int of milliseconds"),
    ],
)
def test_what_is_no_script_is_refused(scripts: Any, advice: str) -> None:
    with pytest.raises(fn.errors.PlanError, match=advice):
        fn.Environment().from_script(*scripts)


def test_as_many_subtasks_as_scripts() -> None:
    env = fn.Environment()
    env.from_script([], []).set_parallelism(3).collect()
    with pytest.raises(fn.errors.OperatorError, match="has 2 scripts"):
        env.execute()
    with pytest.raises(fn.errors.PlanError, match="runs once"):
        fn.Environment().from_script([]).set_parallelism(2)
