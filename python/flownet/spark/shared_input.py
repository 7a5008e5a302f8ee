"""The batches of several DataFrames, which Spark hands to a worker in one stream, for the sources that read them.

Sources read at different speeds, and one may wait until another has ended. So whoever finds nothing of its own pulls
the stream, and puts batches of others aside: in memory up to a limit, beyond it in a file without a name.

Invariants
----------
- H1: one thread at a time pulls the stream.
- H2: no source waits for another: it pulls, or waits for the one that pulls.
- H3: batches of one source keep their order.
"""

from __future__ import annotations

import struct
import tempfile
import threading
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import IO

import pyarrow

from .packing import unpack_input


class SharedInput:
    """Deals packed batches out to the sources.

    Parameters
    ----------
    rows
        Batches of `packing.INPUT_COLUMNS`.
    limit_bytes
        How much of each source stays in memory while the source is busy.
    """

    def __init__(self, rows: Iterator[pyarrow.RecordBatch], limit_bytes: int | None = None) -> None:
        self._rows = rows
        limit = _LIMIT_BYTES if limit_bytes is None else limit_bytes
        self._queues = defaultdict[int, Queue](lambda: Queue(limit))
        self._changed = threading.Condition()
        self._is_pulling = False
        self._is_over = False
        self._error: BaseException | None = None

    def batches(self, source: int) -> Iterator[pyarrow.RecordBatch]:
        """Read the batches for one source."""
        while (payload := self._next(source)) is not None:
            yield from unpack_input(payload)

    def close(self) -> None:
        """Forget what nobody read."""
        with self._changed:
            for queue in self._queues.values():
                queue.close()

    def _next(self, source: int) -> bytes | None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queues[source] or self._is_over or not self._is_pulling)
                if self._queues[source]:
                    return self._queues[source].take()
                if self._error is not None:
                    raise self._error
                if self._is_over:
                    return None
                self._is_pulling = True
            self._pull()

    def _pull(self) -> None:
        rows: pyarrow.RecordBatch | None = None
        error: BaseException | None = None
        try:
            rows = next(self._rows, None)
        except BaseException as raised:
            error = raised
        with self._changed:
            self._is_pulling = False
            self._is_over, self._error = rows is None, error
            if rows is not None:
                for source, payload in zip(rows.column("source").to_pylist(), rows.column("batch"), strict=True):
                    self._queues[source].put(payload.as_py())
            self._changed.notify_all()


class Queue:
    """First in, first out: in memory up to a limit, beyond it in a file.

    Parameters
    ----------
    limit_bytes
        What may be in memory, or one payload that alone is larger.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._payloads = deque[bytes]()
        self._held = 0
        self._file: IO[bytes] | None = None
        self._in_file = 0
        self._read_at = 0

    def __bool__(self) -> bool:
        return bool(self._payloads or self._in_file)

    def put(self, payload: bytes) -> None:
        """Add a payload."""
        has_room = not self._payloads or self._held + len(payload) <= self._limit
        if has_room and not self._in_file:
            self._payloads.append(payload)
            self._held += len(payload)
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="flownet-")
        self._file.seek(0, 2)
        self._file.write(_LENGTH.pack(len(payload)) + payload)
        self._in_file += 1

    def take(self) -> bytes:
        """Remove the first payload."""
        if self._payloads:
            payload = self._payloads.popleft()
            self._held -= len(payload)
            return payload
        assert self._file is not None
        self._file.seek(self._read_at)
        (length,) = _LENGTH.unpack(self._file.read(_LENGTH.size))
        payload = self._file.read(length)
        self._in_file -= 1
        self._read_at = self._file.tell()
        if not self._in_file:
            self._file.truncate(0)
            self._read_at = 0
        return payload

    def close(self) -> None:
        """Forget everything."""
        self._payloads.clear()
        self._in_file = 0
        if self._file is not None:
            self._file.close()
            self._file = None


_LENGTH = struct.Struct("!Q")
_LIMIT_BYTES = 16 << 20
"""Of each source that is busy."""
