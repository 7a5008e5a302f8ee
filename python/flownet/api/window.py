"""Windows: tumbling, sliding, session and global windows of a stream."""

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
"""Clock of a window: event time, by timestamps and watermarks, or the wall clock of the task."""


@dataclass(frozen=True, slots=True, init=False)
class Tumbling:
    """Cut time into tumbling windows of a fixed size or calendar unit.

    Windows are aligned to 1970-01-01 UTC, so ``Tumbling("1h")`` begins on the hour. In processing time a record belongs
    to the window in which it arrives. This window fires when its end has passed. In event time a record belongs to the
    window of its timestamp, which fires when the watermark has passed it. The open window fires when the input ends.

    With ``zone``, windows begin when clocks of that zone show midnight. The day on which clocks go forward has 23
    hours. The day on which they go back has 25. If clocks skip midnight, the day begins at the first time after the
    gap. Weeks begin on Monday, months on their first day.

    Parameters
    ----------
    size
        Length of a window, at least one millisecond: ``"5s"``, ``"250ms"`` or a ``timedelta``. With ``zone`` a number
        of days, weeks or months: ``"1d"``, ``"1w"``, ``"1mo"``.
    offset
        Shift of the window start after a multiple of the size, less than the size. ``Tumbling("1d", offset="6h")``
        begins days at 6 in the morning. With ``zone``, it is a time on the clocks of the zone. Default: ``"0s"``.
    time
        ``"event"`` or ``"processing"``. Default: event time if the stream has timestamps, see
        `Stream.assign_timestamps_and_watermarks`, otherwise processing time.
    zone
        Time zone of days, weeks and months: a name of the tz database or a ``ZoneInfo``. The columns
        ``window_start`` and ``window_end`` of rows are in this zone. Default: None, days of 24 hours in UTC.

    Raises
    ------
    ConfigError
        ``size`` is not a duration, or not a whole number of milliseconds. ``offset`` is out of range. ``zone`` does
        not exist, or ``size`` is not in days, weeks or months.

    Examples
    --------
    >>> import flownet as fn
    >>> fn.Tumbling("5s").size_ms
    5000
    >>> print(fn.Tumbling("1d", zone="America/New_York"))
    1 day of America/New_York
    """

    size_ms: int
    """Length of a window in milliseconds. With ``zone`` a nominal length: 24 hours a day, 30 days a month."""
    offset_ms: int
    """Milliseconds from a multiple of the size to the window start."""
    time: TimeDomain | None
    """Clock of the windows. None: event time if the stream has timestamps, otherwise processing time."""
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
    """Cut time into overlapping sliding windows: one begins every ``slide``.

    A record is in ``size / slide`` windows. Windows share slices, so each record is stored once.

    Parameters
    ----------
    size
        Length of a window, at least one millisecond: ``"60s"`` or a ``timedelta``.
    slide
        Time from the start of one window to the start of the next, at least one millisecond. A slide longer than the
        size leaves gaps, whose records are in no window.
    offset
        Shift of the window start after a multiple of the slide, less than the slide. Default: ``"0s"``.
    time
        See `Tumbling`. Default: None.

    Raises
    ------
    ConfigError
        A duration is invalid or not a whole number of milliseconds, or a window has more than 100,000 slices.

    Examples
    --------
    >>> import flownet as fn
    >>> fn.Sliding("60s", "1s").slide_ms
    1000
    """

    size_ms: int
    """Length of a window in milliseconds."""
    slide_ms: int
    """Milliseconds from the start of one window to the start of the next."""
    offset_ms: int
    """Milliseconds from a multiple of the slide to the window start."""
    time: TimeDomain | None
    """Clock of the windows. None: event time if the stream has timestamps, otherwise processing time."""

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
    """Group records of a key into sessions, which end after a gap.

    A session begins with a record and ends when no record arrives for the gap. It covers the time from its first
    record to its last record plus the gap. A record exactly at the end begins the next session. A record between two
    sessions merges them.

    Parameters
    ----------
    gap
        Time without a record that ends the session: a duration, or a function of a record. The function returns the
        gap after that record in milliseconds.
    time
        See `Tumbling`. Default: None.

    Examples
    --------
    >>> import flownet as fn
    >>> fn.Session("30min").gap_ms
    1800000
    """

    gap_ms: int | None
    """The gap in milliseconds, or None if a function returns it."""
    gap_of: Callable[[Any], int] | None
    """Function that returns the gap after a record, or None if the gap is fixed."""
    time: TimeDomain | None
    """Clock of the windows. None: event time if the stream has timestamps, otherwise processing time."""

    def __init__(self, gap: str | timedelta | Callable[[Any], int], time: TimeDomain | None = None) -> None:
        object.__setattr__(self, "gap_ms", None if callable(gap) else milliseconds("Session", "gap", gap))
        object.__setattr__(self, "gap_of", gap if callable(gap) else None)
        object.__setattr__(self, "time", _domain("Session", time))

    def __str__(self) -> str:
        return f"session {format_duration(self.gap_ms * 1000)}" if self.gap_ms is not None else "session"


@dataclass(frozen=True, slots=True)
class Global:
    """Put all records of a key into one global window, which never ends.

    The window emits nothing until you set a trigger with `WindowedStream.trigger`. If the stream has timestamps,
    evictors and triggers see the event times of records. Otherwise they see the times at which records arrive.

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
    """Clock of the triggers."""

    def __str__(self) -> str:
        return "global"


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """Put all records of a key into one window, fired at input end.

    Use it in jobs that end, if you need the final results of a key instead of running ones such as those of
    `KeyedStream.count`. On an endless input the window emits nothing and stores every key. Evictors and triggers see
    the same times as in `Global`.

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
        """Length in milliseconds: from 1970-01-01 UTC to the last timestamp, 2**63 - 1."""
        return _END_OF_TIME_MS

    @property
    def time(self) -> TimeDomain:
        """Clock of the window: processing time, which ends with the input."""
        return "processing"

    def __str__(self) -> str:
        return "end of input"


WindowAssigner = Tumbling | Sliding | Session | Global | EndOfInput
"""Window types that `KeyedStream.window` takes."""


def assign(window: WindowAssigner) -> spec.WindowAssigner:
    """Convert a window to a window assigner of the plan."""
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
    """Convert a duration to whole milliseconds, at least ``least``."""
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
