"""cloudpickle, of whose functions the file is still known in which they were written, and of whose classes the names.

From 3.1.3 on it leaves that out, so that the same function is the same bytes wherever it is. But an error is to show
the line that raised it, a flame graph where time goes, and a method that a library made is known by its file.
"""

from __future__ import annotations

import dataclasses
import functools
import io
from collections import ChainMap
from collections.abc import Callable
from types import CodeType
from typing import Any

from .class_names import note_by_value


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
        # A class by value has its fields, and "no default" is told by identity: `dataclasses.MISSING` goes by name.
        by_type = {CodeType: reduce_with_file, type(dataclasses.MISSING): lambda _: "MISSING"}
        dispatch_table = ChainMap(by_type, table)

        def reducer_override(self, value: Any) -> Any:
            reduced = super().reducer_override(value)
            if reduced is NotImplemented or not isinstance(value, type) or len(reduced) < 3:
                return reduced
            note_by_value(value)
            return _with_qualified_name(value, reduced)

    return Pickler


def _with_qualified_name(cls: type, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """Add what cloudpickle leaves out: a class that is nested in another is known by its qualified name."""
    make, arguments, (attributes, slots), *rest = reduced
    return make, arguments, (attributes | {"__qualname__": cls.__qualname__}, slots), *rest


def _code_of_file(file: str, make: Callable[..., CodeType], parts: tuple[Any, ...]) -> CodeType:
    return make(*parts).replace(co_filename=file)
