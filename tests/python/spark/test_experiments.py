"""Experiments whose runs Spark spreads, and what Spark SQL says of their rows, against values worked out by hand."""

from __future__ import annotations

import base64
import itertools
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flownet.errors import ConfigError, FlownetError
from flownet.experiments import Experiment, Figure, Measurement, Parameter, Place, Workload, load, report, run

from .conftest import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def measured(parameters: Any, place: Place) -> Measurement:
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


def deadly(parameters: Any, place: Place) -> Measurement:
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
    def slow(parameters: Any, place: Place) -> Measurement:
        began = time.time()
        time.sleep(0.05)
        return Measurement({"rate": began, "cost": time.time()})

    experiment = Experiment("alone", workload(slow, cores=lambda parameters: 1000), grid={"load": [1, 2, 3, 4]})
    run(experiment, tmp_path, on="spread", spark=spark)
    spans = sorted((row.rate, row.cost) for row in load(spark, tmp_path).collect())
    assert len(spans) == 12
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))


def test_an_interrupt_cancels_the_tasks_and_keeps_what_has_ended(spark: SparkSession, tmp_path: Path) -> None:
    def slow(parameters: Any, place: Place) -> Measurement:
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


def rows_of(spark: SparkSession, runs: Sequence[dict[str, Any]]) -> DataFrame:
    """Rows as they are stored, with what the analysis reads."""
    from flownet.experiments.store import COLUMNS

    schema = ", ".join(f"{name} {type}" for name, type in COLUMNS.items())
    base = dict.fromkeys(COLUMNS) | {"status": "ok", "started_at": datetime.now(UTC)}
    return spark.createDataFrame([tuple((base | run).values()) for run in runs], schema)


def cell(index: int, repetition: int, parameters: dict[str, str], **figures: float) -> dict[str, Any]:
    label = ", ".join(f"{name}={value}" for name, value in parameters.items())
    return {
        "cell_index": index,
        "cell": label,
        "repetition": repetition,
        "parameters": parameters,
        "figures": figures,
    }


def test_medians_and_their_intervals(spark: SparkSession) -> None:
    from flownet.experiments import analysis

    found = {"a": [5.0, 1.0, 3.0], "b": [2.0, 4.0], "c": [7.0], "d": [3.0] * 5, "e": [float(n) for n in range(1, 10)]}
    runs = [
        cell(index, repetition, {"name": name}, rate=value)
        for index, (name, values) in enumerate(found.items())
        for repetition, value in enumerate(values)
    ]
    failed = cell(0, 3, {"name": "a"}, rate=1e9) | {"status": "failed"}
    rows = {row.cell: row for row in analysis.cells(spark, rows_of(spark, [*runs, failed])).collect()}
    assert {label: row.median for label, row in rows.items()} == {
        f"name={name}": statistics.median(values) for name, values in found.items()
    }
    # Of 3 runs a draw's median is the least one with probability 7/27, of 2 with 1/4: inside the middle 95 %.
    assert (rows["name=a"].low, rows["name=a"].high) == (1, 5)
    assert (rows["name=b"].low, rows["name=b"].high) == (2, 4)
    assert (rows["name=c"].low, rows["name=c"].high, rows["name=c"].runs) == (7, 7, 1)
    assert (rows["name=d"].low, rows["name=d"].high) == (3, 3)
    # Of 9 runs 1 to 9 a draw's median is at most k with P(Binomial(9, k/9) >= 5): 0.001 for 1, 0.030 for 2.
    # So the 2.5 % point is 2, and by symmetry the 97.5 % point is 8.
    assert (rows["name=e"].low, rows["name=e"].high) == (2, 8)
    assert (rows["name=e"].least, rows["name=e"].greatest) == (1, 9)


def test_ratios_are_taken_repetition_by_repetition(spark: SparkSession) -> None:
    from flownet.experiments import analysis

    runs = []
    for repetition, weather in enumerate([1.0, 10.0, 100.0]):
        for place, much in enumerate(["1", "2"]):
            runs.append(cell(2 * place, repetition, {"load": much, "way": "up", "fixed": "x"}, rate=weather))
            runs.append(
                cell(2 * place + 1, repetition, {"load": much, "way": "down", "fixed": "x"}, rate=weather * (place + 2))
            )
    runs[0] = runs[0] | {"status": "failed"}
    found = analysis.ratios(spark, rows_of(spark, runs), "way", "up", ["load", "way"]).collect()
    assert [(row.context, row.value, row.figure, row.runs, row.median, row.low, row.high) for row in found] == [
        ("load=1", "down", "rate", 2, 2, 2, 2),
        ("load=2", "down", "rate", 3, 3, 3, 3),
    ]


