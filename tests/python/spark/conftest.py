"""Sessions of a real Spark, shared by the tests, and the count of what jobs leave behind inside it.

A process has one Spark at a time, and starting one takes seconds: tests of one kind of session stand in one file, and
the session stays for the next file that wants its kind.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import flownet as fn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from flownet.planning.launcher import Host

    from .standalone import Standalone

HERE = Path(__file__).parent
PATIENCE_SECONDS = 200.0
"""Less than what ends a test, which could not say what it waits for."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = what_is_missing()
    # As few changes of sessions as there are kinds.
    kinds = ("two_executors", "wide_executors", "standalone")
    items.sort(key=lambda item: [kind in getattr(item, "fixturenames", ()) for kind in reversed(kinds)])
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(600))
            # PySpark leaves closing its sockets to the JVM to the collector.
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
            if missing and "without_pyspark" not in item.name:
                item.add_marker(pytest.mark.skip(reason=missing))


def what_is_missing() -> str | None:
    """Say what these tests need and this machine does not have."""
    if importlib.util.find_spec("pyspark") is None:
        return "needs PySpark: pip install --group tools"
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if java is None:
        return f"needs Java 17 or later: {JAVA}"
    said = subprocess.run([java, "-version"], check=False, capture_output=True, text=True).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < 17:
        return f"needs Java 17 or later, not {said.splitlines()[0] if said else 'this one'}: {JAVA}"
    return None


@pytest.fixture(scope="session", autouse=True)
def _spark_stays_on_this_machine() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.delenv("SPARK_HOME", raising=False)
        # Every Spark, and its executors. Tests run all once or twice: compiling it well would take most of the time.
        # What they unpack stays when they are killed.
        options = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir={tempfile.gettempdir()}"
        patch.setenv("JAVA_TOOL_OPTIONS", options)
        yield


@pytest.fixture(scope="session")
def event_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("event-logs")


@pytest.fixture(scope="session")
def sessions(event_logs: Path) -> Iterator[Sessions]:
    sessions = Sessions(event_logs)
    yield sessions
    sessions.stop()


@pytest.fixture(scope="module")
def local(sessions: Sessions) -> SparkSession:
    """Spark in one process, with two slots."""
    return sessions.on("local[2]")


@pytest.fixture(scope="module")
def two_executors(sessions: Sessions) -> SparkSession:
    """Spark with two executors of one slot each."""
    return sessions.on("local-cluster[2,1,1024]")


