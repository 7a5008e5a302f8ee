"""The wire between a streaming query of Spark and a job: small requests and answers, some with an Arrow batch.

A message is two lengths, a header in JSON and a payload. Before the first message both ends say at once what they
speak, so that each knows the other by its first byte; and prove that they know the secret, each to the other,
without sending it, within TLS if there are certificates. Every request has one answer, so a
slow end holds up the other by not answering: that is the whole flow control.

Invariants
----------
- W1: a length is checked before memory is taken for it.
- W2: bytes of any kind end in an answer or in `ConnectionLostError`; nothing waits for a peer whose host is gone.
- W3: after `Server.close` its port, its connections and its threads are gone.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import logging
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Protocol, TypeAlias

import pyarrow

from ..errors import ConnectionLostError, FlownetError
from .secure import TLS_RECORDS, Channel, Keys, reason_of

Header: TypeAlias = dict[str, Any]
Message: TypeAlias = tuple[Header, bytes]


class Connection:
    """One authenticated connection. Sending is safe from several threads; one thread receives."""

    def __init__(self, sock: socket.socket, peer: str) -> None:
        self._socket = sock
        self._channel: Channel = sock
        self._sending = threading.Lock()
        self.peer = peer

    def prove(self, keys: Keys, *, is_server: bool) -> None:
        """Prove to the peer that we belong to it, and see its proof.

        Raises
        ------
        OSError, EOFError
            It does not belong to us, or goes away; `reason_of` says why.
        """
        self._socket.settimeout(_HANDSHAKE_SECONDS)
        self._channel = keys.secure(self._socket, is_server=is_server)
        (_challenge if is_server else _introduce)(self._channel, keys.secret)
        _prepare(self._socket)

    @property
    def own_host(self) -> str:
        """Address of this machine by which the peer is reached."""
        return str(self._socket.getsockname()[0])

    def call(self, header: Header, payload: bytes = b"") -> Message:
        """Send a request and wait for its answer, as long as the peer's host is alive.

        Raises
        ------
        ConnectionLostError
            The peer went away.
        FlownetError
            The peer refuses; the text is the peer's.
        """
        self.send(header, payload)
        answer = self.receive()
        if answer is None:
            raise self._lost("it closed the connection")
        if "error" in answer[0]:
            raise FlownetError(str(answer[0]["error"]))
        return answer

    def send(self, header: Header, payload: bytes = b"") -> None:
        """Send one message."""
        text = json.dumps(header).encode()
        if len(text) > _MAX_HEADER_BYTES or len(payload) > _MAX_PAYLOAD_BYTES:
            raise FlownetError(
                f"a message of {len(text)} + {len(payload)} bytes is too long; allowed are {_MAX_HEADER_BYTES} + "
                f"{_MAX_PAYLOAD_BYTES}"
            )
        try:
            with self._sending:
                self._channel.sendall(_LENGTHS.pack(len(text), len(payload)) + text)
                if payload:
                    self._channel.sendall(payload)
        except OSError as error:
            raise self._lost(str(error)) from error

    def receive(self) -> Message | None:
        """Wait for the next message; None when the peer has closed the connection between two."""
        try:
            lengths = _read(self._channel, _LENGTHS.size)
            if lengths is None:
                return None
            header_bytes, payload_bytes = _LENGTHS.unpack(lengths)
            if header_bytes > _MAX_HEADER_BYTES or payload_bytes > _MAX_PAYLOAD_BYTES:
                raise self._lost(
                    f"it announced {header_bytes} + {payload_bytes} bytes; allowed are {_MAX_HEADER_BYTES} + "
                    f"{_MAX_PAYLOAD_BYTES}"
                )
            header = json.loads(_read(self._channel, header_bytes) or b"")
            payload = _read(self._channel, payload_bytes) if payload_bytes else b""
        except (OSError, EOFError, ValueError, RecursionError) as error:
            if isinstance(error, ConnectionLostError):
                raise
            raise self._lost(str(error) or type(error).__name__) from error
        if not isinstance(header, dict) or payload is None:
            raise self._lost("it sent something that is no message")
        return header, payload

    def close(self) -> None:
        """Close the connection; who waits in it wakes. Harmless when called again."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _lost(self, reason: str) -> ConnectionLostError:
        return ConnectionLostError(f"connection with {self.peer}: {reason}", peer=self.peer, reason=reason)


