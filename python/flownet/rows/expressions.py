"""Expressions, which compute a column from other columns. Rust evaluates them by batch. Names follow polars."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NoReturn

from ..errors import PlanError
from ..internal.calendar_pieces import CalendarPiece
from ..internal.config import duration_us
from .calls import shown_arguments
from .functions.texts import TextFunctions
from .functions.times import TimeFunctions
from .functions.values import ValueFunctions


class _Tree(dict[str, Any]):
    """An expression in the form of a plan, with its nesting depth."""

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
"""Maximum nesting depth of an expression. The planner and each task recurse into it on their stack."""


class Expr(ValueFunctions["Expr"]):
    """An expression: a column, or a value that is computed from columns.

    Create expressions with `col`, `lit` and `when`, and with operators and methods. If an input is null, the result is
    null. The exceptions are ``&`` and ``|`` if the other side decides the result. Unlike in polars, integers do not
    wrap around: overflow and division by zero end the job. The error shows the row and the values. Types are checked
    before the job runs.

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
        """Return the expression in the form of a plan."""
        return self._value

    def _output_name(self) -> str | None:
        """Return the default name of the column; None if there is none."""
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

    def is_null(self) -> Expr:
        """Test whether the value is null.

        Examples
        --------
        >>> fn.col("price").is_null()
        col("price").is_null()
        """
        return self._unary("is_null")

    def is_not_null(self) -> Expr:
        """Test whether the value is not null.

        Examples
        --------
        >>> fn.col("price").is_not_null()
        col("price").is_not_null()
        """
        return self._unary("is_not_null")

    def fill_null(self, value: Any) -> Expr:
        """Replace nulls with a value or with another column.

        Parameters
        ----------
        value
            A value, or an expression such as ``fn.col("list_price")``.

        Examples
        --------
        >>> import pyarrow as pa
        >>> prices = env.from_arrow(pa.table({"price": [None, 2.5]}))
        >>> prices.select(fn.col("price").fill_null(0.0)).to_arrow().to_pylist()
        [{'price': 0.0}, {'price': 2.5}]
        """
        return _coalesce([self, value], f"{self!r}.fill_null({value!r})")

    def is_in(self, values: Iterable[Any]) -> Expr:
        """Test whether the value is in a list. Null stays null.

        Parameters
        ----------
        values
            Constants such as ``["de", "fr"]``.

        Examples
        --------
        >>> fn.col("country").is_in(["de", "fr"])
        col("country").is_in(['de', 'fr'])
        """
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise PlanError(f"is_in() takes a list of values, such as [1, 2], not {values!r:.60}")
        values = list(values)
        shown = ", ".join(map(repr, values[:5])) + (", ..." if len(values) > 5 else "")
        tree = {"is_in": {"of": self._tree(), "values": [_literal(value) for value in values]}}
        return Expr(tree, f"{self!r}.is_in([{shown}])", self._name)

    def is_between(self, low: Any, high: Any) -> Expr:
        """Test whether the value is between two bounds, both included.

        Parameters
        ----------
        low, high
            The bounds: values or expressions.

        Examples
        --------
        >>> import pyarrow as pa
        >>> prices = env.from_arrow(pa.table({"price": [1.0, 2.0, 3.0]}))
        >>> prices.filter(fn.col("price").is_between(2, 3)).to_arrow()["price"].to_pylist()
        [2.0, 3.0]
        """
        return _binary("and", "&", self >= low, self <= high)

    def cast(self, to: str, *, strict: bool = True) -> Expr:
        """Convert values to another type.

        Parameters
        ----------
        to
            The type, such as ``"int64"``, ``"float64"``, ``"utf8"``, ``"timestamp[ms]"``.
        strict
            If True, a value that does not fit ends the job. If False, it becomes null. Default: True.

        Examples
        --------
        >>> fn.col("price").cast("float64")
        col("price").cast('float64')
        """
        shown = f"{self!r}.cast({to!r}{'' if strict else ', strict=False'})"
        return Expr({"cast": {"of": self._tree(), "to": to, "strict": strict}}, shown, self._name)

    def alias(self, name: str) -> Expr:
        """Name the column of the result.

        Parameters
        ----------
        name
            The new name.

        Examples
        --------
        >>> import pyarrow as pa
        >>> trades = env.from_arrow(pa.table({"price": [1.5], "size": [2]}))
        >>> trades.select((fn.col("price") * fn.col("size")).alias("worth")).columns
        ['worth']
        """
        return Expr({"alias": {"of": self._tree(), "name": name}}, f"{self!r}.alias({name!r})", name)

    @property
    def str(self) -> TextExpr:
        """Functions of strings.

        Examples
        --------
        >>> fn.col("line").str.split(" ")
        col("line").str.split(' ')
        """
        return TextExpr(self)

    @property
    def dt(self) -> TimeExpr:
        """Functions of times.

        Examples
        --------
        >>> fn.col("when").dt.truncate("1d")
        col("when").dt.truncate('1d')
        """
        return TimeExpr(self)

    def _call(self, function: Any, *arguments: Any, **keywords: Any) -> Expr:
        return _method(self, function, arguments, keywords)

    def _unary(self, op: Any, shown: Any = None) -> Expr:
        return Expr({"unary": {"op": op, "of": self._tree()}}, shown or f"{self!r}.{op}()", self._name)


