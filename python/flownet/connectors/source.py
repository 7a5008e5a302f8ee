"""Custom replayable sources, and the assignment of their splits to subtasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any, Generic, TypeVar

from .. import codec
from ..errors import CodecError, ConfigError, PlanError
from ..internal import config

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class SplitReader(Generic[T_co]):
    """Read one split of a `Source` from a position.

    Subclass it and return an instance from `Source.open`.
    """

    ask_again_seconds: float = 0.02
    """Seconds until the next `read` after one without records."""

    def read(self) -> list[T_co] | None:
        """Return the next available records, or None at the end of the split.

        If there are no records for now, return an empty list. flownet then calls it again after ``ask_again_seconds``,
        20 ms by default. The method may wait for records, but only briefly: timers, checkpoints and the other splits of
        the subtask wait meanwhile.
        """
        raise NotImplementedError(f"{type(self).__name__} must define read()")

    def position(self) -> Any:
        """Return the position of the next `read`, or None at the beginning.

        `Source.open` resumes from this position. Called when the split is opened, at each checkpoint and at its end,
        not for each record. The position becomes part of the checkpoint. It must have a type of records: a number, a
        string, or a tuple of these.
        """
        raise NotImplementedError(f"{type(self).__name__} must define position()")

    def pending_records(self) -> int | None:
        """Return the number of records that `read` has not returned yet, or None.

        Return None if the number is unknown, the default. The metric ``source_lag_records`` of the task is the sum of
        these numbers and of the records that were read and wait to be emitted. Called in the reading thread each
        ``status_interval``, 200 ms by default, while the source is active. Return a number that you know already,
        without a request. Flink's name for it is ``pendingRecords``.
        """
        return None

    def close(self) -> None:
        """Release resources. Called once, at the end of the split or of the job, also after a failure."""


class Source(Generic[T_co]):
    r"""Read records from a custom replayable source.

    Subclass it and pass an instance to `Environment.from_source`. A source has *splits*: files, tables, topics. One
    subtask reads a split, in its order, and reads all its splits side by side. A checkpoint stores the position of each
    split, and the job resumes from these positions.

    Examples
    --------
    Read lines of files. A position is a number of bytes, and a batch has about 64 KiB:

    >>> import flownet as fn
    >>> class Lines(fn.Source[str]):
    ...     def __init__(self, paths):
    ...         self.paths = paths
    ...
    ...     def splits(self):
    ...         return self.paths
    ...
    ...     def open(self, split, position):
    ...         return LinesOfFile(split, position or 0)
    >>> class LinesOfFile(fn.SplitReader[str]):
    ...     def __init__(self, path, position):
    ...         self.file = open(path, "rb")
    ...         self.file.seek(position)
    ...
    ...     def read(self):
    ...         return [line.decode().rstrip("\n") for line in self.file.readlines(64 << 10)] or None
    ...
    ...     def position(self):
    ...         return self.file.tell()
    ...
    ...     def close(self):
    ...         self.file.close()
    """

    discovery_interval: str | timedelta | None = None
    """Interval of calls of `splits` while the job runs, as ``"1s"`` or a ``timedelta``. One subtask reads each new
    split, from the position that `position_of_new` returns. Such a source has no end: its job runs until you stop it.
    Default: None, one call."""

    def splits(self) -> Iterable[Any]:
        """List the splits: strings, numbers, or tuples of these, each once.

        Called once in each run, in the process that submits the job. A run that resumes from a checkpoint reads each
        split from its position, and new splits from their beginning. A split that has not ended must still be listed.

        With ``discovery_interval``, a separate thread calls it repeatedly and logs its exceptions. A split that is no
        longer listed is still read. Default: one split, None.
        """
        return [None]

    def open(self, split: Any, position: Any) -> SplitReader[T_co]:
        """Open a split at a position of `SplitReader.position`, or at its beginning if that is None."""
        raise NotImplementedError(f"{type(self).__name__} must define open(split, position)")

    def position_of_new(self, split: Any) -> Any:
        """Return the start position of a split that appears after the job's start.

        The split is first listed while the job runs, or by a run that resumes from a checkpoint. Default: None, the
        beginning of the split, as in a new job.
        """
        return None

    def checkpointed(self, positions: list[tuple[Any, Any]]) -> None:
        """Handle a complete checkpoint: the job resumes from these positions or later ones.

        Use it to publish the progress of the job, or to delete data that it no longer needs. Called in each subtask,
        with those of its splits that have a position. After a failure, it is not called for every checkpoint.
        """


class Resumable(Source[T_co]):
    """Read a source from a generator function of a position, or of a split and a position."""

    def __init__(self, read: Callable[..., Iterator[Any]], splits: list[Any] | None, batches: bool) -> None:
        self._read = read
        self._splits = splits
        self.batches = batches

    def splits(self) -> Iterable[Any]:
        """List the given splits."""
        return [None] if self._splits is None else self._splits

    def open(self, split: Any, position: Any) -> Any:
        """Start the generator at a position."""
        return self._read(position) if self._splits is None else self._read(split, position)


class Assignment:
    """The splits of a source, and which of them a subtask reads; asked by the source operator."""

    def __init__(self, source: Source[Any], splits: list[Any]) -> None:
        self._source = source
        self._splits = splits
        # Of each subtask: where functions run as they are, all of a process share this.
        self._known: dict[int, set[Any]] = {}

    def prepare(self, max_record_bytes: int) -> tuple[bool, bool]:
        """Say how large a record may be; answers whether splits come as the job runs, and whether ended ones count."""
        limited = getattr(self._source, "limit_records", None)
        if limited is not None:
            limited(max_record_bytes)
        return self._grows, getattr(self._source, "keeps_ended", True)

    @property
    def _grows(self) -> bool:
        return self._source.discovery_interval is not None

    def found(self, subtask: int, subtasks: int, found: list[tuple[int, Any, Any]]) -> list[tuple[Any, Any]]:
        """List with their positions those of some splits that fall to a subtask and that nobody reads yet.

        All subtasks are told of all, each split with its turn. They know the same of what was read before, so they
        agree on who reads what.
        """
        known = self._known.setdefault(subtask, set(self._splits))
        fresh = [(turn, split, position) for turn, split, position in found if split not in known]
        known.update(split for _, split, _ in fresh)
        return [(split, position) for turn, split, position in fresh if turn % subtasks == subtask]

    def name_of(self, split: Any) -> str:
        """Name a split for people."""
        named = getattr(self._source, "_name_of", None)
        return named(split) if named is not None else "the only split" if split is None else f"split {split!r:.200}"

    def mine(self, subtask: int, subtasks: int) -> list[Any]:
        """List the splits of a subtask in a job that begins."""
        self._known.pop(subtask, None)
        return self._splits[subtask::subtasks]

    def resume(
        self,
        subtask: int,
        subtasks: int,
        before: int,
        reading: list[int],
        kept: list[tuple[int, Any, bool, Any, list[Any]]],
    ) -> tuple[list[tuple[Any, Any, list[Any]]], list[Any]]:
        """Deal out splits that were read before by so many subtasks, and those that are listed for the first time.

        Parameters
        ----------
        subtask, subtasks
            Who asks, and how many there are now.
        before
            How many there were.
        reading
            Those of them that had not read all of their splits. The others may have come to their end.
        kept
            Of each split who read it, which one it is, whether it had ended, where it was, and what was read of it and
            not emitted.

        Returns
        -------
        list
            What the subtask reads: splits with positions and records.
        list
            Splits that have ended, which it has to remember.

        Raises
        ------
        LookupError
            A split that had not ended is listed no more.
        """
        listed = set(self._splits)
        gone = [split for _, split, has_ended, _, _ in kept if not has_ended and split not in listed]
        if gone and not self._grows:
            raise LookupError(
                f"split {gone[0]!r:.100} had not ended when the checkpoint was taken, and splits() does not list it "
                "any more: the job cannot go on with what is left of it"
            )
        mine = [
            (split, has_ended, position, records)
            for number, (reader, split, has_ended, position, records) in enumerate(kept)
            if (reader if before == subtasks else number % subtasks) == subtask
        ]
        known = {split for _, split, _, _, _ in kept}
        self._known[subtask] = known | listed
        begun = {reader for reader, *_ in kept}
        # A subtask that had not begun has told no time yet, so no record of what is left is late.
        late = [] if self._grows else [reader for reader in reading if reader not in begun]
        takers = (late or reading) if before == subtasks else list(range(subtasks))
        fresh = [split for split in self._splits if split not in known]
        taken = [split for number, split in enumerate(fresh) if takers and takers[number % len(takers)] == subtask]
        going = [(split, position, records) for split, has_ended, position, records in mine if not has_ended]
        going += [(split, self._source.position_of_new(split), []) for split in taken]
        return going, [split for split, has_ended, *_ in mine if has_ended]

    def checkpointed(self, positions: list[tuple[Any, Any]]) -> None:
        """Say where a checkpoint that counts has the splits of the subtask."""
        self._source.checkpointed(positions)

    def open(self, split: Any, position: Any) -> tuple[bool | None, float, Any]:
        """Open a split.

        Returns
        -------
        bool, optional
            Of an iterator, whether it yields batches; None of a `SplitReader`.
        float
            After how many seconds it is asked again when it has nothing.
        object
            What reads it.
        """
        opened: Any = self._source.open(split, position)
        resumable = self._source if isinstance(self._source, Resumable) else None
        if resumable is None and isinstance(opened, SplitReader):
            return None, opened.ask_again_seconds, opened
        if resumable is not None and hasattr(opened, "__next__"):
            return resumable.batches, SplitReader.ask_again_seconds, opened
        wanted = "a flownet.SplitReader" if resumable is None else "an iterator"
        raise TypeError(f"opening split {split!r:.60} returned {type(opened).__name__} {opened!r:.60}, not {wanted}")


class Listing:
    """Lists the splits of a source, for each run anew."""

    def __init__(self, name: str, source: Source[Any]) -> None:
        self._name = name
        self.source = source
        interval = source.discovery_interval
        self.interval_seconds = None if interval is None else _interval_seconds(interval)
        """How often the splits are listed while the job runs; None: not again."""

    def __call__(self) -> Assignment:
        """List them for a run that begins."""
        return Assignment(self.source, self.splits())

    def splits(self) -> list[Any]:
        """List them."""
        return self._checked(self.source.splits())

    def discover(self) -> list[Any]:
        """List them again, while the job runs."""
        return self._checked(getattr(self.source, "discover", self.source.splits)())

    def _checked(self, given: Any) -> list[Any]:
        if isinstance(given, str | bytes) or not isinstance(given, Iterable):
            raise self._refuse(f"returned {given!r:.60}, not a list of splits")
        splits = list(given)
        seen = set()
        for split in splits:
            try:
                codec.encode(split)
                is_known = split in seen
                seen.add(split)
            except (CodecError, TypeError) as error:
                raise self._refuse(f"lists {split!r:.60}, which cannot name one: {error}") from error
            if is_known:
                raise self._refuse(f"lists {split!r:.60} twice, and its records would come twice")
        return splits

    def _refuse(self, text: str) -> PlanError:
        return PlanError(f"splits() of {self._name} {text}", operator=self._name)


def _interval_seconds(given: object) -> float:
    microseconds = config.duration_us("discovery_interval", given)
    if microseconds == 0:
        raise ConfigError("discovery_interval=0: must be longer than 0", setting="discovery_interval", value=given)
    return microseconds / 1e6
