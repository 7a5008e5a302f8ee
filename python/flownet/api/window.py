"""Windows: how the records of a stream are cut into finite parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta, tzinfo
from typing import Any, Final, Literal, get_args

from ..errors import ConfigError
from ..internal.calendar_pieces import CalendarPiece
from ..internal.config import duration_us, format_duration, time_zone
from ..planning import spec

TimeDomain = Literal["event", "processing"]
"""By which clock: that of the records' timestamps and watermarks, or the wall's where a task runs."""


@dataclass(frozen=True, slots=True, init=False)
class Tumbling:
    """Windows of one fixed size, side by side; or days, weeks and months of a time zone.

    Windows are aligned to 1970-01-01 UTC, so ``Tumbling("1h")`` begins on the hour. In processing time a record belongs
    to the window in which it arrives, which fires when its end has passed; in event time to the one of its timestamp,
    which fires when the watermark has passed it. The one that is open when the input ends fires then.

    With ``zone``, windows begin when clocks of that zone show midnight. The day on which clocks go forward has 23
    hours, and the one on which they go back has 25. If clocks skip midnight, the day begins where they go on. Weeks
    begin on Monday, months on their first day.

    Parameters
    ----------
    size
        Length of a window, at least one millisecond: ``"5s"``, ``"250ms"`` or a ``timedelta``. With ``zone`` a number
        of days, weeks or months: ``"1d"``, ``"1w"``, ``"1mo"``.
    offset
        How long after a multiple of the size windows begin; less than the size. Days that begin at 6 in the morning:
        ``Tumbling("1d", offset="6h")``. With ``zone`` it is what its clocks show. Default: ``"0s"``.
    time
        ``"event"`` or ``"processing"``. Default: event time where the stream has timestamps, as
        `Stream.assign_timestamps_and_watermarks` gives them, otherwise processing time.
    zone
        Time zone of days, weeks and months, by its name in the tz database or as a ``ZoneInfo``. Columns
        ``window_start`` and ``window_end`` of rows are in this zone. Default: None, days of 24 hours in UTC.

    Raises
    ------
    ConfigError
        ``size`` is not a duration, or not a whole number of milliseconds; ``offset`` does not fit; there is no such
        ``zone``; ``zone`` is given for a size that is no day, week or month.

    Examples
    --------
    >>> import flownet as fn
    >>> fn.Tumbling("5s").size_ms
    5000
    >>> print(fn.Tumbling("1d", zone="America/New_York"))
    1 day of America/New_York
    """

    size_ms: int
    """Length of a window in milliseconds; with ``zone`` the usual one: 24 hours a day, 30 days a month."""
    offset_ms: int
    """How many milliseconds after a multiple of the size windows begin."""
    time: TimeDomain | None
    """By which clock; None: as the stream has it."""
    zone: str | None
    """Time zone of days, weeks and months; None for windows of a fixed size."""
    _piece: CalendarPiece | None = field(repr=False)

    def __init__(
        self,
        size: str | timedelta,
        offset: str | timedelta = "0s",
        time: TimeDomain | None = None,
        *,
        zone: str | tzinfo | None = None,
    ) -> None:
        piece = None if zone is None else _piece_of(size)
        size_ms = milliseconds("Tumbling", "size", size) if piece is None else piece.usual_ms
        object.__setattr__(self, "size_ms", size_ms)
        # A month may have 28 days.
        offset_below_ms = size_ms if piece is None or piece.unit != "month" else size_ms // 30 * 28
        object.__setattr__(self, "offset_ms", _offset("Tumbling", offset, offset_below_ms))
        object.__setattr__(self, "time", _domain("Tumbling", time))
        object.__setattr__(self, "zone", None if zone is None else time_zone("zone", zone))
        object.__setattr__(self, "_piece", piece)

    def __str__(self) -> str:
        return format_duration(self.size_ms * 1000) if self._piece is None else f"{self._piece} of {self.zone}"


@dataclass(frozen=True, slots=True, init=False)
class Sliding:
    """Windows of one fixed size that overlap: one begins every ``slide``.

    A record is in ``size / slide`` windows, and is kept once: windows share slices.

    Parameters
    ----------
    size
        Length of a window.
    slide
        From the beginning of one window to that of the next. Longer than the size, it leaves gaps whose records are in
        no window.
    offset
        How long after a multiple of the slide windows begin; less than the slide. Default: ``"0s"``.
    time
        As of `Tumbling`.

    Raises
    ------
    ConfigError
        A duration is none, or not a whole number of milliseconds, or there are more than 100,000 slices in a window.

    Examples
    --------
    >>> import flownet as fn
    >>> fn.Sliding("60s", "1s").slide_ms
    1000
    """

    size_ms: int
    """Length of a window in milliseconds."""
    slide_ms: int
    """Milliseconds from the beginning of one window to that of the next."""
    offset_ms: int
    """How many milliseconds after a multiple of the slide windows begin."""
    time: TimeDomain | None
    """By which clock; None: as the stream has it."""

    def __init__(
        self,
        size: str | timedelta,
        slide: str | timedelta,
        offset: str | timedelta = "0s",
        time: TimeDomain | None = None,
    ) -> None:
        size_ms, slide_ms = milliseconds("Sliding", "size", size), milliseconds("Sliding", "slide", slide)
        if size_ms // slide_ms > _MOST_WINDOWS:
            raise ConfigError(
                f"Sliding({size!r}, {slide!r}): a record would be in {size_ms // slide_ms:,} windows, more than "
                f"{_MOST_WINDOWS:,}; use a longer slide",
                setting="slide",
                value=slide,
            )
        object.__setattr__(self, "size_ms", size_ms)
        object.__setattr__(self, "slide_ms", slide_ms)
        object.__setattr__(self, "offset_ms", _offset("Sliding", offset, slide_ms))
        object.__setattr__(self, "time", _domain("Sliding", time))

    def __str__(self) -> str:
        return f"{format_duration(self.size_ms * 1000)} every {format_duration(self.slide_ms * 1000)}"


@dataclass(frozen=True, slots=True, init=False)
class Session:
    """Records of a key that follow each other without a longer gap.

    A session begins with a record and ends when none has come for the gap: it lies from its first record to its last
    plus the gap. A record that comes just then begins the next one; one that comes between two sessions makes one of
    them.

    Parameters
    ----------
    gap
        How long without a record ends the session: a duration, or a function of a record that returns milliseconds, the
        gap behind that record.
    time
        As of `Tumbling`.

    Examples
    --------
    >>> import flownet as fn
    >>> fn.Session("30min").gap_ms
    1800000
    """

    gap_ms: int | None
    """The gap in milliseconds; None where a function says."""
    gap_of: Callable[[Any], int] | None
    """Says the gap behind a record; None where it is always the same."""
    time: TimeDomain | None
    """By which clock; None: as the stream has it."""

    def __init__(self, gap: str | timedelta | Callable[[Any], int], time: TimeDomain | None = None) -> None:
        object.__setattr__(self, "gap_ms", None if callable(gap) else milliseconds("Session", "gap", gap))
        object.__setattr__(self, "gap_of", gap if callable(gap) else None)
        object.__setattr__(self, "time", _domain("Session", time))

    def __str__(self) -> str:
        return f"session {format_duration(self.gap_ms * 1000)}" if self.gap_ms is not None else "session"


@dataclass(frozen=True, slots=True)
class Global:
    """One window for all records of a key, which never ends.

    It emits nothing by itself: set a trigger with `WindowedStream.trigger`. If the stream has timestamps, evictors and
    triggers see the event times of records, otherwise the times at which records arrive.

    Examples
    --------
    >>> import flownet as fn
    >>> env = fn.Environment()
    >>> words = env.from_collection(["to", "too", "tea"]).key_by(lambda word: word[0])
    >>> twos = words.window(fn.Global()).trigger(fn.triggers.CountTrigger(2)).count().collect()
    >>> result = env.execute()
    >>> list(twos)
    [('t', 2), ('t', 3)]
    """

    time: TimeDomain | None = "processing"
    """By which clock triggers go."""

    def __str__(self) -> str:
        return "global"


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """One window for all records of a key, which fires once: when the input has ended.

    For jobs that end, where the running results of `KeyedStream.count` and the like are of no interest. Over an endless
    input it gives nothing and keeps every key. Evictors and triggers see the same times as those of `Global`.

    Examples
    --------
    >>> import flownet as fn
    >>> env = fn.Environment()
    >>> counts = env.from_collection(["to", "be", "to"]).key_by(str).window(fn.EndOfInput()).count().collect()
    >>> result = env.execute()
    >>> sorted(counts)
    [('be', 1), ('to', 2)]
    """

    @property
    def size_ms(self) -> int:
        """Length in milliseconds: from 1970-01-01 UTC to the end of time, 2**63 - 1."""
        return _END_OF_TIME_MS

    @property
    def time(self) -> TimeDomain:
        """By which clock: the wall's, which ends with the input."""
        return "processing"

    def __str__(self) -> str:
        return "end of input"


