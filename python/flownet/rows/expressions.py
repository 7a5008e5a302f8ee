"""Expressions: a column from other columns, worked out in Rust, a batch at a time. Names and meaning are polars'."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NoReturn

from ..errors import PlanError
from ..internal.calendar_pieces import CalendarPiece
from ..internal.config import duration_us


class _Tree(dict[str, Any]):
    """An expression as the planner takes it, and how deep it nests."""

    __slots__ = ("depth",)

    def __init__(self, value: dict[str, Any]) -> None:
        super().__init__(value)
        self.depth = 1 + _depth(value)


def _depth(value: Any) -> int:
    if isinstance(value, _Tree):
        return value.depth
    if isinstance(value, dict):
        return max(map(_depth, value.values()), default=0)
    return max(map(_depth, value), default=0) if isinstance(value, list | tuple) else 0


MOST_DEPTH = 500
"""Operations that an expression may nest: the planner and each task go down it on their stack."""


class Expr:
    """A column of rows, or what is made of some. Made by `col`, `lit` and `when`, and by operators and methods.

    Where a value is missing, so is what is made of it, but for ``&`` and ``|`` where the other side decides. Unlike in
    polars, integers do not wrap around: overflow and division by zero end the job, with row and values. Types are
    checked before anything runs.

    Examples
    --------
    >>> import flownet as fn
    >>> fn.col("price") * fn.col("size") > 1_000
    ((col("price") * col("size")) > 1000)
    """

    __slots__ = ("_name", "_shown", "_value")

    def __init__(self, value: dict[str, Any], shown: str, name: str | None) -> None:
        self._value = _Tree(value)
        if self._value.depth > MOST_DEPTH:
            depth = self._value.depth
            raise PlanError(
                f"the expression {shown:.60}... nests {depth} operations, at most {MOST_DEPTH} are allowed: "
                "compute parts of it as columns of their own first, with with_columns()"
            )
        self._shown = shown
        self._name = name

    def _tree(self) -> Any:
        """Give the expression as the planner takes it."""
        return self._value

    def _output_name(self) -> str | None:
        """Say what its column is called where nobody says it."""
        return self._name

    def __repr__(self) -> str:
        return self._shown

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} is an expression, which is true or false for each row, and not by itself: write & | ~ in place "
            "of and, or, not, and is_between() or (a < b) & (b < c) in place of a < b < c"
        )

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Any) -> Expr:
        return _binary("add", "+", self, other)

    def __radd__(self, other: Any) -> Expr:
        return _binary("add", "+", other, self)

    def __sub__(self, other: Any) -> Expr:
        return _binary("sub", "-", self, other)

    def __rsub__(self, other: Any) -> Expr:
        return _binary("sub", "-", other, self)

    def __mul__(self, other: Any) -> Expr:
        return _binary("mul", "*", self, other)

    def __rmul__(self, other: Any) -> Expr:
        return _binary("mul", "*", other, self)

    def __truediv__(self, other: Any) -> Expr:
        return _binary("div", "/", self, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return _binary("div", "/", other, self)

    def __floordiv__(self, other: Any) -> Expr:
        return _binary("floor_div", "//", self, other)

    def __rfloordiv__(self, other: Any) -> Expr:
        return _binary("floor_div", "//", other, self)

    def __mod__(self, other: Any) -> Expr:
        return _binary("mod", "%", self, other)

    def __rmod__(self, other: Any) -> Expr:
        return _binary("mod", "%", other, self)

    def __pow__(self, other: Any) -> Expr:
        return _binary("pow", "**", self, other)

    def __rpow__(self, other: Any) -> Expr:
        return _binary("pow", "**", other, self)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return _binary("eq", "==", self, other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return _binary("ne", "!=", self, other)

    def __lt__(self, other: Any) -> Expr:
        return _binary("lt", "<", self, other)

    def __le__(self, other: Any) -> Expr:
        return _binary("le", "<=", self, other)

    def __gt__(self, other: Any) -> Expr:
        return _binary("gt", ">", self, other)

    def __ge__(self, other: Any) -> Expr:
        return _binary("ge", ">=", self, other)

    def __and__(self, other: Any) -> Expr:
        return _binary("and", "&", self, other)

    def __rand__(self, other: Any) -> Expr:
        return _binary("and", "&", other, self)

    def __or__(self, other: Any) -> Expr:
        return _binary("or", "|", self, other)

    def __ror__(self, other: Any) -> Expr:
        return _binary("or", "|", other, self)

    def __xor__(self, other: Any) -> Expr:
        return _binary("xor", "^", self, other)

    def __invert__(self) -> Expr:
        return self._unary("not", f"~{self!r}")

    def __neg__(self) -> Expr:
        return self._unary("neg", f"-{self!r}")

    def __abs__(self) -> Expr:
        return self.abs()

    def abs(self) -> Expr:
        """Take the sign away."""
        return self._unary("abs")

    def floor(self) -> Expr:
        """Round down to a whole number, of the same type."""
        return self._unary("floor")

    def ceil(self) -> Expr:
        """Round up to a whole number, of the same type."""
        return self._unary("ceil")

    def sqrt(self) -> Expr:
        """Take the square root, a ``float64``."""
        return self._unary("sqrt")

    def round(self, decimals: int = 0) -> Expr:
        """Round to so many decimals, 0 to 15; halves go to the even one."""
        if not 0 <= decimals <= 15:
            raise PlanError(f"round({decimals!r}): a float has 0 to 15 decimals")
        return self._unary({"round": decimals}, f"{self!r}.round({decimals})")

    def is_null(self) -> Expr:
        """Say whether the value is missing."""
        return self._unary("is_null")

    def is_not_null(self) -> Expr:
        """Say whether the value is there."""
        return self._unary("is_not_null")

    def fill_null(self, value: Any) -> Expr:
        """Put a value, or that of another column, in the place of what is missing."""
        return _coalesce([self, value], f"{self!r}.fill_null({value!r})")

    def is_in(self, values: Iterable[Any]) -> Expr:
        """Say whether the value is one of these; where it is missing, that is not known."""
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise PlanError(f"is_in() takes a list of values, such as [1, 2], not {values!r:.60}")
        values = list(values)
        shown = ", ".join(map(repr, values[:5])) + (", ..." if len(values) > 5 else "")
        tree = {"is_in": {"of": self._tree(), "values": [_literal(value) for value in values]}}
        return Expr(tree, f"{self!r}.is_in([{shown}])", self._name)

    def is_between(self, low: Any, high: Any) -> Expr:
        """Say whether the value lies between these, both included."""
        return _binary("and", "&", self >= low, self <= high)

    def cast(self, to: str, *, strict: bool = True) -> Expr:
        """Make another type of the values.

        Parameters
        ----------
        to
            The type, such as ``"int64"``, ``"float64"``, ``"utf8"``, ``"timestamp[ms]"``.
        strict
            Whether a value that does not fit ends the job. Default: True; else it is missing.
        """
        shown = f"{self!r}.cast({to!r}{'' if strict else ', strict=False'})"
        return Expr({"cast": {"of": self._tree(), "to": to, "strict": strict}}, shown, self._name)

    def alias(self, name: str) -> Expr:
        """Call the column so."""
        return Expr({"alias": {"of": self._tree(), "name": name}}, f"{self!r}.alias({name!r})", name)

    @property
    def str(self) -> TextExpr:
        """What there is for texts."""
        return TextExpr(self)

    @property
    def dt(self) -> TimeExpr:
        """What there is for times."""
        return TimeExpr(self)

    def _unary(self, op: Any, shown: Any = None) -> Expr:
        return Expr({"unary": {"op": op, "of": self._tree()}}, shown or f"{self!r}.{op}()", self._name)


class TextExpr:
    """What there is for columns of texts: ``fn.col("line").str``. Regular expressions are those of Rust's ``regex``."""

    __slots__ = ("_of",)

    def __init__(self, of: Expr) -> None:
        self._of = of

    def len_chars(self) -> Expr:
        """Count characters."""
        return self._then("len_chars", "len_chars()")

    def len_bytes(self) -> Expr:
        """Count bytes of UTF-8."""
        return self._then("len_bytes", "len_bytes()")

    def to_lowercase(self) -> Expr:
        """Make small letters of all."""
        return self._then("to_lowercase", "to_lowercase()")

    def to_uppercase(self) -> Expr:
        """Make capital letters of all."""
        return self._then("to_uppercase", "to_uppercase()")

    def strip_chars(self) -> Expr:
        """Take white space from both ends."""
        return self._then("strip_chars", "strip_chars()")

    def contains(self, pattern: str, *, literal: bool = False) -> Expr:
        """Say whether a regular expression is found, or with ``literal`` a text."""
        return self._then({"contains": {"pattern": pattern, "literal": literal}}, f"contains({pattern!r})")

    def starts_with(self, prefix: str) -> Expr:
        """Say whether the text begins so."""
        return self._then({"starts_with": prefix}, f"starts_with({prefix!r})")

    def ends_with(self, suffix: str) -> Expr:
        """Say whether the text ends so."""
        return self._then({"ends_with": suffix}, f"ends_with({suffix!r})")

    def slice(self, offset: int, length: int | None = None) -> Expr:
        """Take characters from an offset on, which below 0 counts from the end; all of them, or so many."""
        if length is not None and length < 0:
            raise PlanError(f"str.slice({offset}, {length}): a length is not below 0")
        shown = f"slice({offset})" if length is None else f"slice({offset}, {length})"
        return self._then({"slice": {"offset": offset, "length": length}}, shown)

    def replace_all(self, pattern: str, value: str, *, literal: bool = False) -> Expr:
        """Put a text in the place of all that a regular expression finds; ``$1`` in it is its first group."""
        op = {"replace_all": {"pattern": pattern, "value": value, "literal": literal}}
        return self._then(op, f"replace_all({pattern!r}, {value!r})")

    def extract(self, pattern: str, group: int = 1) -> Expr:
        """Take a group of the first match of a regular expression; none where it does not match."""
        return self._then({"extract": {"pattern": pattern, "group": group}}, f"extract({pattern!r}, {group})")

    def split(self, by: str) -> Expr:
        """Make a list of the parts between these texts."""
        return self._then({"split": by}, f"split({by!r})")

    def _then(self, op: Any, shown: Any) -> Expr:
        return Expr({"text": {"op": op, "of": self._of._tree()}}, f"{self._of!r}.str.{shown}", self._of._name)


