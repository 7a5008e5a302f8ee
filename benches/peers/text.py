"""The text that the word counts read: that of ``flownet demo wordcount``, the source of Python's standard library."""

from __future__ import annotations

import contextlib
import functools
import tempfile
from collections.abc import Iterator, Sequence

from flownet.cli.demo import Text
from interface import Scale


def lines(scale: Scale | None = None) -> Iterator[str]:
    """Yield the lines of the text; fewer files in a smoke run."""
    return Text("", list(_files(scale)), []).lines()


@contextlib.contextmanager
def listed(scale: Scale) -> Iterator[tuple[str, int]]:
    """Give a file that names the files of the text, one a line, and the number of words in them."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
        file.write("\n".join(_files(scale)))
        file.flush()
        yield file.name, _words(scale)


@contextlib.contextmanager
def joined(scale: Scale) -> Iterator[tuple[str, int]]:
    """Give the text as one file, and the number of words in it."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".txt") as file:
        file.writelines(line if line.endswith("\n") else line + "\n" for line in lines(scale))
        file.flush()
        yield file.name, _words(scale)


def _files(scale: Scale | None) -> Sequence[str]:
    files = _all_files()
    return files[: scale.pick(len(files), _SMOKE_FILES)] if scale else files


@functools.cache
def _all_files() -> tuple[str, ...]:
    return tuple(Text.of_standard_library().files)


@functools.cache
def _words(scale: Scale) -> int:
    return sum(len(line.split()) for line in lines(scale))


_SMOKE_FILES = 20