WindowAssigner = Tumbling | Sliding | Session | Global | EndOfInput
"""What `KeyedStream.window` takes."""


def assign(window: WindowAssigner) -> spec.WindowAssigner:
    """Say how the window cuts time, as the planner takes it."""
    match window:
        case Tumbling(zone=str(zone), _piece=CalendarPiece(unit=unit, count=count)):
            return {"calendar": {"zone": zone, "unit": unit, "count": count, "offset_ms": window.offset_ms}}
        case Tumbling():
            return {"grid": {"size_ms": window.size_ms, "slide_ms": window.size_ms, "offset_ms": window.offset_ms}}
        case Sliding():
            return {"grid": {"size_ms": window.size_ms, "slide_ms": window.slide_ms, "offset_ms": window.offset_ms}}
        case Session():
            return {"session": {"gap_ms": window.gap_ms}}
        case Global():
            return "global"
        case EndOfInput():
            return {"grid": {"size_ms": window.size_ms, "slide_ms": window.size_ms}}


def milliseconds(what: str, name: str, given: str | timedelta, *, least: int = 1) -> int:
    """Read a duration that is a whole number of milliseconds, at least so many."""
    if isinstance(given, str) and given.strip().endswith(("w", "mo")) and CalendarPiece.parse(given) is not None:
        raise ConfigError(
            f"{what}({given!r}): weeks and months are those of a time zone, for Tumbling windows alone: say "
            f"Tumbling({given!r}, zone='UTC'), or a duration such as '7d'",
            setting=name,
            value=given,
        )
    microseconds = duration_us(name, given)
    if microseconds < least * 1000 or microseconds % 1000:
        bound = f", at least {least}" if least else ""
        raise ConfigError(
            f"{what}({given!r}): must be a whole number of milliseconds{bound}", setting=name, value=given
        )
    return microseconds // 1000


def _piece_of(size: str | timedelta) -> CalendarPiece:
    piece = CalendarPiece.parse(size)
    if piece is None:
        raise ConfigError(
            f"Tumbling({size!r}, zone=...): windows of a time zone are days, weeks or months: '1d', '1w' or '1mo', up "
            "to 100,000 of them; leave zone out for windows of a fixed size",
            setting="size",
            value=size,
        )
    return piece


def _offset(what: str, offset: str | timedelta, slide_ms: int) -> int:
    microseconds = duration_us("offset", offset)
    if microseconds % 1000 or microseconds // 1000 >= slide_ms:
        raise ConfigError(
            f"{what}(offset={offset!r}): must be a whole number of milliseconds below {slide_ms:,}",
            setting="offset",
            value=offset,
        )
    return microseconds // 1000


def _domain(what: str, time: TimeDomain | None) -> TimeDomain | None:
    if time is not None and time not in get_args(TimeDomain):
        raise ConfigError(f"{what}(time={time!r}): must be 'event' or 'processing'", setting="time", value=time)
    return time


_END_OF_TIME_MS: Final = 2**63 - 1
_MOST_WINDOWS: Final = 100_000
