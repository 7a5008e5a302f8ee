"""Read files of lines in blocks of whole records, with the line on which each begins.

`CsvFormat` and `JsonFormat` parse the blocks one by one, so that no value is parsed in parts, a record may be long, and
an error names its line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

BLOCK_BYTES = 1 << 20
"""Read at once; more only of a record that is longer."""

_MOST_BYTES = 256 << 20
"""A record that is longer is refused: it would be in memory as a whole, several times."""

Fault = tuple[int, int, str]
"""Where quotes cannot be read, where the quote is opened, and why."""

Cut = Callable[[bytes, bool], tuple[int, bool, Fault | None]]
"""Finds the whole records of some bytes, which may be the last ones: their bytes, whether a value is an empty pair of
quotes, and why they cannot be read."""


class LineError(ValueError):
    """A line cannot be read."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(f"line {line}: {text}")


class Block(NamedTuple):
    """Some whole records of a file."""

    data: bytes
    line: int
    """The line of the file on which they begin, from 1."""
    has_empty_quotes: bool


def blocks(path: str, cut: Cut, block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
    """Read a file, unpacked by the end of its name.

    Raises
    ------
    LineError
        A quote is not closed, or a record is longer than 256 MiB.
    OSError
        The file cannot be read.
    """
    import pyarrow

    rest, line, wanted, is_first = b"", 1, block_bytes, True
    with pyarrow.input_stream(path) as stream:
        while True:
            more = stream.read(wanted)
            data = rest + more
            if is_first and len(data) >= len(_MARK):
                data, is_first = data.removeprefix(_MARK), False
            if not data and not more:
                return
            end, has_empty_quotes, fault = cut(data, not more)
            if fault is not None:
                place, opened = (line + lines_in(data[:offset]) for offset in fault[:2])
                raise LineError(place, fault[2] if place == opened else f"{fault[2]} (it is opened in line {opened})")
            if end:
                yield Block(data[:end], line, has_empty_quotes)
                line += lines_in(data[:end])
            elif len(data) > _MOST_BYTES:
                raise LineError(line, f"it does not end within {_MOST_BYTES >> 20} MiB; is a quote not closed?")
            if not more:
                return
            rest = data[end:]
            # Doubled as long as no record ends, so that a long one is not looked at again and again.
            wanted = max(block_bytes, 0 if end else len(data))


def first_bad(parse: Callable[[bytes], object], data: bytes, starts: list[int]) -> int | None:
    """Find the first record that cannot be parsed; None if all can.

    Parameters
    ----------
    parse
        Raises `ValueError` if one of the records that it is given cannot be parsed.
    data, starts
        The records, and where each begins.
    """
    ends = [*starts[1:], len(data)]
    # All in front of `low` can be parsed; one up to `high` cannot.
    low, high = 0, len(starts)
    while low < high:
        middle = (low + high) // 2
        try:
            parse(data[starts[low] : ends[middle]])
        except ValueError:
            high = middle
        else:
            low = middle + 1
    return low if low < len(starts) else None


def lines_in(data: bytes) -> int:
    """Count the ends of lines."""
    return data.count(b"\n") or data.count(b"\r")


_MARK = b"\xef\xbb\xbf"
"""The byte order mark of UTF-8."""
