"""Prepared output is committed where it was prepared, or the job is refused before it starts."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flownet as fn
from flownet import errors

from .test_savepoints import until_checkpoints

RECORDS = 400


class Journal(fn.TransactionalSink[Any]):
    """One of a user, into a file of lines; `target` says which."""

    def __init__(self, path: Path) -> None:
        self.path, self.target = path, f"journal {path}"

    def open(self, ctx: fn.TaskContext) -> None:
        self.records: list[Any] = []

    def write(self, records: list[Any]) -> None:
        self.records += records

    def prepare_commit(self) -> list[Any]:
        records, self.records = self.records, []
        return records

    def commit(self, prepared: list[Any]) -> None:
        with self.path.open("a") as file:
            file.writelines(f"{record}\n" for record in prepared)

    def abort(self) -> None:
        self.records = []


def rows(numbers: fn.Stream[int]) -> fn.Rows:
    return numbers.map(lambda number: {"number": number}).to_rows({"number": "int64"})


def sqlite(numbers: fn.Stream[int], place: Path) -> Any:
    return numbers.sink_to(fn.SqliteSink(place, "numbers", columns=["number"]))


SINKS: dict[str, Callable[[Any, Path], Any]] = {
    "write_text": lambda numbers, place: numbers.write_text(place),
    "write_csv": lambda numbers, place: numbers.map(lambda number: (number,)).write_csv(place),
    "write_json of rows": lambda numbers, place: rows(numbers).write_json(place),
    "write_parquet": lambda numbers, place: rows(numbers).write_parquet(place),
    "write_parquet by part": lambda numbers, place: (
        rows(numbers).with_columns(part=fn.col("number") % 2).write_parquet(place, partition_by=["part"])
    ),
    "SqliteSink": sqlite,
    "a sink of a user": lambda numbers, place: numbers.sink_to(Journal(place)),
}


def job(folder: Path, sink: str, place: str, *, uid: str = "sink", storage: str = "one", **more: Any) -> fn.Environment:
    env = fn.Environment(buffer_timeout="5ms", restart="fixed:1000:10ms")
    env.enable_checkpointing("30ms", storage=folder / storage, **more)
    numbers = env.from_collection(range(RECORDS), rate_limit=1000).uid("numbers")
    SINKS[sink](numbers, folder / place).uid(uid)
    return env


@pytest.mark.parametrize("sink", SINKS)
def test_a_job_that_is_to_write_elsewhere_is_refused_before_it_starts(sink: str, tmp_path: Path) -> None:
    if "rows" in sink or "parquet" in sink:
        pytest.importorskip("pyarrow")
    with job(tmp_path, sink, "out").execute_async() as running:
        until_checkpoints(running, 3)
        running.stop(drain=False, savepoint=tmp_path / "saved")
        running.wait()
    places: list[dict[str, Any]] = [{}, {"storage": "two", "restore_from": tmp_path / "saved"}]
    for there in places:
        with pytest.raises(errors.RestoreError, match="'sink' wrote to .*out.* and writes to .*other.* now") as caught:
            job(tmp_path, sink, "other", **there).execute()
        assert caught.value.operators == ("sink",)
        assert "let it write there, or give it another uid" in str(caught.value)
        assert not (tmp_path / "other").exists()
    # Both ways out: to where it was, and by another sink, to which nothing was given yet.
    dropping: dict[str, Any] = {"restore_from": tmp_path / "saved", "allow_non_restored_state": True}
    job(tmp_path, sink, "other", uid="another", storage="three", **dropping).execute()
    assert (tmp_path / "other").exists()
    job(tmp_path, sink, "out").execute()
    if sink == "SqliteSink":
        found = sqlite3.connect(tmp_path / "out").execute("select number from numbers").fetchall()
        assert sorted(number for (number,) in found) == list(range(RECORDS))
    if sink == "write_text":
        numbers = [int(line) for file in (tmp_path / "out").iterdir() for line in file.read_text().splitlines()]
        assert sorted(numbers) == list(range(RECORDS))


def test_a_folder_is_the_same_by_any_name(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with job(tmp_path, "write_text", "real/out").execute_async() as running:
        until_checkpoints(running, 2)
        running.stop(drain=False)
        running.wait()
    job(tmp_path, "write_text", "link/out").execute()
    numbers = [int(line) for file in (tmp_path / "real/out").iterdir() for line in file.read_text().splitlines()]
    assert sorted(numbers) == list(range(RECORDS))
