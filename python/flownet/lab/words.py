"""Words: amounts and tables as people read them."""

from __future__ import annotations

from collections.abc import Sequence


def megabytes(size: float | None) -> str:
    """``1.23 MB``, powers of 1000 as the rates are."""
    if size is None:
        return "-"
    if size == 0:
        return "0"
    if size < 1e5:
        return f"{size / 1e3:.1f} kB"
    return f"{size / 1e6:.2f} MB"


def span(seconds: float | None) -> str:
    """``1.23 s``, ``45 ms``; ``-`` for never."""
    if seconds is None:
        return "-"
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.0f} ms"


def ratio(value: float | None) -> str:
    """``0.98``."""
    return "-" if value is None else f"{value:.2f}"


def listed(names: Sequence[str]) -> str:
    """Join names: ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def text_table(rows: Sequence[Sequence[str]]) -> str:
    """Lay rows out in columns, the first of them to the left and the rest to the right; the last is running text."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *cells, last in rows:
        middle = [cell.rjust(width) for cell, width in zip(cells, widths[1:-1], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *middle, last]).rstrip())
    return "\n".join(lines)