@pytest.fixture(scope="module")
def wide_executors(sessions: Sessions, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """Spark with two executors of two CPUs and two devices each, which a script of ours names: Spark asks no more."""
    script = tmp_path_factory.mktemp("devices") / "discover"
    script.write_text("""#!/bin/sh\necho '{"name": "device", "addresses": ["left", "right"]}'\n""")
    script.chmod(0o755)
    settings = {
        f"spark.{role}.resource.device.{name}": value
        for role in ("worker", "executor")
        for name, value in (("amount", "2"), ("discoveryScript", str(script)))
    }
    return sessions.on("local-cluster[2,2,1024]", {**settings, "spark.task.resource.device.amount": "1"})


@pytest.fixture(scope="session")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A standalone cluster with two nodes, for applications of two executors each."""
    from .standalone import Standalone

    cluster = Standalone(tmp_path_factory.mktemp("standalone"))
    yield cluster
    cluster.stop()


@pytest.fixture(scope="module")
def on_standalone(standalone: Standalone, sessions: Sessions) -> Iterator[SparkSession]:
    """Spark on the standalone cluster, with two executors of one slot each."""
    yield sessions.on(standalone.url)
    sessions.stop()


class Sessions:
    """The one session of this process: kept while tests want the same kind, for a new one takes seconds."""

    def __init__(self, event_logs: Path) -> None:
        self._event_logs = event_logs
        self._master = ""
        self._spark: SparkSession | None = None

    def on(self, master: str, more: dict[str, str] | None = None) -> SparkSession:
        if self._spark is None or master != self._master:
            self.stop()
            self._spark, self._master = start(master, self._event_logs, more or {}), master
        return self._spark

    def stop(self) -> None:
        if self._spark is not None:
            self._spark.stop()
            self._spark = None


def start(master: str, event_logs: Path, more: dict[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName("flownet tests")
    settings = {
        "spark.ui.port": "0",
        "spark.ui.showConsoleProgress": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": event_logs.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.sql.warehouse.dir": str(event_logs / "warehouse"),
        "spark.local.dir": str(event_logs / "local"),
        "spark.log.level": "OFF",
        # On a busy machine 15 s may pass between a Python process's connection and the JVM's answer.
        "spark.python.authenticate.socketTimeout": "200s",
        # How often a stage looks for the slots it needs, where an executor is gone.
        "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
        **more,
    }
    if master.startswith("spark:"):
        from .standalone import SETTINGS

        settings |= SETTINGS
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    # The first use makes the Python processes, which Spark keeps.
    spark.range(0, 2, 1, 2).mapInArrow(lambda batches: batches, "id long", barrier=True).collect()
    return spark


@pytest.fixture
def leaves_nothing() -> Iterator[None]:
    """Nothing of a job is left after the test, neither here nor in a process of Spark: no thread, port or busy slot."""
    before = len(sockets())
    yield
    eventually("no thread of flownet", lambda: not threads_of_flownet())
    eventually("no more sockets than before", lambda: len(sockets()) <= before, lambda: f"{before} before, {sockets()}")
    eventually("no busy slot", slots_are_free)


def slots_are_free() -> bool:
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    return context is None or not context.statusTracker().getActiveStageIds()


def sockets() -> dict[str, str]:
    """Find the sockets of this process and their ends, but not those to the JVM of Spark, which py4j and Spark keep."""
    # Results that were read by part hold a connection to Spark until they are collected.
    gc.collect()
    ends = ends_of_sockets()
    of_spark = {ends[link] for pid in jvms() for link in sockets_of(pid) if link in ends}
    found = {link: ends.get(link, ("", "")) for link in sockets_of(os.getpid())}
    return {link: " to ".join(pair) for link, pair in found.items() if pair[::-1] not in of_spark}


def jvms() -> list[int]:
    found = []
    for pid in family():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # ended since
            found += [pid] if Path(f"/proc/{pid}/comm").read_text().strip() == "java" else []
    return found


def sockets_of(pid: int) -> set[str]:
    """List the sockets of a process, as their files are called."""
    found = set[str]()
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # ended since
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                link = entry.readlink().name
            except FileNotFoundError:  # closed since
                continue
            found |= {link} if link.startswith("socket:") else set()
    return found


def ends_of_sockets() -> dict[str, tuple[str, str]]:
    """List the TCP sockets of this machine, by the names of their files: their own end and the other."""
    ends = dict[str, tuple[str, str]]()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            words = line.split()
            # An address of IPv4 may be wrapped in one of IPv6: the last eight digits are equal.
            own, other = (f"{word.partition(':')[0][-8:]}:{word.partition(':')[2]}" for word in words[1:3])
            ends[f"socket:[{words[9]}]"] = own, other
    return ends


def family() -> list[int]:
    """List the processes below this one, and this one."""
    parents = dict[int, int]()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(process.name)] = int((process / "stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    found = [os.getpid()]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def threads_of_flownet() -> list[str]:
    found = []
    for pid in family():
        for thread in Path(f"/proc/{pid}/task").glob("*/comm"):
            try:
                name = thread.read_text().strip()
            except (FileNotFoundError, ProcessLookupError):
                continue
            found += [f"{pid} {name}"] if name.startswith("flownet") else []
    return found


def eventually(what: str, look: Callable[[], bool], seen: Callable[[], object] | None = None) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not look():
        assert time.monotonic() < deadline, f"never saw: {what} ({(seen or threads_of_flownet)()})"
        time.sleep(0.01)


def executor_of(workers: Any, number: int) -> int:
    """Find the process of the executor that hosts a worker: above its own is the one that Spark forks it from."""
    (worker,) = (pid for worker, pid, _ in workers._stage.pool.members() if worker == number)
    return parent(parent(worker))


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


class Jobs:
    """Dataflows that more than one test runs."""

    def sums(self, host: Host | None = None, workers: int | None = None) -> list[tuple[int, int]]:
        """Sum by key numbers that are made in the workers and moved among them."""
        env = fn.Environment(parallelism=2, buffer_timeout="5ms")
        numbers = env.from_iterable(lambda subtask, subtasks: range(subtask, 20_000, subtasks))
        pairs = numbers.map(lambda number: (number % 7, number)).key_by(lambda pair: pair[0])
        running_sums = pairs.reduce(lambda one, other: (one[0], one[1] + other[1])).collect()
        self.last = env.execute(workers, on=host)
        # The last of a key's sums is its largest.
        return sorted(dict(sorted(running_sums)).items())

    def endless(self) -> fn.Environment:
        """Numbers until the job is cancelled."""
        env = fn.Environment(parallelism=2, buffer_timeout="5ms", name="endless")
        numbers = env.from_iterable(lambda subtask, subtasks: iter(int, 1))
        numbers.key_by(lambda number: number).map(lambda number: number).filter(lambda number: False).collect()
        return env

    def broken(self) -> fn.Environment:
        """A job whose function raises on the record 3."""

        def invert(number: int) -> float:
            return 1 / (number - 3)

        env = fn.Environment(parallelism=2)
        env.from_collection(range(8)).rebalance().map(invert).collect()
        return env


@pytest.fixture
def jobs() -> Jobs:
    return Jobs()


@pytest.fixture
def running() -> Callable[[fn.Job], fn.Job]:
    """Waits until a job moves records."""

    def running(job: fn.Job) -> fn.Job:
        eventually("a running job with records", lambda: job.status().state == "running" and job.status().records > 0)
        return job

    return running


JAVA = "on Debian apt-get install openjdk-17-jre-headless"
