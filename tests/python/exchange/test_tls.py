"""Jobs over TLS: they give what others give, fail as others fail, and take one's own certificates."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import flownet as fn
from flownet import errors


def sums(tls: str, workers: int = 2) -> dict[int, int]:
    env = fn.Environment(parallelism=3, tls=tls)
    numbers = (
        env.from_collection(range(10_000)).key_by(lambda number: number % 7).map(lambda number: (number % 7, number))
    )
    totals = numbers.key_by(lambda pair: pair[0]).reduce(lambda left, right: (left[0], left[1] + right[1])).collect()
    env.execute(workers=workers)
    found: dict[int, int] = {}
    for key, total in totals:
        found[key] = max(total, found.get(key, 0))
    return found


EXPECTED = {key: sum(range(key, 10_000, 7)) for key in range(7)}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("tls", ["auto", "off", "on"])
def test_a_job_gives_the_same_with_and_without(tls: str, workers: int) -> None:
    assert sums(tls, workers) == EXPECTED


def test_eighty_workers_that_dial_each_other_at_once() -> None:
    """6,320 connections, whose handshakes take a few cores longer than a peer waited for one of them alone."""
    env = fn.Environment(parallelism=80, tls="on")
    numbers = env.from_collection(range(10_000)).rebalance().map(lambda number: (number % 997, number))
    counts = numbers.key_by(lambda pair: pair[0]).count().collect()
    env.execute(workers=80)
    assert len(counts) == 10_000
    assert dict(sorted(counts)) == {key: len(range(key, 10_000, 997)) for key in range(997)}


def test_large_records_and_a_function_that_fails() -> None:
    def check(record: bytes) -> int:
        if record[0] == 37:
            raise ValueError("37")
        return len(record)

    env = fn.Environment(parallelism=2, tls="on")
    env.from_collection([bytes([number]) * 1_000_000 for number in range(50)]).rebalance().map(check).collect()
    with pytest.raises(errors.OperatorError, match="37"):
        env.execute(workers=2)


def test_the_environment_variable_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOWNET_TLS", "on")
    assert sums("off") == EXPECTED
    monkeypatch.setenv("FLOWNET_TLS", "nowhere")
    with pytest.raises(errors.ConfigError, match="no such folder"):
        sums("off")


def test_own_certificates(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    assert sums(str(tmp_path)) == EXPECTED
    env = fn.Environment(parallelism=2, tls=tmp_path)
    env.from_collection([1]).rebalance().map(str).collect()
    (tmp_path / "tls.key").unlink()
    with pytest.raises(errors.ConfigError, match=r"tls: cannot read .*/tls.key: No such file") as refused:
        env.execute(workers=2)
    assert refused.value.setting == "tls"


def test_certificates_that_no_peer_would_accept_are_refused_before_anything_starts(tmp_path: Path) -> None:
    ours, other = tmp_path / "ours", tmp_path / "other"
    for folder in (ours, other):
        folder.mkdir()
        make_certificates(folder)
    shutil.copy(other / "ca.crt", ours / "ca.crt")
    with pytest.raises(errors.ConfigError, match="would be refused by every peer: another authority issued it"):
        sums(str(ours))
    (ours / "ca.crt").write_text("no certificate")
    with pytest.raises(errors.ConfigError, match="no PEM that can be used: it has no authority behind the key"):
        sums(str(ours))


@pytest.mark.parametrize("value", ["", 1, None, "/nonexistent/folder"])
def test_what_is_no_setting_is_refused(value: object) -> None:
    with pytest.raises(errors.ConfigError, match=r"tls=.*'auto', 'off', 'on'"):
        fn.Environment(tls=value)  # type: ignore[arg-type]


def make_certificates(folder: Path) -> None:
    """Make an authority and a certificate of it with openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl")
    (folder / "tls.ext").write_text("subjectAltName=DNS:worker")
    key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
    for command in (
        f"req -x509 {key} -keyout ca.key -out ca.crt -days 2 -subj /CN={folder.name}",
        f"req {key} -keyout tls.key -out tls.csr -subj /CN=worker",
        "x509 -req -in tls.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out tls.crt -days 2 -extfile tls.ext",
    ):
        subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)
