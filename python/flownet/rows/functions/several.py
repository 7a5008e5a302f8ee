# Generated from the registry in rust/flownet-rows/src/expr/functions by `make functions`. Do not edit.
"""Functions of several columns."""

from __future__ import annotations

from typing import Any

from ..expressions import Expr, call


def greatest(first: Any, *others: Any) -> Expr:
    """Return the largest of several columns.

    Nulls are skipped, and NaN is above every number.

    Example: ``fn.greatest(fn.lit(1), 3, 2)`` is ``3``.
    """
    return call("fn.greatest", first, *others)


def least(first: Any, *others: Any) -> Expr:
    """Return the smallest of several columns.

    Nulls are skipped, and NaN is above every number.

    Example: ``fn.least(fn.lit(3), 1, 2)`` is ``1``.
    """
    return call("fn.least", first, *others)


def concat(first: str | Expr | None, *others: str | Expr | None) -> Expr:
    """Join strings.

    The result is null if one of them is.

    The result is a ``utf8``.

    Example: ``fn.concat(fn.lit('a'), '-', 'b')`` is ``'a-b'``.
    """
    return call("fn.concat", first, *others)


def concat_ws(separator: str | Expr | None, first: str | Expr | None, *others: str | Expr | None) -> Expr:
    """Join strings with a separator between them.

    Nulls are skipped; a null separator gives null.

    The result is a ``utf8``.

    Example: ``fn.concat_ws('-', fn.lit('a'), None, 'b')`` is ``'a-b'``.
    """
    return call("fn.concat_ws", separator, first, *others)
