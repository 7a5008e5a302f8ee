"""Sources: what they are given is checked here, before anything runs."""

from __future__ import annotations

import inspect
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sized
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeGuard

from .. import codec
from ..errors import ConfigError, InputError, PlanError
from ..internal import config
from ..planning import spec
from ..planning.dataflow import Dataflow, Node
from .file_listing import files_below, is_pattern, matches

if TYPE_CHECKING:
    from .source import Source

TextErrors: TypeAlias = spec.InvalidUtf8
"""What to do with bytes that are not UTF-8: fail, replace by U+FFFD, or leave out."""


RateLimit = float | str
"""Records a second as a number or ``"1000/s"``, or bytes a second as ``"2MB/s"``."""


def from_collection(dataflow: Dataflow, items: Iterable[Any], *, pickle: bool, rate_limit: RateLimit | None) -> Node:
    """Add a source of values that are at hand."""
    if isinstance(items, str | bytes):
        raise PlanError(
            f"from_collection() takes a list of records; for the single record {items!r:.60} write [record]"
        )
    classes = codec.ClassTable()
    records = codec.encode(list(_iterate("from_collection", items)), pickle=pickle, classes=classes)
    return dataflow.add(
        "from_collection",
        payload=codec.encode((classes.definitions(), records)),
        parallelism=1,
        is_parallel=False,
        is_bounded=True,
        rate_limit=_limit(rate_limit),
    )


def from_iterable(
    dataflow: Dataflow,
    iterable: Iterable[Any] | Callable[[int, int], Iterable[Any]],
    *,
    rate_limit: RateLimit | None,
) -> Node:
    """Add a source that pulls from an iterable in this process, or from one that each subtask makes for itself."""
    if callable(iterable) and not _is_iterable(iterable):
        tells_splits = bool(getattr(iterable, "tells_splits", False))
        return dataflow.add(
            {"from_iterable": {"makes_its_own": True, "tells_splits": tells_splits}},
            function=iterable,
            rate_limit=_limit(rate_limit),
        )
    return dataflow.add(
        {"from_iterable": {}},
        prepare=_FreshIterator(_iterate("from_iterable", iterable)),
        parallelism=1,
        is_parallel=False,
        is_bounded=isinstance(iterable, Sized),
        on_driver=True,
        rate_limit=_limit(rate_limit),
    )


def from_source(dataflow: Dataflow, source: Source[Any], *, rate_limit: RateLimit | None) -> Node:
    """Add a source of the user's that can be repeated."""
    from .source import Listing, Source

    if not isinstance(source, Source):
        kind = source.__name__ + ", a class" if isinstance(source, type) else f"{type(source).__name__} {source!r:.60}"
        raise PlanError(f"from_source() needs an instance of a subclass of flownet.Source, not {kind}")
    name = type(source).__name__
    return dataflow.add("from_source", name=name, prepare=Listing(name, source), rate_limit=_limit(rate_limit))


def from_generator(
    dataflow: Dataflow,
    read: Callable[..., Iterator[Any]],
    *,
    splits: Iterable[Any] | None,
    batches: bool,
    rate_limit: RateLimit | None,
) -> Node:
    """Add a source of a generator function that begins at a position."""
    from .source import Listing, Resumable

    given: Any = read
    if not callable(given):
        raise PlanError(f"from_generator() needs a function that yields (position, record), not {given!r:.60}")
    if inspect.isasyncgenfunction(given) or inspect.iscoroutinefunction(given):
        raise PlanError("from_generator() was given an async function, which nothing awaits: give it a plain generator")
    listed = None if splits is None else list(_iterate("from_generator", splits))
    source: Resumable[Any] = Resumable(read, listed, batches)
    described: dict[str, Any] = {"parallelism": 1, "is_parallel": False} if listed is None else {}
    name = "from_generator"
    return dataflow.add(
        "from_source", name=name, prepare=Listing(name, source), rate_limit=_limit(rate_limit), **described
    )


def read_text(
    dataflow: Dataflow,
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    errors: TextErrors,
    *,
    watch: bool | str | timedelta,
    rate_limit: RateLimit | None,
) -> Node:
    """Add a source of the lines of files."""
    given: Any = [paths] if isinstance(paths, str | os.PathLike) else paths
    if isinstance(given, bytes) or not _is_iterable(given):
        raise ConfigError(
            f"read_text({given!r:.60}): name files and folders by str or Path", setting="paths", value=given
        )
    listed = [_absolute(path) for path in given]
    if not listed:
        raise ConfigError("read_text([]): name at least one file or folder", setting="paths", value=listed)
    if watch is not False:
        return _watch_text(dataflow, listed, errors, watch, rate_limit)
    found = [match for path in listed for match in _expanded(path)]
    for path in found:
        _check_readable(path)
    settings: spec.ReadText = {"paths": [os.fsencode(path) for path in found], "errors": _text_errors(errors)}
    return dataflow.add({"read_text": settings}, rate_limit=_limit(rate_limit), is_bounded=True)


