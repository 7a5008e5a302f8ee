"""What Spark sets aside for each worker: CPUs, and devices that a script of the executors finds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

import flownet as fn
from flownet.errors import ConfigError, LaunchError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .conftest import Jobs

Place = tuple[int, int, tuple[str, ...]]
"""Process of a worker, its CPUs and its devices."""


def places(spark: SparkSession, workers: int, **options: Any) -> set[Place]:
    """Run a job whose functions say what Spark gave to the task of their worker."""
    from flownet.spark import cluster

    def place(_: int) -> Place:
        import os

        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        devices = context.resources().get("device")
        return os.getpid(), context.cpus(), tuple(devices.addresses) if devices else ()

    env = fn.Environment(parallelism=workers)
    found = env.from_collection(range(100)).rebalance().map(place).collect()
    env.execute(on=cluster(spark, workers, **options))
    return set(found)


@pytest.mark.usefixtures("leaves_nothing")
def test_each_worker_has_the_cpus_and_devices_it_was_to_have(wide_executors: SparkSession) -> None:
    assert [(cpus, len(devices)) for _, cpus, devices in places(wide_executors, 4)] == [(1, 1)] * 4
    assert [(cpus, devices) for _, cpus, devices in places(wide_executors, 2, cpus=2)] == [(2, ())] * 2
    with_devices = places(wide_executors, 2, cpus=2, resources={"device": 2})
    assert [(cpus, sorted(devices)) for _, cpus, devices in with_devices] == [(2, ["left", "right"])] * 2
    # CPUs are those of the application where they are not given.
    assert [(cpus, len(devices)) for _, cpus, devices in places(wide_executors, 4, resources={"device": 1})] == [
        (1, 1)
    ] * 4


@pytest.mark.usefixtures("leaves_nothing")
def test_workers_that_have_no_room_are_refused_before_anything_starts(
    wide_executors: SparkSession, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flownet.spark import cluster, slots

    monkeypatch.setattr(slots, "_STARTING_SECONDS", 0.1)
    few = "3 workers need 3 task slots of Spark at once, each with 2 CPUs, and local-cluster[2,2,1024] has 2: take"
    with pytest.raises(LaunchError, match=re.escape(few)):
        jobs.sums(cluster(wide_executors, 3, cpus=2))
    with pytest.raises(LaunchError, match=r"each worker is to have 3 device, and each executor has 2 device: start"):
        jobs.sums(cluster(wide_executors, 1, resources={"device": 3}))
    with pytest.raises(LaunchError, match=r"1 CPU and 1 gpu, and each executor has 0 gpu: start .*resource\.gpu\.disc"):
        jobs.sums(cluster(wide_executors, 1, cpus=1, resources={"gpu": 1}))
    with pytest.raises(
        LaunchError, match="Spark does not give each worker 3 CPUs|each with 3 CPUs, and .* has 0: give"
    ):
        jobs.sums(cluster(wide_executors, 1, cpus=3))


def test_spark_in_one_process_sets_nothing_aside(local: SparkSession, jobs: Jobs) -> None:
    from flownet.spark import cluster

    with pytest.raises(
        LaunchError, match=r"to have 2 CPUs, and local\[2\] sets nothing aside for single stages: leave"
    ):
        jobs.sums(cluster(local, 1, cpus=2))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cpus": 0}, "cpus=0 must lie between 1 and 1024"),
        ({"cpus": 1.5}, "cpus=1.5 must be a whole number"),
        ({"resources": ["gpu"]}, r"resources=\['gpu'\] must be a mapping of names to numbers"),
        ({"resources": {"": 1}}, "resources='' must be a text that is not empty"),
        ({"resources": {"cpus": 2}}, "has 'cpus': give cpus= for these"),
        ({"resources": {"gpu": 0}}, r"resources\['gpu'\]=0 must lie between 1 and 1024"),
    ],
)
def test_numbers_and_names_that_do_not_fit_are_refused(local: SparkSession, options: Any, said: str) -> None:
    from flownet.spark import cluster

    with pytest.raises(ConfigError, match=said):
        cluster(local, 1, **options)
