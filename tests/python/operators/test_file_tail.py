"""`read_text(watch=...)`: files that grow and files that come, while the job runs."""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import flownet as fn
from flownet.connectors.file_tail import FollowedText

TICK = "10ms"


class Lines(list[str]):
    """Collects lines as they come."""

    def wait_for(self, job: fn.Job, *expected: str) -> None:
        """Wait until there are these, in any order, and no others; a job that has ended before raises why."""
        while len(self) < len(expected):
            time.sleep(0.005)
            assert job.status().state != "ended" or job.wait() is None
        assert sorted(self) == sorted(expected)


def append(path: Path, text: str) -> None:
    with open(path, "a", newline="") as file:
        file.write(text)


def follow(paths: Any, workers: int, **options: Any) -> tuple[fn.Job, Lines]:
    env, lines = fn.Environment(parallelism=2, buffer_timeout="1ms"), Lines()
    env.read_text(paths, watch=TICK, **options).collect(into=lines)
    return env.execute_async(workers), lines


def test_what_is_appended_and_what_is_new_is_read_each_line_once(workers: int, tmp_path: Path) -> None:
    append(tmp_path / "one", "1\n2\r\nhalf")
    job, lines = follow(tmp_path, workers)
    with job:
        lines.wait_for(job, "1", "2")
        append(tmp_path / "one", " and half\n\n")
        lines.wait_for(job, "1", "2", "half and half", "")
        (tmp_path / "deep" / "er").mkdir(parents=True)
        append(tmp_path / "deep" / "er" / "two", "3\n")
        lines.wait_for(job, "1", "2", "half and half", "", "3")
        append(tmp_path / "unfinished.txt.inprogress", "not yet\n")
        append(tmp_path / "one", "4\nno end")
        append(tmp_path / "deep" / "er" / "two", "5\n")
        lines.wait_for(job, "1", "2", "half and half", "", "3", "4", "5")
        (tmp_path / "unfinished.txt.inprogress").rename(tmp_path / "finished.txt")
        lines.wait_for(job, "1", "2", "half and half", "", "3", "4", "5", "not yet")
        job.stop(drain=True)
        assert job.wait().records == 8
    assert "no end" not in lines


