"""``flownet lab`` as a command: what it writes, what it refuses, and how it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import matplotlib.image
import pytest
from pyarrow import parquet

from flownet.cli import main
from flownet.lab.scenarios import SCENARIOS

if TYPE_CHECKING:
    from tests.python.lab.conftest import Python

QUICK = ["--control", "credit"]


def test_a_table_says_the_verdict_in_words_and_the_finding_below(lab: Python) -> None:
    finished = lab("overflow", *QUICK)
    assert finished.returncode == 0, finished.stderr
    lines = finished.stdout.splitlines()
    assert lines[1] == f"overflow: {SCENARIOS['overflow'].question}"
    assert lines[3].split()[0] == "control"
    assert lines[3].endswith("verdict")
    assert lines[4].startswith("credit")
    assert "nothing lost" in lines[4]
    assert lines[-1].startswith("Credit holds ")
    assert "Warning" not in finished.stderr


def test_pictures_rows_and_the_page_are_written_and_whole(lab: Python, tmp_path: Path) -> None:
    finished = lab("varying", *QUICK, "--plot", "plot.png", "--rows", "rows.parquet", "--report", "report.html")
    assert finished.returncode == 0, finished.stderr
    picture = matplotlib.image.imread(tmp_path / "plot.png")
    assert picture.shape[0] > 300
    assert picture.shape[1] > 1000
    assert picture[..., :3].std() > 0.05, "something is drawn"
    table = parquet.read_table(tmp_path / "rows.parquet")
    assert table.column_names == ["scenario", "control", "seconds", "task", "measure", "value"]
    assert table.num_rows > 100
    assert_self_contained(tmp_path / "report.html", pictures=1)


@pytest.mark.parametrize("ending", [".svg", ".html"])
def test_a_picture_can_be_drawn_as(ending: str, lab: Python, tmp_path: Path) -> None:
    finished = lab("skew", *QUICK, "--plot", f"plot{ending}")
    assert finished.returncode == 0, finished.stderr
    path = tmp_path / f"plot{ending}"
    if ending == ".svg":
        assert len(list(ElementTree.parse(path).getroot().iter("{http://www.w3.org/2000/svg}path"))) > 20
    else:
        assert_self_contained(path, pictures=1)


def test_a_picture_has_the_size_and_the_title_asked_for(lab: Python, tmp_path: Path) -> None:
    finished = lab("skew", *QUICK, "--plot", "sized.png", "--size", "8x6", "--title", "")
    assert finished.returncode == 0, finished.stderr
    assert matplotlib.image.imread(tmp_path / "sized.png").shape[:2] == (6 * 160, 8 * 160)
    finished = lab("skew", *QUICK, "--plot", "titled.pdf", "--title", "Who waits?")
    assert finished.returncode == 0, finished.stderr
    assert (tmp_path / "titled.pdf").read_bytes().startswith(b"%PDF-")


class Page(HTMLParser):
    """What a page shows and refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.pictures: list[str] = []
        self.refers_to: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "img", "link"):
            self.open.append(tag)
        found = {name: value or "" for name, value in attributes}
        self.ids.add(found.get("id", ""))
        self.refers_to += [
            value for name, value in found.items() if name in ("src", "href", "srcset", "data", "xlink:href")
        ]
        assert tag not in ("link", "script", "iframe", "object")
        if tag == "svg":
            assert self.open[-2] == "figure"
        if tag == "figure":
            assert found["role"] == "img"
            self.pictures.append(found["aria-label"])

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def assert_self_contained(path: Path, pictures: int) -> None:
    """A whole page that asks nothing of the network."""
    text = path.read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    assert page.open == []
    assert len(page.pictures) == text.count("<svg") == pictures
    assert all(page.pictures)
    for reference in page.refers_to:
        assert reference[0] == "#"
        assert reference[1:] in page.ids
    assert not re.findall(r"url\((?!#)|@import", text)
    for word in ("viewport", "verdict", "flownet", "cores of", "python 3"):
        assert word in text


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["overflows"], "unknown scenario 'overflows'; there are: overflow, head-of-line"),
        (["overflow", "--control", "hope"], "unknown control 'hope'; there are: credit"),
        (["overflow", "--set", "produce=1MB/s", "--set", "consume=2MB/s"], "must exceed consume"),
        (["overflow", "--set", "produce=fast"], "produce='fast' must be a speed such as '2MB/s'"),
        (["overflow", "--set", "produce=0MB/s"], "must be a whole number of bytes, at least 1"),
        (["overflow", "--set", "produce=90GB/s"], "must be at most 20 MB/s"),
        (["overflow", "--set", "seconds=3"], "needs a unit"),
        (["overflow", "--set", "seconds=3s"], "must be more than change"),
        (["overflow", "--set", "colour=blue"], "unknown setting 'colour'; there are: produce, consume"),
        (["overflow", "--set", "produce"], "write NAME=VALUE"),
        (["skew", "--set", "channels=1.5"], "channels=1.5 must be a whole number"),
        (["skew", "--set", "channels=1"], "channels=1 must be at least 2 and at most 1000"),
        (["propagation", "--set", "resume=1s"], "must be after stall"),
        (["overflow", "--plot", "plot.gif"], "the name must end with .png or .pdf or .svg or .html"),
        (["overflow", "--plot", "/dev/null/plot.png"], "cannot be written: Not a directory"),
        (["overflow", "--rows", "no/such/folder/rows.csv"], "cannot be written: No such file or directory"),
        (
            ["overflow", "--plot", "p.png", "--size", "wide"],
            "write width x height in inches, from 6.5x8.5 for what this picture shows to 50x50",
        ),
        (["overflow", "--plot", "p.png", "--size", "1x90"], "write width x height in inches, from 6.5x8.5"),
        (["overflow", "--size", "7x5"], "--size is for a picture: add --plot"),
        (["overflow", "--plot", "p.html", "--title", ""], "--title is for a picture: add --plot"),
        (["all", "--report", "."], "the name must end with .html"),
        (["all", "--plot", "plot.png"], "--plot is for one scenario, not for all: use --report"),
        (["all", "--set", "seconds=1s"], "--set is for one scenario"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line_before_anything_runs(
    arguments: list[str],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["lab", *arguments]) == 2
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.startswith("flownet lab: ")
    assert written.err.count("\n") == 1
    assert complaint in written.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("missing", "option"), [("matplotlib", "--plot=p.png"), ("pyarrow", "--rows=r.parquet")])
