from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import flownet as fn

if TYPE_CHECKING:
    from tests.python.conftest import Run

    from flownet.connectors.source_methods import TextErrors


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


def cut(file: Path) -> None:
    os.truncate(file, 100)


def replaced(file: Path) -> None:
    file.with_suffix(".new").write_bytes(file.read_bytes())
    file.with_suffix(".new").rename(file)


def written_over(file: Path) -> None:
    # In place: at no time is it shorter.
    with file.open("r+b") as opened:
        text = opened.read()
        opened.seek(0)
        opened.write(text)
    os.utime(file, (0, 0))


@pytest.mark.parametrize(
    ("change", "how"), [(cut, "cut from"), (replaced, "replaced by another file"), (written_over, "written over")]
)
def test_a_file_that_changes_while_it_is_read_fails_the_job(
    workers: int, change: Callable[[Path], None], how: str, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("line\n" * 3_000_000)
    env = fn.Environment(parallelism=2, buffer_timeout="1ms")
    arrived = threading.Event()
    env.read_text(file, rate_limit=1_000_000).rebalance().collect(into=Arrivals(arrived))
    with env.execute_async(workers) as job:
        assert arrived.wait(30)
        change(file)
        with pytest.raises(fn.errors.InputError, match=f"was {how}.*while the job read it") as caught:
            job.wait()
    assert caught.value.path == str(file)


class Arrivals:
    """Sets an event at the first record."""

    def __init__(self, arrived: threading.Event) -> None:
        self.arrived = arrived

    def extend(self, records: list[str]) -> None:
        self.arrived.set()


def test_a_file_that_grows_is_read_as_it_was_when_the_job_was_submitted(workers: int, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("line\n" * 200_000)
    env = fn.Environment(parallelism=2)
    lines = env.read_text(file, rate_limit=400_000).rebalance().collect()
    with env.execute_async(workers) as job:
        with open(file, "a") as more:
            more.write("more\n" * 1000)
        (tmp_path / "other").write_text("not listed\n")
        job.wait()
    assert set(lines) == {"line"}
    assert len(lines) == 200_000


def test_files_that_are_made_as_they_are_read_give_their_lines(env: fn.Environment, run: Run) -> None:
    assert any(line.startswith("processor") for line in run(env.read_text("/proc/cpuinfo")))


def test_a_line_may_be_as_long_as_a_record(workers: int, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x" * (20 << 20) + "\n")
    env = fn.Environment()
    lengths = env.read_text(tmp_path).map(len).collect()
    env.execute(workers)
    assert list(lengths) == [20 << 20]
    env = fn.Environment(max_record_size="1MiB")
    env.read_text(tmp_path).map(len).collect()
    with pytest.raises(
        fn.errors.InputError, match="longer than 1048576 bytes, the largest record; raise max_record_size"
    ):
        env.execute(workers)


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


@pytest.mark.parametrize("path", [b"/etc/passwd", 5, [b"/etc"], None])
def test_a_path_that_is_no_text_is_refused(env: fn.Environment, path: Any) -> None:
    with pytest.raises(fn.errors.ConfigError, match="name files and folders by str or Path"):
        env.read_text(path)
