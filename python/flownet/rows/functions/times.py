# Generated from the registry in rust/flownet-rows/src/expr/functions by `make functions`. Do not edit.
"""Functions of times."""

from __future__ import annotations

import datetime

from ..calls import Calls, E


class TimeFunctions(Calls[E]):
    """Functions of times."""

    __slots__ = ()

    def year(self) -> E:
        """Return the year.

        The result is an ``int32``.

        Example: ``fn.lit(date(2026, 11, 27)).dt.year()`` is ``2026``.
        """
        return self._call("dt.year")

    def iso_year(self) -> E:
        """Return the year of the ISO week.

        The result is an ``int32``.

        Example: ``fn.lit(date(2027, 1, 1)).dt.iso_year()`` is ``2026``.
        """
        return self._call("dt.iso_year")

    def quarter(self) -> E:
        """Return the quarter, 1 to 4.

        The result is an ``int32``.

        Example: ``fn.lit(date(2026, 11, 27)).dt.quarter()`` is ``4``.
        """
        return self._call("dt.quarter")

    def month(self) -> E:
        """Return the month, 1 to 12.

        The result is an ``int32``.

        Example: ``fn.lit(date(2026, 11, 27)).dt.month()`` is ``11``.
        """
        return self._call("dt.month")

    def week(self) -> E:
        """Return the ISO week, 1 to 53.

        The result is an ``int32``.

        Example: ``fn.lit(date(2027, 1, 1)).dt.week()`` is ``53``.
        """
        return self._call("dt.week")

    def day(self) -> E:
        """Return the day of the month, from 1.

        The result is an ``int32``.

        Example: ``fn.lit(date(2026, 11, 27)).dt.day()`` is ``27``.
        """
        return self._call("dt.day")

    def weekday(self) -> E:
        """Return the day of the week, from 1 for Monday.

        The result is an ``int32``.

        Example: ``fn.lit(date(2026, 11, 27)).dt.weekday()`` is ``5``.
        """
        return self._call("dt.weekday")

    def ordinal_day(self) -> E:
        """Return the day of the year, from 1.

        The result is an ``int32``.

        Example: ``fn.lit(date(2026, 2, 1)).dt.ordinal_day()`` is ``32``.
        """
        return self._call("dt.ordinal_day")

    def hour(self) -> E:
        """Return the hour, 0 to 23.

        The result is an ``int32``.

        Example: ``fn.lit(datetime(2026, 11, 27, 9, 30)).dt.hour()`` is ``9``.
        """
        return self._call("dt.hour")

    def minute(self) -> E:
        """Return the minute, 0 to 59.

        The result is an ``int32``.

        Example: ``fn.lit(datetime(2026, 11, 27, 9, 30)).dt.minute()`` is ``30``.
        """
        return self._call("dt.minute")

    def second(self) -> E:
        """Return the second, 0 to 59.

        The result is an ``int32``.

        Example: ``fn.lit(datetime(2026, 11, 27, 9, 30, 5)).dt.second()`` is ``5``.
        """
        return self._call("dt.second")

    def millisecond(self) -> E:
        """Return the milliseconds within the second.

        The result is an ``int32``.

        Example: ``fn.lit(datetime(2026, 11, 27, 9, 30, 5, 1250)).dt.millisecond()`` is ``1``.
        """
        return self._call("dt.millisecond")

    def microsecond(self) -> E:
        """Return the microseconds within the second.

        The result is an ``int32``.

        Example: ``fn.lit(datetime(2026, 11, 27, 9, 30, 5, 1250)).dt.microsecond()`` is ``1250``.
        """
        return self._call("dt.microsecond")

    def nanosecond(self) -> E:
        """Return the nanoseconds within the second.

        The result is an ``int32``.

        Example: ``fn.lit(datetime(2026, 11, 27, 9, 30, 5, 1250)).dt.nanosecond()`` is ``1250000``.
        """
        return self._call("dt.nanosecond")

    def date(self) -> E:
        """Return the date.

        The result is a ``date``.

        Example: ``fn.lit(datetime(2026, 11, 27, 9, 30)).dt.date()`` is ``datetime.date(2026, 11, 27)``.
        """
        return self._call("dt.date")

    def epoch(self) -> E:
        """Return milliseconds since 1970-01-01 UTC, rounded down.

        The result is an ``int64``.

        Example: ``fn.lit(datetime(1970, 1, 1, 0, 0, 2)).dt.epoch()`` is ``2000``.
        """
        return self._call("dt.epoch")

    def date_diff(self, start: datetime.date | E | None, unit: str) -> E:
        """Count the boundaries of a unit since a start.

        Units are ``year``, ``quarter``, ``month``, ``week`` (from Monday) and ``day`` of the column's zone, and
        ``hour``, ``minute``, ``second`` and ``millisecond`` of UTC.

        The result is an ``int64``.

        Example: ``fn.lit(date(2027, 1, 1)).dt.date_diff(date(2026, 12, 31), 'year')`` is ``1``.
        """
        return self._call("dt.date_diff", start, unit)
