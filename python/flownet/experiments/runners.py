"""Where runs take place: one after the other in this process, or as tasks of Spark.

Every way runs a cell by the same function and leaves the same rows; a run that has ended has its row in the folder
before the next begins, so an interrupt at any time loses only what was running.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import FlownetError
from .execute import Row, Session, execute
from .plan import Run
from .store import SPARK_SCHEMA, Store, batch
from .subprocess_runner import execute_alone
from .workload import RunPlace

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

OnChange = Callable[[Sequence[Row], Sequence[str]], None]
"""Called with the rows that are new and the labels of the cells that run."""


def run_local(session: Session, runs: Sequence[Run], store: Store, on_change: OnChange) -> None:
    """Run everything on this host, one run after the other, each in a process of its own when its cores are free."""
    for run in runs:
        on_change([], [run.cell.label])
        store.append(execute_alone(session, run))
        on_change(store.new_rows(), [])


def run_across(spark: SparkSession, session: Session, runs: Sequence[Run], store: Store, on_change: OnChange) -> None:
    """Run everything from the driver, one run after the other, with the workers of each on different executors."""
    for run in runs:
        on_change([], [run.cell.label])
        store.append(execute(session, run, RunPlace(run.seed, spark=spark, across=True)))
        on_change(store.new_rows(), [])


def run_spread(spark: SparkSession, session: Session, runs: Sequence[Run], store: Store, on_change: OnChange) -> None:
    """Run each cell as a Spark task of its own, in a process of its own there; Spark writes their rows.

    Raises
    ------
    FlownetError
        Spark gave up.
    """
    running_folder = store.running_folder
    running_folder.mkdir(parents=True, exist_ok=True)

    def measure(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for positions in batches:
            for position in positions.column(0).to_pylist():
                run = runs[position]
                yield batch([execute_alone(session, run, _marked(running_folder, run))])

    # A range of as many partitions as numbers has one number in each, in order: a task for each run.
    rows = spark.range(0, len(runs), 1, len(runs)).mapInArrow(measure, SPARK_SCHEMA)
    writer = (
        rows.write.mode("append")
        .partitionBy("experiment")
        # A task's file is there when the task ends, not when the last one does.
        .option("mapreduce.fileoutputcommitter.algorithm.version", "2")
    )
    job = _Job(spark, session.experiment.name, lambda: writer.parquet(str(store.folder)))
    with job:
        while not job.wait(_SECONDS_BETWEEN_LOOKS):
            on_change(store.new_rows(), store.running())
    on_change(store.new_rows(), [])
    if job.error is not None:
        raise FlownetError(f"Spark gave up on the experiment: {_cause(job.error)}") from job.error


class _Job:
    """A Spark job on a thread of its own. Leaving its block early cancels it and waits until it has ended."""

    def __init__(self, spark: SparkSession, name: str, action: Callable[[], None]) -> None:
        self.error: Exception | None = None
        self._spark = spark
        self._name = f"flownet experiment {name}"
        self._tag = f"flownet-{uuid.uuid4()}"
        self._action = action
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flownet-experiment")

    def wait(self, seconds: float) -> bool:
        """Wait so long at most; say whether it has ended."""
        return self._ended.wait(seconds)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        from ..spark.session import cancel

        if not self._ended.is_set():
            cancel(self._spark, self._tag)
        self._thread.join()

    def _run(self) -> None:
        from ..spark.session import named_job

        try:
            with named_job(self._spark, self._tag, self._name, properties={}):
                self._action()
        except Exception as error:
            self.error = error
        finally:
            self._ended.set()


@contextmanager
def _marked(folder: Path, run: Run) -> Iterator[None]:
    """Let it be seen that a run is running, from wherever the folder is seen."""
    mark = folder / str(run.position)
    mark.write_text(run.cell.label)
    try:
        yield
    finally:
        mark.unlink(missing_ok=True)


def _cause(error: Exception) -> str:
    """Find the last line that is not of a stack: Python says there what was wrong."""
    lines = [line for line in str(error).splitlines() if line[:1].strip()]
    return lines[-1] if lines else type(error).__name__


_SECONDS_BETWEEN_LOOKS = 0.5
