"""Text files that grow and come while they are read: ``read_text(watch=True)``.

A file is a split. It is known by its number on the device and the time at which it was made: it is the same under any
name, and another one under the same name is another. Where it is read on is a number of bytes, together with the last
bytes before it: who goes on finds out whether they still are what they were.

I1. A line is emitted once it has its end, or when its file is gone for good.
I2. A file of which something is gone that was not read is an `InputError`, never fewer lines.
"""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from .._flownet import file_identity
from ..errors import InputError
from ..internal import config
from .file_listing import files_below, is_pattern, matches
from .source import Source, SplitReader

Identity = tuple[int, int]
"""The number of a file on its device, and when it was made."""

Position = tuple[bytes, int, bytes, int]
"""Path, bytes that were read, the last of these, and how large the file was seen to be."""


class FollowedText(Source[str]):
    """Lines of files, also of those that come, and of what they gain."""

    keeps_ended = False
    """A file that is gone never comes again: that it was read to its end need not be remembered."""

    def __init__(self, paths: list[str], errors: str, interval: object) -> None:
        self.discovery_interval = interval  # type: ignore[assignment]
        self.interval_s = config.duration_us("watch", interval) / 1e6
        self.errors = errors
        self.max_line_bytes = 1 << 20
        self.open_files = 0
        self._paths = paths
        self._where: dict[Identity, str] = {}

    def limit_records(self, max_record_bytes: int) -> None:
        """Take note how long a line may be."""
        self.max_line_bytes = max_record_bytes

    def splits(self) -> list[Identity]:
        """List the files that there are."""
        where: dict[Identity, str] = {}
        for path in files(self._paths):
            with suppress(FileNotFoundError):
                where.setdefault(_identity(path), path)
        self._where = where
        return list(where)

    def position_of_new(self, split: Identity) -> Position:
        """Begin at its first line."""
        path = self._where[split]
        size = 0
        with suppress(OSError):
            size = os.stat(path).st_size
        return os.fsencode(path), 0, b"", size

    def open(self, split: Identity, position: Position | None) -> FollowedFile:
        """Begin to follow a file."""
        return FollowedFile(self, split, self.position_of_new(split) if position is None else position)

    def find(self, split: Identity, path: str) -> str | None:
        """Say where a file is now: under its name, or under another in its folder, or in what is watched."""
        for candidate in itertools.chain([path], _beside(path, split[0]), self._listed()):
            with suppress(OSError):
                if file_identity(candidate) == split:
                    return candidate
        return None

    def _listed(self) -> Iterator[str]:
        with suppress(InputError):
            yield from files(self._paths)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "open_files": 0}


