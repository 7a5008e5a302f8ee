"""A page that shows the jobs of this process, while they run and after."""

from __future__ import annotations

import atexit
import ipaddress
import os
import re
import secrets
import socket
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Final, cast

from .. import _flownet
from ..errors import ConfigError
from ..internal.config import size_bytes, whole_number

if TYPE_CHECKING:
    from ..api.job import Job

Where = bool | int | str
"""True: the default place, else another port or place; see `serve_ui`."""


class Ui:
    """A page of jobs, with REST and metrics for Prometheus under it, as long as it is open; see `serve_ui`."""

    def __init__(self, server: _flownet.WebServer, host: str, token: str | None) -> None:
        self._server = server
        self._host = host
        self._token = token

    @property
    def port(self) -> int:
        """Port that it listens at."""
        return self._server.port

    @property
    def token(self) -> str | None:
        """What every request has to show, as ``Authorization: Bearer TOKEN``; None: nothing, on this machine alone."""
        return self._token

    @property
    def url(self) -> str:
        """Where to look, for a browser; with a token, which the browser then keeps."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}/" + ("" if self._token is None else f"?token={self._token}")

    def url_of(self, job: str) -> str:
        """Where to look for one job, by what `show` said."""
        return f"{self.url}#/jobs/{job}"

    def show(self, job: Job) -> str:
        """Show a job that was started without it.

        Parameters
        ----------
        job
            A job of this process.

        Returns
        -------
        str
            What it is asked for by: ``/api/v1/jobs/ID``.

        Raises
        ------
        ConfigError
            It is closed.

        Examples
        --------
        >>> import flownet as fn
        >>> env = fn.Environment()
        >>> numbers = env.from_collection(range(10)).collect()
        >>> with fn.serve_ui(0) as ui, env.execute_async() as job:
        ...     shown = ui.show(job)
        ...     result = job.wait()
        >>> shown
        '1'
        """
        number = self._server.show(cast("_flownet.JobHandle", job._handle))
        if number is None:
            raise ConfigError("the page is closed: start one with flownet.serve_ui()", setting="ui", value=self)
        return number

    def close(self) -> None:
        """Close the port and all connections. Jobs go on. Harmless when called again."""
        self._server.close()

    def __enter__(self) -> Ui:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        # Without the token: what is printed is copied elsewhere.
        return f"<Ui on {self._host}, port {self.port}>"


def serve_ui(
    address: int | str | None = None,
    *,
    token: str | None = None,
    actions: bool = False,
    archive: str | os.PathLike[str] | None = None,
    archive_size: int | str = "64MiB",
) -> Ui:
    """Open a page that shows jobs of this process: ``env.execute(ui=page)``.

    It is served by a thread of its own, which never waits for the interpreter; a job does not notice who looks. Under
    it are REST (``/api/v1/jobs``) and metrics for Prometheus (``/metrics``), see docs/operations/web-ui.md.

    Parameters
    ----------
    address
        A port, ``"HOST"`` or ``"HOST:PORT"``. Port 0 takes any that is free. Default: ``127.0.0.1``, port 8081 or,
        where that is taken, one of the next; a port that was asked for by number is that one or an error.
    token
        What every request has to show: letters, digits, ``-`` and ``_``, 8 to 128 of them. Default: that of the
        environment variable ``FLOWNET_UI_TOKEN``, or a new one. A page on loopback without ``actions`` has none, as
        only this machine can ask.
    actions
        Whether jobs may be cancelled, stopped and saved from there, by those who have the token: other users of this
        machine reach loopback, too. Default: no, it only shows.
    archive
        A folder that keeps jobs which have ended, for this page and for those of later processes: the page shows all
        jobs in it. ``flownet archive DIR`` shows them without a job. Default: jobs are gone when the process ends.
    archive_size
        What the folder may have, a size such as ``"64MiB"`` or a number of bytes: the oldest jobs are deleted beyond.

    Raises
    ------
    ConfigError
        The address is none, or its port is taken; the token is none; the folder cannot be made.

    Examples
    --------
    >>> import flownet as fn
    >>> env = fn.Environment()
    >>> numbers = env.from_collection(range(10)).collect()
    >>> with fn.serve_ui(0) as ui:
    ...     result = env.execute(ui=ui)
    """
    host, port = _place(address)
    ip = _resolved(host)
    if token is None:
        needs_token = actions or not ip.is_loopback
        token = os.environ.get(TOKEN_VARIABLE) or (secrets.token_urlsafe(24) if needs_token else None)
    if token is not None and not _TOKEN.fullmatch(token):
        raise ConfigError(
            "a token has 8 to 128 letters, digits, '-' and '_', such as secrets.token_urlsafe() makes",
            setting="token",
            value="...",
        )
    kept = None if archive is None else (os.path.abspath(archive), size_bytes("archive_size", archive_size))
    server = _flownet.WebServer(
        str(ip),
        DEFAULT_PORT if port is None else port,
        may_move=port is None,
        token=token,
        actions=actions,
        archive=kept,
    )
    return Ui(server, socket.gethostname() if ip.is_unspecified else str(ip), token)


def ui_of(where: Where | Ui) -> Ui:
    """Give the page that was asked for; of one place there is one, open until the process ends."""
    if isinstance(where, Ui):
        return where
    address = None if where is True else where
    if address not in _OPEN:
        _OPEN[address] = serve_ui(address)
        # Closed and not cut off: who looks at it is sent how the job ended.
        atexit.register(_OPEN[address].close)
    return _OPEN[address]


def announced(job: Job) -> None:
    """Say where a job is shown, to whoever started it."""
    print(f"flownet: job {job.status().name!r} is shown at {job.ui_url}", file=sys.stderr, flush=True)


def _place(address: int | str | None) -> tuple[str, int | None]:
    """Take an address apart."""
    if isinstance(address, bool) or not isinstance(address, int | str | None):
        raise _no_address(address)
    if address is None:
        return _LOOPBACK, None
    if isinstance(address, int):
        return _LOOPBACK, whole_number("ui", address, 0, _MOST_PORT)
    parts = _ADDRESS.fullmatch(address.strip())
    if parts is None:
        raise _no_address(address)
    if address.strip().isdecimal():
        return _LOOPBACK, whole_number("ui", int(address), 0, _MOST_PORT)
    port = None if parts["port"] is None else whole_number("ui", int(parts["port"]), 0, _MOST_PORT)
    return parts["six"] or parts["host"] or _LOOPBACK, port


def _no_address(address: object) -> ConfigError:
    return ConfigError(
        f"ui is {address!r}: give a port, 'HOST' or 'HOST:PORT', such as '0.0.0.0:8081'", setting="ui", value=address
    )


def _resolved(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"ui: there is no host {host!r}: {error}", setting="ui", value=host) from error
    return ipaddress.ip_address(found[0][4][0])


_OPEN: Final[dict[int | str | None, Ui]] = {}
"""Pages that the process has opened by itself, by where."""

TOKEN_VARIABLE: Final = "FLOWNET_UI_TOKEN"
"""Environment variable with the token of pages that are not given one, and of commands that ask them."""

DEFAULT_PORT: Final = 8081
"""Where a page is looked for first."""

_LOOPBACK: Final = "127.0.0.1"

_MOST_PORT: Final = 65_535

_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{8,128}")

_ADDRESS: Final = re.compile(r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<host>[^\s:/\[\]]*))(?::(?P<port>\d{1,5}))?")