def dial(address: str, keys: Keys) -> Connection:
    """Connect to a `Server`.

    Parameters
    ----------
    address
        ``host:port``.
    keys
        What both ends know.

    Raises
    ------
    ConnectionLostError
        Nobody answers, or whoever does has other keys.
    """
    host, _, port = address.rpartition(":")
    try:
        sock = socket.create_connection((host, int(port)), timeout=_HANDSHAKE_SECONDS)
    except (OSError, OverflowError, ValueError) as error:
        raise ConnectionLostError(f"cannot reach {address}: {error}", peer=address, reason=str(error)) from error
    connection = Connection(sock, address)
    try:
        connection.prove(keys, is_server=False)
    except BaseException as error:
        connection.close()
        if isinstance(error, OSError | EOFError):
            reason = reason_of(error)
            raise ConnectionLostError(f"{address}: {reason}", peer=address, reason=reason) from error
        raise
    return connection


class Session(Protocol):
    """What a server knows about one connection."""

    def answer(self, header: Header, payload: bytes) -> Message:
        """Answer a request; a `FlownetError` is sent back as the answer."""

    def gone(self) -> None:
        """Note that the connection has ended. Called once."""


class Server:
    """Listens on a port of the system's choice, with a thread for each connection.

    Parameters
    ----------
    host
        Numeric address to listen on.
    keys
        What both ends know.
    session
        Called for each connection that has proved itself.
    """

    def __init__(self, host: str, keys: Keys, session: Callable[[Connection], Session]) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family)
        self._listener.settimeout(_LOOK_SECONDS)
        self._keys, self._session = keys, session
        self._lock = threading.Lock()
        self._open = set[Connection]()
        self._threads = set[threading.Thread]()
        self._is_closed = threading.Event()
        self.address = f"{host}:{self._listener.getsockname()[1]}"
        self._start(self._accept)

    def close(self) -> None:
        """End all connections and threads and give the port back. Harmless when called again."""
        with self._lock:
            self._is_closed.set()
            connections, threads = list(self._open), list(self._threads)
        # Wakes accept() at once where the system does that; elsewhere its timeout does.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for connection in connections:
            connection.close()
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join()
        self._listener.close()

    def _start(self, body: Callable[..., None], *args: object) -> None:
        def run() -> None:
            try:
                body(*args)
            finally:
                with self._lock:
                    self._threads.discard(thread)

        thread = threading.Thread(target=run, name=f"flownet-{self.address}", daemon=True)
        with self._lock:
            self._threads.add(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._is_closed.is_set():
            try:
                sock, peer = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                # Out of descriptors for a moment, or closed; the flag tells which.
                self._is_closed.wait(_LOOK_SECONDS / 10)
                continue
            connection = Connection(sock, f"{peer[0]}:{peer[1]}")
            with self._lock:
                is_closed = self._is_closed.is_set()
                full = len(self._open) >= _MAX_CONNECTIONS
                if not is_closed and not full:
                    self._open.add(connection)
            if is_closed or full:
                connection.close()
            else:
                self._start(self._serve, connection)

    def _serve(self, connection: Connection) -> None:
        session: Session | None = None
        try:
            if not self._is_known(connection):
                return
            session = self._session(connection)
            while (message := connection.receive()) is not None:
                try:
                    answer = session.answer(*message)
                except ConnectionLostError:
                    raise
                except FlownetError as error:
                    answer = {"error": str(error)}, b""
                except (KeyError, TypeError, ValueError, pyarrow.ArrowException) as error:
                    answer = {"error": f"no such request: {type(error).__name__}: {error}"}, b""
                connection.send(*answer)
        except (OSError, EOFError, FlownetError) as error:
            _LOGGER.debug("connection with %s ended: %s", connection.peer, error)
        finally:
            connection.close()
            with self._lock:
                self._open.discard(connection)
            if session is not None:
                session.gone()

    def _is_known(self, connection: Connection) -> bool:
        try:
            connection.prove(self._keys, is_server=True)
        except (OSError, EOFError) as error:
            if not self._is_closed.is_set():
                _LOGGER.warning("refused a connection from %s: %s", connection.peer, reason_of(error))
            return False
        return True


def pack(batch: pyarrow.RecordBatch) -> Iterator[bytes]:
    """Write a batch as payloads of a size that an end can hold; the schema stays at home."""
    if batch.nbytes > _FRAME_BYTES and batch.num_rows > 1:
        half = batch.num_rows // 2
        yield from pack(batch.slice(0, half))
        yield from pack(batch.slice(half))
    elif batch.num_rows:
        yield batch.serialize().to_pybytes()


def unpack(payload: bytes, schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    """Read a payload of `pack`.

    Raises
    ------
    FlownetError
        It is none, or of another schema.
    """
    try:
        batch = pyarrow.ipc.read_record_batch(pyarrow.py_buffer(payload), schema)
        batch.validate(full=True)
    except (pyarrow.ArrowException, EOFError, OSError, ValueError) as error:
        raise FlownetError(f"{len(payload)} bytes are no batch with the columns {schema.names}: {error}") from error
    return batch


def _introduce(channel: Channel, secret: bytes) -> None:
    """Prove to a server that the secret is known here, and see its proof."""
    channel.sendall(_MAGIC)
    _recognise(channel)
    challenge = _read(channel, _NONCE_BYTES)
    own = os.urandom(_NONCE_BYTES)
    channel.sendall(own + _proof(secret, b"client", challenge or b"", own))
    proof = _read(channel, _PROOF_BYTES)
    if not challenge or not proof or not hmac.compare_digest(proof, _proof(secret, b"server", challenge, own)):
        raise PermissionError("the secret does not fit")


def _challenge(channel: Channel, secret: bytes) -> None:
    """Have a client prove that it knows the secret, and prove it to the client."""
    challenge = os.urandom(_NONCE_BYTES)
    channel.sendall(_MAGIC + challenge)
    _recognise(channel)
    theirs = _read(channel, _NONCE_BYTES + _PROOF_BYTES)
    if theirs is None:
        raise EOFError("it closed the connection")
    nonce, proof = theirs[:_NONCE_BYTES], theirs[_NONCE_BYTES:]
    if not hmac.compare_digest(proof, _proof(secret, b"client", challenge, nonce)):
        raise PermissionError("its secret does not fit")
    channel.sendall(_proof(secret, b"server", challenge, nonce))


def _recognise(channel: Channel) -> None:
    """Read what the peer speaks, up to the first byte that is something else."""
    said = b""
    while said != _MAGIC:
        piece = bytearray(len(_MAGIC) - len(said))
        if not (got := channel.recv_into(memoryview(piece))):
            raise EOFError("it closed the connection")
        said += piece[:got]
        if said[0] in TLS_RECORDS:
            raise ConnectionError("it speaks TLS, which is off here: give both ends the same tls setting")
        if not _MAGIC.startswith(said):
            raise ConnectionError("it is no flownet stream, or one of another version")


def _read(channel: Channel, count: int) -> bytes | None:
    """Read so many bytes; None if the stream ends before the first."""
    data = bytearray(count)
    view, have = memoryview(data), 0
    while have < count:
        if not (got := channel.recv_into(view[have:])):
            if have:
                raise EOFError(f"it ended after {have} of {count} bytes")
            return None
        have += got
    return bytes(data)


def _proof(secret: bytes, role: bytes, challenge: bytes, nonce: bytes) -> bytes:
    return hmac.digest(secret, _MAGIC + role + challenge + nonce, hashlib.sha256)


def _prepare(sock: socket.socket) -> None:
    """Make a socket wait for its peer as long as the peer's host answers, and no longer."""
    sock.settimeout(None)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 25_000)):
        if (option := getattr(socket, name, None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


_LOGGER = logging.getLogger("flownet.spark")
_MAGIC = b"flownet spark stream 2"
"""Of this version."""
_LENGTHS = struct.Struct("!II")
_NONCE_BYTES = 32
_PROOF_BYTES = 32
_MAX_HEADER_BYTES = 1 << 20
_MAX_PAYLOAD_BYTES = 1 << 28
_FRAME_BYTES = 4 << 20
"""Batches are cut to about this size."""
_MAX_CONNECTIONS = 4096
_HANDSHAKE_SECONDS = 10.0
_LOOK_SECONDS = 0.5
