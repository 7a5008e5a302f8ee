"""Nexmark's queries in Flink SQL, in a JVM that runs one as often as it is asked to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import environments
import flink_jvm

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


class FlinkSql(flink_jvm.Jvm):
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
        super().__init__("FlinkSqlPeer", folder, str(folder), query, str(parallelism))

    def seconds(self) -> float:
        """Run the query, and say how long it took: from the first event until the last sink has all there is."""
        seconds: float = self.ask("run")["seconds"]
        return seconds

    def found(self) -> Counter[tuple[float | str, ...]]:
        """Run the query, and give the rows that stand at its end; numbers are floats."""
        file = self.folder / "found.tsv"
        self.ask(f"find {file}")
        return Counter(comparable(line.split("\t")) for line in file.read_text().splitlines())


def comparable(row: Iterable[Any]) -> tuple[float | str, ...]:
    """Give a row in a form in which those of both can be compared."""
    return tuple(_comparable(value) for value in row)


def _comparable(value: Any) -> float | str:
    try:
        return float(value)
    except ValueError:
        return str(value)
