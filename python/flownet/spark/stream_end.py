"""What an outlet and an inlet are alike in: the caller's end of a stream between a job and a query."""

from __future__ import annotations

from pyspark.sql.types import StructType

from ..internal import config
from .frames import columns_of
from .rendezvous import Kind, RendezvousServer


class StreamEnd:
    """A hub, and the handle by which queries find it. Made as an `Outlet` or an `Inlet`, which say more."""

    def __init__(
        self,
        kind: Kind,
        schema: str | StructType,
        buffer: int | str,
        address: str,
        tls: str,
        endpoint: str | None,
        name: str,
    ) -> None:
        self._columns = columns_of(schema)
        self._limit_bytes = config.size_bytes("buffer", buffer)
        # As with an `Environment`, the variable of the process goes before what the program says.
        tls = str(config.resolve({"tls": tls}, {})["tls"])
        self._hub = RendezvousServer(kind, config.text("name", name), self._columns, address, tls, endpoint)

    @property
    def endpoint(self) -> str:
        """Path of the handle: the option ``endpoint`` of the query."""
        return self._hub.endpoint
