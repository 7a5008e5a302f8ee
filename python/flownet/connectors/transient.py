"""Tells errors that a retry may heal from errors of the program and its data."""

from __future__ import annotations

from ..errors import InputError

_LASTING = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError)
"""OSErrors that come again for as long as nobody changes the program or the machine."""

_NAMES = (
    "Connect",
    "Timeout",
    "Unavailable",
    "Throttl",
    "TooManyRequests",
    "OperationalError",
    "InterfaceError",
    "RpcError",
)
"""Parts of the names of classes by which libraries say that a server was not reached, or is busy."""


def is_transient(error: BaseException) -> bool:
    """Tell whether a retry may heal an error: a lost connection, a timeout, a server that is busy.

    An error that was raised from such an error, or while it was handled, is transient too.
    """
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        if _is_transient(one):
            return True
        seen.add(id(one))
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return False


def _is_transient(error: BaseException) -> bool:
    # SQLite has one class for a database that is busy and for a statement that is wrong.
    if getattr(error, "sqlite_errorname", None) == "SQLITE_ERROR":
        return False
    if isinstance(error, InputError):
        return False  # Its cause tells whether a file was unreadable for a moment, or has the wrong content.
    if isinstance(error, OSError):
        return not isinstance(error, _LASTING)
    return any(part in cls.__name__ for cls in type(error).__mro__ for part in _NAMES)
