"""A standalone cluster of Spark on this machine: a master and two nodes, each daemon a process of its own.

Each node has an address of its own on loopback and room for an executor of two applications: a second application
starts beside the first, and the executors of a lost node move to the other one.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import pyspark

from ..conftest import children
from .conftest import eventually

SETTINGS = {
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
}
"""An application has two executors of one slot each, on both nodes if both are there."""


class Daemon:
    """A daemon of Spark that can be killed and started again.

    It runs below a shell, which starts it once for each line it reads and ends it when its own input ends: also when
    the process of the tests is killed.
    """

    def __init__(self, arguments: list[str], log: Path, ready: str) -> None:
        self._log, self._ready = log, re.compile(ready)
        home = Path(pyspark.__file__).parent
        environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "256m"}
        with log.open("wb") as output:
            self._shell = subprocess.Popen(
                ["sh", "-c", _SHELL, "sh", str(home / "bin" / "spark-class"), *arguments],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def pid(self) -> int:
        (pid,) = running_children(self._shell.pid)
        return pid

    def executors(self) -> set[int]:
        """Find the processes of the executors that this node runs."""
        return {pid for daemon in running_children(self._shell.pid) for pid in running_children(daemon)}

    def start(self) -> str:
        """Start it, wait until it is ready, and return the text of its log that says so."""
        before = len(self._ready.findall(self._log.read_text()))
        assert self._shell.stdin is not None
        self._shell.stdin.write(b"\n")
        self._shell.stdin.flush()
        eventually(f"{self._ready.pattern} in {self._log}", lambda: len(self._said()) > before)
        return str(self._said()[-1])

    def start_if_gone(self) -> None:
        if not running_children(self._shell.pid):
            self.start()

    def kill(self) -> None:
        """Kill it, as the loss of its machine would."""
        pid = self.pid
        os.kill(pid, signal.SIGKILL)
        eventually("the end of the daemon", lambda: not is_there(pid))

    def stop(self) -> None:
        """End it with all processes below it."""
        below = descendants(self._shell.pid)
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        deadline = time.monotonic() + 20
        while (left := [pid for pid in below if is_there(pid)]) and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._shell.wait()

    def _said(self) -> list[Any]:
        return self._ready.findall(self._log.read_text())


class Standalone:
    """A master and two nodes."""

    def __init__(self, folder: Path) -> None:
        master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        self._master = Daemon(master, folder / "master.log", r"started at (http://\S+)(?:.|\n)*ALIVE")
        self._page = self._master.start()
        self.url = re.findall(r"spark://127\.0\.0\.1:\d+", (folder / "master.log").read_text())[0]
        self.nodes = [self._node(folder, number) for number in (1, 2)]
        for node in self.nodes:
            node.start()

    def _node(self, folder: Path, number: int) -> Daemon:
        arguments = ["org.apache.spark.deploy.worker.Worker", "--host", f"127.0.0.{number}", "--port", "0"]
        arguments += ["--webui-port", "0", "-c", "2", "-m", "2g", "-d", str(folder / f"node-{number}"), self.url]
        return Daemon(arguments, folder / f"node-{number}.log", r"Successfully registered with master")

    def executors(self) -> set[int]:
        """Find the processes of all executors of all applications."""
        return self.nodes[0].executors() | self.nodes[1].executors()

    def node_of(self, executor: int) -> Daemon:
        """Find the node of an executor, by its process."""
        (node,) = (node for node in self.nodes if executor in node.executors())
        return node

    def state(self) -> dict[str, Any]:
        """Read what the master says of its nodes, slots and applications."""
        with urllib.request.urlopen(f"{self._page}/json/") as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def is_idle(self, applications: int = 0) -> bool:
        """Whether no more applications are there, with their slots and processes, than said."""
        state = self.state()
        slots = int(SETTINGS["spark.cores.max"]) * applications
        return (len(state["activeapps"]), state["coresused"], len(self.executors())) == (applications, slots, slots)

    def stop(self) -> None:
        for daemon in [*self.nodes, self._master]:
            daemon.stop()


def descendants(pid: int) -> list[int]:
    """List the processes below one."""
    found = [pid]
    for ancestor in found:
        found += children(ancestor)
    return found[1:]


def running_children(pid: int) -> set[int]:
    """List the children of a process that have not ended. A shell looks after those that have when it next can."""
    return {child for child in children(pid) if is_there(child)}


def is_there(pid: int) -> bool:
    """Whether a process runs, and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def listening(pids: list[int] | None = None) -> set[str]:
    """List the addresses with ports on which processes listen: some, or all there are."""
    sockets = set[str]()
    for pid in pids or []:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                sockets.add(os.readlink(entry))
    found = set[str]()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENS and (pids is None or f"socket:[{fields[9]}]" in sockets):
                found.add(fields[1])
    return found


_LISTENS = "0A"
"""The state of a socket as the tables of the kernel give it."""
_SHELL = 'while read -r _; do "$@" & done; kill $! 2>&-; wait'
