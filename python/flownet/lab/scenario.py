"""Scenario: a question about flow control, how to answer it by an experiment, and how to show the answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from .result import Figures, Result
from .trace import Trace

if TYPE_CHECKING:
    from .picture import Picture


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a scenario's table."""

    head: str
    cell: Callable[[Figures], str]


class Scenario(ABC):
    """One scenario. Subclasses are dataclasses; their fields are the settings."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    name: ClassVar[str]
    question: ClassVar[str]
    """What it asks, for people."""
    controls: ClassVar[tuple[str, ...]]
    """Controls it can be run under, in the order in which they are shown."""
    columns: ClassVar[tuple[Column, ...]]
    """Its table, without the names of the controls and the verdicts."""

    @abstractmethod
    def check(self) -> None:
        """Refuse settings that make no sense together; raises `ConfigError`."""

    @abstractmethod
    def duration(self) -> float:
        """Estimate the seconds that one run takes."""

    @abstractmethod
    def run(self, trace: Trace) -> None:
        """Run it under the control of ``trace`` and fill that."""

    @abstractmethod
    def figures(self, trace: Trace) -> Figures:
        """Bring a complete trace down to figures."""

    @abstractmethod
    def verdict(self, figures: Figures) -> str:
        """Say what the figures mean, in a clause."""

    @abstractmethod
    def finding(self, results: Sequence[Result]) -> str:
        """Say what all results together show, in a sentence: the title of the picture."""

    @abstractmethod
    def draw(self, results: Sequence[Result], picture: Picture) -> None:
        """Draw the results into a picture."""

    def table(self, results: Sequence[Result]) -> list[list[str]]:
        """Write the rows of the table for people, the head first."""
        rows = [["control", *(column.head for column in self.columns), "verdict"]]
        for result in results:
            rows.append([result.control, *(column.cell(result.figures) for column in self.columns), result.verdict])
        return rows

    def result(self, trace: Trace) -> Result:
        """Judge a complete trace."""
        figures = self.figures(trace)
        return Result(trace.control, trace, figures, self.verdict(figures))
