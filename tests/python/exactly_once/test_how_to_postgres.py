"""The programs of docs/how-to that need PostgreSQL run, and print the output that the pages show."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from .postgres import Server

PAGES = Path(__file__).parents[3] / "docs" / "how-to"

pytestmark = pytest.mark.timeout(180)

Python = Callable[..., subprocess.CompletedProcess[str]]


def run(page: str, server: Server, python: Python, folder: Path) -> Iterator[tuple[str, str]]:
    """Run the programs of a page; give the output of each and the output that the page shows."""
    blocks = re.findall(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", (PAGES / page).read_text(), re.DOTALL)
    assert blocks
    for program, output in blocks:
        text = program.replace("postgresql://localhost/shop", server.conninfo).replace("/data/", f"{folder}/")
        (folder / "program.py").write_text(text)
        finished = python("program.py")
        assert finished.returncode == 0, finished.stderr
        yield finished.stdout, output


def statements(page: str) -> list[str]:
    return re.findall(r"^create table .*$", (PAGES / page).read_text(), re.MULTILINE)


def test_words_are_counted_in_the_table_also_if_the_job_runs_again(
    server: Server, python: Python, tmp_path: Path
) -> None:
    (statement, *_) = statements("postgres.md")
    server.run(statement)
    for _ in range(2):
        list(run("postgres.md", server, python, tmp_path))
    assert dict(server.run("select * from totals")) == Counter(["to", "be", "or", "not", "to", "be"])


def test_orders_are_enriched_from_the_table(server: Server, python: Python, tmp_path: Path) -> None:
    (statement,) = statements("enrich-from-postgres.md")
    server.run(statement)
    server.run("insert into users values ('ann', 'at'), ('bob', 'fr')")
    for printed, shown in run("enrich-from-postgres.md", server, python, tmp_path):
        assert printed == shown


@pytest.mark.parametrize("key", [None, ["word"]])
def test_the_rights_that_the_page_lists_are_enough(key: list[str] | None, server: Server) -> None:
    import flownet as fn

    server.run("create table if not exists flownet_batches (name text primary key)")
    server.run("drop table if exists narrow; create table narrow (word text primary key, number bigint)")
    server.run("revoke temporary on database postgres from public")
    role = "adder" if key is None else "replacer"
    server.run(f"create role {role} login")
    server.run(f"grant temporary on database postgres to {role}; grant insert on flownet_batches to {role}")
    server.run(f"grant insert, select{'' if key is None else ', update'} on narrow to {role}")
    conninfo = psycopg.conninfo.make_conninfo(server.conninfo, user=role)
    env = fn.Environment()
    env.from_collection([("to", 1)]).sink_to(fn.PostgresSink(conninfo, "narrow", columns=["word", "number"], key=key))
    env.execute()
    assert server.run("select * from narrow") == [("to", 1)]
