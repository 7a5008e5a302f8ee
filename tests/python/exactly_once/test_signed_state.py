"""Checkpoints that are signed with a key: what was changed, moved or signed by others is not restored."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import flownet as fn
from flownet import state
from flownet.cli import main
from flownet.errors import ConfigError, RestoreError

KEY, OTHER = secrets.token_hex(32), secrets.token_hex(32)
RECORDS = 400


class Counts(fn.KeyedProcessFunction[str, str, tuple[str, int]]):
    def process(self, value: str, ctx: fn.ProcessContext[str]) -> Iterable[tuple[str, int]]:
        ctx.state["count"] = ctx.state.get("count", 0) + 1
        yield ctx.key, ctx.state["count"]


class SeesEnvironment(fn.ProcessFunction[Any, bool]):
    def process(self, value: Any, ctx: fn.RecordContext) -> Iterable[bool]:
        yield "FLOWNET_STATE_KEY" in os.environ


def job(storage: Path, *, backend: Any = "memory", **settings: Any) -> tuple[fn.Environment, Any]:
    env = fn.Environment(parallelism=2, name="signed", restart="none", state_backend=backend)
    env.enable_checkpointing("20ms", storage=storage, retained=3, **settings)
    words = env.from_collection([f"k{number % 7}" for number in range(RECORDS)], rate_limit=2_000).uid("words")
    counts = words.key_by(str).process(Counts()).uid("counts")
    return env, counts.collect()


def run(storage: Path, workers: int = 0, **settings: Any) -> fn.observation.JobResult:
    env, _ = job(storage, **settings)
    return env.execute(workers)


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOWNET_STATE_KEY", KEY)


@pytest.mark.parametrize("backend", ["memory", "disk"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_job_goes_on_from_what_it_has_signed(
    key: None, workers: int, backend: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first = run(tmp_path / "job", workers, backend=backend)
    assert first.checkpoints
    second = run(tmp_path / "job", workers, backend=backend)
    assert second.resumed_from is not None
    third = run(tmp_path / "other", workers, backend=backend, restore_from=tmp_path / "job")
    assert third.resumed_from is not None
    said = f"{first!r}{first}{second}{third}" + "".join(capfd.readouterr())
    files = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert KEY not in said
    assert KEY.encode() not in files


def test_workers_do_not_have_the_key(key: None, tmp_path: Path) -> None:
    env = fn.Environment(parallelism=2, restart="none")
    env.enable_checkpointing("20ms", storage=tmp_path)
    seen = env.from_collection(range(4)).rebalance().process(SeesEnvironment()).collect()
    env.execute(workers=2)
    assert set(seen) == {False}


def test_state_is_read_with_the_key_alone(key: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path / "job")
    assert list(state.read(tmp_path / "job").operators)
    monkeypatch.setenv("FLOWNET_STATE_KEY", OTHER)
    with pytest.raises(RestoreError, match="a signature that does not fit.*put the old one behind the new one"):
        state.read(tmp_path / "job")
    with pytest.raises(RestoreError, match="does not fit"):
        run(tmp_path / "job")
    with pytest.raises(RestoreError, match="does not fit"):
        run(tmp_path / "other", restore_from=tmp_path / "job")
    monkeypatch.delenv("FLOWNET_STATE_KEY")
    with pytest.raises(RestoreError, match="is signed, and is read without a key: set FLOWNET_STATE_KEY"):
        state.read(tmp_path / "job")
    with pytest.raises(RestoreError, match="is read without a key"):
        run(tmp_path / "job")
    # A new key signs, and the old one is still accepted.
    (tmp_path / "keys").write_text(f"{OTHER}\n{KEY}\n")
    monkeypatch.setenv("FLOWNET_STATE_KEY_FILE", str(tmp_path / "keys"))
    assert run(tmp_path / "job").resumed_from is not None


def snapshot(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.snap") if path.stat().st_size > 24)


def changed(folder: Path) -> None:
    for path in snapshot(folder):
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)


def cut(folder: Path) -> None:
    for path in snapshot(folder):
        path.write_bytes(path.read_bytes()[:-1])


def exchanged(folder: Path) -> None:
    for one, other in zip(*[iter(snapshot(folder))] * 2, strict=False):
        content = one.read_bytes()
        one.write_bytes(other.read_bytes())
        other.write_bytes(content)


def older_manifest(folder: Path) -> None:
    manifests = sorted(folder.rglob("manifest"), key=lambda path: int(path.parent.name[4:]))
    assert len(manifests) > 1
    shutil.copy(manifests[0], manifests[-1])


@pytest.mark.parametrize("tamper", [changed, cut, exchanged, older_manifest])
@pytest.mark.parametrize("workers", [0, 2])
def test_what_was_tampered_with_is_refused(
    key: None, tamper: Callable[[Path], None], workers: int, tmp_path: Path
) -> None:
    run(tmp_path / "job")
    tamper(tmp_path / "job")
    with pytest.raises(RestoreError):
        run(tmp_path / "job", workers)
    with pytest.raises(RestoreError):
        state.read(tmp_path / "job")


def test_unsigned_state_is_refused_and_can_be_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path / "job")
    target = str(tmp_path / "signed")
    command = ["savepoint", str(tmp_path / "job"), target, "--sign"]
    assert main(command) != 0
    assert "there is none to sign with: set FLOWNET_STATE_KEY" in capsys.readouterr().err
    monkeypatch.setenv("FLOWNET_STATE_KEY", KEY)
    with pytest.raises(RestoreError, match="is not signed, and FLOWNET_STATE_KEY .*--sign"):
        run(tmp_path / "job")
    with pytest.raises(RestoreError, match="is not signed, and FLOWNET_STATE_KEY .*--sign"):
        run(tmp_path / "other", restore_from=tmp_path / "job")
    assert main(["checkpoints", str(tmp_path / "job")]) == 1
    assert "is not signed" in capsys.readouterr().err
    assert main(command) == 0
    assert run(tmp_path / "new", restore_from=target).resumed_from is not None
    assert main(["checkpoints", str(tmp_path / "new")]) == 0
    assert KEY not in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("FLOWNET_STATE_KEY", "short", "has 5 characters and needs 32 or more"),
        ("FLOWNET_STATE_KEY", " ", "is set and has no key"),
        ("FLOWNET_STATE_KEY_FILE", "/nowhere/key", "names .*/nowhere/key.*cannot be read"),
    ],
)
def test_a_key_that_is_none_is_refused(
    name: str, value: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=message):
        run(tmp_path)
