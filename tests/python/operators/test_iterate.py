"""Records that go round until they may leave, and values by key that change until nothing changes any more."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import random
import re
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import flownet as fn
from flownet import errors
from flownet.internal import serialise

ROOT = Path(__file__).parents[3]

Step = Callable[[fn.Stream[Any]], fn.Stream[Any]]
Python = Callable[..., subprocess.CompletedProcess[str]]


def double(number: int) -> int:
    return number * 2


def at_goal(number: int) -> bool:
    return number >= 1000


def doubled_to_goal(number: int) -> int:
    number *= 2
    while number < 1000:
        number *= 2
    return number


STEPS: dict[str, Step] = {
    "in one task": lambda numbers: numbers.map(double),
    "not chained": lambda numbers: numbers.map(double).disable_chaining(),
    "each to each": lambda numbers: numbers.rebalance().map(double),
    "by key": lambda numbers: numbers.key_by(lambda number: number % 7).map(double),
    "to the end by key": lambda numbers: numbers.map(double).key_by(lambda number: number % 7),
    "by way of one": lambda numbers: numbers.map(double).set_parallelism(1),
    "two exchanges": lambda numbers: (
        numbers.key_by(str).map(double).rebalance().map(abs).key_by(lambda number: -number)
    ),
    "two ways": lambda numbers: (
        numbers.filter(lambda number: number % 2 == 0)
        .key_by(lambda number: number)
        .map(double)
        .union(numbers.filter(lambda number: number % 2 == 1).map(double))
    ),
    "custom": lambda numbers: numbers.partition_custom(lambda number, subtasks: number % subtasks).map(double),
}


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_numbers_go_round_until_they_are_at_their_goal(step: Step, parallelism: int, workers: int) -> None:
    env = fn.Environment(parallelism=parallelism, buffer_timeout="1ms")
    numbers = env.from_collection(range(1, 300))
    found = numbers.iterate(step, until=at_goal).collect()
    env.execute(workers)
    assert sorted(found) == sorted(doubled_to_goal(number) for number in range(1, 300))


def test_each_record_goes_through_the_step_at_least_once(env: fn.Environment, run: Any) -> None:
    assert run(env.from_collection([5000]).iterate(lambda numbers: numbers.map(double), until=at_goal)) == [10_000]


def test_an_iteration_of_nothing_ends(env: fn.Environment, run: Any) -> None:
    nothing = env.from_collection([1, 2]).filter(lambda number: number > 5)
    assert run(nothing.iterate(lambda numbers: numbers.rebalance().map(double), until=at_goal)) == []


def test_a_step_that_drops_all_ends(env: fn.Environment, run: Any) -> None:
    numbers = env.from_collection(range(100))
    assert run(numbers.iterate(lambda each: each.rebalance().filter(lambda _: False), until=None)) == []


def test_iterations_one_behind_the_other(env: fn.Environment, run: Any) -> None:
    numbers = env.from_collection(range(1, 50))
    first = numbers.iterate(lambda each: each.key_by(str).map(double), until=at_goal)
    second = first.iterate(lambda each: each.rebalance().map(lambda number: number - 3), until=lambda n: n < 500)
    expected = []
    for number in map(doubled_to_goal, range(1, 50)):
        number -= 3
        while number >= 500:
            number -= 3
        expected.append(number)
    assert sorted(run(second)) == sorted(expected)


def test_one_busy_subtask_beside_quiet_ones(env: fn.Environment, run: Any) -> None:
    """Long after all others have nothing left, one record goes round and in the end goes everywhere."""

    def count_down(record: tuple[int, int]) -> list[tuple[int, int]]:
        left, copies = record
        return [(left - 1, 1)] * (copies if left > 1 else 50)

    numbers = env.from_collection([(300, 1)])
    gone = numbers.iterate(
        lambda each: each.key_by(lambda record: random.Random(record[0]).random()).flat_map(count_down),
        until=lambda record: record[0] == 0,
    )
    assert run(gone) == [(0, 1)] * 50


def tree(branches: int, record: tuple[int, int]) -> list[tuple[int, int]]:
    depth, number = record
    return [(depth - 1, number * branches + branch) for branch in range(branches)]


def leaves(depth: int, branches: int, roots: int) -> list[int]:
    return list(range(roots * branches**depth))


@pytest.mark.parametrize("limits", [{}, {"memory": 1}, {"memory": "20KiB"}], ids=["in memory", "on disk", "on both"])
def test_records_that_make_many_go_round_at_exactly_the_memory_that_is_needed(
    limits: dict[str, Any], workers: int
) -> None:
    def describe(env: fn.Environment) -> Any:
        roots = env.from_collection([(13, root) for root in range(3)])
        step: Step = lambda each: each.key_by(1).flat_map(partial(tree, 2)).rebalance().map(tuple)  # noqa: E731
        return (
            roots.iterate(step, until=lambda record: record[0] == 0, **limits).map(lambda record: record[1]).collect()
        )

    planned = fn.Environment(parallelism=3, segment_size="4KiB")
    describe(planned)
    needed = max(int(count) for count in re.findall(r"needs (\d+)", str(planned.explain(workers=workers))))
    env = fn.Environment(parallelism=3, segment_size="4KiB", network_memory=needed * 4096, buffer_timeout="1ms")
    found = describe(env)
    env.execute(workers)
    assert sorted(found) == leaves(13, 2, 3)


def test_more_than_there_is_room_for_is_a_typed_error(env: fn.Environment, workers: int) -> None:
    roots = env.from_collection([(40, 0)])
    step: Step = lambda each: each.rebalance().flat_map(partial(tree, 2))  # noqa: E731
    roots.iterate(step, until=lambda record: record[0] == 0, memory="64KiB", disk="128KiB").name("leaves").collect()
    with pytest.raises(errors.IterationError, match=r"iteration 'leaves' .* records of \d+ bytes wait") as caught:
        env.execute(workers)
    error = caught.value
    assert (error.operator, error.parallelism, error.max_bytes) == ("leaves", 2, 192 << 10)
    assert error.subtask in (0, 1)
    assert (error.bytes or 0) > 128 << 10
    assert (error.records or 0) > 1000


@pytest.mark.parametrize("step", ["in one task", "by key"])
def test_an_iteration_that_never_ends_is_cancelled(env: fn.Environment, workers: int, step: str) -> None:
    numbers = env.from_collection(range(100))
    numbers.iterate(lambda each: STEPS[step](each).map(lambda number: number % 1000), until=lambda _: False).print()
    job = env.execute_async(workers)
    while job.status().tasks[-1].records_in < 10_000 and step == "by key":
        time.sleep(0.01)
    job.cancel()
    with pytest.raises(errors.CancelledError):
        job.wait()


STOPPED = """
import sys, time
import flownet as fn

