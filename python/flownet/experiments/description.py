"""Describes an experiment, and checks it before anything runs.

A check says in one line which key of which file is wrong and what is allowed there.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Final

from ..errors import ConfigError
from ..internal.config import whole_number
from ..internal.parameter import Value
from .workload import Figure, Workload
from .workloads import find


@dataclass(frozen=True, slots=True)
class Cell:
    """One point of a grid.

    Parameters
    ----------
    index
        Its place in the description, from 0.
    parameters
        Every parameter that has a value, checked, in base units.
    label
        What it does not share with all others: ``buffer_timeout=10 ms, channels=4``.
    """

    index: int
    parameters: Mapping[str, Value]
    label: str


@dataclass(frozen=True)
class Experiment:
    """A workload, a grid of its parameters, and how often each cell is run.

    Parameters
    ----------
    name
        Its name, and that of its folder: small letters, digits, ``.``, ``_`` and ``-``.
    workload
        A `Workload`, or the name of one that comes with flownet.
    parameters
        What is the same in all cells.
    grid
        Lists of values by parameter; every combination is a cell.
    cells
        Combinations that are no full grid. With ``grid`` too, each of them meets every combination.
    repetitions
        Runs of each cell. They alternate: each repetition runs all cells once, in an order of its own.
    seed
        Gives the orders, and the seed of each run.
    title
        A heading for the report. Default: the name.
    figures
        Those that the report shows, the most important first. Default: the first two of the workload.
    x
        The parameter on the axis. Default: the first number that varies, else the first of any kind.
    compare
        A parameter: cells that differ in nothing else are compared with those of its first value, each repetition by
        itself.
    knee
        Two figures, a throughput and a latency: their curve is drawn, and its knee marked.
    source
        Where it was read from, for error texts.

    Raises
    ------
    ConfigError
        Something in it cannot be.

    Examples
    --------
    >>> experiment = Experiment(
    ...     "timeouts", "exchange", parameters={"records": 1000}, grid={"buffer_timeout": ["1ms", "10ms"]}
    ... )
    >>> [cell.label for cell in experiment.all_cells]
    ['buffer_timeout=1 ms', 'buffer_timeout=10 ms']
    """

    name: str
    workload: str | Workload
    _: KW_ONLY
    parameters: Mapping[str, object] = field(default_factory=dict)
    grid: Mapping[str, Sequence[object]] = field(default_factory=dict)
    cells: Sequence[Mapping[str, object]] = ()
    repetitions: int = 3
    seed: int = 1
    title: str = ""
    figures: Sequence[str] = ()
    x: str | None = None
    compare: str | None = None
    knee: Sequence[str] = ()
    source: str = "experiment"

    def __post_init__(self) -> None:
        self._check_texts()
        for key, number, low, high in (
            ("repetitions", self.repetitions, 1, 10_000),
            ("seed", self.seed, 0, 2**31 - 1),
        ):
            try:
                whole_number(key, number, low, high)
            except ConfigError as error:
                raise self._wrong(key, str(error)) from None
        self._check_figures()
        for key in ("x", "compare"):
            name = getattr(self, key)
            if name is not None and name not in self.varied:
                raise self._wrong(key, f"{name!r} does not vary; what does: {_list(self.varied)}")
        if len(self.all_cells) * self.repetitions > _MOST_RUNS:
            raise self._wrong(
                "grid", f"{len(self.all_cells)} cells, {self.repetitions} times each: {_MOST_RUNS} runs are the most"
            )

    @cached_property
    def work(self) -> Workload:
        """The workload itself."""
        if isinstance(self.workload, Workload):
            return self.workload
        try:
            return find(self.workload)
        except ConfigError as error:
            raise self._wrong("workload", str(error)) from None

    @cached_property
    def all_cells(self) -> Sequence[Cell]:
        """Every cell, in the order of the description."""
        shared = self._read_all("parameters", self.parameters)
        defaults = {
            name: parameter.read(name, parameter.default)
            for name, parameter in self.work.parameters.items()
            if parameter.default is not None
        }
        cells = list[Cell]()
        seen = dict[str, int]()
        for index, point in enumerate(self._points):
            label = self.written({name: point[name] for name in self.varied if name in point})
            if (first := seen.setdefault(label, index)) != index:
                raise self._wrong("cells", f"cells {first + 1} and {index + 1} are the same: {label}")
            cells.append(Cell(index, defaults | shared | point, label))
            self._check_together(cells[-1])
        return cells

    @cached_property
    def varied(self) -> Sequence[str]:
        """Names of what is not the same in all cells; of a single cell, all that it is said to be."""
        names = dict.fromkeys(name for point in self._points for name in point)
        absent = object()
        return [
            name
            for name in names
            if len(self._points) == 1 or len({point.get(name, absent) for point in self._points}) > 1
        ]

    @property
    def heading(self) -> str:
        """What to call it before people."""
        return self.title or self.name

    @cached_property
    def shown(self) -> Sequence[str]:
        """Names of the figures that a report shows."""
        return tuple(self.figures or tuple(self.work.figures)[:2])

    @property
    def headline(self) -> tuple[str, Figure]:
        """The figure that "best" is about."""
        return self.shown[0], self.work.figures[self.shown[0]]

    @cached_property
    def axis(self) -> str:
        """The parameter on the axis of a plot."""
        numeric = [name for name in self.varied if self.work.parameters[name].is_numeric]
        return self.x or [*numeric, *self.varied][0]

    def written(self, parameters: Mapping[str, Value]) -> str:
        """Write some checked parameters in one line."""
        known = self.work.parameters
        return ", ".join(f"{name}={known[name].write(value)}" for name, value in parameters.items())

    @cached_property
    def _points(self) -> list[dict[str, Value]]:
        axes = list[list[tuple[str, Value]]]()
        for name, values in _mapping(self, "grid", self.grid).items():
            key = f"grid.{name}"
            if not isinstance(values, Sequence) or isinstance(values, str):
                raise self._wrong(key, f"{values!r} must be a list of values")
            if not values:
                raise self._wrong(key, "the list is empty: give at least one value")
            axes.append([(name, self._read(f"{key}[{place}]", name, value)) for place, value in enumerate(values)])
        if not isinstance(self.cells, Sequence):
            raise self._wrong("cells", f"{self.cells!r} must be a list of tables")
        own = [self._read_all(f"cells[{place}]", cell) for place, cell in enumerate(self.cells)]
        if not axes and not own:
            raise self._wrong("grid", "there are no cells: give grid, cells or both")
        return [cell | dict(point) for cell in own or [{}] for point in itertools.product(*axes)]

    def _read_all(self, key: str, given: object) -> dict[str, Value]:
        values = _mapping(self, key, given)
        return {name: self._read(f"{key}.{name}", name, value) for name, value in values.items()}

    def _read(self, key: str, name: str, value: object) -> Value:
        try:
            parameter = self.work.parameters[name]
        except KeyError:
            raise self._wrong(
                key,
                f"the workload {self.work.name!r} has no parameter {name!r}{_meant(name, self.work.parameters)}; "
                f"it has: {_list(self.work.parameters)}",
            ) from None
        try:
            return parameter.read(name, value)
        except ConfigError as error:
            raise self._wrong(key, str(error)) from None

    def _check_together(self, cell: Cell) -> None:
        try:
            self.work.check(cell.parameters)
        except ConfigError as error:
            raise self._wrong(f"cell {cell.index + 1} ({cell.label})", str(error)) from None

    def _check_texts(self) -> None:
        # A TOML file can hold anything.
        name: object = self.name
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise self._wrong("name", f"{name!r} must be small letters, digits, '.', '_' or '-'")
        for key in ("title", "source", "x", "compare"):
            if not isinstance(getattr(self, key), str | None):
                raise self._wrong(key, f"{getattr(self, key)!r} must be a text")
        if not isinstance(self.workload, str | Workload):
            raise self._wrong("workload", f"{self.workload!r} must be the name of a workload")

    def _check_figures(self) -> None:
        known = self.work.figures
        for key in ("figures", "knee"):
            names = getattr(self, key)
            if not isinstance(names, Sequence) or isinstance(names, str):
                raise self._wrong(key, f"{names!r} must be a list of figures")
            for name in names:
                if name not in known:
                    raise self._wrong(
                        key,
                        f"the workload {self.work.name!r} has no figure {name!r}{_meant(str(name), known)}; "
                        f"it has: {_list(known)}",
                    )
        if len(self.knee) not in (0, 2):
            raise self._wrong("knee", f"{list(self.knee)} must be two figures, a throughput and a latency")

    def _wrong(self, key: str, what: str) -> ConfigError:
        return ConfigError(f"{self.source}: {key}: {what}", setting=key)


def unknown_key(source: str, key: str, known: Iterable[str]) -> ConfigError:
    """Make the error for a key that a description does not have."""
    return ConfigError(f"{source}: {key}: unknown key{_meant(key, known)}; there are: {_list(known)}", setting=key)


def _mapping(experiment: Experiment, key: str, given: object) -> Mapping[str, object]:
    if not isinstance(given, Mapping):
        raise experiment._wrong(key, f"{given!r} must be a table of parameters")
    return given


def _meant(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)


_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_MOST_RUNS: Final = 100_000
