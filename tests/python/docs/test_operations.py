"""Programs of the pages about operations run as they are shown, and print the output that is shown."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flownet import cli
from flownet.cli.words import with_places_apart
from flownet.client import Client
from flownet.errors import FlownetError

DOCS = Path(__file__).parents[3] / "docs"

PAGES = [
    "concepts/checkpoints.md",
    "concepts/delivery-guarantees.md",
    "how-to/custom-sink.md",
    "how-to/custom-source.md",
    "how-to/follow-files.md",
    "operations/monitoring.md",
    "operations/savepoints.md",
    "operations/state.md",
    "operations/tuning.md",
    "reference/metrics.md",
]
PROGRAM = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<shown>.*?)^```\n)?", re.DOTALL | re.MULTILINE)
TOKEN = "choose-a-long-token"


def programs() -> Iterator[object]:
    for page in PAGES:
        found = list(PROGRAM.finditer((DOCS / page).read_text()))
        assert found, f"{page} shows no program"
        for number, program in enumerate(found):
            yield pytest.param(program["code"], program["shown"], id=f"{page}-{number}")


@pytest.mark.parametrize(("code", "shown"), list(programs()))
def test_a_program_prints_the_output_that_is_shown(
    code: str, shown: str | None, python: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(code)
    finished = python("program.py", env={**os.environ, "OTEL_EXPORTER_OTLP_TIMEOUT": "1"})
    assert finished.returncode == 0, finished.stderr
    if shown is not None:
        assert finished.stdout == shown


def commands() -> Iterator[object]:
    for page in sorted((DOCS / "operations").glob("*.md")):
        for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
            for line in re.findall(r"^flownet .*", block, re.MULTILINE):
                yield pytest.param(line, id=f"{page.name}: {line}")


@pytest.mark.parametrize("line", list(commands()))
def test_a_command_of_the_pages_is_understood(line: str) -> None:
    words = shlex.split(re.split(r" [|>] ", line)[0], comments=True)[1:]
    assert cli._parser().parse_args(with_places_apart(words)).command


class Upgrade:
    """Types the commands of the page about upgrades into a shell."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self._port = port
        self._page = (DOCS / "operations" / "upgrade.md").read_text()
        for version, program in enumerate(re.findall(r"```python\n(.*?)```", self._page, re.DOTALL), 1):
            (folder / f"counts_v{version}.py").write_text(program)
        tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._variables = {**os.environ, "PATH": tools, "FLOWNET_UI": f"http://127.0.0.1:{port}"}
        self._variables["FLOWNET_UI_TOKEN"] = TOKEN

    def lines(self, start: str) -> list[str]:
        """Return the commands of the page that begin with some words, for another port and a shorter interval."""
        shell = "\n".join(re.findall(r"```sh\n(.*?)```", self._page, re.DOTALL))
        found = re.findall(rf"^{re.escape(start)}.*", shell, re.MULTILINE)
        return [line.replace("8081", str(self._port)).replace("-s 1 ", "-s 0.2 ") for line in found]

    def type(self, line: str) -> str:
        """Run a command to its end."""
        finished = subprocess.run(
            ["bash", "-c", line], cwd=self.folder, env=self._variables, capture_output=True, text=True, check=False
        )
        assert finished.returncode == 0, finished.stderr
        return finished.stdout + finished.stderr

    @contextmanager
    def running(self, line: str) -> Iterator[subprocess.Popen[str]]:
        """Run a job until a checkpoint is complete, and to its end when the block is over."""
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        with subprocess.Popen(["bash", "-c", f"exec {line}"], cwd=self.folder, env=self._variables, **streams) as job:  # type: ignore[call-overload]
            try:
                client = Client(self._variables["FLOWNET_UI"], TOKEN)
                while not self._has_checkpoints(client):
                    assert job.poll() is None, job.stdout.read()
                    time.sleep(0.05)
                yield job
                output, _ = job.communicate(timeout=60)
                assert job.returncode == 0, output
                self.output = output
            finally:
                if job.poll() is None:
                    job.send_signal(signal.SIGKILL)

    @staticmethod
    def _has_checkpoints(client: Client) -> bool:
        try:
            return any(client.status(job.id).checkpoints_made > 1 for job in client.jobs())
        except FlownetError:
            return False

    def results(self) -> list[str]:
        return sorted(
            line for part in (self.folder / "results").glob("*.txt") for line in part.read_text().splitlines()
        )


def right_results() -> list[str]:
    return sorted(f"{key} {count}" for key in range(4) for count in range(1, 5_001))


@pytest.fixture
def upgrade(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> Upgrade:
    return Upgrade(tmp_path, free_ports(1)[0])


def test_a_job_is_upgraded_and_rolled_back_without_losing_state(upgrade: Upgrade) -> None:
    stop_old, stop_new = upgrade.lines("flownet stop")
    old, back, discard = upgrade.lines("flownet run counts_v1:env")
    (new,) = upgrade.lines("flownet run counts_v2:env")
    (listing,) = upgrade.lines("flownet checkpoints")

    with upgrade.running(old):
        assert "told to stop" in upgrade.type(stop_old)
    assert upgrade.type(listing).splitlines()[1].endswith("last")
    before = upgrade.results()

    with upgrade.running(new):
        upgrade.type(stop_new)
    assert "went on from checkpoint" in upgrade.output
    upgraded = upgrade.results()
    marked = [line for line in upgraded if line.endswith("v2")]
    assert set(before) < set(upgraded)
    assert marked
    assert {line.split()[0] for line in marked} == {"0", "2"}

    assert "went on from checkpoint" in upgrade.type(back)
    whole = upgrade.results()
    assert [line for line in whole if line.endswith("v2")] == marked, "results of the new version stay"
    assert len(whole) == len(set(whole))
    # All but the odd keys that the new version dropped, each once.
    kept = {line.removesuffix(" v2") for line in whole}
    missing = set(right_results()) - kept
    assert {line.split()[0] for line in missing} <= {"1", "3"}
    assert abs(len(missing) - len(marked)) <= 1

    upgrade.type(discard)
    assert upgrade.results() == right_results(), "as if the new version had never run"


def test_a_job_starts_from_an_older_checkpoint(upgrade: Upgrade) -> None:
    page = (DOCS / "operations" / "recover.md").read_text()
    commands = re.findall(r"^flownet .*", "\n".join(re.findall(r"```sh\n(.*?)```", page, re.DOTALL)), re.MULTILINE)
    keep, listing, start = (
        line.replace("wordcount:env", "counts_v1:env").replace("/data/", "data/").replace("-s 10", "-s 0.2")
        for line in commands
    )
    upgrade.type(keep)
    assert upgrade.results() == right_results()
    listed = [int(line.split()[0]) for line in upgrade.type(listing).splitlines()[1:11]]
    assert len(listed) == 10, "as many as the command keeps"
    assert "went on from checkpoint" in upgrade.type(start.replace("checkpoint 7", f"checkpoint {listed[2]}"))
    assert upgrade.results() == right_results(), "files of later checkpoints were written again"
