"""``flownet completion`` prints scripts by which shells complete."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Python = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (("flownet", "ch"), ["checkpoints"]),
        (("flownet", "top", "--int"), ["--interval"]),
        (("flownet", "completion", "f"), ["fish"]),
        (("flownet", "run", "--recovery-directory", "fol"), ["folder"]),
    ],
)
def test_bash_completes_commands_options_and_folders(
    python: Python, tmp_path: Path, words: tuple[str, ...], completed: list[str]
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "follower").write_text("a file, and no folder")
    (tmp_path / "script").write_text(python("-m", "flownet", "completion", "bash").stdout)
    asked = " ".join(words)
    program = (
        f"source ./script; COMP_WORDS=({asked}); COMP_CWORD={len(words) - 1}; COMP_LINE='{asked}'; "
        f"COMP_POINT={len(asked)}; _shtab_flownet flownet {words[-1]} {words[-2]}; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    finished = subprocess.run(["bash", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (finished.stdout.split(), finished.stderr) == (completed, "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_a_script_too(python: Python, tmp_path: Path, shell: str) -> None:
    finished = python("-m", "flownet", "completion", shell)
    assert finished.returncode == 0, finished.stderr
    for command in ("checkpoints", "savepoint", "recovery-directory"):
        assert command in finished.stdout
    if shutil.which(shell):
        (tmp_path / "script").write_text(finished.stdout)
        subprocess.run([shell, "-n", "script"], cwd=tmp_path, check=True)


def test_without_the_extra_the_way_to_it_is_said(python: Python) -> None:
    script = "import sys; sys.modules['shtab'] = None; from flownet import cli; sys.exit(cli.main())"
    finished = python("-c", script, "completion", "bash")
    assert finished.returncode == 1
    expected = (
        "flownet.errors.FlownetError: flownet completion needs shtab: pip install 'flownet-streams[completion]'\n"
    )
    assert finished.stderr == expected
