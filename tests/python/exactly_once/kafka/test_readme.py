"""The job over Kafka in the README counts clicks."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .broker import Broker

README = (Path(__file__).parents[4] / "README.md").read_text()


def test_clicks_are_counted_by_user_and_minute(
    python: Callable[..., subprocess.CompletedProcess[str]], kafka: Broker, tmp_path: Path
) -> None:
    clicks = [json.dumps({"user": user, "page": "/"}) for user in ("ann", "bob", "ann")]
    kafka.write(kafka.create("clicks", 2), clicks)
    kafka.create("clicks-per-minute", 2)
    (program,) = [block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "Kafka" in block]
    program = program.replace("localhost:9092", kafka.servers).replace(
        'value="json")\ntimes', 'value="json", end="latest")\ntimes'
    )
    (tmp_path / "counts.py").write_text(program)
    finished = python("counts.py")
    assert finished.returncode == 0, finished.stderr
    found: dict[str, int] = {}
    for message in kafka.read("clicks-per-minute"):
        user, result = (message.key() or b"").decode(), json.loads(message.value() or b"")
        assert result["minute"] % 60_000 == 0
        found[user] = found.get(user, 0) + result["clicks"]
    assert found == {"ann": 2, "bob": 1}
