"""Functions over data frames of pandas 3, whose strings have a type of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PANDAS_3 = Path(sys.prefix) / "pandas-3"

PROGRAM = """
import pandas as pd, pyarrow as pa, flownet as fn

assert pd.__version__.startswith("3."), pd.__version__
table = pa.table({"s": ["a", None, "ö"] * 3, "n": [1, 2, 3] * 3})


def run(rows):
    collected = rows.collect()
    env.execute(workers=0)
    return collected


def upper(frame):
    return frame.assign(u=frame["s"].str.upper(), m=frame["n"] * 2)


env = fn.Environment()
schema = {"s": "utf8", "n": "int64", "u": "utf8", "m": "int64"}
found = run(env.from_arrow(table).map_batches(upper, format="pandas", schema=schema))
assert found.to_arrow()["u"].to_pylist() == ["A", None, "Ö"] * 3
assert found.to_arrow()["m"].to_pylist() == [2, 4, 6] * 3
assert found.to_pandas()["u"].dtype == "str"

env = fn.Environment()
same = env.from_arrow(table).map_batches(lambda frame: frame, format="pandas")
assert same.schema == {"s": "utf8", "n": "int64"}
assert run(same).to_arrow().to_pydict() == table.to_pydict()

env = fn.Environment()
none = env.from_arrow(table).map_batches(lambda frame: frame.iloc[:0], format="pandas")
assert len(run(none)) == 0

env = fn.Environment()
assert env.from_arrow(pd.DataFrame({"s": ["a", None]})).schema == {"s": "utf8"}


class Longest(fn.BatchAggregate):
    state = {"longest": "utf8"}
    returns = "utf8"
    format = "pandas"

    def accumulate(self, rows, groups, count):
        return self.best(rows.iloc[:, 0], groups, count)

    def merge(self, states, groups, count):
        return self.best(states["longest"], groups, count)

    def best(self, texts, groups, count):
        found = [""] * count
        for text, group in zip(texts, groups):
            if isinstance(text, str):
                found[group] = max(found[group], text, key=lambda text: (len(text), text))
        return pd.DataFrame({"longest": pd.Series(found, dtype="str")})

    def result(self, states):
        return states["longest"]


env = fn.Environment()
longest = env.from_arrow(table).key_by("n").window(fn.EndOfInput()).agg(longest=Longest().of("s"))
assert sorted(run(longest).to_arrow()["longest"].to_pylist()) == ["", "a", "ö"]
print("all of it")
"""


@pytest.mark.skipif(not PANDAS_3.exists(), reason="`make tools` installs pandas 3 beside the environment")
def test_functions_over_frames_of_pandas_3(tmp_path: Path) -> None:
    program = tmp_path / "frames.py"
    program.write_text(PROGRAM)
    path = os.pathsep.join(filter(None, [str(PANDAS_3), os.environ.get("PYTHONPATH", "")]))
    ended = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, check=False
    )
    assert (ended.stdout, ended.returncode) == ("all of it\n", 0), ended.stderr
