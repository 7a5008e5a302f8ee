"""How long records take to the tasks, as markers tell that stand in line with them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

from prometheus_client.openmetrics.parser import text_string_to_metric_families

import flownet as fn

from .test_server import Client


def slow(number: int) -> int:
    time.sleep(0.01)
    return number


def quick(number: int) -> int:
    return number


def naturals(subtask: int, subtasks: int) -> Iterator[int]:
    return itertools.count(subtask, subtasks)


def slowed(latency_interval: str | None) -> fn.Environment:
    """Describe a job of five tasks, the third of which is slow."""
    env = fn.Environment(parallelism=2, name="slowed", status_interval="20ms", latency_interval=latency_interval)
    numbers = env.from_iterable(naturals).name("numbers").rebalance().map(quick).name("quick")
    numbers.key_by(lambda number: number % 64).map(slow).name("slow").rebalance().filter(lambda _: False).collect()
    return env


def test_what_waits_before_a_slow_task_shows_in_its_latency(workers: int) -> None:
    with fn.serve_ui(0) as ui, slowed("10ms").execute_async(workers, ui=ui) as job:
        while not (tasks := job.status().tasks) or not all(task.latency_p50_seconds for task in tasks[1:]):
            time.sleep(0.01)
        # What comes to the slow one has come by the one before it, but some is on its way yet.
        while (tasks[2].latency_p50_seconds or 0) < max(0.1, tasks[1].latency_p50_seconds or 0):
            time.sleep(0.01)
            tasks = job.status().tasks
        _, _, text = Client(ui).ask("/metrics")
        job.cancel()
    assert tasks[0].latency_max_seconds is None, "there it begins"
    for task in tasks[1:]:
        assert task.latency_p50_seconds is not None
        assert task.latency_p99_seconds is not None
        assert task.latency_max_seconds is not None
        assert 0 <= task.latency_p50_seconds <= task.latency_p99_seconds <= task.latency_max_seconds
    families = {family.name: family for family in text_string_to_metric_families(text)}  # type: ignore[no-untyped-call]
    samples = families["flownet_task_latency_seconds"].samples
    assert {(one.labels["source"], one.labels["source_id"]) for one in samples} == {("numbers", "0")}
    assert {one.labels["task_id"] for one in samples} == {"1", "2", "3", "4"}
    assert len({one.labels["le"] for one in samples if "le" in one.labels}) == 20
    of_slow = {one.name.rpartition("_")[2]: one.value for one in samples if one.labels["task_id"] == "2"}
    assert of_slow["count"] > 0
    assert of_slow["sum"] / of_slow["count"] > 0.02


def test_without_an_interval_there_are_none(workers: int) -> None:
    env = fn.Environment(parallelism=2)
    env.from_collection(range(1000)).rebalance().map(quick).collect()
    with fn.serve_ui(0) as ui:
        result = env.execute(workers, ui=ui)
        _, _, text = Client(ui).ask("/metrics")
    assert [task.latency_max_seconds for task in result.tasks] == [None] * len(result.tasks)
    assert "flownet_task_latency_seconds_count" not in text
    assert "latency" not in str(result)


def test_a_job_with_an_iteration_ends_and_its_table_tells_of_each_task(workers: int) -> None:
    env = fn.Environment(parallelism=2, latency_interval="1ms")
    gone_round = env.from_iterable(range(100), rate_limit=200).iterate(
        lambda each: each.rebalance().map(lambda n: n - 1).name("less"), until=lambda n: n <= 0
    )
    found = gone_round.map(quick).name("after").collect()
    result = env.execute(workers)
    assert len(found) == 100
    told = [line for line in str(result).splitlines() if line.startswith("latency to ")]
    assert any(line.startswith("latency to collect") for line in told), told
    for line in told:
        assert line.endswith(" at most")
        assert " median, " in line
