"""What `KafkaSource` emits, and how keys and values become bytes and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from ...errors import ConfigError
from ...internal.numpy_scalars import json_default

Format = Literal["bytes", "text", "json"] | Callable[..., Any]
"""How keys or values are written: as bytes, as UTF-8, as JSON, or as a function says."""

Row = tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]
"""Key, value, timestamp (0: now) and headers of a record that is to be written."""


class KafkaRecord(NamedTuple):
    """A record of Kafka, as `KafkaSource` emits it and `KafkaSink` takes it."""

    value: Any
    """Its value; None for a tombstone."""
    key: Any = None
    """Its key; None if it has none."""
    timestamp_ms: int | None = None
    """When it was made, or appended, as the topic says: milliseconds since 1970-01-01 UTC. None: written now."""
    topic: str | None = None
    """The topic that it is of; None of one that is to be written."""
    partition: int | None = None
    """The partition, from 0. None: by the hash of the key, or any."""
    offset: int | None = None
    """Its place in the partition; of no meaning where it is written."""
    headers: tuple[tuple[str, bytes | None], ...] = ()
    """Names and values that travel with it."""


def reader(setting: str, written: Format) -> Callable[[bytes], Any] | None:
    """Make what reads a key or value; None if bytes are wanted."""
    chosen: Callable[[bytes], Any] | None = _chosen(setting, written, _READERS)
    return chosen


def writer(setting: str, written: Format) -> Callable[[Any], Any]:
    """Make what writes a key or value."""
    return _chosen(setting, written, _WRITERS) or bytes_of


def bytes_of(value: Any) -> bytes:
    """Take bytes as they are.

    Raises
    ------
    TypeError
        It is something else.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"{value!r:.60} is {type(value).__name__}, not bytes: say how it is written, as by value='text'")


def _chosen(setting: str, written: Any, known: dict[str, Any]) -> Any:
    if isinstance(written, str) and written in known:
        return known[written]
    if callable(written):
        return written
    raise ConfigError(
        f"{setting}={written!r:.60}: must be 'bytes', 'text', 'json' or a function", setting=setting, value=written
    )


def _text_of(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.60} is {type(value).__name__}, not a text")
    return value.encode()


def _json_of(value: Any) -> bytes:
    # What JSON has no number for, as NaN, would make a value that others cannot read.
    return json.dumps(
        value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=json_default(None)
    ).encode()


_READERS = {"bytes": None, "text": bytes.decode, "json": json.loads}
_WRITERS = {"bytes": None, "text": _text_of, "json": _json_of}
