"""What the guide to rows shows is true."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pyarrow as pa
import pyarrow.parquet as pq

GUIDE = Path(__file__).parents[3] / "docs" / "rows.md"


def test_its_blocks_run_one_after_the_other(python: Callable[..., CompletedProcess[str]], tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(blocks) == 7
    (tmp_path / "ticks").mkdir()
    ticks = pa.table({"symbol": ["A", "A", "B"], "ms": [1, 2, 1_500], "price": [1.0, 3.0, 5.0], "size": [1, 1, 1]})
    pq.write_table(ticks, tmp_path / "ticks" / "a.parquet")
    used = """
scores = ranked.collect()
env.execute()
assert sorted(scores.to_arrow()["score"].to_pylist()) == [1.0, 2.0, 3.0, 4.0]
assert vwap.to_arrow().sort_by("window_start")["vwap"].to_pylist()[-1] == 12.0
assert sorted(by_minute.to_arrow()["vwap"].to_pylist()) == [11.0, 20.0]
assert priced.to_arrow().sort_by("ms")["rate"].to_pylist() == [1.1, None, 1.2]
"""
    (tmp_path / "script.py").write_text("\n".join([*blocks, used]))
    finished = python("script.py")
    assert (finished.returncode, finished.stderr) == (0, "")
    assert "vwap: double" in finished.stdout
    assert "\n3 rows\n" in finished.stdout
    assert "4 rows of ['symbol', 'price', 'size', 'ms']" in finished.stdout
    seconds = [row for path in (tmp_path / "seconds").iterdir() for row in pq.read_table(path).to_pylist()]
    assert sorted((row["symbol"], row["high"], row["low"]) for row in seconds) == [("A", 3.0, 1.0), ("B", 5.0, 5.0)]
