"""State in a checkpoint or savepoint as Python values, the result of `flownet.state.read`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from .. import _flownet
from ..errors import ConfigError
from .expiring_value import EXPIRING, without_expiry
from .tables import text_table

if TYPE_CHECKING:
    import pyarrow


class KeptWindow(NamedTuple):
    """The window of a value."""

    start_ms: int
    """Start in milliseconds since 1970-01-01 UTC."""
    end_ms: int | None
    """When it ends; None of a slice: sliding and tumbling windows that fire once are made of them."""


@dataclass(frozen=True, slots=True)
class KeptEntry:
    """One entry of an operator's state."""

    operator: str
    """Name of the operator."""
    uid: str | None
    """uid of the operator; None if it has none."""
    state: str
    """Name of the state: that of a typed state or of an entry of ``ctx.state``; else ``value`` for a result so far,
    ``left`` and ``right`` for the records of a join, ``timers.event``, ``timers.processing``, ``timers.expiry`` and
    ``timers.event_expiry``, and what sources and sinks call theirs."""
    what: Literal["value", "record", "timer", "item"]
    """Kind of the entry: a value of a key, a waiting record, a timer, or an item without a key."""
    key: Any
    """The key; None for an item."""
    window: KeptWindow | None
    """The window; None if there is none."""
    time_ms: int | None
    """Time of the timer or of the record, or expiry time of the value."""
    value: Any
    """The value. Of `mean` the sum and the number of records; of files and splits of sources and sinks, and of
    rows, the bytes."""


@dataclass(frozen=True, slots=True)
class KeptOperator:
    """An operator of the job of a checkpoint."""

    name: str
    """Its name."""
    uid: str | None
    """Its uid; None if it was given none."""
    kind: str
    """Kind of the operator."""
    parallelism: int
    """Number of subtasks."""


class KeptState:
    """A checkpoint or savepoint that was read. Nothing in it is changed.

    ``str(kept)`` says how much is where.
    """

    def __init__(self, found: dict[str, Any]) -> None:
        self.job: str = found["job"]
        """Name of the job."""
        self.checkpoint: int = found["checkpoint"]
        """Number of the checkpoint."""
        self.triggered = datetime.fromtimestamp(found["triggered_ms"] / 1000, UTC)
        """Time at which the checkpoint was triggered."""
        self.max_parallelism: int = found["max_parallelism"]
        """Number of key groups of the job."""
        names = {operator["uid"]: operator["name"] for operator in found["operators"]}
        self.operators = tuple(
            KeptOperator(operator["name"], uid_given(operator["uid"]), operator["kind"], operator["parallelism"])
            for operator in found["operators"]
        )
        """The operators of the job, upstream first."""
        self._entries: list[KeptEntry] = []
        for uid, state, what, key, window, time_ms, value in found["entries"]:
            place = (names[uid], uid_given(uid))
            of = None if window is None else KeptWindow(*window)
            if state == "state":
                self._entries += [
                    KeptEntry(*place, name, what, key, of, _expiry(one), without_expiry(one))
                    for name, one in value.items()
                ]
            else:
                self._entries.append(KeptEntry(*place, state, what, key, of, time_ms, value))

    def entries(self, operator: str | None = None, state: str | None = None) -> list[KeptEntry]:
        """Return entries of state.

        Parameters
        ----------
        operator
            Uid or name of an operator. Default: all of them.
        state
            Name of a state, as `KeptEntry.state` has it. Default: all of them.

        Raises
        ------
        ConfigError
            There is no such operator.
        """
        if operator is not None and not any(operator in (one.uid, one.name) for one in self.operators):
            there = ", ".join(repr(one.uid or one.name) for one in self.operators)
            raise ConfigError(f"no operator {operator!r} in checkpoint {self.checkpoint}; there are: {there}")
        of_operator = [one for one in self._entries if operator is None or operator in (one.uid, one.operator)]
        return [one for one in of_operator if state is None or state == one.state]

    def values(self, operator: str, state: str = "value") -> dict[Any, Any]:
        """Return the values of a state by key, or by ``(key, window)`` if it has windows."""
        values: dict[Any, Any] = {}
        for one in self.entries(operator, state):
            if one.what == "value":
                place = one.key if one.window is None else (one.key, one.window)
                values[cast(Hashable, place)] = one.value
        return values

    def timers(self, operator: str | None = None) -> list[KeptEntry]:
        """Return pending timers, the earliest first."""
        timers = [one for one in self.entries(operator) if one.what == "timer"]
        return sorted(timers, key=lambda one: one.time_ms or 0)

    def to_arrow(self, operator: str | None = None, state: str | None = None) -> pyarrow.Table:
        """Return what `entries` returns as a table, a row each; what Arrow has no type for becomes its ``repr``.

        Raises
        ------
        ImportError
            pyarrow is not installed.
        """
        import pyarrow as pa

        entries = self.entries(operator, state)
        columns: dict[str, Any] = {
            name: pa.array([getattr(one, name) for one in entries], pa.string())
            for name in ("operator", "uid", "state", "what")
        }
        columns["key"] = _column(pa, [one.key for one in entries])
        for name in ("start_ms", "end_ms"):
            columns[name] = pa.array([one.window and getattr(one.window, name) for one in entries], pa.int64())
        columns["time_ms"] = pa.array([one.time_ms for one in entries], pa.int64())
        columns["value"] = _column(pa, [one.value for one in entries])
        return pa.table(columns)

    def __str__(self) -> str:
        counted = Counter((one.operator, one.uid or "", one.state) for one in self._entries)
        rows = [["operator", "uid", "state", "entries"], *([*place, str(count)] for place, count in counted.items())]
        head = f"checkpoint {self.checkpoint} of job {self.job!r}, {self.triggered:%Y-%m-%d %H:%M:%S} UTC"
        return "\n".join([head, *text_table(rows)])

    def __repr__(self) -> str:
        return f"<KeptState of checkpoint {self.checkpoint} of job {self.job!r}: {len(self._entries)} entries>"


def read_state(path: str, checkpoint: int | None) -> KeptState:
    """Read a checkpoint, as of `flownet.state.read`."""
    return KeptState(_flownet.read_state(path, checkpoint))


def uid_given(uid: str) -> str | None:
    """Return the uid that the user gave an operator; None for a number from the plan."""
    return None if uid.startswith("#") else uid


def _expiry(value: Any) -> int | None:
    return value.expires_ms if isinstance(value, EXPIRING) else None


def _column(pa: Any, values: list[Any]) -> Any:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return pa.array([None if value is None else repr(value) for value in values], pa.string())
