"""Where the two ends of a stream find each other: a small server in the process of the caller, and its handle.

Subtasks of the job enlist with the address of their own port; the query asks who they are. No record passes here. What
a query is given is the path of a *handle*: a file that only its owner can read, with the hub's address, the secret and
the schema. Options of a query stand in plans, logs and the UI, so they hold the path and never the secret. The data
source reads the file where Spark plans the query; executors get the content inside the pickled reader or writer, as
they get all code.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
import tempfile
import threading
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Literal

from pyspark.sql.types import StructType

from ..errors import ConfigError, ConnectionLostError, FlownetError, InputError
from ..internal import config
from . import wire
from .secure import Keys
from .wire import Connection, Header, Message

Kind = Literal["outlet", "inlet"]


@dataclass(frozen=True)
class Handle:
    """What a query must know to reach a job."""

    kind: Kind
    name: str
    """Of the job, for errors."""
    hub: str
    """``host:port``."""
    secret: str
    """In hex."""
    certificates: str | None
    """In PEM; None where nothing is encrypted."""
    schema: str
    """In Spark's JSON."""

    @property
    def keys(self) -> Keys:
        """What whoever has the handle proves itself with."""
        return Keys(bytes.fromhex(self.secret), self.certificates)

    @property
    def columns(self) -> StructType:
        """The schema."""
        return StructType.fromJson(json.loads(self.schema))

    def save(self, path: str | None) -> str:
        """Write the handle into a new file for the owner alone; None chooses one in the folder of temporary files."""
        try:
            if path is None:
                descriptor, path = tempfile.mkstemp(prefix="flownet-", suffix=".json")
            else:
                path = os.path.abspath(path)
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise ConfigError(f"endpoint={path!r}: {error.strerror}", setting="endpoint", value=path) from error
        with open(descriptor, "w") as file:
            json.dump(asdict(self), file)
        return path

    @classmethod
    def load(cls, path: str) -> Handle:
        """Read a handle.

        Raises
        ------
        InputError
            There is none, or others may read it.
        """
        try:
            with open(path) as file:
                if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                    raise InputError(f"endpoint {path!r} may be read by others: chmod 600 it", path=path)
                return cls(**json.load(file))
        except FileNotFoundError as error:
            text = f"endpoint {path!r} is not there: its outlet or inlet is closed, or lives on another machine"
            raise InputError(text, path=path) from error
        except (OSError, TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"endpoint {path!r} is no handle of an outlet or inlet: {error}", path=path) from error


class RendezvousServer:
    """The list of a job's subtasks that serve a stream, in the process of the caller.

    Parameters
    ----------
    kind, name, schema
        For the handle.
    address
        Numeric address to listen on.
    tls
        Which connections are encrypted, as in the setting.
    endpoint
        Path of the handle; None chooses one.
    """

    def __init__(self, kind: Kind, name: str, schema: StructType, address: str, tls: str, endpoint: str | None) -> None:
        self._name = name
        self._lock = threading.Condition()
        self._subtasks: int | None = None
        self._members = dict[int, tuple[str, Connection]]()
        self._ended = dict[int, tuple[int, int]]()
        self._lost = dict[int, str]()
        self._run = uuid.uuid4().hex
        keys = Keys(secrets.token_bytes(32), config.certificates(tls, address))
        try:
            self._server = wire.Server(address, keys, lambda connection: _HubSession(self, connection))
        except OSError as error:
            text = f"cannot listen on address={address!r}: {error}; give a numeric address of this machine"
            raise ConfigError(text, setting="address", value=address) from error
        self.handle = Handle(kind, name, self._server.address, keys.secret.hex(), keys.certificates, schema.json())
        try:
            self.endpoint = self.handle.save(endpoint)
        except ConfigError:
            self._server.close()
            raise

    def enlist(self, subtask: int, subtasks: int, address: str, connection: Connection) -> None:
        """Add a subtask."""
        with self._lock:
            if subtask in self._members or subtask in self._ended or subtask in self._lost:
                raise FlownetError(
                    f"the endpoint of job {self._name!r} serves or has served a subtask {subtask + 1} already; make a "
                    "new one for every job"
                )
            self._subtasks = subtasks
            self._members[subtask] = address, connection

    def leave(self, subtask: int, final: tuple[int, int] | None) -> None:
        """Take a subtask off the list: it has ended, or it was lost (None)."""
        with self._lock:
            address, _ = self._members.pop(subtask)
            if final is None:
                self._lost[subtask] = address
            else:
                self._ended[subtask] = final
            self._lock.notify_all()

    def wait_until_left(self) -> None:
        """Wait until no subtask is on the list."""
        with self._lock:
            self._lock.wait_for(lambda: not self._members)

    def where(self) -> Header:
        """Say who and where the subtasks are."""
        with self._lock:
            return {
                "run": self._run,
                "subtasks": self._subtasks,
                "members": {str(subtask): address for subtask, (address, _) in self._members.items()},
                "ended": {str(subtask): list(final) for subtask, final in self._ended.items()},
                "lost": {str(subtask): address for subtask, address in self._lost.items()},
            }

    def status(self) -> list[Header]:
        """Ask every subtask that is there what it holds."""
        found = []
        for subtask, address in sorted(self.where()["members"].items()):
            try:
                with wire.dial(address, self.handle.keys) as connection:
                    found.append({"subtask": int(subtask)} | connection.call({"op": "status"})[0])
            except ConnectionLostError:
                continue
        return found

    def tell_end(self) -> None:
        """Ask the subtasks to end."""
        with self._lock:
            connections = [connection for _, connection in self._members.values()]
        for connection in connections:
            try:
                connection.send({"op": "close"})
            except ConnectionLostError:
                continue

    def close(self) -> None:
        """Take the handle away and end all connections. Harmless when called again."""
        if os.path.exists(self.endpoint):
            os.unlink(self.endpoint)
        self._server.close()