class TextExpr(TextFunctions[Expr]):
    """Functions of string columns: ``fn.col("line").str``. Regular expressions follow Rust's ``regex``."""

    __slots__ = ("_of",)

    def __init__(self, of: Expr) -> None:
        self._of = of

    def _call(self, function: str, *arguments: Any, **keywords: Any) -> Expr:
        return _method(self._of, function, arguments, keywords)


class TimeExpr(TimeFunctions[Expr]):
    """Functions of time columns: ``fn.col("when").dt``. They use the local time of the column's zone."""

    __slots__ = ("_of",)

    def __init__(self, of: Expr) -> None:
        self._of = of

    def truncate(self, every: str | timedelta) -> Expr:
        """Truncate times to a multiple of a duration, in the column's zone.

        Parameters
        ----------
        every
            ``"1d"``, ``"1w"`` or ``"1mo"`` or multiples of these, for days, weeks from Monday, and months. Or a shorter
            duration such as ``"15min"``, at least 1 ms, counted from midnight of 1970-01-01. Columns without a zone
            count as UTC. If clocks of the zone skip the beginning, the result is the first time after the gap.

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
            period = f"{piece.count}{_CALENDAR_UNITS[piece.unit]}"
        else:
            microseconds = duration_us("every", every)
            if microseconds < 1000 or microseconds % 1000:
                raise PlanError(f"dt.truncate({every!r}): a whole number of milliseconds, at least 1")
            period = f"{microseconds // 1000}ms"
        return _method(self._of, "dt.truncate", (period,), {}, f"{self._of!r}.dt.truncate({every!r})")

    def _call(self, function: str, *arguments: Any, **keywords: Any) -> Expr:
        return _method(self._of, function, arguments, keywords)


class When:
    """A condition that still needs its value: ``fn.when(condition).then(value)``."""

    __slots__ = ("_branches", "_condition", "_name", "_shown")

    def __init__(self, condition: Expr, branches: list[Any], shown: str, name: str | None) -> None:
        if not isinstance(condition, Expr):
            raise PlanError(f"when() takes an expression such as fn.col('price') > 3, not {condition!r:.60}")
        self._condition = condition
        self._branches = branches
        self._shown = f"{shown}when({condition!r})"
        self._name = name

    def then(self, value: Any) -> Then:
        """Set the value of rows for which the condition is true.

        Examples
        --------
        >>> fn.when(fn.col("size") > 9).then(fn.lit("large"))
        when((col("size") > 9)).then('large')
        """
        of = _expression(value)
        branches = [*self._branches, [self._condition._tree(), of._tree()]]
        return Then(branches, None, f"{self._shown}.then({of!r})", self._name or of._output_name())


class Then(Expr):
    """Values by condition. Other rows get null unless you call `otherwise`."""

    __slots__ = ("_branches",)

    def __init__(self, branches: list[Any], otherwise: Any, shown: str, name: str | None) -> None:
        super().__init__({"when": {"branches": branches, "otherwise": otherwise}}, shown, name)
        self._branches = branches

    def when(self, condition: Expr) -> When:
        """Add a condition for rows for which no earlier one is true.

        Examples
        --------
        >>> size = fn.col("size")
        >>> fn.when(size > 9).then(2).when(size > 4).then(1)
        when((col("size") > 9)).then(2).when((col("size") > 4)).then(1)
        """
        return When(condition, self._branches, f"{self._shown}.", self._name)

    def otherwise(self, value: Any) -> Expr:
        """Set the value of rows for which no condition is true.

        Examples
        --------
        >>> fn.when(fn.col("size") > 9).then(1).otherwise(0)
        when((col("size") > 9)).then(1).otherwise(0)
        """
        of = _expression(value)
        return Then(self._branches, of._tree(), f"{self._shown}.otherwise({of!r})", self._name)


def col(name: str) -> Expr:
    """Refer to a column by name.

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
    """Create an expression from a constant, the same for all rows.

    Parameters
    ----------
    value
        None, a bool, number, string, bytes, date, datetime or timedelta. A ``decimal.Decimal`` has the digits that you
        write, at most 38.

    Examples
    --------
    >>> import flownet as fn
    >>> fn.lit("de")
    'de'
    """
    return Expr({"literal": _literal(value)}, repr(value), None)


