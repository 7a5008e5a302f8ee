"""What docs/how-to/kafka.md shows is true."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from flownet import errors

if TYPE_CHECKING:
    from .broker import Broker

GUIDE = (Path(__file__).parents[4] / "docs" / "how-to" / "kafka.md").read_text()


def test_the_example_counts_words(
    python: Callable[..., subprocess.CompletedProcess[str]], kafka: Broker, tmp_path: Path
) -> None:
    kafka.write(kafka.create("words", 2), ["to", "be", "or", "not", "to", "be"])
    kafka.create("counts", 2)
    (first, second) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)[:2]
    script = first.replace("env.execute()", f"{second}records.map(str).print()\nenv.execute()")
    script = script.replace("localhost:9092", kafka.servers).replace("/data/word-counts", str(tmp_path / "kept"))
    (tmp_path / "script.py").write_text(script)
    finished = python("script.py")
    assert finished.returncode == 0, finished.stderr
    found = [((message.key() or b"").decode(), json.loads(message.value() or b"")) for message in kafka.read("counts")]
    assert sorted(found) == [("be", 1), ("be", 2), ("not", 1), ("or", 1), ("to", 1), ("to", 2)]
    assert "value='not'" in finished.stdout


def test_the_errors_that_it_lists_are_those_that_there_are() -> None:
    listed = re.findall(r"^\| `(Kafka\w+)` \|", GUIDE, re.MULTILINE)
    assert set(listed) == {name for name in vars(errors) if name.startswith("Kafka")}
