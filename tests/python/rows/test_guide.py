"""What the guide to rows shows is true."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

GUIDE = Path(__file__).parents[3] / "docs" / "rows.md"


def test_its_blocks_run_one_after_the_other(python: Callable[..., CompletedProcess[str]], tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(blocks) == 3
    (tmp_path / "csv").mkdir()
    for number in range(3):
        (tmp_path / "csv" / f"{number}.csv").write_text(f"n\n{number}\n{number}\n")
    used = """
scores = ranked.collect()
half = env.from_arrow(fragments, schema={"n": "int64"}).collect()
env.execute()
assert sorted(half.to_arrow()["n"].to_pylist()) == [0, 0, 1, 1, 2, 2]
assert sorted(scores.to_arrow()["score"].to_pylist()) == [1.0, 2.0, 3.0, 4.0]
assert vwap.to_arrow().sort_by("window_start")["vwap"].to_pylist()[-1] == 12.0
"""
    (tmp_path / "script.py").write_text("\n".join([*blocks, used]))
    finished = python("script.py")
    assert (finished.returncode, finished.stderr) == (0, "")
    assert "vwap: double" in finished.stdout