def when(condition: Expr) -> When:
    """Choose values by condition, as SQL's CASE WHEN.

    Each value is computed only for the rows that take it.

    Examples
    --------
    >>> import flownet as fn
    >>> fn.when(fn.col("size") > 0).then(fn.col("worth") / fn.col("size")).otherwise(0)
    when((col("size") > 0)).then((col("worth") / col("size"))).otherwise(0)
    """
    return When(condition, [], "", None)


def coalesce(*columns: Any) -> Expr:
    """Return the first value that is not null, as SQL's COALESCE.

    Parameters
    ----------
    *columns
        Expressions such as ``fn.col("x")``, or values, of compatible types. At least one.

    Raises
    ------
    PlanError
        There are no columns.

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
    """Convert an argument, a column's name or an expression, to an expression."""
    if isinstance(given, Expr):
        return given
    if isinstance(given, str):
        return col(given)
    raise PlanError(f'{method}() takes names of columns and expressions such as fn.col("price") * 2, not {given!r:.60}')


def named_columns(method: str, columns: Iterable[str | Expr], named: dict[str, Any]) -> list[dict[str, Any]]:
    """Describe columns by name and expression, in the form of a plan.

    Raises
    ------
    PlanError
        A column has no name.
    """
    made = []
    for column in columns:
        expression = column_or_expression(method, column)
        name = expression._output_name()
        if name is None:
            raise PlanError(f"{method}: {expression!r} has no column to be called by: name it, as in {method}(x=...)")
        made.append({"name": name, "value": expression._tree()})
    made += [{"name": name, "value": _named(method, name, value)._tree()} for name, value in named.items()]
    return made


def _named(method: str, name: str, value: Any) -> Expr:
    if isinstance(value, str):
        raise PlanError(
            f"{method}({name}={value!r}): write fn.col({value!r}) for the column, or fn.lit({value!r}) for the text"
        )
    return value if isinstance(value, Expr) else lit(value)


def _expression(value: Any) -> Expr:
    if isinstance(value, When):
        raise PlanError(f"{value._shown} has no then()")
    return value if isinstance(value, Expr) else lit(value)


def call(function: str, *arguments: Any) -> Expr:
    """Call a function of several columns. The functions of `flownet.rows.functions.several` use it."""
    of = [_expression(argument) for argument in arguments]
    name = next((found for argument in of if (found := argument._output_name())), None)
    shown = f"{function.removeprefix('fn.')}({', '.join(map(repr, arguments))})"
    return Expr({"call": {"function": function, "of": [argument._tree() for argument in of]}}, shown, name)


def _method(
    of: Expr, function: str, arguments: tuple[Any, ...], keywords: dict[str, Any], shown: str | None = None
) -> Expr:
    shown = shown or f"{of!r}.{function}({shown_arguments(arguments, keywords)})"
    trees = [_expression(argument)._tree() for argument in (of, *arguments, *keywords.values())]
    return Expr({"call": {"function": function, "of": trees}}, shown, of._output_name())


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
    # NaN and infinity have letters as exponents.
    if not isinstance(exponent, int) or exponent < -_MOST_DIGITS or len(digits) + max(exponent, 0) > _MOST_DIGITS:
        raise PlanError(f"lit({value!r}): a decimal has at most {_MOST_DIGITS} digits")
    whole = int("".join(map(str, digits))) * 10 ** max(exponent, 0) * (-1 if sign else 1)
    return {"high": whole >> 64, "low": whole & (2**64 - 1), "scale": max(-exponent, 0)}


_CALENDAR_UNITS = {"day": "d", "week": "w", "month": "mo"}
_MOST_DIGITS = 38
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
