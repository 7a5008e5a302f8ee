"""Files of folders and patterns are the same for every source: hidden ones are left out, and patterns are expanded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flownet as fn
from flownet.connectors.file_listing import is_hidden, is_unfinished
from flownet.connectors.file_tail import files as followed
from flownet.errors import InputError

DATA = ["a.x", "b/a.x", "b/c.tmp.x", "_day=1/a.x", "day=2/_more=3/a.x", "day=2/to=do.pending/a.x"]
"""Files that are read, below one folder."""

HIDDEN = [
    "_SUCCESS",
    ".a.x.crc",
    ".a.x",
    "_a.x",
    "_temporary/0/a.x",
    "_delta_log/0.x",
    ".git/a.x",
    "b/.hidden/a.x",
    "b/_committed_1.x",
    ".day=1/a.x",
    "a.x.inprogress",
    "a.x.7-2.pending",
    "a.x._COPYING_",
]


def write(folder: Path, ending: str, write_file: Callable[[Path, str], object]) -> None:
    """Write a row with the name of its file into each."""
    for name in [*DATA, *HIDDEN]:
        path = folder / name.replace(".x", f".{ending}")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, name)


def rows(env: fn.Environment, ending: str, paths: object) -> list[str]:
    """Read names."""
    if ending == "parquet":
        collected = env.read_parquet(paths, columns=["name"])  # type: ignore[arg-type]
    elif ending == "csv":
        collected = env.read_csv(paths, schema={"name": "utf8"}, columns=["name"])  # type: ignore[arg-type]
    elif ending == "jsonl":
        collected = env.read_json(paths, schema={"name": "utf8"}, columns=["name"])  # type: ignore[arg-type]
    else:
        lines = env.read_text(paths).collect()  # type: ignore[arg-type]
        env.execute(workers=0)
        return sorted(lines)
    return sorted(collected.to_arrow()["name"].to_pylist())


WRITERS: dict[str, Callable[[Path, str], object]] = {
    "parquet": lambda path, name: pq.write_table(pa.table({"name": [name]}), path),
    "csv": lambda path, name: path.write_text(f"name\n{name}\n"),
    "jsonl": lambda path, name: path.write_text(f'{{"name": "{name}"}}\n'),
    "txt": lambda path, name: path.write_text(f"{name}\n"),
}


@pytest.mark.parametrize("ending", WRITERS)
def test_hidden_files_of_a_folder_are_not_read(ending: str, env: fn.Environment, tmp_path: Path) -> None:
    write(tmp_path, ending, WRITERS[ending])
    # Folders of these say no columns in common.
    for part in ("_day=1", "_more=3", "to=do.pending"):
        folder = next(path for path in tmp_path.rglob("*") if path.name == part)
        assert rows(fn.Environment(), ending, folder) == [name for name in DATA if part in name]
    assert rows(env, ending, tmp_path / "b") == ["b/a.x", "b/c.tmp.x"]


@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.x", ["a.x"]),
        ("b/*", ["b/a.x", "b/c.tmp.x"]),
        ("[b-z]/?.x", ["b/a.x"]),
        ("b*/", ["b/a.x", "b/c.tmp.x"]),
        ("b/**", ["b/a.x", "b/c.tmp.x"]),
        ("_day*/*.x", ["_day=1/a.x"]),
        ("**/_more=3/*.x", ["day=2/_more=3/a.x"]),
        ("_temp*/**/*.x", ["_temporary/0/a.x"]),
        ("_delta_log/*.x", ["_delta_log/0.x"]),
        (".g*/*.x", [".git/a.x"]),
    ],
)
def test_patterns_are_expanded(
    ending: str, pattern: str, expected: list[str], env: fn.Environment, tmp_path: Path
) -> None:
    write(tmp_path, ending, WRITERS[ending])
    assert rows(env, ending, f"{tmp_path}/{pattern.replace('.x', '.' + ending)}") == expected


@pytest.mark.parametrize("ending", WRITERS)
def test_hidden_files_that_are_named_are_read(ending: str, env: fn.Environment, tmp_path: Path) -> None:
    write(tmp_path, ending, WRITERS[ending])
    named = [tmp_path / f"_a.{ending}", tmp_path / "_temporary"]
    assert rows(env, ending, named) == ["_a.x", "_temporary/0/a.x"]


@pytest.mark.parametrize("ending", WRITERS)
def test_a_pattern_without_a_file_is_refused(ending: str, env: fn.Environment, tmp_path: Path) -> None:
    write(tmp_path, ending, WRITERS[ending])
    with pytest.raises(InputError, match=r"no-such-\*"):
        rows(env, ending, f"{tmp_path}/no-such-*")


def test_followed_files_are_those_that_are_read(tmp_path: Path) -> None:
    write(tmp_path, "txt", WRITERS["txt"])
    found = [str(Path(path).relative_to(tmp_path)) for path in followed([str(tmp_path)])]
    assert sorted(found) == sorted(name.replace(".x", ".txt") for name in DATA)
    found = [str(Path(path).relative_to(tmp_path)) for path in followed([f"{tmp_path}/**/*.txt"])]
    assert sorted(found) == sorted(name.replace(".x", ".txt") for name in DATA)


def test_patterns_say_columns_by_their_folders(env: fn.Environment, tmp_path: Path) -> None:
    for day in (1, 2, 30):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(pa.table({"n": [day]}), tmp_path / f"day={day}" / "a.parquet")
    found = env.read_parquet(f"{tmp_path}/day=?/*.parquet").to_arrow().to_pylist()
    assert sorted(row["day"] for row in found) == sorted(row["n"] for row in found) == [1, 2]


def test_names_are_hidden_as_spark_hides_them() -> None:
    assert not any(is_hidden(part) for name in DATA for part in name.split("/"))
    assert all(is_unfinished(name) or any(is_hidden(part) for part in name.split("/")) for name in HIDDEN)


def test_a_file_that_is_called_like_a_pattern_is_that_file(env: fn.Environment, tmp_path: Path) -> None:
    for name in ("a[1].csv", "a1.csv"):
        (tmp_path / name).write_text(f"name\n{name}\n")
    assert rows(env, "csv", tmp_path / "a[1].csv") == ["a[1].csv"]
