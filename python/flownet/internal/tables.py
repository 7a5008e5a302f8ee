"""Tables for people, in a terminal and on a page: a row of headings, then rows of cells, all of them text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def text_table(rows: Iterable[Sequence[str]]) -> list[str]:
    """Lay rows out as lines, the headings first; columns of numbers are set to the right."""
    head, *body = rows
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    right = right_aligned(body, len(head))
    return [
        "  ".join(
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in (head, *body)
    ]


def right_aligned(body: Sequence[Sequence[str]], columns: int) -> list[bool]:
    """Say of each column whether it has numbers, with or without a unit, in all of its rows."""
    return [all(_is_number(row[place]) for row in body) for place in range(columns)]


def _is_number(cell: str) -> bool:
    return not cell or cell[0].isdigit() or cell[0] in "-+"
