"""cloudpickle, of whose functions the file is still known in which they were written.

From 3.1.3 on it leaves that out, so that the same function is the same bytes wherever it is. But an error is to show
the line that raised it, a flame graph where time goes, and a method that a library made is known by its file.
"""

from __future__ import annotations

import functools
import io
from collections import ChainMap
from collections.abc import Callable
from types import CodeType
from typing import Any


def dumps(value: object) -> bytes:
    """Pickle a value: functions and classes of importable modules by name, those of the main script by value."""
    file = io.BytesIO()
    pickler_class()(file).dump(value)
    return file.getvalue()


@functools.cache
def pickler_class() -> Any:
    """Make the class of picklers. Its base is imported when the first value asks for it."""
    import cloudpickle

    table = cloudpickle.Pickler.dispatch_table
    reduce_code = table[CodeType]

    def reduce_with_file(code: CodeType) -> tuple[Any, ...]:
        make, parts = reduce_code(code)[:2]
        return _code_of_file, (code.co_filename, make, parts)

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc] # cloudpickle has no types
        dispatch_table = ChainMap({CodeType: reduce_with_file}, table)

    return Pickler


def _code_of_file(file: str, make: Callable[..., CodeType], parts: tuple[Any, ...]) -> CodeType:
    return make(*parts).replace(co_filename=file)
