"""The Python classes of task reports agree with the Rust structs that fill them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "tests" / "task_reports.py"
GENERATED = ROOT / "python" / "flownet" / "observation" / "task_reports.py"
REPORT = ROOT / "rust" / "flownet-cluster" / "src" / "report.rs"


def generated(root: Path) -> tuple[str, str]:
    """Generate the classes from the Rust sources below a folder; returns them and the error."""
    code = (
        "import runpy, pathlib, sys; script = runpy.run_path(sys.argv[1]); "
        "crates = [pathlib.Path(sys.argv[2]) / path.relative_to(script['ROOT']) for path in script['CRATES']]; "
        "script['generate'].__globals__['CRATES'] = crates; sys.stdout.write(script['generate']())"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(SCRIPT), str(root)], capture_output=True, text=True, check=False
    )
    return run.stdout, run.stderr


def changed_copy(root: Path, before: str, after: str) -> None:
    """Copy the Rust sources, with one change to the report of a task."""
    for crate in ("flownet-cluster", "flownet-runtime"):
        for path in (ROOT / "rust" / crate / "src").rglob("*.rs"):
            copy = root / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            text = path.read_text()
            if path == REPORT:
                assert before in text
                text = text.replace(before, after)
            copy.write_text(text)


def test_the_generated_file_is_fresh() -> None:
    text, error = generated(ROOT)
    assert error == ""
    assert GENERATED.read_text() == text, "run: python tests/task_reports.py"


def test_a_new_metric_needs_no_other_file(tmp_path: Path) -> None:
    field = "    /// Records that it liked.\n    pub liked_records: Option<u64>,\n    /// Bytes read over TCP.\n"
    changed_copy(tmp_path, "    /// Bytes read over TCP.\n", field)
    text, error = generated(tmp_path)
    assert error == ""
    added = set(text.splitlines()) - set(GENERATED.read_text().splitlines())
    assert added == {"    liked_records: int | None = None", '    """Records that it liked."""'}


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        ("    /// Bytes read over TCP.\n", "", "bytes_tcp has no doc comment"),
        ("    pub bytes_tcp: u64,\n", "    pub bytes_tcp: Tcp,\n", "the Rust type Tcp has no Python type"),
        ("    pub bytes_tcp: u64,\n", "    pub tcp: u64,\n", "Rust no longer sends bytes_tcp of TaskReport"),
        ("pub struct VertexReport {", "pub struct Vertex {", "0 Rust structs are named VertexReport"),
    ],
)
def test_a_change_that_python_cannot_follow_is_an_error(
    tmp_path: Path, before: str, after: str, complaint: str
) -> None:
    changed_copy(tmp_path, before, after)
    text, error = generated(tmp_path)
    assert text == ""
    assert complaint in error
