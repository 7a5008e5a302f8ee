from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import flownet as fn

if TYPE_CHECKING:
    from tests.python.conftest import Run

    from flownet.sources import TextErrors


def test_lines_come_without_their_ends(env: fn.Environment, run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"unix\ndos\r\n\nlast without an end")
    assert sorted(run(env.read_text(tmp_path / "a.txt"))) == ["", "dos", "last without an end", "unix"]


def test_folders_are_read_to_the_bottom(env: fn.Environment, run: Run, tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for name in ("a", "deep/b", "deep/er/c"):
        (tmp_path / name).write_text(f"line of {name}\n")
    (tmp_path / "empty").touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    assert sorted(run(env.read_text(str(tmp_path)))) == ["line of a", "line of deep/b", "line of deep/er/c"]


def test_several_paths_are_read_one_beside_the_other(env: fn.Environment, run: Run, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text(name)
    assert sorted(run(env.read_text([tmp_path / "a", str(tmp_path / "b")]))) == ["a", "b"]


def test_one_large_file_is_shared_and_each_line_read_once(env: fn.Environment, run: Run, tmp_path: Path) -> None:
    lines = [f"{n} {'x' * (n % 200)}" for n in range(120_000)]
    (tmp_path / "large").write_text("\n".join(lines))
    assert (tmp_path / "large").stat().st_size > 8 << 20, "several splits"
    assert sorted(run(env.read_text(tmp_path / "large").map(lambda line: int(line.split()[0])))) == list(range(120_000))


def test_bytes_that_are_not_utf_8_fail_the_job_unless_told_otherwise(
    env: fn.Environment, run: Run, tmp_path: Path
) -> None:
    for name in ("a", "c"):
        (tmp_path / name).write_text("all well\n" * 3)
    (tmp_path / "b").write_bytes("fine\ngr\u00fcn\n".encode("latin-1"))
    with pytest.raises(fn.errors.InputError, match="task 'read_text'") as caught:
        run(env.read_text(tmp_path))
    assert caught.value.path == str(tmp_path / "b")
    text = str(caught.value)
    assert f"{tmp_path / 'b'}: a line is not UTF-8, at byte 2 of b'gr\\xfcn'; errors='replace'" in text


def test_the_file_of_a_bad_line_is_named_however_many_were_read_before(env: fn.Environment, tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"{number:02}").write_text("line\n" * 1000)
    (tmp_path / "37").write_bytes(b"line\n" * 999 + b"\xff\n")
    env.read_text(tmp_path).set_parallelism(1).collect()
    with pytest.raises(fn.errors.InputError) as caught:
        env.execute()
    assert caught.value.path == str(tmp_path / "37")


@pytest.mark.parametrize(("errors", "line"), [("replace", "gr\ufffdn"), ("ignore", "grn")])
def test_bytes_that_are_not_utf_8_follow_the_policy(
    env: fn.Environment, run: Run, tmp_path: Path, errors: TextErrors, line: str
) -> None:
    (tmp_path / "latin").write_bytes("gr\u00fcn\n".encode("latin-1"))
    assert run(env.read_text(tmp_path / "latin", errors=errors)) == [line]


def test_a_missing_path_is_refused_at_once(env: fn.Environment, tmp_path: Path) -> None:
    with pytest.raises(fn.errors.InputError, match="cannot read '.*nowhere': No such file or directory") as caught:
        env.read_text([tmp_path, tmp_path / "nowhere"])
    assert caught.value.path == str(tmp_path / "nowhere")
    assert isinstance(caught.value, OSError)


def test_what_is_neither_file_nor_folder_is_refused_at_once(env: fn.Environment) -> None:
    with pytest.raises(fn.errors.InputError, match="neither a file nor a folder"):
        env.read_text("/dev/null")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_refused_at_once(env: fn.Environment, tmp_path: Path) -> None:
    (tmp_path / "secret").touch(mode=0)
    with pytest.raises(fn.errors.InputError, match="no permission"):
        env.read_text(tmp_path)


def test_a_file_that_vanishes_before_the_job_starts_fails_it(env: fn.Environment, run: Run, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    lines = env.read_text(tmp_path / "a")
    (tmp_path / "a").unlink()
    with pytest.raises(fn.errors.InputError, match="no such file"):
        run(lines)


@pytest.mark.parametrize("errors", ["strictly", None, 1])
def test_policies_are_three(env: fn.Environment, errors: Any) -> None:
    with pytest.raises(fn.errors.ConfigError, match="must be 'strict', 'replace' or 'ignore'"):
        env.read_text("/etc/hostname", errors=errors)
