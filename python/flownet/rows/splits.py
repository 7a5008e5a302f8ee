"""Files of rows in splits: which there are, and who reads which of them, also after other subtasks have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..repeatable import Assignment, Source

if TYPE_CHECKING:
    import pyarrow


class FileSplit(NamedTuple):
    """A file, or a part of it."""

    path: str
    bytes: int
    """The size of the file when it was listed: of another size it is another one."""
    part: int | None
    """A row group, for one; None for all of the file."""


class FilesOfRows(Protocol):
    """Files that hold rows."""

    def splits(self) -> list[FileSplit]:
        """List them, in the order in which they are to be read."""

    def read(self, path: str, part: int | None) -> pyarrow.RecordBatchReader:
        """Open a split, from its first row on."""


Kept = tuple[int, tuple[str, int, int | None], bool, int]
"""Of a split who has read it, which one it is, whether it had ended, and how many of its rows were emitted."""


class FileAssignment:
    """Splits of files, and which of them a subtask reads; asked by the source operator."""

    def __init__(self, files: FilesOfRows) -> None:
        self._files = files
        self._listed = files.splits()

    def read(self, path: str, part: int | None) -> pyarrow.RecordBatchReader:
        """Open a split."""
        return self._files.read(path, part)

    def mine(self, subtask: int, subtasks: int) -> list[FileSplit]:
        """List the splits of a subtask in a job that begins."""
        return self._listed[subtask::subtasks]

    def resume(
        self, subtask: int, subtasks: int, before: int, reading: list[int], kept: list[Kept]
    ) -> tuple[list[tuple[FileSplit, int]], list[FileSplit]]:
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
            What the subtask reads, in order: splits, and how many rows of each were emitted.
        list
            Splits that have ended, which it has to remember.

        Raises
        ------
        LookupError
            A file that was not read to its end is not there any more, or is another one.
        """
        order = {path: number for number, path in enumerate(dict.fromkeys(split.path for split in self._listed))}

        def place(split: FileSplit) -> tuple[int, int]:
            return order.get(split.path, len(order)), split.part or 0

        known = [(reader, FileSplit(*name), has_ended, rows) for reader, name, has_ended, rows in kept]
        # In their order, so that each subtask has some of the first ones.
        known.sort(key=lambda one: place(one[1]))
        sizes = {split.path: split.bytes for split in self._listed}
        for _, split, has_ended, _ in known:
            if not has_ended:
                _check(split, sizes.get(split.path))
        # Files stay in the parts in which they were begun.
        begun = {split.path for _, split, _, _ in known}
        splits = [split for _, split, _, _ in known] + [split for split in self._listed if split.path not in begun]
        assignment = Assignment(Source(), splits)
        dealt: list[tuple[int, Any, bool, Any, list[Any]]] = [
            (reader, split, has_ended, rows, []) for reader, split, has_ended, rows in known
        ]
        mine, ended = assignment.resume(subtask, subtasks, before, reading, dealt)
        going = [(split, rows or 0) for split, rows, _ in mine]
        return sorted(going, key=lambda one: place(one[0])), ended


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
