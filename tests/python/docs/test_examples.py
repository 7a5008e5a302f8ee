"""The examples run as their first lines say, and do what they claim."""

from __future__ import annotations

import re
import socket
import sqlite3
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

EXAMPLES = Path(__file__).parents[3] / "examples"

Python = Callable[..., subprocess.CompletedProcess[str]]


def test_the_page_of_examples_lists_all_of_them() -> None:
    listed = re.findall(
        r"\(\.\./\.\./examples/([\w.]+)", (EXAMPLES.parent / "docs/get-started/examples.md").read_text()
    )
    assert set(listed) == {path.name for path in EXAMPLES.iterdir() if path.name != "__pycache__"}


def test_wordcount_counts_the_words_of_the_files_it_is_given(python: Python, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("to be or not to be\n" * 10)
    finished = python(str(EXAMPLES / "wordcount.py"), "text")
    assert (finished.returncode, finished.stderr) == (0, "")
    counts: Counter[str] = Counter()
    for line in finished.stdout.splitlines():
        word, count = line.split("> ")[1].strip("()").split(", ")
        counts[word.strip("'")] += int(count)
    assert counts == {"to": 20, "be": 20, "or": 10, "not": 10}


def test_wordcount_runs_from_the_command_line(python: Python) -> None:
    finished = python("-m", "flownet", "run", str(EXAMPLES / "wordcount.py:env"), "--workers", "2")
    assert finished.returncode == 0, finished.stderr
    assert "('flownet', " in finished.stdout


def test_sessions_end_after_a_pause(python: Python) -> None:
    finished = python(str(EXAMPLES / "sessions.py"))
    assert (finished.returncode, finished.stderr) == (0, "")
    sessions = sorted(line.split("> ")[1] for line in finished.stdout.splitlines())
    assert sessions == ["('ann', 2)", "('ann', 2)", "('bob', 1)"]


def test_custom_sink_fills_a_database_a_subtask(python: Python, tmp_path: Path) -> None:
    finished = python(str(EXAMPLES / "custom_sink.py"), "squares.db")
    assert (finished.returncode, finished.stderr) == (0, "")
    rows = []
    for subtask in range(2):
        database = sqlite3.connect(tmp_path / f"squares.db-{subtask}")
        rows += database.execute("SELECT number, square FROM squares").fetchall()
        database.close()
    assert sorted(rows) == [(number, number * number) for number in range(10_000)]


def test_access_log_summarises_what_a_server_sends(python: Python) -> None:
    lines = b"".join(
        b'1.2.3.4 - - [20/Nov/2026:10:00:00 +0000] "GET %s HTTP/1.1" %d 512\n' % (path, status)
        for path, status in [(b"/a?x=1", 200), (b"/a", 503), (b"/b", 200)]
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(lines + b"no request at all\n")

        thread = threading.Thread(target=serve)
        thread.start()
        port = str(listener.getsockname()[1])
        finished = python(str(EXAMPLES / "access_log.py"), "127.0.0.1", port, "--window", "1h")
        thread.join()
    assert (finished.returncode, finished.stderr) == (0, "")
    assert sorted(finished.stdout.splitlines()) == ["/a: 2 requests, 1 failed", "/b: 1 requests, 0 failed"]


def test_numbers_come_to_their_goal(python: Python) -> None:
    finished = python(str(EXAMPLES / "numbers_to_goal.py"))
    assert (finished.returncode, finished.stderr) == (0, "")
    lines = [line.split("> ")[-1] for line in finished.stdout.splitlines()]
    assert len(lines) == 27
    assert {"1: 3 steps", "6: 8 steps", "27: 111 steps"} <= set(lines)


def test_components_are_found_in_a_file_of_pairs(python: Python, tmp_path: Path) -> None:
    (tmp_path / "friends.txt").write_text("bob cid\ncid dan\neve fay\nann bob\n")
    finished = python(str(EXAMPLES / "connected_components.py"), "friends.txt")
    assert (finished.returncode, finished.stderr) == (0, "")
    found = sorted(line.split("> ")[-1] for line in finished.stdout.splitlines())
    assert found == [f"('{name}', 'ann')" for name in ("ann", "bob", "cid", "dan")] + [
        "('eve', 'eve')",
        "('fay', 'eve')",
    ]


def test_lines_of_logs_become_a_table(python: Python, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    (tmp_path / "logs").mkdir()
    for file in range(3):
        requests = [
            f'10.0.{file}.{number} - - [20/Nov/2026:10:00:00 +0000] "GET /{number}?x={file} HTTP/1.1" 200 {number}'
            for number in range(200)
        ]
        (tmp_path / "logs" / f"{file}.log").write_text("\n".join([*requests, "no request at all", ""]))
    (tmp_path / "logs" / "3.log").write_text('::1 - bob [20/Nov/2026:10:00:01 +0000] "POST /b" 503 -\n')
    for _ in range(2):
        finished = python(str(EXAMPLES / "log_to_table.py"), "logs", "table")
        assert finished.returncode == 0, finished.stderr
        # The second time there is nothing left to do.
        rows = [row for path in (tmp_path / "table").iterdir() for row in pq.read_table(path).to_pylist()]
        assert len(rows) == 601
    found = {(row["host"], row["method"], row["path"], row["status"], row["bytes"]) for row in rows}
    expected = {
        (f"10.0.{file}.{number}", "GET", f"/{number}", 200, number) for file in range(3) for number in range(200)
    }
    assert found == expected | {("::1", "POST", "/b", 503, None)}


def test_vwap_is_that_of_polars(python: Python, tmp_path: Path) -> None:
    import polars as pl

    ticks = pl.DataFrame(
        {
            "symbol": [f"S{number % 7}" for number in range(5000)],
            "price": [100 + number % 13 / 4 for number in range(5000)],
            "size": [number % 11 for number in range(5000)],
            "time": pl.Series([1_700_000_000_000 + 3 * number for number in range(5000)]).cast(
                pl.Datetime("ms", "UTC")
            ),
        }
    )
    (tmp_path / "ticks").mkdir()
    for number in range(3):
        ticks[number::3].write_parquet(tmp_path / "ticks" / f"{number}.parquet")
    finished = python(str(EXAMPLES / "vwap.py"), "ticks")
    assert finished.returncode == 0, finished.stderr
    sized = ticks.filter(pl.col("size") > 0).with_columns(second=pl.col("time").dt.truncate("1s"))
    worth = (pl.col("price") * pl.col("size")).sum()
    expected = sized.group_by("symbol", "second").agg(
        vwap=worth / pl.col("size").sum(), size=pl.col("size").sum(), n=pl.len()
    )
    assert sorted(line.split("> ")[-1] for line in finished.stdout.splitlines()) == sorted(
        f"{row['second']:%H:%M:%S} {row['symbol']} {row['vwap']:.4f} {row['size']} {row['n']}"
        for row in expected.iter_rows(named=True)
    )
