"""Nexmark's queries in Flink SQL, in a JVM that runs one as often as it is asked to."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import environments
import flink_jvm
from interface import Unavailable

QUERIES = ("q0", "q1", "q2", "q3", "q4", "q5", "q7", "q8")
"""Those that Flink SQL has. For q6 it would need an ``OVER`` window on results that change, which it refuses."""


def prepare() -> str:
    """Install Flink and compile the program if need be, and return their versions.

    Raises
    ------
    Unavailable
        What is missing.
    """
    flink_jvm.compiled("FlinkSqlPeer")
    services = environments.build_folder("flink") / "META-INF" / "services"
    services.mkdir(parents=True, exist_ok=True)
    # By this Flink finds the sink of the program.
    (services / "org.apache.flink.table.factories.Factory").write_text("FlinkSqlPeer$NotedFactory\n")
    return flink_jvm.versions()


class FlinkSql:
    """A JVM with the events of a query, which runs it again and again.

    So its code is compiled when it counts, as Flink's is in a cluster.
    """

    def __init__(self, query: str, kinds: Mapping[str, Sequence[Iterable[Iterable[Any]]]], folder: Path) -> None:
        """Start it. Of each kind of event the parts are those of the subtasks of its source."""
        self.folder = folder
        for kind, parts in kinds.items():
            for subtask, events in enumerate(parts):
                lines = ("\t".join(map(str, event)) for event in events)
                (folder / f"{kind}-{subtask}.tsv").write_text("".join(f"{line}\n" for line in lines))
        [parallelism] = {len(parts) for parts in kinds.values()}
        # It is killed at its end: what it has in files goes with the folder.
        java = flink_jvm.command("FlinkSqlPeer", f"-Djava.io.tmpdir={folder}")
        command = [*java, str(folder), query, str(parallelism)]
        self.log = (folder / "flink.log").open("w+")
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self.log, text=True)

    def __enter__(self) -> FlinkSql:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.log):
            if pipe is not None:
                pipe.close()

    def seconds(self) -> float:
        """Run the query, and say how long it took: from the first event until the last sink has all there is."""
        seconds: float = self._ask("run")["seconds"]
        return seconds

    def found(self) -> Counter[tuple[float | str, ...]]:
        """Run the query, and give the rows that stand at its end; numbers are floats."""
        file = self.folder / "found.tsv"
        self._ask(f"find {file}")
        return Counter(comparable(line.split("\t")) for line in file.read_text().splitlines())

    def _ask(self, wish: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(f"{wish}\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
            figures: dict[str, Any] = json.loads(answer)
        except (OSError, ValueError) as error:
            self.process.wait()
            self.log.seek(0)
            raise Unavailable(f"Flink ended: {self.log.read().strip()[-2000:]}") from error
        return figures


def comparable(row: Iterable[Any]) -> tuple[float | str, ...]:
    """Give a row in a form in which those of both can be compared."""
    return tuple(_comparable(value) for value in row)


def _comparable(value: Any) -> float | str:
    try:
        return float(value)
    except ValueError:
        return str(value)