class FollowedFile(SplitReader[str]):
    """Reads the lines of one file, as they come."""

    def __init__(self, source: FollowedText, split: Identity, position: Position) -> None:
        self.ask_again_seconds = source.interval_s
        self._source = source
        self._split = split
        path, self._offset, self._last, self._seen = position
        self._path = os.fsdecode(path)
        self._file: int | None = None
        # Device and number, size and time of the last change, when there was nothing more to read.
        self._state: tuple[int, int, int, int] | None = None
        self._is_over = not self._open()
        self._rest()

    def read(self) -> list[str] | None:
        """Return the lines that are whole."""
        if self._is_over:
            return None
        if self._file is None and self._is_as_it_was():
            return []
        if self._file is None and not self._open():
            return None
        assert self._file is not None
        now = os.fstat(self._file)
        if _state(now) != self._state:
            self._check(now.st_size)
            self._seen = now.st_size
            data, is_whole = self._next()
            if is_whole:
                return self._take(data)
            self._state = _state(now)
            if now.st_nlink:
                self._rest()
                return []
        elif now.st_nlink:
            return []
        else:
            data, _ = self._next()
        # Deleted, and read to its end: what has no end of line is the last line.
        self._is_over = True
        return self._take(data) if data else None

    def position(self) -> Position:
        """Return where the next line begins."""
        return os.fsencode(self._path), self._offset, self._last, self._seen

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
            self._source.open_files -= 1

    def _open(self) -> bool:
        """Open the file, wherever it is now; false if it is gone and was read to its end."""
        for _ in range(_TRIES):
            path = self._source.find(self._split, self._path)
            if path is None:
                break
            try:
                file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise InputError(f"cannot read {path!r}: {error.strerror}", path=path) from error
            opened = os.fstat(file)
            with suppress(FileNotFoundError):
                if os.path.samestat(opened, os.stat(path)) and file_identity(path) == self._split:
                    self._file, self._path = file, path
                    self._source.open_files += 1
                    self._check(opened.st_size)
                    self._seen = opened.st_size
                    return True
            # It was renamed meanwhile.
            os.close(file)
        self._is_over = True
        if self._seen > self._offset:
            raise InputError(
                f"{self._path} is gone, and {self._seen - self._offset} bytes of it had not been read, or not when the "
                "checkpoint was taken: put the file back, by renaming and not by copying; workers must see the very "
                "files, and files be deleted only when a checkpoint counts that has read them",
                path=self._path,
            )
        return False

    def _is_as_it_was(self) -> bool:
        try:
            return _state(os.stat(self._path)) == self._state
        except OSError:
            return False

    def _check(self, size: int) -> None:
        """Make sure that what was read is still there: what follows it is what comes next."""
        assert self._file is not None
        if size < self._offset:
            raise self._changed(f"was cut to {size} bytes, and {self._offset} had been read")
        if os.pread(self._file, len(self._last), self._offset - len(self._last)) != self._last:
            raise self._changed(f"was written over: before byte {self._offset} is not what was read there")

    def _changed(self, how: str) -> InputError:
        return InputError(
            f"{self._path} {how}: what it was is lost, and lines may be missing or come twice; let writers append, and "
            "rotate logs by renaming, not by copying and cutting",
            path=self._path,
        )

    def _next(self) -> tuple[bytes, bool]:
        """Read whole lines, or what is there of one."""
        assert self._file is not None
        wanted = _BATCH_BYTES
        while True:
            data = os.pread(self._file, wanted, self._offset)
            if end := data.rfind(b"\n") + 1:
                return data[:end], True
            if len(data) > self._source.max_line_bytes:
                raise InputError(
                    f"line at byte {self._offset} of {self._path} is longer than {self._source.max_line_bytes} bytes, "
                    "the largest record; raise max_record_size, or see whether it is text in lines",
                    path=self._path,
                )
            if len(data) < wanted:
                return data, False
            wanted *= 2

    def _take(self, data: bytes) -> list[str]:
        try:
            text = data.decode("utf-8", self._source.errors)
        except UnicodeDecodeError as error:
            begin = data.rfind(b"\n", 0, error.start) + 1
            line = data[begin:].split(b"\n", 1)[0]
            raise InputError(
                f"{self._path}: a line is not UTF-8, at byte {error.start - begin} of {line!r:.200}; errors='replace' "
                "puts U+FFFD there, 'ignore' leaves it out",
                path=self._path,
            ) from error
        self._offset += len(data)
        self._last = (self._last + data[-_LAST_BYTES:])[-_LAST_BYTES:]
        self._state = None
        lines = text.split("\n")
        if not lines[-1]:
            lines.pop()
        return [line.removesuffix("\r") for line in lines] if "\r" in text else lines

    def _rest(self) -> None:
        """Let go of the file as long as it has nothing new, if others need room."""
        if self._source.open_files > _MOST_OPEN:
            self.close()


def files(paths: list[str]) -> Iterator[str]:
    """List the files that there are now, of files, folders and patterns; what is not there yet is passed over.

    Of folders and patterns, hidden files are left out, as `read_text` leaves them out.

    Raises
    ------
    InputError
        A folder cannot be listed, or a path is neither file nor folder.
    """
    for path in paths:
        if not is_pattern(path):
            yield from _below(path, is_named=True)
            continue
        for found in matches(path):
            yield from _below(found, is_named=False)


def _below(path: str, *, is_named: bool) -> Iterator[str]:
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"cannot read {path!r}: {error.strerror}", path=path) from error
    if stat.S_ISREG(mode):
        yield path
    elif stat.S_ISDIR(mode):
        yield from files_below(path, _refuse)
    elif is_named:
        raise InputError(f"cannot read {path!r}: neither a file nor a folder", path=path)


def _refuse(error: OSError) -> None:
    # A folder may go while it is listed.
    if not isinstance(error, FileNotFoundError):
        raise InputError(f"cannot read {error.filename!r}: {error.strerror}", path=str(error.filename)) from error


def _beside(path: str, number: int) -> Iterator[str]:
    """List the files of the same folder that may be the one of this number."""
    with suppress(OSError), os.scandir(os.path.dirname(path)) as entries:
        yield from (entry.path for entry in entries if entry.inode() == number)


def _identity(path: str) -> Identity:
    identity = file_identity(path)
    if identity is None:
        raise InputError(
            f"cannot follow {path!r}: its file system does not say when files were made, so one that is renamed cannot "
            "be told from another; use a file system that does (ext4, XFS, Btrfs, tmpfs), or read without watch=True",
            path=path,
        )
    return identity


def _state(now: os.stat_result) -> tuple[int, int, int, int]:
    return now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns


_BATCH_BYTES = 64 << 10
"""Read at once; more only of a line that is longer."""

_LAST_BYTES = 64
"""Of what was read, enough to tell another content by."""

_MOST_OPEN = 128
"""Files that a source holds open in a process; more have to be found again when they have grown."""

_TRIES = 10
"""A file that is renamed again and again as it is being opened counts as gone."""
