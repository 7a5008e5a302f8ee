"""Programs of the pages about Spark run, and print the output that is shown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import flownet as fn
import flownet.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("leaves_nothing")

DOCS = Path(__file__).parents[3] / "docs" / "operations"
PROGRAM = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<shown>.*?)^```\n)?", re.DOTALL | re.MULTILINE)


def programs(page: str) -> list[re.Match[str]]:
    return list(PROGRAM.finditer((DOCS / page).read_text()))


@pytest.mark.parametrize("page", ["spark.md", "spark-dataframes.md"])
def test_the_first_program_prints_the_output_that_is_shown(
    local: SparkSession, page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program = programs(page)[0]
    exec(program["code"], {"spark": local})
    assert capsys.readouterr().out == program["shown"]


def test_the_jobs_of_a_block_share_their_workers(local: SparkSession) -> None:
    env, other = fn.Environment(parallelism=2), fn.Environment(parallelism=2)
    numbers, letters = env.from_collection([1, 2]).collect(), other.from_collection(["a", "b"]).collect()
    code = programs("spark.md")[1]["code"].replace("workers=4", "workers=2")
    exec(code, {"spark": local, "flownet": flownet, "env": env, "other": other})
    assert (list(numbers), list(letters)) == ([1, 2], ["a", "b"])


def test_sorted_partitions_are_read_in_order(local: SparkSession) -> None:
    frame = local.createDataFrame(
        [("AA", 3_000), ("UA", 1_000), ("AA", 2_000), ("UA", 4_000)], "carrier string, ms long"
    )
    env = fn.Environment(parallelism=2)
    (code,) = [program["code"] for program in programs("spark-dataframes.md") if "ordered=True" in program["code"]]
    names: dict[str, object] = {"frame": frame, "env": env}
    exec(code.replace("(4,", "(2,"), names)
    flights = names["flights"]
    assert isinstance(flights, fn.Rows)
    counts = flights.key_by("carrier").window(fn.Tumbling("10s")).agg(flights=fn.count()).collect()
    env.execute(on=flownet.spark.cluster(local, workers=2))
    assert sorted((row["carrier"], row["flights"]) for row in counts.to_arrow().to_pylist()) == [("AA", 2), ("UA", 2)]


def test_a_query_reads_a_job_and_a_job_reads_a_query(
    local: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Spark reads relative paths from the folder that its JVM was started in.
    to_query, to_job = (
        re.sub(r'"(path|checkpointLocation)", "', rf'"\1", "{tmp_path}/', program["code"])
        for program in programs("spark-dataframes.md")[-2:]
    )

    env = fn.Environment(parallelism=2)
    words = env.from_collection(["to", "be", "to"]).key_by(str)
    names: dict[str, Any] = {"spark": local, "flownet": flownet, "env": env, "words": words}
    exec(to_query, names)
    names["query"].stop()
    rows = local.read.schema("word string, n long").parquet(str(tmp_path / "words")).collect()
    assert sorted(tuple(row) for row in rows) == [("be", 1), ("to", 1), ("to", 2)]

    (tmp_path / "flights").mkdir()
    (tmp_path / "flights" / "a.json").write_text('{"carrier": "AA", "delay": 75}\n{"carrier": "UA", "delay": 10}\n')
    flights = local.readStream.schema("carrier string, delay int").json(str(tmp_path / "flights"))
    exec(to_job, {"spark": local, "flownet": flownet, "env": fn.Environment(), "flights": flights})
    assert capsys.readouterr().out == "('AA', 75)\n"
