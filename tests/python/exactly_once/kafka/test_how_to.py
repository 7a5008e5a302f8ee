"""The programs of docs/how-to that need Kafka run, and do what the pages claim."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

if TYPE_CHECKING:
    from .broker import Broker

PAGES = Path(__file__).parents[4] / "docs" / "how-to"
PATIENCE_SECONDS = 120.0

Python = Callable[..., subprocess.CompletedProcess[str]]


def program(page: str, kafka: Broker, folder: Path, number: int = 0, **topics: str) -> Path:
    """Write a program of a page for this broker, with checkpoints that are quick and topics of the test."""
    text = re.findall(r"```python\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)[number]
    text = text.replace("localhost:9092", kafka.servers).replace("/data/", f"{folder}/")
    text = re.sub(r'enable_checkpointing\("\w+"', 'enable_checkpointing("100ms"', text)
    for name, topic in topics.items():
        # A name that is followed by a comma is a topic; a uid of the same name stays.
        text = re.sub(rf'"{name.replace("_", "-")}"(?=, |\)\))', f'"{topic}"', text)
    path = folder / f"program{number}.py"
    path.write_text(text)
    return path


def output(page: str) -> str:
    (text,) = re.findall(r"```text\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)
    return str(text)


class Job:
    """A program that runs. It is killed at the end of the block, if it still does."""

    def __init__(self, path: Path, *arguments: str) -> None:
        self._log = (path.parent / "log").open("a+")
        command = [sys.executable, str(path), *arguments]
        self._process = subprocess.Popen(command, cwd=path.parent, stdout=self._log, stderr=self._log)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._log.close()

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            assert self._process.poll() is None, self._said()
            assert time.monotonic() < deadline, self._said()
            time.sleep(0.05)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Press Ctrl-C: the job completes, and the program ends by `KeyboardInterrupt`."""
        self._process.send_signal(signal.SIGINT)
        assert self._process.wait() == -signal.SIGINT, self._said()

    def _said(self) -> str:
        self._log.seek(0)
        return self._log.read()[-4000:]


def orders(numbers: range) -> list[dict[str, object]]:
    return [
        {"id": number, "user": f"user{number % 7}", "amount": number / 4, "day": f"2026-11-0{number % 3 + 1}"}
        for number in numbers
    ]


def test_a_table_has_each_record_of_the_topic_once_through_a_kill(
    kafka: Broker, topic: Callable[..., str], python: Python, tmp_path: Path
) -> None:
    source = topic(3)
    path = program("kafka-to-parquet.md", kafka, tmp_path, orders=source)
    table = tmp_path / "orders"

    def rows() -> list[dict[str, object]]:
        found = []
        for file in table.rglob("*.parquet"):
            day = file.parent.name.removeprefix("day=")
            found += [{**row, "day": day} for row in pq.ParquetFile(file).read().to_pylist()]
        return found

    kafka.write(source, map(json.dumps, orders(range(2_000))))
    with Job(path) as job:
        job.until(lambda: bool(rows()))
        job.kill()
    kafka.write(source, map(json.dumps, orders(range(2_000, 3_000))))
    with Job(path) as job:
        job.until(lambda: len(rows()) >= 3_000)
        job.stop()
    assert sorted(rows(), key=lambda row: row["id"]) == orders(range(3_000))  # type: ignore[arg-type, return-value]
    read = python(str(program("kafka-to-parquet.md", kafka, tmp_path, number=1)))
    assert read.stdout == output("kafka-to-parquet.md"), read.stderr


def test_each_record_is_in_the_topic_of_valid_orders_or_of_dead_letters(
    kafka: Broker, topic: Callable[..., str], python: Python, tmp_path: Path
) -> None:
    source, valid, dead = topic(1), topic(1), topic(1)
    path = program("bad-records.md", kafka, tmp_path, orders=source, valid_orders=valid, dead_letters=dead)
    given = [
        '{"id": 1, "amount": 2.5}',
        "no JSON",
        '{"id": "x", "amount": 1}',
        '{"amount": 1}',
        '{"id": 2, "amount": 3}',
    ]
    kafka.write(source, given)
    with Job(path) as job:
        job.until(lambda: len(kafka.texts(valid)) + len(kafka.texts(dead)) >= len(given))
        job.stop()
    assert [json.loads(text) for text in kafka.texts(valid)] == [{"id": 1, "amount": 2.5}, {"id": 2, "amount": 3.0}]
    assert kafka.texts(dead) == given[1:4]
    read = python(str(program("bad-records.md", kafka, tmp_path, number=1, dead_letters=dead)))
    assert read.stdout.replace(source, "orders") == output("bad-records.md"), read.stderr


def test_live_records_continue_the_sums_of_the_backfill(
    kafka: Broker, topic: Callable[..., str], tmp_path: Path
) -> None:
    source = topic(2)
    path = program("backfill.md", kafka, tmp_path, orders=source)
    cut_ms = int(re.findall(r"start=([\d_]+)", path.read_text())[0].replace("_", ""))
    given = [{"user": f"user{number % 5}", "amount": number, "ms": cut_ms - 500 + number} for number in range(1_000)]
    (tmp_path / "history").mkdir()
    (tmp_path / "history" / "a.jsonl").write_text("".join(json.dumps(order) + "\n" for order in given[:500]))
    # The topic has the last part of the history, too, which `start` leaves out.
    kafka.write(source, [(order["ms"], json.dumps(order)) for order in given[400:]])

    def sums() -> dict[str, int]:
        with sqlite3.connect(tmp_path / "totals.db") as database:
            return dict(database.execute("select user, amount from totals").fetchall())

    def oracle(records: list[dict[str, int]]) -> dict[str, int]:
        totals = Counter[str]()
        for order in records:
            totals[str(order["user"])] += order["amount"]
        return dict(totals)

    subprocess.run([sys.executable, str(path), "backfill"], cwd=tmp_path, check=True, capture_output=True)
    assert sums() == oracle(given[:500])  # type: ignore[arg-type]
    with Job(path, "live") as job:
        job.until(lambda: sums() == oracle(given))  # type: ignore[arg-type]
        job.kill()
    more = [{"user": "user0", "amount": 7, "ms": cut_ms + 10_000}]
    kafka.write(source, [(order["ms"], json.dumps(order)) for order in more])
    with Job(path, "live") as job:
        job.until(lambda: sums() == oracle(given + more))  # type: ignore[arg-type]
        job.stop()
    assert sums() == oracle(given + more)  # type: ignore[arg-type]
