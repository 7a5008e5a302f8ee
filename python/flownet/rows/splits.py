"""Files of rows in splits: which there are, in which order, and which subtask reads which of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from ..connectors.source import Assignment, Source

if TYPE_CHECKING:
    import pyarrow


class FileSplit(NamedTuple):
    """A file, or a part of it."""

    path: str
    bytes: int
    """The size of the file when it was listed: of another size it is another one."""
    part: int | None
    """A row group, for one; None for all of the file."""


ReadOrder = Literal["event_time", "as listed"]
"""In which order a subtask reads its splits."""


class FilesOfRows(Protocol):
    """Files that hold rows."""

    def splits(self) -> list[FileSplit]:
        """List them, in the order in which they are to be read."""

    def parts(self, file: FileSplit) -> list[FileSplit]:
        """List the parts of a file that can be read one by one."""

    def read(self, path: str, part: int | None) -> pyarrow.RecordBatchReader:
        """Open a split, from its first row on."""

    def lower_bounds(self, column: str) -> list[tuple[FileSplit, int | None]] | None:
        """List the splits again, each with a time that none of its rows is before.

        Parameters
        ----------
        column
            The column of event times.

        Returns
        -------
        list, optional
            Splits with milliseconds since 1970-01-01 UTC, None if nothing is known of one; None for files that say
            nothing of their rows.
        """


Kept = tuple[int, tuple[str, int, int | None], bool, int]
"""Of a split who has read it, which one it is, whether it had ended, and how many of its rows were emitted."""


class FileAssignment:
    """Splits of files, and which of them a subtask reads; asked by the source operator.

    Parameters
    ----------
    files
        The files.
    order
        In which order they are read. Default: ``"event_time"``.
    """

    def __init__(self, files: FilesOfRows, order: ReadOrder = "event_time") -> None:
        self._files = files
        self._listed = files.splits()
        self._lower_bounds: dict[FileSplit, int] = {}
        self._time_columns = set[str]()
        self.follows_time = order == "event_time"
        """Whether the split that is furthest behind in event time is read next."""

    def read(self, path: str, part: int | None) -> pyarrow.RecordBatchReader:
        """Open a split."""
        return self._files.read(path, part)

    def set_event_time(self, column: str) -> None:
        """Order the splits by the times in a column, and let them hold event time back by what is known of these.

        If streams of these files take their times from different columns, nothing is known.
        """
        self._time_columns.add(column)
        if not self.follows_time:
            return
        bounds = self._files.lower_bounds(column) if len(self._time_columns) == 1 else None
        if bounds is None:
            self._lower_bounds = {}
            return
        # Splits of unknown times hold event time back until they are read, so they come first.
        bounds.sort(key=lambda bound: (bound[1] is not None, bound[1] or 0))
        self._listed = [split for split, _ in bounds]
        self._lower_bounds = {split: lower for split, lower in bounds if lower is not None}

    def mine(self, subtask: int, subtasks: int) -> list[tuple[FileSplit, int | None]]:
        """List the splits of a subtask in a job that begins, each with the lower bound of its times."""
        return [(split, self._lower_bounds.get(split)) for split in self._listed[subtask::subtasks]]

    def resume(
        self, subtask: int, subtasks: int, before: int, reading: list[int], kept: list[Kept]
    ) -> tuple[list[tuple[FileSplit, int, int | None]], list[FileSplit]]:
        """Deal out splits that were read before by so many subtasks, and those of files that are new.

        Parameters
        ----------
        subtask, subtasks
            Who asks, and how many there are now.
        before
            How many there were.
        reading
            Those of them that had not read all of their splits.
        kept
            What is known of the splits that there were.

        Returns
        -------
        list
            What the subtask reads, in order: splits, how many rows of each were emitted, and the lower bound of its
            times.
        list
            Splits that have ended, which it has to remember.

        Raises
        ------
        LookupError
            A file that was not read to its end is not there any more, or is another one.
        """
        order = {split: number for number, split in enumerate(self._listed)}
        files = {split.path: number for number, split in reversed(list(enumerate(self._listed)))}

        def place(split: FileSplit) -> tuple[int, int]:
            # A file may have been begun in other parts than it has now.
            return order.get(split, files.get(split.path, len(order))), split.part or 0

        known = [(reader, FileSplit(*name), has_ended, rows) for reader, name, has_ended, rows in kept]
        # In their order, so that each subtask has some of the first ones.
        known.sort(key=lambda one: place(one[1]))
        sizes = {split.path: split.bytes for split in self._listed}
        for _, split, has_ended, _ in known:
            if not has_ended:
                _check(split, sizes.get(split.path))
        splits = [split for _, split, _, _ in known]
        splits += self._new_splits(splits)
        assignment = Assignment(Source(), splits)
        dealt: list[tuple[int, Any, bool, Any, list[Any]]] = [
            (reader, split, has_ended, rows, []) for reader, split, has_ended, rows in known
        ]
        mine, ended = assignment.resume(subtask, subtasks, before, reading, dealt)
        going = [(split, rows or 0, self._lower_bound(split)) for split, rows, _ in mine]
        return sorted(going, key=lambda one: place(one[0])), ended

    def _new_splits(self, known: list[FileSplit]) -> list[FileSplit]:
        """List the splits that no subtask knew when the checkpoint was taken.

        Files stay in the parts in which they were begun. Parts of a file that was begun are new if the subtask that was
        to read them had not begun.
        """
        begun = {split.path for split in known}
        in_parts = {(split.path, split.bytes) for split in known if split.part is not None}
        all_known = set(known)
        new = list[FileSplit]()
        for split in self._listed:
            if split.path not in begun:
                new.append(split)
            elif (split.path, split.bytes) in in_parts:
                # Among more files, or without event time, it would be one whole now.
                parts = self._files.parts(split) if split.part is None else [split]
                new += [part for part in parts if part not in all_known]
        return new

    def _lower_bound(self, split: FileSplit) -> int | None:
        if split.part is not None:
            return self._lower_bounds.get(split)
        parts = [listed for listed in self._listed if listed.path == split.path]
        bounds = [self._lower_bounds.get(listed) for listed in parts]
        return None if None in bounds else min((bound for bound in bounds if bound is not None), default=None)


def _check(split: FileSplit, bytes: int | None) -> None:
    if bytes is None:
        raise LookupError(
            f"{split.path} had not been read to its end when the checkpoint was taken, and is not among the files any "
            "more: bring it back"
        )
    if bytes != split.bytes:
        raise LookupError(
            f"{split.path} had not been read to its end when the checkpoint was taken, and has {bytes} bytes, not "
            f"{split.bytes}, since: it is another file now, and which of its rows are left nobody knows. Bring the old "
            "one back"
        )
