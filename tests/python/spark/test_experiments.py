"""Experiments whose runs Spark spreads, and their rows as a DataFrame."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flownet.errors import ConfigError, FlownetError
from flownet.experiments import Experiment, Figure, Measurement, Parameter, RunPlace, Workload, load, report, run

from .conftest import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def measured(parameters: Any, place: RunPlace) -> Measurement:
    if parameters["load"] == 13:
        raise ValueError("13 is bad luck")
    return Measurement({"rate": parameters["load"] * 10.0, "cost": float(os.getpid())})


def workload(measure: Any = measured, **options: Any) -> Workload:
    return Workload(
        name="toy",
        doc="nothing",
        parameters={
            "load": Parameter("count", "how much"),
            "wait": Parameter("duration", "how long"),
            "way": Parameter("choice", "which way", choices=("up", "down")),
        },
        figures={"rate": Figure("1/s", "loads", True), "cost": Figure("us", "costs", False)},
        measure=measure,
        **options,
    )


@pytest.fixture
def spark(local: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    # Workers cannot import a test module: what it defines travels by value.
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    return local


def test_spread_runs_each_cell_as_a_task_and_spark_writes_the_rows(spark: SparkSession, tmp_path: Path) -> None:
    experiment = Experiment("toy", workload(), grid={"load": [1, 2, 3, 13], "way": ["up", "down"]}, repetitions=2)
    seen = list[tuple[int, int]]()
    outcome = run(
        experiment, tmp_path, on="spread", spark=spark, watch=lambda tally: seen.append((tally.done, tally.total))
    )
    assert (outcome.done, outcome.failed, outcome.ran) == (16, 4, 16)
    assert seen[-1] == (16, 16)
    rows = load(spark, tmp_path).collect()
    assert sorted((row.cell, row.repetition) for row in rows) == sorted(
        (f"load={load}, way={way}", repetition)
        for load, way, repetition in itertools.product([1, 2, 3, 13], ["up", "down"], [0, 1])
    )
    for row in rows:
        assert (row.experiment, row.mode) == ("toy", "spread")
        if row.load == 13:
            assert (row.status, row.error, row.rate) == ("failed", "ValueError: 13 is bad luck", None)
        else:
            assert (row.status, row.rate) == ("ok", row.load * 10)
            assert row.cost != os.getpid()
    assert not list(tmp_path.glob("_running*"))
    # What Spark wrote is read without it.
    (page,) = report(tmp_path)
    assert "load=3, way=down" in page.read_text()


def deadly(parameters: Any, place: RunPlace) -> Measurement:
    if parameters["load"] == 2:
        os._exit(3)
    if parameters["load"] == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return measured(parameters, place)


def test_a_run_that_ends_its_process_is_a_row_and_spark_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    experiment = Experiment("toy", workload(deadly), grid={"load": [1, 2, 3, 4]}, repetitions=2)
    outcome = run(experiment, tmp_path, on="spread", spark=spark)
    assert (outcome.done, outcome.failed) == (8, 4)
    errors = {(row.load, row.error) for row in load(spark, tmp_path).collect()}
    assert errors == {
        (1, None),
        (2, "the process of the run ended itself with exit code 3 before it was done"),
        (3, "the process of the run was killed by SIGKILL (for want of memory, perhaps) before it was done"),
        (4, None),
    }


def test_spread_goes_on_with_what_is_missing(spark: SparkSession, tmp_path: Path) -> None:
    experiment = Experiment("toy", workload(), grid={"load": [1, 2]}, repetitions=2)
    run(Experiment("toy", workload(), grid={"load": [1, 2]}, repetitions=1), tmp_path)
    outcome = run(experiment, tmp_path, on="spread", spark=spark, resume=True)
    assert (outcome.ran, outcome.done) == (2, 4)
    assert load(spark, tmp_path).count() == 4


def test_cells_that_use_all_cores_never_run_at_once(spark: SparkSession, tmp_path: Path) -> None:
    def slow(parameters: Any, place: RunPlace) -> Measurement:
        began = time.time()
        time.sleep(0.05)
        return Measurement({"rate": began, "cost": time.time()})

    experiment = Experiment("alone", workload(slow, cores=lambda parameters: 1000), grid={"load": [1, 2, 3, 4]})
    run(experiment, tmp_path, on="spread", spark=spark)
    spans = sorted((row.rate, row.cost) for row in load(spark, tmp_path).collect())
    assert len(spans) == 12
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))


def test_an_interrupt_cancels_the_tasks_and_keeps_what_has_ended(spark: SparkSession, tmp_path: Path) -> None:
    def slow(parameters: Any, place: RunPlace) -> Measurement:
        time.sleep(0.3)
        return Measurement({})

    def interrupt(tally: Any) -> None:
        if tally.done >= 2:
            raise KeyboardInterrupt

    experiment = Experiment("toy", workload(slow), grid={"load": list(range(10))}, repetitions=2)
    with pytest.raises(KeyboardInterrupt):
        run(experiment, tmp_path, on="spread", spark=spark, watch=interrupt)
    done = load(spark, tmp_path).count()
    assert 2 <= done < 20
    eventually("no stage at work", lambda: not spark.sparkContext.statusTracker().getActiveStageIds())
    quick = Experiment("toy", workload(), grid={"load": list(range(10))}, repetitions=2)
    assert run(quick, tmp_path, on="spread", spark=spark, resume=True).done == 20
    assert load(spark, tmp_path).select("cell", "repetition").distinct().count() == 20


def test_what_spark_cannot_run_is_one_error_with_the_cause(spark: SparkSession, tmp_path: Path) -> None:
    class Unloadable:
        def __reduce__(self) -> Any:
            return (int, ("no number",))

    broken = Unloadable()
    experiment = Experiment("toy", workload(lambda parameters, place: broken), grid={"load": [1]})
    with pytest.raises(FlownetError, match="Spark gave up on the experiment: ValueError: invalid literal for int"):
        run(experiment, tmp_path, on="spread", spark=spark)


def test_across_runs_flownet_and_spark_over_the_same_live_lines(spark: SparkSession, tmp_path: Path) -> None:
    experiment = Experiment(
        "live",
        "live-counts",
        parameters={"seconds": 0.5, "keys": 5},
        grid={"engine": ["spark", "flownet"], "rate": [200]},
        repetitions=1,
    )
    with pytest.raises(ConfigError, match="engine=spark needs Spark itself"):
        run(experiment, tmp_path, on="spread", spark=spark)
    outcome = run(experiment, tmp_path, on="across", spark=spark)
    rows = load(spark, tmp_path).collect()
    assert [row.error for row in rows] == [None, None]
    assert outcome.done == 2
    for row in rows:
        assert row.mode == "across"
        assert 0 < row.p50_us <= row.p99_us
    assert spark.conf.get("spark.sql.shuffle.partitions") == "200"


def test_results_that_are_not_there_are_an_error_that_names_those_that_are(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no results$"):
        load(spark, tmp_path)
    run(Experiment("toy", workload(), grid={"load": [1]}), tmp_path)
    with pytest.raises(ConfigError, match="has no results of 'tyo'; there are: toy"):
        load(spark, tmp_path, "tyo")


def test_the_command_spreads_is_interrupted_goes_on_and_reports(tmp_path: Path) -> None:
    (tmp_path / "toy.py").write_text(
        "import time\nimport flownet.experiments as fx\n"
        "def measure(parameters, place):\n    time.sleep(0.2)\n    return fx.Measurement({'rate': 1.0})\n"
        "toy = fx.Workload('toy', 'nothing', {'load': fx.Parameter('count', 'how much')},\n"
        "                  {'rate': fx.Figure('1/s', 'loads', True)}, measure)\n"
        "experiment = fx.Experiment('toy', toy, grid={'load': list(range(10))}, repetitions=3)\n"
    )
    command = [sys.executable, "-m", "flownet", "experiment"]
    spread = [*command, "run", "toy.py", "--out", "out", "--on", "spread", "--master", "local[2]"]
    results = tmp_path / "out" / "experiment=toy"
    with subprocess.Popen(
        spread,
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        while not list(results.glob("*.parquet")):
            assert process.poll() is None, "no run ended"
            time.sleep(0.05)
        # As a terminal does it: to the whole group.
        os.killpg(process.pid, signal.SIGINT)
        _, stderr = process.communicate()
    assert process.returncode == 130, stderr
    assert "what has ended is in out; --resume runs the rest" in stderr
    done = len(list(results.glob("*.parquet")))
    assert 0 < done < 30
    finished = subprocess.run([*command, "run", "toy.py", "--out", "out", "--resume"], cwd=tmp_path, check=True)
    assert finished.returncode == 0
    assert len(list(results.glob("*.parquet"))) == 30
