"""Files of rows that are read by some subtasks and gone on with by others: each row once, whoever has it."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
import pytest
from hypothesis import given, strategies as st

import flownet as fn
from flownet.errors import RestoreError
from flownet.rows.splits import FileAssignment, FileSplit, Kept

from .failures import lines, run_until
from .nexmark_jobs import Slowly

FORMATS = ["parquet", "csv", "json"]
FILES, ROWS = 40, 30
"""Some runs that are ended after a few checkpoints read a part of them, on any machine."""


def write(path: Path, numbers: range) -> None:
    path.parent.mkdir(exist_ok=True)
    table = pa.table({"n": list(numbers)})
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path, row_group_size=10_000)
    elif path.suffix == ".csv":
        pyarrow.csv.write_csv(table, path)
    else:
        path.write_text("".join(f'{{"n": {n}}}\n' for n in numbers))


def job(folder: Path, format: str, parallelism: int = 2, rate: float | None = None) -> fn.Environment:
    env = fn.Environment(parallelism=parallelism, buffer_timeout="5ms")
    env.enable_checkpointing("30ms", storage=folder / "checkpoints")
    rows = getattr(env, f"read_{format}")(folder / "in").map_batches(Slowly(rate))
    rows.to_objects(as_dicts=False).map(str).write_text(folder / "out")
    return env


@pytest.mark.parametrize("format", FORMATS)
def test_files_go_on_with_any_parallelism_and_new_ones_are_read(format: str, tmp_path: Path) -> None:
    draw = random.Random(format)
    for file in range(FILES):
        write(tmp_path / "in" / f"{file:02}.{format}", range(file * ROWS, (file + 1) * ROWS))
    for parallelism, workers in [(2, 0), (3, 2), (1, 0), (2, 2)]:
        run_until(
            job(tmp_path, format, parallelism, rate=100), workers, draw.randrange(1, 3), abruptly=draw.random() < 0.7
        )
    write(tmp_path / "in" / f"00.5.{format}", range(FILES * ROWS, (FILES + 1) * ROWS))
    run_until(job(tmp_path, format, 4, rate=100), 0, 1)
    result = job(tmp_path, format, 3).execute()
    assert result.resumed_from is not None
    assert lines(tmp_path / "out") == sorted(str((n,)) for n in range((FILES + 1) * ROWS))


@pytest.mark.parametrize("format", FORMATS)
def test_a_file_that_is_gone_or_another_one_is_told_where_it_was_not_read_to_its_end(
    format: str, tmp_path: Path
) -> None:
    path = tmp_path / "in" / f"0.{format}"
    write(path, range(50_000))
    write(tmp_path / "in" / f"1.{format}", range(3))
    run_until(job(tmp_path, format, parallelism=1, rate=20_000), 0, 1)
    whole = path.read_bytes()
    write(path, range(40_000))
    with pytest.raises(RestoreError, match=f"0.{format} had not been read to its end .* is another file now"):
        job(tmp_path, format).execute()
    path.unlink()
    with pytest.raises(RestoreError, match=f"0.{format} had not been read to its end .* bring it back"):
        job(tmp_path, format).execute()
    path.write_bytes(whole)
    job(tmp_path, format).execute()
    assert len(lines(tmp_path / "out")) == 50_003


class Given:
    def __init__(self, splits: list[FileSplit]) -> None:
        self._splits = splits

    def splits(self) -> list[FileSplit]:
        return self._splits

    def parts(self, file: FileSplit) -> list[FileSplit]:
        return [FileSplit(file.path, file.bytes, part) for part in range(3)]

    def read(self, path: str, part: int | None) -> Any:
        raise NotImplementedError

    def lower_bounds(self, column: str) -> list[tuple[FileSplit, int | None]]:
        return [(split, LEAST_MS.get(split.path)) for split in self._splits]


LEAST_MS = {"file 00": 400, "file 02": -70}
"""What statistics say of some files."""


def split(number: int) -> FileSplit:
    return FileSplit(f"file {number // 3:02}", 1_000, number % 3)


def named(split: FileSplit) -> tuple[str, int, int | None]:
    return split.path, split.bytes, split.part


@given(
    st.lists(st.tuples(st.integers(1, 7), st.integers(0, 12)), min_size=1, max_size=5),
    st.integers(1, 8),
    st.sets(st.integers(0, 6)),
)
def test_however_often_they_are_dealt_out_each_split_is_with_one_and_in_order(
    runs: list[tuple[int, int]], count: int, late: set[int]
) -> None:
    """In each run some subtasks read some splits to their end; the next run has other subtasks, and one more file.

    The first checkpoint may come before the late ones know their splits.
    """
    kept: list[Kept] = []
    all_ended: set[FileSplit] = set()
    before, reading = 0, list[int]()
    for number, (subtasks, read) in enumerate(runs):
        listed = [split(at) for at in range(3 * (count + number))]
        dealt: list[tuple[list[tuple[FileSplit, int, int | None]], list[FileSplit]]] = []
        for subtask in range(subtasks):
            assignment = FileAssignment(Given(listed))
            if number == 0:
                dealt.append(([(one, 0, lower) for one, lower in assignment.mine(subtask, subtasks)], []))
            else:
                dealt.append(assignment.resume(subtask, subtasks, before, reading, kept))
        going = [one for mine, _ in dealt for one, _, _ in mine]
        remembered = [one for _, ended in dealt for one in ended]
        assert sorted(going + remembered) == sorted(listed)
        assert set(remembered) == all_ended
        assert all([one for one, _, _ in mine] == sorted(one for one, _, _ in mine) for mine, _ in dealt)
        kept, reading = [], []
        for subtask, (mine, ended) in enumerate(dealt):
            if number == 0 and subtask in late:
                reading.append(subtask)
                continue
            # A subtask reads its splits in order.
            done, left = [one for one, _, _ in mine[:read]], mine[read:]
            all_ended.update(done)
            kept += [(subtask, named(one), True, 0) for one in [*ended, *done]]
            kept += [(subtask, named(one), False, rows + 7) for one, rows, _ in left[:1]]
            kept += [(subtask, named(one), False, rows) for one, rows, _ in left[1:]]
            reading += [subtask] if left else []
        before = subtasks
        if not reading:
            break


def test_files_stay_in_the_parts_in_which_they_were_begun() -> None:
    whole = [FileSplit(f"file {number:02}", 1_000, None) for number in range(2)]
    parts = [split(number) for number in range(9)]
    kept: list[Kept] = [(0, named(whole[0]), True, 0), (1, named(whole[1]), False, 20)]
    assignments = [FileAssignment(Given(parts)).resume(subtask, 3, 2, [1], kept) for subtask in range(3)]
    going = sorted(itertools.chain.from_iterable(mine for mine, _ in assignments))
    assert going == [(whole[1], 20, None), *((one, 0, None) for one in parts[6:])]


def test_files_that_were_begun_in_parts_stay_in_parts_if_they_are_listed_as_wholes() -> None:
    # As when the 64th Parquet file comes.
    whole = [FileSplit(f"file {number:02}", 1_000, None) for number in range(3)]
    kept: list[Kept] = [(0, named(split(0)), True, 0), (0, named(split(1)), False, 20), (0, named(split(3)), True, 0)]
    dealt = [FileAssignment(Given(whole)).resume(subtask, 2, 2, [0, 1], kept) for subtask in range(2)]
    going = sorted(itertools.chain.from_iterable(mine for mine, _ in dealt), key=str)
    left = [(split(1), 20, None), *((split(part), 0, None) for part in (2, 4, 5)), (whole[2], 0, None)]
    assert going == sorted(left, key=str)


@pytest.mark.parametrize("part", [True, False])
def test_a_subtask_that_had_not_begun_reads_the_splits_that_are_left(part: bool) -> None:
    # The other one may have told a later time than they have.
    listed = [split(number) if part else FileSplit(f"file {number}", 1_000, None) for number in range(4)]
    kept: list[Kept] = [(0, named(listed[0]), False, 5), (0, named(listed[2]), False, 0)]
    read = [FileAssignment(Given(listed)).resume(subtask, 2, 2, [0, 1], kept)[0] for subtask in range(2)]
    assert read[0] == [(listed[0], 5, None), (listed[2], 0, None)]
    assert read[1] == [(listed[1], 0, None), (listed[3], 0, None)]


def test_splits_are_read_by_their_least_times_in_a_job_that_begins_and_in_one_that_is_restored() -> None:
    whole = [FileSplit(f"file {number:02}", 1_000, None) for number in range(4)]
    assignment = FileAssignment(Given(whole))
    assignment.set_event_time("ms")
    wanted = [(whole[1], None), (whole[3], None), (whole[2], -70), (whole[0], 400)]
    assert assignment.mine(0, 1) == wanted, "a split of which nothing is known may have the earliest times"
    assert assignment.mine(1, 2) == wanted[1::2]
    kept: list[Kept] = [(0, named(whole[1]), True, 0), (0, named(whole[2]), False, 5), (0, named(whole[3]), False, 0)]
    mine, ended = assignment.resume(0, 1, 1, [0], kept)
    assert mine == [(whole[3], 0, None), (whole[2], 5, -70), (whole[0], 0, 400)]
    assert ended == [whole[1]]


def test_a_file_begun_as_a_whole_is_no_earlier_than_its_parts() -> None:
    whole, parts = FileSplit("file 00", 1_000, None), [split(number) for number in range(3)]
    assignment = FileAssignment(Given(parts))
    assignment.set_event_time("ms")
    mine, _ = assignment.resume(0, 1, 1, [0], [(0, named(whole), False, 9)])
    assert mine == [(whole, 9, 400)]


def test_nothing_is_known_of_two_columns_of_times() -> None:
    listed = [FileSplit("file 02", 1_000, None), FileSplit("file 00", 1_000, None)]
    assignment = FileAssignment(Given(listed))
    assignment.set_event_time("ms")
    assignment.set_event_time("ms")
    assert assignment.mine(0, 1) == [(listed[0], -70), (listed[1], 400)]
    assignment.set_event_time("other_ms")
    assert {lower for _, lower in assignment.mine(0, 1)} == {None}
