"""Strangers at the doors of a job: they open connections and say nothing, and nobody who belongs there notices."""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Iterator

import flownet as fn

STRANGERS = 500
# Of those that have not proved themselves the port keeps so many.
PLACES = 64


def open_sockets() -> Iterator[socket.socket]:
    """The TCP sockets of this process, each as a duplicate."""
    for name in os.listdir("/proc/self/fd"):
        try:
            descriptor = int(name)
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue
            found = socket.socket(fileno=os.dup(descriptor))
        except OSError:
            continue
        with found:
            if found.family == socket.AF_INET and found.type == socket.SOCK_STREAM:
                yield found


def listening_ports() -> set[int]:
    return {
        found.getsockname()[1] for found in open_sockets() if found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    }


def test_silent_connections_during_the_launch_keep_no_worker_out(env: fn.Environment) -> None:
    strangers: list[socket.socket] = []
    ended = threading.Event()
    # Of others in this process, who need not accept anybody.
    known = listening_ports()

    def besiege() -> None:
        while not ended.is_set():
            for port in listening_ports() - known:
                known.add(port)
                for _ in range(STRANGERS):
                    stranger = socket.socket()
                    strangers.append(stranger)
                    # It may be gone before all have come.
                    if stranger.connect_ex(("127.0.0.1", port)) != 0:
                        break

    siege = threading.Thread(target=besiege)
    siege.start()
    try:
        collected = env.from_collection(range(1000)).key_by(lambda n: n % 7).map(lambda n: n + 1).collect()
        env.execute(workers=2)
    finally:
        ended.set()
        siege.join()
        for stranger in strangers:
            stranger.close()
    assert sorted(collected) == list(range(1, 1001))
    assert len(strangers) > 2 * PLACES
