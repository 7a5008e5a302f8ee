"""What both ends of a stream prove themselves with, and a socket that encrypts.

Both ends show a certificate of the same authority; names are not looked at. OpenSSL's object for one session must not
be used by two threads at a time, and here one sends while another waits for bytes. So it never touches the socket: it
gets and gives bytes under a lock that nobody waits under.

Invariants
----------
- T1: bytes leave in the order in which they were encrypted: one thread encrypts and sends at a time.
- T2: who waits for the socket holds no lock that the other direction needs.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
import tempfile
import threading
from dataclasses import dataclass
from typing import Protocol, cast

from ..errors import FlownetError


@dataclass(frozen=True, repr=False)
class Keys:
    """What both ends of a stream know and nobody else."""

    secret: bytes
    """Each proves it to the other."""
    certificates: str | None = None
    """In PEM: the certificate and what leads to its authority, its key, the authority. None: nothing is encrypted."""

    def secure(self, sock: socket.socket, *, is_server: bool) -> Channel:
        """Encrypt a connection, if there are certificates.

        Raises
        ------
        OSError
            The peer goes away, or its certificate is not of the same authority (`ssl.SSLError`).
        """
        if self.certificates is None:
            return sock
        return TlsSocket(sock, _context(self.certificates, is_server), is_server=is_server)


class Channel(Protocol):
    """What is needed of a socket."""

    def sendall(self, data: bytes, /) -> None:
        """Send all of it."""

    def recv_into(self, buffer: memoryview, /) -> int:
        """Read some bytes; 0 at the end."""


class TlsSocket:
    """A connected socket whose bytes are encrypted. One thread reads; one at a time sends."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, *, is_server: bool) -> None:
        self._socket = sock
        self._arrived, self._leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._session = context.wrap_bio(self._arrived, self._leaving, server_side=is_server)
        self._using = threading.Lock()
        if is_server:
            self._recognise()
        while not self._shake():
            self._receive()

    def sendall(self, data: bytes, /) -> None:
        """Encrypt and send all of it."""
        view = memoryview(data)
        for start in range(0, len(view), _PIECE_BYTES):
            with self._using:
                self._session.write(view[start : start + _PIECE_BYTES])
                encrypted = self._leaving.read()
            self._socket.sendall(encrypted)

    def recv_into(self, buffer: memoryview, /) -> int:
        """Read some bytes; 0 at the end, also at one that the peer did not announce."""
        while True:
            with self._using:
                try:
                    # With a buffer to fill it returns how many bytes that were.
                    return cast(int, self._session.read(len(buffer), cast(bytearray, buffer)))
                except ssl.SSLWantReadError:
                    pass
                except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                    return 0
            self._receive()

    def _recognise(self) -> None:
        """Refuse whoever does not speak TLS at its first byte: OpenSSL waits for five."""
        first = self._socket.recv(1, socket.MSG_PEEK)
        if first and first[0] not in TLS_RECORDS:
            # It is told so, which the system would throw away if something was left unread.
            self._socket.recv(_PIECE_BYTES)
            self._socket.sendall(_NOT_TLS)
            raise ConnectionError("it does not speak TLS, which is asked for here: give both ends the same tls setting")

    def _shake(self) -> bool:
        try:
            self._session.do_handshake()
        except ssl.SSLWantReadError:
            is_over = False
        else:
            is_over = True
        finally:
            # An alert, too: it tells the peer why.
            if encrypted := self._leaving.read():
                self._socket.sendall(encrypted)
        return is_over

    def _receive(self) -> None:
        if encrypted := self._socket.recv(_PIECE_BYTES):
            self._arrived.write(encrypted)
        else:
            self._arrived.write_eof()


def reason_of(error: OSError | EOFError) -> str:
    """Say why TLS failed, or what else did."""
    if not isinstance(error, ssl.SSLError):
        return str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        # By the numbers that OpenSSL gives them.
        known = {9: "it is not valid yet: compare the clocks", 10: "it has expired"}
        known |= dict.fromkeys((18, 19, 20, 21), "another authority issued it")
        return f"its certificate is refused: {known.get(error.verify_code, error.verify_message)}"
    if isinstance(error, ssl.SSLEOFError):
        return "it closed the connection in the middle of the TLS handshake"
    reasons = {
        "WRONG_VERSION_NUMBER": "it does not speak TLS",
        "HTTP_REQUEST": "it does not speak TLS",
        "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it showed no certificate",
        "TLSV1_ALERT_UNKNOWN_CA": "it refuses our certificate: another authority issued it",
        "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it refuses our certificate: it has expired, or the clocks differ",
        "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it asks for a certificate, and we have none",
    }
    return reasons.get(error.reason, f"TLS failed: {error.reason}")


def _context(certificates: str, is_server: bool) -> ssl.SSLContext:
    own, authority = _parts(certificates)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=authority)
    if is_server:
        context.num_tickets = 0
    # It takes them from a file only: one that nobody else can read, for as long as that takes.
    descriptor, path = tempfile.mkstemp(prefix="flownet-", suffix=".pem")
    try:
        with open(descriptor, "w") as file:
            file.write(own)
        context.load_cert_chain(path)
    finally:
        os.unlink(path)
    return context


def _parts(certificates: str) -> tuple[str, str]:
    """Split what is ours from the authorities, which lie behind our key."""
    key = re.search(r"-----END [A-Z ]*PRIVATE KEY-----\n", certificates)
    if key is None:
        raise FlownetError("the certificates of this endpoint are incomplete")
    return certificates[: key.end()], certificates[key.end() :]


_PIECE_BYTES = 1 << 18
TLS_RECORDS = (21, 22)
"""The first byte of TLS: of an alert, of a handshake."""
_NOT_TLS = bytes((21, 3, 3, 0, 2, 2, 70))
"""The alert that OpenSSL sends in this case: of the protocol's version."""