def _watch_text(
    dataflow: Dataflow,
    paths: list[str],
    errors: TextErrors,
    watch: str | timedelta | Literal[True],
    rate_limit: RateLimit | None,
) -> Node:
    from .file_tail import FollowedText, files
    from .source import Listing

    source = FollowedText(paths, _text_errors(errors), "1s" if watch is True else watch)
    for path in paths:
        folder = os.path.dirname(path)
        while is_pattern(folder):
            folder = os.path.dirname(folder)
        if not os.path.isdir(folder):
            # What is not there yet is waited for, but not what was mistyped.
            raise InputError(f"cannot watch {path!r}: there is no folder {folder!r}", path=path)
    for name in files(paths):
        _check_access(name)
    listing = Listing("read_text", source)
    return dataflow.add("from_source", name="read_text", prepare=listing, rate_limit=_limit(rate_limit))


def socket_text(dataflow: Dataflow, host: str, port: int, errors: TextErrors, *, rate_limit: RateLimit | None) -> Node:
    """Add a source of the lines that a server sends."""
    port = config.whole_number("port", port, 1, 65535)
    settings: spec.SocketText = {"host": config.text("host", host), "port": port, "errors": _text_errors(errors)}
    return dataflow.add({"socket_text": settings}, rate_limit=_limit(rate_limit), parallelism=1, is_parallel=False)


def files_of(path: str) -> Iterator[str]:
    """List a file itself, or the files of a folder and of the folders in it, as `read_text` finds them.

    Raises
    ------
    InputError
        The path is missing, is no file or folder, or cannot be listed.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise _unreadable(path, error) from error
    if stat.S_ISREG(mode):
        yield path
        return
    if not stat.S_ISDIR(mode):
        raise InputError(f"cannot read {path!r}: neither a file nor a folder", path=path)

    def refuse(error: OSError) -> None:
        raise _unreadable(str(error.filename), error) from error

    yield from files_below(path, refuse)


def _expanded(path: str) -> list[str]:
    """List the files that a pattern matches; anything else stands for itself."""
    if not is_pattern(path):
        return [path]
    # A pattern may match a folder and files in it.
    found = list(dict.fromkeys(file for match in matches(path) for file in files_of(match)))
    if not found:
        raise InputError(f"cannot read {path!r}: no file matches it", path=path)
    return found


def _absolute(path: object) -> str:
    if isinstance(path, os.PathLike):
        path = os.fspath(path)
    if not isinstance(path, str):
        raise _no_path(path)
    try:
        return os.path.abspath(path)
    except FileNotFoundError as error:
        raise InputError(
            f"cannot read {path!r}: it is relative, and the working directory is gone; give an absolute path", path=path
        ) from error


def _no_path(given: object) -> ConfigError:
    return ConfigError(f"read_text({given!r:.60}): name files and folders by str or Path", setting="paths", value=given)


class _FreshIterator:
    """Makes an iterator for each run. One that a run has taken from has nothing for the next, which is refused."""

    def __init__(self, iterable: Iterable[Any]) -> None:
        self._iterable = iterable
        self._has_run = False

    def __call__(self) -> Iterator[Any]:
        iterator = iter(self._iterable)
        if iterator is self._iterable and self._has_run:
            raise PlanError(
                f"from_iterable() was given {iterator!r:.60}, from which an earlier run has taken its records: give it "
                "a list, or a function of subtask and subtasks that makes a new one for each run"
            )
        return iterator

    def after_start(self) -> None:
        """Know that a run takes from it."""
        self._has_run = True


def _limit(rate_limit: RateLimit | None) -> spec.RateLimit | None:
    if rate_limit is None:
        return None
    per_second, unit = config.rate("rate_limit", rate_limit)
    return {"per_second": per_second, "unit": unit}


def _iterate(method: str, items: object) -> Iterable[Any]:
    if not _is_iterable(items):
        raise PlanError(f"{method}() needs something to iterate over, not {type(items).__name__} {items!r:.60}")
    return items


def _is_iterable(items: object) -> TypeGuard[Iterable[Any]]:
    try:
        iter(items)  # type: ignore[call-overload]
    except TypeError:
        return False
    return True


def _text_errors(errors: TextErrors) -> TextErrors:
    if errors not in ("strict", "replace", "ignore"):
        raise ConfigError(f"errors={errors!r}: must be 'strict', 'replace' or 'ignore'", setting="errors", value=errors)
    return errors


def _check_readable(path: str) -> None:
    """Raise `InputError` for the first file that the job would fail on."""
    for name in files_of(path):
        _check_access(name)


def _check_access(name: str) -> None:
    if not os.access(name, os.R_OK):
        raise InputError(f"cannot read {name!r}: no permission", path=name)


def _unreadable(path: str, error: OSError) -> InputError:
    return InputError(f"cannot read {path!r}: {error.strerror}", path=path)
