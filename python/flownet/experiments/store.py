"""The folder of results: Parquet files partitioned by experiment, one row a run.

``DIR/experiment=NAME/*.parquet``, as Spark writes and reads it. A row is there as soon as its run has ended, so what an
interrupted experiment has done is what lies in its folder, and nothing else has to be kept.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import ConfigError
from ..internal.extras import need
from .execute import Row, Session

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final = {
    "workload": "string",
    "cell_index": "int",
    "cell": "string",
    "repetition": "int",
    "position": "int",
    "status": "string",
    "error": "string",
    "parameters": "map<string,string>",
    "numbers": "map<string,double>",
    "figures": "map<string,double>",
    "histogram": "string",
    "details": "string",
    "started_at": "timestamp",
    "run_seconds": "double",
    "waited_seconds": "double",
    "seed": "bigint",
    "mode": "string",
    "versions": "map<string,string>",
    "git_commit": "string",
    "host": "map<string,string>",
    "description": "string",
    "experiment": "string",
}
"""Columns of a row and their Spark types. ``experiment`` is the name of the folder."""

SPARK_SCHEMA: Final = ", ".join(f"{name} {type}" for name, type in COLUMNS.items())


def arrow_schema() -> pa.Schema:
    """Give the columns as Arrow types."""
    pa = need("pyarrow", "writing results")
    types = {
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "double": pa.float64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "map<string,string>": pa.map_(pa.string(), pa.string()),
        "map<string,double>": pa.map_(pa.string(), pa.float64()),
    }
    return pa.schema([(name, types[type]) for name, type in COLUMNS.items()])


def batch(rows: Sequence[Row]) -> pa.RecordBatch:
    """Put rows into an Arrow batch with the columns of `COLUMNS`."""
    pa = need("pyarrow", "writing results")
    plain = [
        {name: list(value.items()) if isinstance(value, dict) else value for name, value in row.items()} for row in rows
    ]
    return pa.RecordBatch.from_pylist(plain, schema=arrow_schema())


class Store:
    """Results of one experiment in a folder that may hold others too.

    Parameters
    ----------
    folder
        Of all experiments; made if it is not there. Driver and executors see the same.
    name
        Of the experiment.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder.absolute()
        self._runs = self.folder / f"experiment={name}"
        self.running_folder = self.folder / "_running" / name
        self._read = set[Path]()

    def append(self, row: Row) -> None:
        """Add one row; it is there whole or not at all."""
        pq = need("pyarrow.parquet", "writing results")
        pa = need("pyarrow", "writing results")
        self._runs.mkdir(parents=True, exist_ok=True)
        name = f"run-{uuid.uuid4().hex}.parquet"
        # Readers skip what begins with a point.
        hidden = self._runs / f".{name}"
        pq.write_table(pa.Table.from_batches([batch([row])]).drop_columns(["experiment"]), hidden)
        os.replace(hidden, self._runs / name)

    def new_rows(self) -> list[Row]:
        """Read the rows that came since the last call."""
        pq = need("pyarrow.parquet", "reading results")
        files = sorted(set(self._runs.glob("[!._]*.parquet")) - self._read)
        rows = list[Row]()
        for file in files:
            # Not as a dataset: the partition's column is of no use here.
            rows += pq.ParquetFile(file).read(columns=_KEPT).to_pylist()
        self._read.update(files)
        return rows

    def running(self) -> list[str]:
        """Labels of the cells that run now, on any host."""
        found = list[str]()
        for file in self.running_folder.glob("*"):
            try:
                found.append(file.read_text())
            except FileNotFoundError:
                continue  # it has just ended
        return sorted(found)

    def clear_running(self) -> None:
        """Forget what ran: nothing does."""
        shutil.rmtree(self.running_folder, ignore_errors=True)
        for empty in (self.running_folder.parent, self.folder):
            try:
                empty.rmdir()
            except OSError:
                return

    def check(self, session: Session, rows: Sequence[Row], resume: bool) -> None:
        """Refuse to mix runs that are not of one description.

        Raises
        ------
        ConfigError
            The folder has runs of this experiment and ``resume`` is not set, or they are of another description.
        """
        name = session.experiment.name
        if rows and not resume:
            raise ConfigError(
                f"{self.folder} has {len(rows)} runs of {name!r}: run what is missing with resume (--resume), or give "
                "another folder (--out)"
            )
        for row in rows:
            before, now = _identity(row["description"]), _identity(session.description)
            if before != now:
                different = ", ".join(key for key in now if before.get(key) != now[key])
                raise ConfigError(
                    f"{self.folder} has runs of another {name!r}: its {different} differ; give another folder (--out)"
                )


def names_in(folder: Path, experiment: str | None = None) -> list[str]:
    """Names of the experiments that a folder has results of; only ``experiment`` if it is given.

    Raises
    ------
    ConfigError
        There are none, or not of that one.
    """
    names = sorted({file.parent.name.partition("=")[2] for file in folder.glob("experiment=*/[!._]*.parquet")})
    if not names or experiment not in (None, *names):
        there = f"; there are: {', '.join(names)}" if names else ""
        raise ConfigError(f"{folder} has no results{f' of {experiment!r}' if experiment else ''}{there}")
    return names if experiment is None else [experiment]


def rows_of(folder: Path, experiment: str) -> list[Row]:
    """Read the rows of one experiment, in the order in which the runs began; parameters and figures as dicts."""
    pq = need("pyarrow.parquet", "reading results")
    # The partition's column is the name of the folder; what an older row does not have is null.
    schema = arrow_schema()
    schema = schema.remove(schema.get_field_index("experiment"))
    rows: list[Row] = pq.read_table(folder / f"experiment={experiment}", schema=schema, partitioning=None).to_pylist()
    for row in rows:
        row["experiment"] = experiment
        row.update({name: dict(row[name] or ()) for name, type in COLUMNS.items() if type.startswith("map")})
    return sorted(rows, key=lambda row: row["started_at"])


def _identity(description: str) -> dict[str, Any]:
    """Pick what must be equal for runs to belong together. More repetitions may be added later."""
    said: dict[str, Any] = json.loads(description)
    return {key: said.get(key) for key in ("workload", "cells", "seed")}


_KEPT: Final = ["cell", "repetition", "status", "error", "figures", "run_seconds", "waited_seconds", "description"]
