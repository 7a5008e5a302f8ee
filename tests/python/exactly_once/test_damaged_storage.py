"""A damaged storage: a job begins from its last checkpoint or ends at once, and an older checkpoint is a way back."""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import flownet as fn
from flownet import _flownet, errors

NUMBERS = 300


def numbers(position: int | None) -> Iterator[tuple[int, tuple[int]]]:
    for number in range(position or 0, NUMBERS):
        yield number + 1, (number,)
        if position is None:
            time.sleep(0.002)


def job(folder: Path, storage: str = "kept", **checkpointing: object) -> fn.Environment:
    folder.mkdir(exist_ok=True)
    env = fn.Environment()
    given = {"storage": folder / storage, "retained": 3, **checkpointing}
    env.enable_checkpointing("50ms", **given)  # type: ignore[arg-type]
    records = env.from_generator(numbers)
    records.sink_to(fn.SqliteSink(folder / "out.db", "t", columns=["n"]))
    return env


def written(folder: Path) -> list[int]:
    database = sqlite3.connect(folder / "out.db")
    try:
        return [row[0] for row in database.execute("select n from t order by n")]
    finally:
        database.close()


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job that was stopped in the middle, beside a copy of it."""
    folder = tmp_path_factory.mktemp("stopped") / "job"
    with job(folder).execute_async() as running:
        while running.status().checkpoints_made < 4:
            time.sleep(0.01)
        running.stop()
        running.wait()
    shutil.copytree(folder, folder.with_name("copy"))
    return folder


@pytest.fixture
def folder(kept: Path) -> Path:
    """The same, as it was stopped."""
    restore(kept)
    return kept


def restore(folder: Path) -> None:
    """Make a job again what it was when it was stopped, in its place: its sink writes nowhere else."""
    shutil.rmtree(folder)
    shutil.copytree(folder.with_name("copy"), folder)


def of_storage(folder: Path) -> list[Path]:
    kept = folder / "kept"
    return sorted(path.relative_to(kept) for path in kept.rglob("*") if path.is_file())


def outcome(folder: Path) -> str | None:
    """Run the job again; return why it cannot go on, if so."""
    try:
        job(folder).execute()
    except errors.RestoreError as error:
        return str(error)
    return None


@pytest.mark.parametrize("how", ["flipped", "cut", "empty"])
def test_whatever_file_is_damaged_nothing_is_doubled_and_nothing_restarts_for_ever(how: str, folder: Path) -> None:
    rng, refused = random.Random(how), 0
    for name in of_storage(folder):
        restore(folder)
        path = folder / "kept" / name
        content = bytearray(path.read_bytes())
        if how == "flipped":
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(content[: {"flipped": len(content), "cut": len(content) // 2, "empty": 0}[how]])
        before = written(folder)
        refusal = outcome(folder)
        if refusal is None:
            assert written(folder) == list(range(NUMBERS)), name
            continue
        refused += 1
        assert str(name) in refusal
        assert "restore_checkpoint=NUMBER" in refusal or "is of format" in refusal
        assert written(folder) == before
    assert refused >= 3


def test_a_log_that_is_gone_is_no_new_job(folder: Path) -> None:
    shutil.rmtree(folder / "kept" / "epochs")
    with pytest.raises(errors.RestoreError, match="the log is gone, and there are checkpoints"):
        job(folder).execute()


def damage_last(folder: Path) -> list[int]:
    """Damage the last checkpoint; return the numbers of those before it."""
    listed = [one["checkpoint"] for one in _flownet.checkpoints(str(folder / "kept"))]
    (manifest,) = (folder / "kept").glob(f"*/chk-{listed[-1]}/manifest")
    manifest.write_bytes(manifest.read_bytes()[:-1])
    return listed[:-1]


def test_a_job_begins_from_an_older_checkpoint_in_another_storage(folder: Path) -> None:
    older = damage_last(folder)
    with pytest.raises(errors.RestoreError, match="is damaged"):
        job(folder).execute()
    before = written(folder)
    env = job(folder, "other", restore_from=folder / "kept", restore_checkpoint=older[-1])
    result = env.execute()
    assert 0 < result.records < NUMBERS, "it goes on from that checkpoint"
    again = written(folder)
    assert sorted(set(again)) == list(range(NUMBERS)), "nothing is lost"
    assert len(again) - NUMBERS <= len(before), "what was written since that checkpoint comes again, as the docs say"
    assert job(folder, "other", restore_from=folder / "kept", restore_checkpoint=older[-1]).execute().records == 0
    with pytest.raises(errors.ConfigError, match="has no such checkpoint"):
        job(folder, "third", restore_from=folder / "kept", restore_checkpoint=9999).execute()
    with pytest.raises(errors.ConfigError, match="restore_from"):
        job(folder, "third", restore_checkpoint=1)


PROGRAM = """
import flownet as fn
env = fn.Environment()
env.enable_checkpointing("50ms", storage=STORAGE)
numbers = env.from_generator(lambda position: ((n + 1, (n,)) for n in range(position or 0, 300)))
numbers.sink_to(fn.SqliteSink(OUT, "t", columns=["n"]))
"""


def test_the_command_line_lists_what_is_left_and_begins_from_it(folder: Path) -> None:
    older = damage_last(folder)
    flownet = [sys.executable, "-m", "flownet"]
    listed = subprocess.run(
        [*flownet, "checkpoints", folder / "kept"], check=False, capture_output=True, text=True, timeout=60
    )
    assert listed.returncode == 1
    assert "manifest" in listed.stderr
    assert "is damaged" in listed.stderr
    assert all(f"\n{number}" in listed.stdout or f" {number} " in listed.stdout for number in older)
    program = folder / "job.py"
    program.write_text(
        PROGRAM.replace("STORAGE", repr(str(folder / "kept"))).replace("OUT", repr(str(folder / "out.db")))
    )
    run = [*flownet, "run", f"{program}:env", "-r", str(folder / "other"), "--from", str(folder / "kept")]
    done = subprocess.run(
        [*run, "--from-checkpoint", str(older[-1])], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert sorted(set(written(folder))) == list(range(NUMBERS))