def test_a_folder_may_be_empty_and_a_file_may_be_still_to_come(workers: int, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    job, lines = follow([tmp_path / "empty", tmp_path / "later", tmp_path / "*.log"], workers)
    with job:
        append(tmp_path / "later", "1\n")
        lines.wait_for(job, "1")
        append(tmp_path / "a.log", "2\n")
        append(tmp_path / "a.txt", "not asked for\n")
        append(tmp_path / "empty" / "any", "3\n")
        lines.wait_for(job, "1", "2", "3")
        job.stop()
        assert job.wait().records == 3


def test_a_log_that_is_rotated_is_read_to_its_end_and_the_new_one_from_its_beginning(
    workers: int, tmp_path: Path
) -> None:
    log = tmp_path / "app.log"
    expected = []
    job, lines = follow(log, workers)
    with job:
        writer = open(log, "w")
        for turn in range(4):
            for number in range(3):
                expected.append(f"{turn} {number}")
                print(expected[-1], file=writer, flush=True)
                lines.wait_for(job, *expected)
            for number in range(3, 0, -1):
                if (old := tmp_path / f"app.log.{number}").exists():
                    old.rename(tmp_path / f"app.log.{number + 1}")
            log.rename(tmp_path / "app.log.1")
            with open(log, "w") as after:
                # Who has the old file open writes on for a while.
                expected += [f"{turn} new", f"{turn} last"]
                print(expected[-2], file=after, flush=True)
                print(expected[-1], file=writer, flush=True)
            lines.wait_for(job, *expected)
            writer.close()
            writer = open(log, "a")
        writer.close()
        job.stop()
        assert job.wait().records == len(expected)


def test_a_file_in_a_watched_folder_is_the_same_under_another_name(workers: int, tmp_path: Path) -> None:
    append(tmp_path / "a", "1\n")
    job, lines = follow(tmp_path, workers)
    with job:
        lines.wait_for(job, "1")
        os.link(tmp_path / "a", tmp_path / "also a")
        (tmp_path / "sub").mkdir()
        (tmp_path / "a").rename(tmp_path / "sub" / "b")
        append(tmp_path / "a", "2\n")
        append(tmp_path / "sub" / "b", "3\n")
        lines.wait_for(job, "1", "2", "3")
        job.stop()
        assert job.wait().records == 3


def test_a_file_that_is_deleted_is_read_to_its_end_and_a_new_one_of_its_name_is_read(
    workers: int, tmp_path: Path
) -> None:
    file = tmp_path / "a"
    append(file, "1\n")
    job, lines = follow(tmp_path, workers)
    with job:
        lines.wait_for(job, "1")
        # What has no end of line gets none any more.
        append(file, "2\nlast")
        file.unlink()
        lines.wait_for(job, "1", "2", "last")
        append(file, "3\n")
        lines.wait_for(job, "1", "2", "last", "3")
        job.stop()
        assert job.wait().records == 4


def cut(path: Path) -> None:
    os.truncate(path, 2)


def emptied(path: Path) -> None:
    path.write_text("other\n")


def written_over(path: Path) -> None:
    path.write_text("something else, which is longer than before\n")


@pytest.mark.parametrize(
    ("change", "how"), [(cut, "was cut to 2 bytes"), (emptied, "was cut to 6"), (written_over, "was written over")]
)
def test_a_file_that_loses_what_was_read_fails_the_job(
    change: Callable[[Path], None], how: str, workers: int, tmp_path: Path
) -> None:
    file = tmp_path / "a"
    append(file, "one line\ntwo lines\n")
    job, lines = follow(tmp_path, workers)
    with job:
        lines.wait_for(job, "one line", "two lines")
        change(file)
        with pytest.raises(fn.errors.InputError, match=f"{how}.*rotate logs by renaming") as caught:
            job.wait()
    assert caught.value.path == str(file)


@pytest.mark.parametrize("errors", ["strict", "replace", "ignore"])
def test_bytes_that_are_no_text_are_treated_as_asked(errors: Any, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"good\nb\xffad\n")
    job, lines = follow(tmp_path, 0, errors=errors)
    with job:
        if errors == "strict":
            with pytest.raises(fn.errors.InputError, match=r"a line is not UTF-8, at byte 1 of b'b\\xffad'"):
                job.wait()
        else:
            lines.wait_for(job, "good", "b�ad" if errors == "replace" else "bad")


def test_a_line_that_never_ends_is_refused_by_its_size(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("fine\n" + "x" * 300_000)
    env = fn.Environment(max_record_size="100KB")
    env.read_text(tmp_path, watch=TICK).collect()
    with pytest.raises(fn.errors.InputError, match=r"line at byte 5 of .* is longer than 1\d+ bytes"):
        env.execute(0)


def test_what_cannot_be_watched_is_refused_at_once(env: fn.Environment, tmp_path: Path) -> None:
    with pytest.raises(fn.errors.InputError, match="there is no folder"):
        env.read_text(tmp_path / "nowhere" / "a.log", watch=True)
    with pytest.raises(fn.errors.InputError, match="there is no folder"):
        env.read_text(tmp_path / "nowhere" / "*" / "a.log", watch=True)
    with pytest.raises(fn.errors.InputError, match="neither a file nor a folder"):
        env.read_text("/dev/null", watch=True)
    for wrong in (0, "soon", 5, None):
        with pytest.raises(fn.errors.ConfigError):
            env.read_text(tmp_path, watch=wrong)  # type: ignore[arg-type]
    with pytest.raises(fn.errors.ConfigError, match="errors"):
        env.read_text(tmp_path, watch=True, errors="loose")  # type: ignore[arg-type]


def timed(line: str) -> int:
    return int(line.split()[0])


def told(key: str, window: fn.Window, values: list[str]) -> list[str]:
    return [f"{window.start_ms} {sorted(value.split()[1] for value in values)}"]


def test_files_that_have_nothing_new_hold_event_time_only_until_they_are_idle(workers: int, tmp_path: Path) -> None:
    strategy: Any = fn.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(timed)
    # Time is that of each file: the second one begins far behind the first.
    append(tmp_path / "a", "100 a\n5000 a\n")
    append(tmp_path / "b", "200 b\n")
    env, windows = fn.Environment(parallelism=2, buffer_timeout="1ms"), Lines()
    lines = env.read_text(tmp_path, watch=TICK)
    lines = lines.assign_timestamps_and_watermarks(strategy.with_idleness("1s"))
    lines.key_by(lambda line: "all").window(fn.Tumbling("1s")).process(told).collect(into=windows)
    append(tmp_path / "c", "5500 c\n7000 c\n")
    with env.execute_async(workers) as job:
        # Time goes on with the third file when the others are idle; if all are, it stays.
        while len(windows) < 2:
            append(tmp_path / "c", "7000 c\n")
            time.sleep(0.2)
        job.stop(drain=True)
        result = job.wait()
    first, second, third = sorted(windows)
    assert (first, second) == ("0 ['a', 'b']", "5000 ['a', 'c']")
    assert third.startswith("7000 ['c', 'c'")
    assert sum(task.late_records for task in result.tasks) == 0


def test_many_more_files_than_may_be_open_are_followed(tmp_path: Path) -> None:
    for number in range(300):
        append(tmp_path / f"{number:03}", f"{number} a\n")
    job, lines = follow(tmp_path, 0)
    with job:
        lines.wait_for(job, *(f"{number} a" for number in range(300)))
        for number in range(300):
            append(tmp_path / f"{number:03}", f"{number} b\n")
        lines.wait_for(job, *(f"{number} {part}" for number in range(300) for part in "ab"))
        assert sum(path.startswith(str(tmp_path)) for path in _open_files()) < 280
        job.stop()
        job.wait()
    assert not any(thread.name == "flownet-discovery" and thread.is_alive() for thread in _later())


def _open_files() -> Iterator[str]:
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            yield os.readlink(f"/proc/self/fd/{name}")


def _later() -> Iterator[threading.Thread]:
    """Threads that are there when those that are about to end have ended."""
    deadline = time.monotonic() + 30
    while any(thread.name == "flownet-discovery" for thread in threading.enumerate()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return iter(threading.enumerate())


@pytest.mark.parametrize("seed", range(20))
def test_however_a_file_grows_and_reading_is_broken_off_each_line_comes_once(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    text = "".join(draw.choice("ab\n\r") for _ in range(2000)) + "x" * draw.randrange(200_000) + "\n"
    path = tmp_path / "a"
    path.touch()
    source = FollowedText([str(tmp_path)], "strict", TICK)
    (split,) = source.splits()
    reader, lines, written = source.open(split, None), [], 0
    while written < len(text) or reader.position()[1] < len(text):
        match draw.randrange(4):
            case 0 if written < len(text):
                step = draw.choice([1, 50, 100_000])
                append(path, text[written : written + step])
                written += step
            case 1:
                position = reader.position()
                reader.close()
                reader = source.open(split, position)
            case 2:
                path = path.rename(tmp_path / str(draw.randrange(3)))
            case _:
                lines += reader.read() or []
    path.unlink()
    assert reader.read() is None or reader.read() is None
    reader.close()
    assert lines == [line.removesuffix("\r") for line in text.split("\n")[:-1]]
    assert source.open_files == 0