class TimeExpr:
    """What there is for columns of times: ``fn.col("when").dt``. Of one with a zone, as clocks there show it."""

    __slots__ = ("_of",)

    def __init__(self, of: Expr) -> None:
        self._of = of

    def year(self) -> Expr:
        """Take the year, an ``int32`` as all parts."""
        return self._then("year")

    def month(self) -> Expr:
        """Take the month, 1 to 12."""
        return self._then("month")

    def day(self) -> Expr:
        """Take the day of the month, from 1."""
        return self._then("day")

    def hour(self) -> Expr:
        """Take the hour, 0 to 23."""
        return self._then("hour")

    def minute(self) -> Expr:
        """Take the minute."""
        return self._then("minute")

    def second(self) -> Expr:
        """Take the second."""
        return self._then("second")

    def millisecond(self) -> Expr:
        """Take the millisecond within the second."""
        return self._then("millisecond")

    def weekday(self) -> Expr:
        """Take the day of the week, from 1, Monday."""
        return self._then("weekday")

    def ordinal_day(self) -> Expr:
        """Take the day of the year, from 1."""
        return self._then("ordinal_day")

    def date(self) -> Expr:
        """Take the date."""
        return self._then("date")

    def epoch(self) -> Expr:
        """Take milliseconds since 1970-01-01 UTC, an ``int64``; parts of a millisecond are rounded down."""
        return self._then("epoch_ms", "epoch")

    def truncate(self, every: str | timedelta) -> Expr:
        """Truncate to the beginning of a piece of time, as clocks of the column's zone show it.

        Parameters
        ----------
        every
            ``"1d"``, ``"1w"`` or ``"1mo"``, also several of them, for days, weeks from Monday, and months; or a shorter
            duration such as ``"15min"``, at least 1 ms, of which the first began at midnight of 1970-01-01. Columns
            without a zone are taken as UTC. If clocks of the zone skip the beginning, it is where they go on.

        Raises
        ------
        PlanError
            ``every`` is not a whole number of milliseconds.

        Examples
        --------
        >>> import flownet as fn
        >>> fn.col("when").dt.truncate("1mo")
        col("when").dt.truncate('1mo')
        """
        if (piece := CalendarPiece.parse(every)) is not None:
            return self._then({"truncate_to": [piece.unit, piece.count]}, f"truncate({every!r})")
        microseconds = duration_us("every", every)
        if microseconds < 1000 or microseconds % 1000:
            raise PlanError(f"dt.truncate({every!r}): a whole number of milliseconds, at least 1")
        return self._then({"truncate_ms": microseconds // 1000}, f"truncate({every!r})")

    def _then(self, op: Any, shown: Any = None) -> Expr:
        named = shown if shown and shown.endswith(")") else f"{shown or op}()"
        return Expr({"time": {"op": op, "of": self._of._tree()}}, f"{self._of!r}.dt.{named}", self._of._name)


class When:
    """A condition that waits for its value: ``fn.when(condition).then(value)``."""

    __slots__ = ("_branches", "_condition", "_name", "_shown")

    def __init__(self, condition: Expr, branches: list[Any], shown: str, name: str | None) -> None:
        if not isinstance(condition, Expr):
            raise PlanError(f"when() takes an expression such as fn.col('price') > 3, not {condition!r:.60}")
        self._condition = condition
        self._branches = branches
        self._shown = f"{shown}when({condition!r})"
        self._name = name

    def then(self, value: Any) -> Then:
        """Say the value where the condition is true."""
        of = _expression(value)
        branches = [*self._branches, [self._condition._tree(), of._tree()]]
        return Then(branches, None, f"{self._shown}.then({of!r})", self._name or of._output_name())


class Then(Expr):
    """Values for some conditions; None elsewhere, until `otherwise` says what."""

    __slots__ = ("_branches",)

    def __init__(self, branches: list[Any], otherwise: Any, shown: str, name: str | None) -> None:
        super().__init__({"when": {"branches": branches, "otherwise": otherwise}}, shown, name)
        self._branches = branches

    def when(self, condition: Expr) -> When:
        """Ask further, where no condition before is true."""
        return When(condition, self._branches, f"{self._shown}.", self._name)

    def otherwise(self, value: Any) -> Expr:
        """Say the value where no condition is true."""
        of = _expression(value)
        return Then(self._branches, of._tree(), f"{self._shown}.otherwise({of!r})", self._name)


def col(name: str) -> Expr:
    """Take a column of the rows, by its name.

    Examples
    --------
    >>> import flownet as fn
    >>> fn.col("price") > 3
    (col("price") > 3)
    """
    if not isinstance(name, str):
        raise PlanError(f"col() takes the name of a column, not {name!r:.60}")
    return Expr({"column": name}, f'col("{name}")', name)


def lit(value: Any) -> Expr:
    """Make an expression of one value for all rows: None, a bool, number, text, bytes, date, datetime or timedelta.

    A ``decimal.Decimal`` is a number with as many digits as it is written with, 38 at most.
    """
    return Expr({"literal": _literal(value)}, repr(value), None)


def when(condition: Expr) -> When:
    """Choose a value by a condition; each value is worked out for the rows that take it, and for no others.

    Examples
    --------
    >>> import flownet as fn
    >>> fn.when(fn.col("size") > 0).then(fn.col("worth") / fn.col("size")).otherwise(0)
    when((col("size") > 0)).then((col("worth") / col("size"))).otherwise(0)
    """
    return When(condition, [], "", None)


def coalesce(*columns: Any) -> Expr:
    """Take the first value that is not null, as SQL's COALESCE.

    Parameters
    ----------
    *columns
        Expressions such as ``fn.col("x")``, or values, of types that go together. One at least.

    Raises
    ------
    PlanError
        There is none.

    Examples
    --------
    >>> import flownet as fn, pyarrow as pa
    >>> prices = env.from_arrow(pa.table({"sale": [None, 2.5], "price": [3.0, 4.0]}))
    >>> paid = prices.select(paid=fn.coalesce(fn.col("sale"), fn.col("price"), 0.0)).collect()
    >>> result = env.execute()
    >>> paid.to_arrow()["paid"].to_pylist()
    [3.0, 2.5]
    """
    if not columns:
        raise PlanError('coalesce() needs a column at least: fn.coalesce(fn.col("sale"), fn.col("price"))')
    return _coalesce(list(columns), f"coalesce({', '.join(map(repr, columns))})")


def column_or_expression(method: str, given: str | Expr) -> Expr:
    """Read an argument that is a column's name or an expression."""
    if isinstance(given, Expr):
        return given
    if isinstance(given, str):
        return col(given)
    raise PlanError(f'{method}() takes names of columns and expressions such as fn.col("price") * 2, not {given!r:.60}')


def named_columns(method: str, columns: Iterable[str | Expr], named: dict[str, Any]) -> list[dict[str, Any]]:
    """Say what columns are made of, by their names, as a plan has it.

    Raises
    ------
    PlanError
        One has no name.
    """
    made = []
    for column in columns:
        expression = column_or_expression(method, column)
        name = expression._output_name()
        if name is None:
            raise PlanError(f"{method}: {expression!r} has no column to be called by: name it, as in {method}(x=...)")
        made.append({"name": name, "value": expression._tree()})
    made += [
        {"name": name, "value": (value if isinstance(value, Expr) else lit(value))._tree()}
        for name, value in named.items()
    ]
    return made


def _expression(value: Any) -> Expr:
    if isinstance(value, When):
        raise PlanError(f"{value._shown} has no then()")
    return value if isinstance(value, Expr) else lit(value)


def _binary(op: str, sign: str, left: Any, right: Any) -> Expr:
    one, other = _expression(left), _expression(right)
    tree = {"binary": {"op": op, "left": one._tree(), "right": other._tree()}}
    return Expr(tree, f"({one!r} {sign} {other!r})", one._output_name() or other._output_name())


def _coalesce(columns: list[Any], shown: str) -> Expr:
    of = [_expression(column) for column in columns]
    name = next((found for column in of if (found := column._output_name())), None)
    return Expr({"coalesce": [column._tree() for column in of]}, shown, name)


def _literal(value: Any) -> Any:
    if value is None:
        return "null"
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        value = value.item()
    match value:
        case bool():
            return {"bool": value}
        case int():
            if not -(2**63) <= value < 2**63:
                raise PlanError(f"lit({value}): integers in expressions are of 64 bits")
            return {"int": value}
        case float():
            return {"float": struct.unpack("<Q", struct.pack("<d", value))[0]}
        case Decimal():
            return {"decimal": _decimal(value)}
        case str():
            return {"text": value}
        case bytes():
            return {"bytes": list(value)}
        case datetime():
            zoned = value.tzinfo is not None
            since = value - (_EPOCH if zoned else _EPOCH.replace(tzinfo=None))
            return {"timestamp": {"us": since // _MICROSECOND, "zoned": zoned}}
        case date():
            return {"date": (value - _EPOCH.date()).days}
        case timedelta():
            return {"duration": value // _MICROSECOND}
    raise PlanError(
        f"lit() takes None, bools, numbers, Decimals, texts, bytes, dates, datetimes and timedeltas, not "
        f"{type(value).__name__} {value!r:.60}"
    )


def _decimal(value: Decimal) -> dict[str, int]:
    sign, digits, exponent = value.as_tuple()
    # Not a number, and what is infinite, have letters for exponents.
    if not isinstance(exponent, int) or exponent < -_MOST_DIGITS or len(digits) + max(exponent, 0) > _MOST_DIGITS:
        raise PlanError(f"lit({value!r}): a decimal has at most {_MOST_DIGITS} digits")
    whole = int("".join(map(str, digits))) * 10 ** max(exponent, 0) * (-1 if sign else 1)
    return {"high": whole >> 64, "low": whole & (2**64 - 1), "scale": max(-exponent, 0)}


_MOST_DIGITS = 38
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