class _HubSession:
    """A connection of the hub: of a subtask, which stays, or of someone who asks."""

    def __init__(self, hub: RendezvousServer, connection: Connection) -> None:
        self._hub, self._connection = hub, connection
        self._subtask: int | None = None

    def answer(self, header: Header, payload: bytes) -> Message:
        match header["op"]:
            case "where":
                return self._hub.where(), b""
            case "join" if self._subtask is None:
                subtask = int(header["subtask"])
                self._hub.enlist(subtask, int(header["subtasks"]), str(header["address"]), self._connection)
                self._subtask = subtask
                return {"op": "welcome"}, b""
            case "ended" if self._subtask is not None:
                self._hub.leave(self._subtask, (int(header["next"]), int(header["data"])))
                self._subtask = None
                return {"op": "bye"}, b""
            case other:
                raise FlownetError(f"no such request: {other!r}")

    def gone(self) -> None:
        if self._subtask is not None:
            self._hub.leave(self._subtask, None)


class Membership:
    """A subtask's place on the list of the hub, and the port on which it serves.

    Parameters
    ----------
    hub, keys
        Of the handle.
    subtask, subtasks
        Which one it is, of how many.
    session
        Serves the connections of Spark.
    on_close
        Called, in a thread of its own, when the hub asks the subtask to end (True) or is gone (False).
    """

    def __init__(
        self,
        hub: str,
        keys: Keys,
        subtask: int,
        subtasks: int,
        session: Callable[[Connection], wire.Session],
        on_close: Callable[[bool], None],
    ) -> None:
        self._on_close = on_close
        self._has_left = threading.Event()
        self._connection = wire.dial(hub, keys)
        try:
            # The address by which this machine reaches the caller is the one by which others reach this machine.
            self._server = wire.Server(self._connection.own_host, keys, session)
        except BaseException:
            self._connection.close()
            raise
        try:
            card = {"op": "join", "subtask": subtask, "subtasks": subtasks, "address": self._server.address}
            self._connection.call(card)
        except BaseException:
            self._connection.close()
            self._server.close()
            raise
        self._thread = threading.Thread(target=self._listen, name="flownet-hub", daemon=True)
        self._thread.start()

    def end(self, next_number: int, data: int) -> None:
        """Tell the hub that the subtask has given all it had; returns when the hub knows."""
        self._connection.send({"op": "ended", "next": next_number, "data": data})
        self._has_left.wait(_BYE_SECONDS)

    def close(self) -> None:
        """Close the port and leave the list: as lost, unless `end` came before."""
        self._server.close()
        self._connection.close()
        self._thread.join()

    def _listen(self) -> None:
        try:
            while (message := self._connection.receive()) is not None:
                if message[0].get("op") == "bye":
                    self._has_left.set()
                    return
                self._on_close(True)
        except ConnectionLostError:
            pass
        self._on_close(False)


_BYE_SECONDS = 10.0