def test_a_missing_package_is_named_with_the_way_to_get_it(
    missing: str, option: str, lab: Python, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules[{missing!r}] = None\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    finished = lab("overflow", option, env=environment)
    assert finished.returncode == 2
    assert finished.stderr.count("\n") == 1
    assert f"needs {missing}, which is not installed: pip install 'flownet-streams[lab]'" in finished.stderr


def test_without_pictures_no_package_for_them_is_needed(lab: Python, tmp_path: Path) -> None:
    hidden = "import sys\nsys.modules['matplotlib'] = sys.modules['pyarrow'] = None\n"
    (tmp_path / "sitecustomize.py").write_text(hidden)
    finished = lab("skew", *QUICK, "--rows", "rows.csv", env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert finished.returncode == 0, finished.stderr


def test_ctrl_c_leaves_nothing_behind_and_keeps_the_rows(tmp_path: Path, child_pids: Callable[[], set[int]]) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    before = child_pids()
    command = [sys.executable, "-m", "flownet", "lab", "overflow", "--rows", str(tmp_path / "rows.csv")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(scratch)})
    try:
        # The first word of the meters is time zero: from then on there are samples.
        while not any(path.read_bytes()[:8].strip(b"\0") for path in scratch.glob("*/meters")):
            assert process.poll() is None
            time.sleep(0.05)
        workers = {
            int(pid)
            for task in Path(f"/proc/{process.pid}/task").iterdir()
            for pid in (task / "children").read_text().split()
        }
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert len(workers) == 2
    assert "flownet: cancelled" in errors
    assert "Traceback" not in errors
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    assert list(scratch.iterdir()) == []
    assert child_pids() == before
    rows = (tmp_path / "rows.csv").read_text().splitlines()
    assert rows[0] == "scenario,control,seconds,task,measure,value"
    assert len(rows) > 1


def test_help_lists_scenarios_settings_and_controls(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["lab", "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    for scenario in SCENARIOS:
        assert f"  {scenario}: " in text
    assert "produce=2MB/s" in text