def test_the_knee_is_the_point_of_most_throughput_by_latency(spark: SparkSession) -> None:
    from flownet.experiments import analysis

    curve = {"1": (1.0, 10.0), "2": (2.0, 11.0), "4": (4.0, 12.0), "8": (5.0, 60.0)}
    runs = [
        cell(place, repetition, {"load": much, "way": way}, rate=rate * factor, cost=cost)
        for way, factor in (("up", 1.0), ("down", 2.0))
        for place, (much, (rate, cost)) in enumerate(curve.items())
        for repetition in range(3)
    ]
    found = analysis.knees(spark, rows_of(spark, runs), "load", ["rate", "cost"], ["load", "way"]).collect()
    assert [(row.series, row.cell) for row in found if row.is_knee] == [
        ("way=down", "load=4, way=down"),
        ("way=up", "load=4, way=up"),
    ]
    assert [row.throughput for row in found if row.series == "way=up"] == [1, 2, 4, 5]


def histogram(values_us: Sequence[float]) -> str:
    from hdrh.histogram import HdrHistogram

    made = HdrHistogram(1, 3_600_000_000_000, 3)
    for value in values_us:
        made.record_value(int(value * 1000))
    encoded: bytes = made.encode()
    base64.b64decode(encoded, validate=True)
    return encoded.decode()


def test_percentiles_are_those_of_all_records_and_not_the_middle_of_percentiles(spark: SparkSession) -> None:
    from flownet.experiments import analysis

    # 990 records of 10 us and 10 of 5 ms: p99 of all is 10 us; the mean of the two runs' p99 would be about 2.5 ms.
    runs = [
        cell(0, 0, {"load": "1"}, rate=1.0) | {"histogram": histogram([10] * 900)},
        cell(0, 1, {"load": "1"}, rate=1.0) | {"histogram": histogram([10] * 90 + [5000] * 10)},
        cell(1, 0, {"load": "2"}, rate=1.0),
    ]
    (row,) = analysis.latencies(spark, rows_of(spark, runs)).collect()
    assert (row.cell, row.runs, row.samples) == ("load=1", 2, 1000)
    assert [row.p50_us, row.p90_us, row.p99_us] == pytest.approx([10, 10, 10], rel=0.002)
    assert [row.p999_us, row.max_us] == pytest.approx([5000, 5000], rel=0.002)
    assert row.curve[0].quantile == pytest.approx(0.5)
    assert [point.us for point in row.curve] == sorted(point.us for point in row.curve)


def test_a_report_opens_from_disk_and_has_everything(spark: SparkSession, tmp_path: Path) -> None:
    def measure(parameters: Any, place: Place) -> Measurement:
        from hdrh.histogram import HdrHistogram

        if parameters["load"] == 13:
            raise ValueError("<13 & bad luck>")
        made = HdrHistogram(1, 3_600_000_000_000, 3)
        for step in range(100):
            made.record_value(1000 * parameters["load"] * (step + 1))
        return Measurement(
            {"rate": parameters["load"] * 1000.0, "cost": parameters["load"] * 10.0 + place.seed % 3},
            histogram=made.encode().decode(),
        )

    experiment = Experiment(
        "toy",
        workload(measure),
        grid={"load": [1, 2, 4, 13], "way": ["up", "down"]},
        title="Toys <and> loads",
        compare="way",
        knee=["rate", "cost"],
    )
    run(experiment, tmp_path)
    (page,) = report(spark, tmp_path)
    assert page == tmp_path / "toy.html"
    text = page.read_text()
    for part in (
        "<h1>Toys &lt;and&gt; loads</h1>",
        "What was measured",
        "Beside way=up",
        "Where the knee is",
        "Latency of all records",
        "What failed",
        "ValueError: &lt;13 &amp; bad luck&gt;",
        "In the order of time",
        "To repeat it",
        "load=4, way=down",
    ):
        assert part in text, part
    assert text.count("<svg") == 5
    assert text.count("</svg>") == 5
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!#)[^"']*|url\((?!#)[^)]*|@import|<script|<link""", text)


def test_results_that_are_not_there_are_an_error_that_names_those_that_are(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no results$"):
        load(spark, tmp_path)
    run(Experiment("toy", workload(), grid={"load": [1]}), tmp_path)
    with pytest.raises(ConfigError, match="has no results of 'tyo'; there are: toy"):
        report(spark, tmp_path, "tyo")


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
        env={**os.environ, "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
    ) as process:
        deadline = time.monotonic() + 90
        while not list(results.glob("*.parquet")):
            assert time.monotonic() < deadline, "no run ended"
            time.sleep(0.05)
        # As a terminal does it: to the whole group.
        os.killpg(process.pid, signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "what has ended is in out; --resume runs the rest" in stderr
    done = len(list(results.glob("*.parquet")))
    assert 0 < done < 30
    finished = subprocess.run([*command, "run", "toy.py", "--out", "out", "--resume"], cwd=tmp_path, check=True)
    assert finished.returncode == 0
    assert len(list(results.glob("*.parquet"))) == 30