def numbers(subtask, subtasks):
    yield from range(10)
    while True:
        time.sleep(0.01)
        yield 1_000_000

env = fn.Environment(parallelism=2, buffer_timeout="1ms")
rounds = env.from_iterable(numbers).iterate(lambda each: each.rebalance().map(abs), until=lambda number: number > 100)
rounds.print()
job = env.execute_async(int(sys.argv[1]))

def emitted():
    return [task.records_out for task in job.sample().tasks if task.name.startswith("from_iterable")]

while len(emitted()) < 2 or min(emitted()) < 20:
    time.sleep(0.01)
job.stop(drain=False)
job.wait()
"""


def test_what_goes_round_is_given_up_and_counted_when_the_job_is_stopped_without_draining(
    python: Python, workers: int
) -> None:
    finished = python("-c", STOPPED, str(workers))
    assert finished.returncode == 0, finished.stderr
    counted = [
        int(count) for count in re.findall(r"given up.*?records=(\d+)", re.sub(r"\x1b\[\d+m", "", finished.stderr))
    ]
    assert sum(counted) == 2 * 10, finished.stderr


def test_a_loop_that_is_never_empty_hears_that_the_job_is_stopped() -> None:
    """The head has always more to feed back than the exchange of the step has room for.

    What is on its way to the loop goes through the step before the job ends, so the buffers are small.
    """

    def slowly(number: int) -> int:
        time.sleep(0.0005)
        return number

    env = fn.Environment(parallelism=1, buffer_timeout="1ms", stop_timeout="1min", segment_size="4KiB")
    numbers = env.from_iterable(lambda subtask, subtasks: itertools.count())
    numbers.iterate(lambda each: each.rebalance().map(slowly), until=lambda _: False).print()
    with env.execute_async() as running:
        while running.status().tasks[0].back_pressured < 0.9:
            time.sleep(0.01)
        running.stop(drain=False)
        running.wait()


def test_what_goes_round_is_worked_off_when_the_job_is_stopped_with_draining(workers: int) -> None:
    env = fn.Environment(parallelism=2, buffer_timeout="1ms")

    def numbers(subtask: int, subtasks: int) -> Any:
        yield from range(1, 1000)
        while True:
            time.sleep(0.01)
            yield 999

    goals = env.from_iterable(numbers).iterate(STEPS["by key"], until=at_goal).collect()
    job = env.execute_async(workers)

    def emitted() -> list[int]:
        return [task.records_out for task in job.sample().tasks if task.name.startswith("from_iterable")]

    # Both of them: one may be far ahead of the other.
    while len(emitted()) < 2 or min(emitted()) < 1000:
        time.sleep(0.01)
    job.stop(drain=True)
    job.wait()
    counts = Counter(goals)
    expected = Counter(doubled_to_goal(number) for number in range(1, 1000) for _ in range(2))
    expected[1998] = counts[1998]
    assert counts == expected
    assert counts[1998] >= 2


def test_a_stream_from_outside_may_come_into_the_step(env: fn.Environment, run: Any) -> None:
    """It ends late, and what it says sets records free that have waited for it."""

    class Gate(fn.CoProcessFunction[Any, Any, Any]):
        def open(self, ctx: Any) -> None:
            self.goals = set[int]()

        def process1(self, value: Any, ctx: Any) -> Any:
            number, laps = value
            yield number, laps + 1, number in self.goals

        def process2(self, value: int, ctx: Any) -> None:
            self.goals.add(value)

    def goals() -> Any:
        for number in range(20):
            time.sleep(0.02)
            yield number

    told = env.from_iterable(goals()).broadcast()
    numbers = env.from_collection([(number, 0) for number in range(20)])

    def step(each: fn.Stream[Any]) -> fn.Stream[Any]:
        return each.map(lambda record: record[:2]).connect(told).process(Gate())

    records = run(numbers.map(lambda record: (*record, False)).iterate(step, until=lambda record: record[2]))
    assert sorted(number for number, *_ in records) == list(range(20))


def test_calls_that_wait_may_be_in_the_step(env: fn.Environment, run: Any) -> None:
    async def retry(record: tuple[int, int]) -> tuple[int, int]:
        number, tries = record
        await asyncio.sleep(0.002 * (number % 3))
        return number, tries + 1

    calls = env.from_collection([(number, 0) for number in range(60)])
    done = calls.iterate(
        lambda each: each.map_async(retry, capacity=7, ordered=False), until=lambda record: record[1] >= record[0] % 5
    )
    assert sorted(run(done)) == [(number, max(1, number % 5)) for number in range(60)]


def test_event_time_stands_still_until_the_iteration_is_over_and_records_keep_their_times(
    env: fn.Environment, run: Any
) -> None:
    strategy = fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda record: record[0])
    records = env.from_collection([(at_ms, at_ms % 5) for at_ms in range(0, 1000, 7)])
    timed = records.assign_timestamps_and_watermarks(strategy)
    rounds = timed.iterate(
        lambda each: each.key_by(1).map(lambda record: (record[0], record[1] - 1)), until=lambda record: record[1] < 0
    )
    counts = rounds.key_by(1).window(fn.Tumbling("100ms")).count()
    found = run(counts)
    expected = Counter(at_ms // 100 for at_ms in range(0, 1000, 7))
    assert sorted(count for _, count in found) == sorted(expected.values())


def test_what_the_step_emits_at_the_end_of_time_has_to_leave(env: fn.Environment, workers: int) -> None:
    class Late(fn.ProcessFunction[int, int]):
        def process(self, value: int, ctx: Any) -> Any:
            yield 2 * value

        def finish(self, ctx: Any) -> Any:
            yield self.last

        last = 5000

    class TooLate(Late):
        last = 1

    numbers = env.from_collection([1, 2, 3])
    found = numbers.iterate(lambda each: each.process(Late()), until=at_goal).collect()
    env.execute(workers)
    assert sorted(found) == [1024, 1024, 1536, 5000, 5000]
    env = fn.Environment(parallelism=2)
    env.from_collection([1, 2, 3]).iterate(lambda each: each.process(TooLate()), until=at_goal).collect()
    with pytest.raises(errors.IterationError, match="emitted a record at the end of time"):
        env.execute(workers)


def test_side_outputs_of_a_step_leave_the_iteration(env: fn.Environment, run: Any) -> None:
    tag = fn.OutputTag("seen")

    class Tell(fn.KeyedProcessFunction[str, int, int]):
        def process(self, value: int, ctx: Any) -> Any:
            ctx.output(tag, value)
            return [] if at_goal(value) else [2 * value]

    told: list[fn.Stream[Any]] = []

    def step(each: fn.Stream[Any]) -> fn.Stream[Any]:
        told.append(each.key_by(str).process(Tell()))
        return told[0]

    env.from_collection([300]).iterate(step, until=None)
    assert sorted(run(told[0].side_output(tag))) == [300, 600, 1200]


@dataclass
class Point:
    x: int
    path: list[int]


def test_records_of_classes_go_round_as_what_they_are(env: fn.Environment, run: Any) -> None:
    def move(point: Point) -> Point:
        point.path.append(point.x)
        point.x += 1
        return point

    points = env.from_collection([0, 5]).map(lambda x: Point(x, []))
    moved = run(points.iterate(lambda each: each.map(move), until=lambda point: point.x >= 7))
    assert sorted(moved, key=lambda point: len(point.path)) == [Point(7, [5, 6]), Point(7, list(range(7)))]


def opaque(number: Any) -> Any:
    return object()


def test_a_record_that_cannot_be_encoded_names_the_end_of_the_iteration(env: fn.Environment, workers: int) -> None:
    env.from_collection([1]).iterate(lambda each: each.map(opaque), until=lambda _: False).collect()
    with pytest.raises(errors.CodecError, match="operator 'until'"):
        env.execute(workers)


def test_a_predicate_that_raises_names_the_record(env: fn.Environment, workers: int) -> None:
    env.from_collection([0]).iterate(lambda each: each.map(abs), until=lambda number: 1 / number).name("goal").collect()
    with pytest.raises(errors.OperatorError, match="ZeroDivisionError") as caught:
        env.execute(workers)
    assert (caught.value.operator, caught.value.record) == ("goal", "0")


def test_explain_shows_the_feedback() -> None:
    env = fn.Environment(parallelism=2)
    env.from_collection([1]).iterate(STEPS["by key"], until=at_goal, memory="1MiB", disk="2GiB").print()
    text = str(env.explain(workers=2))
    assert "| feedback, from task 3, 2 queues of 1 MiB, then 2 GiB on disk\ntask 2  iterate" in text, text


def nothing_goes_round(each: fn.Stream[Any]) -> fn.Stream[Any]:
    return each._env.from_collection([1])  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (5, "needs a function"),
        (lambda each: 5, "returns the stream that goes round, not int 5"),
        (lambda each: fn.Environment().from_collection([1]), "of another environment"),
        (nothing_goes_round, "does not come from the one it is given"),
    ],
)
def test_a_step_that_is_none_is_refused_where_it_is_given(env: fn.Environment, step: Any, message: str) -> None:
    numbers = env.from_collection([1, 2])
    with pytest.raises(errors.PlanError, match=message):
        numbers.iterate(step, until=at_goal)
    # And leaves nothing behind.
    found = numbers.collect()
    env.execute(0)
    assert sorted(found) == [1, 2]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda each: each.map(abs).set_parallelism(4).rescale().map(abs), r"'map' to 'map' is rescale\(\)"),
        (lambda each: each.iterate(STEPS["by key"], until=at_goal), "'goal' has 'iterate' of another iteration within"),
    ],
)
def test_what_must_not_be_in_a_step_is_refused_when_the_job_is_planned(
    env: fn.Environment, step: Any, message: str
) -> None:
    env.from_collection([1, 2]).iterate(step, until=at_goal).name("goal").print()
    with pytest.raises(errors.PlanError, match=message) as caught:
        env.execute(2)
    assert caught.value.operator == "goal"


def test_the_ends_of_an_iteration_are_in_one_place(env: fn.Environment) -> None:
    numbers = env.from_collection([1, 2])
    three = numbers.iterate(lambda each: each.map(double), until=at_goal).set_parallelism(3).place_on(2).collect()
    env.execute(2)
    assert sorted(three) == [1024, 1024]
    numbers.iterate(lambda each: each.set_parallelism(2).map(double), until=at_goal).set_parallelism(3).print()
    with pytest.raises(errors.PlanError, match="begins and ends in different places"):
        env.execute(2)


@pytest.mark.parametrize("limits", [{"memory": 0}, {"disk": "much"}])
def test_limits_that_are_none_are_refused(env: fn.Environment, limits: dict[str, Any]) -> None:
    with pytest.raises(errors.ConfigError, match=next(iter(limits))):
        env.from_collection([1]).iterate(STEPS["by key"], until=at_goal, **limits)


def example(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import an example, whose functions then travel by value."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    module = importlib.import_module(name)
    serialise.ship_by_value(module)
    return module


def real_graphs() -> Any:
    """Who met whom at a karate club, in Les Misérables without its heroes, in Florence and in a southern town."""
    import networkx

    miserables = networkx.les_miserables_graph()
    miserables.remove_nodes_from(["Valjean", "Myriel", "Fantine", "Thenardier"])
    graphs = [
        networkx.karate_club_graph(),
        miserables,
        networkx.florentine_families_graph(),
        networkx.davis_southern_women_graph(),
    ]
    graph = networkx.Graph()
    for number, each in enumerate(graphs):
        graph.add_edges_from(
            (f"{number}{one}".replace(" ", ""), f"{number}{other}".replace(" ", "")) for one, other in each.edges
        )
    return graph


def least_of_each(graph: Any) -> dict[Any, Any]:
    import networkx

    return {name: min(component) for component in networkx.connected_components(graph) for name in component}


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_components_of_real_graphs_are_those_of_networkx(
    parallelism: int, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = real_graphs()
    assert len(set(least_of_each(graph).values())) == 5
    env = fn.Environment(parallelism=parallelism, buffer_timeout="1ms")
    module = example("connected_components", monkeypatch)
    lines = env.from_collection([f"{one} {other}" for one, other in graph.edges])
    found = module.components(lines).collect()
    env.execute(workers)
    assert sorted(found) == sorted(least_of_each(graph).items())


def update(known: Any, record: Any) -> Any:
    name, neighbour, heard = record
    least, neighbours = known or (name, [])
    if neighbour is not None:
        return (least, [*neighbours, neighbour]), [(neighbour, None, least)]
    if heard >= least:
        return None
    return (heard, neighbours), [(neighbour, None, heard) for neighbour in neighbours]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("results", ["last", "changes"])
def test_components_of_random_graphs_are_those_of_networkx(seed: int, results: Any, workers: int) -> None:
    import networkx

    rng = random.Random(seed)
    graph = networkx.gnm_random_graph(rng.randint(2, 300), rng.randint(1, 300), seed=seed)
    edges = [(one, other, None) for one, other in graph.edges] + [(other, one, None) for one, other in graph.edges]
    rng.shuffle(edges)
    env = fn.Environment(parallelism=rng.randint(1, 4), buffer_timeout=rng.choice(["0ms", "1ms", "20ms"]))
    found = (
        env.from_collection(edges).key_by(0).iterate_delta(update, results=results, memory="1MiB" if seed % 2 else 1)
    )
    collected = found.collect()
    env.execute(workers)
    last = defaultdict[Any, list[Any]](list)
    for key, (least, _) in collected:
        last[key].append(least)
    connected = {key: least for key, least in least_of_each(graph).items() if graph.degree[key]}
    assert {key: values[-1] for key, values in last.items()} == connected
    if results == "last":
        assert all(len(values) == 1 for values in last.values())
    else:
        assert all(values == sorted(values, reverse=True) for values in last.values())


def test_a_delta_iteration_refuses_what_it_cannot_use(env: fn.Environment) -> None:
    numbers = env.from_collection([(1, 2)])
    with pytest.raises(errors.PlanError, match="needs a function"):
        numbers.key_by(0).iterate_delta(5)  # type: ignore[arg-type]
    with pytest.raises(errors.ConfigError, match="must be 'last' or 'changes'"):
        numbers.key_by(0).iterate_delta(update, results="all")  # type: ignore[arg-type]


def test_the_guide_is_true(python: Python, tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "concepts" / "iterations.md").read_text()
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", guide, re.DOTALL)):
        (tmp_path / f"block{number}.py").write_text(block)
        finished = python(f"block{number}.py")
        assert (finished.returncode, finished.stderr) == (0, ""), finished.stderr
        for line, said in re.findall(r"^print\((.*)\)  # (.*)$", block, re.MULTILINE):
            assert said in finished.stdout.splitlines(), (line, finished.stdout)
