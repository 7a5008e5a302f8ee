"""Asks the page of a process that runs jobs (``execute(ui=True)``, ``flownet run --ui``) what they do, and tells them.

What answers may be anybody: it is checked to be a flownet, what it says is checked as it is read, and letters that
would steer a terminal are taken out of it.
"""

from __future__ import annotations

import dataclasses
import http.client
import json
import socket
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import parse_qs, quote, urlsplit

from .api.job import Savepoint
from .errors import ConfigError, NoSuchJobError, UiError, UiRightsError, UiTimeoutError, UiUnreachableError
from .metrics import UserMetric
from .observation.flame import Flame, FlameFrame
from .observation.log import LogEntry
from .observation.report import (
    CheckpointPart,
    CheckpointSummary,
    CheckpointUnderWay,
    JobStatus,
    OperatorReport,
    RestartSummary,
    TaskReport,
    UnansweredTask,
)
from .observation.sample import JobSample, TaskSample, WorkerSample

_Read = TypeVar("_Read")


@dataclass(frozen=True, slots=True)
class JobSummary:
    """A job of the process in a few words."""

    id: str
    """What the page calls it: ``"1"`` is the first of the process."""
    name: str
    """Name of the job."""
    state: str
    """As in `JobStatus`."""
    seconds: float
    """Time since the job was submitted, in seconds."""
    records_per_second: float
    """As of `JobStatus`, per second."""
    bottleneck: str | None
    """As in `JobStatus`."""
    error: str | None = None
    """Why it failed or was cancelled, if it was: with the traceback of the user's function on further lines."""
    outcome: str | None = None
    """How it ended: ``finished``, ``cancelled`` or ``failed``; None while it runs."""

    @property
    def has_ended(self) -> bool:
        """Whether it runs no more."""
        return self.state == "ended"


class Client:
    """One page, asked by one thread.

    Parameters
    ----------
    url
        Where it is: ``http://127.0.0.1:8081``; with ``?token=...`` as the page prints it, if it likes.
    token
        What the page wants to be shown; wins over that of ``url``. Default: none.
    timeout
        Seconds that an answer may take, but for that of `savepoint`; behind its samples for that of `flame`.

    Raises
    ------
    ConfigError
        ``url`` is none.

    Examples
    --------
    >>> from flownet.client import Client
    >>> Client("http://127.0.0.1:8081/?token=secret").url
    'http://127.0.0.1:8081'
    """

    def __init__(self, url: str, token: str | None = None, *, timeout: float = 10.0) -> None:
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            host, port = parts.hostname, parts.port
        except ValueError:
            parts, host, port = urlsplit(""), None, None
        if parts.scheme not in _CONNECTIONS or not host or not _is_line(url):
            raise ConfigError(f"{url!r} is no address of a page: write http://HOST:PORT", setting="url", value=url)
        self._connection_class = _CONNECTIONS[parts.scheme]
        self._address = (host, port)
        self._path = parts.path.rstrip("/")
        self._token = token or parse_qs(parts.query).get("token", [None])[0]
        if self._token is not None and not (_is_line(self._token) and self._token.isascii()):
            raise ConfigError("the token has letters that no header can have", setting="token", value=self._token)
        self._timeout = timeout
        self.url: Final = f"{parts.scheme}://{parts.netloc}{self._path}"
        """Where it is, without the token."""

    def check(self) -> None:
        """See whether a flownet answers there, and answers us.

        Raises
        ------
        UiUnreachableError
            Nothing listens there.
        UiRightsError
            It wants a token, or another one.
        UiError
            What answers is no flownet.
        """
        self._about()

    def jobs(self) -> tuple[JobSummary, ...]:
        """Return the jobs of the process, the newest first."""
        return tuple(self._read(JobSummary, job) for job in self._listed(self._ask("GET", "/jobs"), "jobs"))

    def status(self, job: str) -> JobStatus:
        """Say where a job is, as `Job.status` does."""
        return self._status_of(self._ask("GET", _path(job), job=job))

    def error(self, job: str) -> str | None:
        """Say why a job failed, if it did."""
        return self.summary(job).error

    def summary(self, job: str) -> JobSummary:
        """Say where a job is in a few words, and how it ended."""
        return self._read(JobSummary, self._ask("GET", _path(job), job=job))

    def sample(self, job: str) -> JobSample:
        """Say what every subtask and process of a job does, as `Job.sample` does."""
        answer = self._ask("GET", _path(job, "subtasks"), job=job)
        parts = {
            "tasks": tuple(self._task_sample(one) for one in self._listed(answer, "tasks")),
            "workers": tuple(self._read(WorkerSample, one) for one in self._listed(answer, "workers")),
        }
        return self._read(JobSample, answer, parts)

    def log(self, job: str, *, after: int = 0, level: str | None = None) -> tuple[tuple[LogEntry, ...], int]:
        """Say what was said in a job after an entry, the oldest first, and after which to ask for more."""
        query = f"log?after={after}" + ("" if level is None else f"&level={level}")
        answer = self._ask("GET", _path(job, query), job=job)
        entries = tuple(self._read(LogEntry, one) for one in self._listed(answer, "entries"))
        last = answer.get("last")
        if not _fits(last, int):
            raise self._stranger(f"'last' of a log is {last!r:.40}")
        return entries, max(after, int(last or 0))

    def flame(self, job: str, task: int, subtask: int, *, samples: int = 100, every_ms: int = 50) -> Flame:
        """Take samples of a subtask, which takes ``samples * every_ms``, and say where they found it.

        Parameters
        ----------
        job
            Its id.
        task
            Position of the task among the job's, from 0, upstream first.
        subtask
            Index among the subtasks, from 0.
        samples
            How many, up to 1000. Default: 100.
        every_ms
            From one to the next, in milliseconds, 10 to 1000; at most 60 seconds in all. Default: 50.

        Raises
        ------
        UiError
            There is no such subtask, it does not run now, one of the job is being sampled, or a number is too large or
            too small.
        """
        path = _path(job, "flame", str(task), f"{subtask}?samples={samples}&every_ms={every_ms}")
        return self._flame(self._ask("GET", path, job=job, takes=max(0, samples * every_ms) / 1000))

    def cancel(self, job: str) -> None:
        """Ask a job to end as it is, as `Job.cancel` does."""
        self._act(job, "cancel", {})

    def stop(self, job: str, *, drain: bool | None = None, savepoint: str | None = None) -> None:
        """Ask a job to end well, as `Job.stop` does."""
        self._act(job, "stop", {"drain": drain, "savepoint": savepoint})

    def savepoint(self, job: str, path: str) -> Savepoint:
        """Have a job take a savepoint, as `Job.savepoint` does; waits until it is written."""
        return self._read(Savepoint, self._act(job, "savepoint", {"path": path}, waits=True))

    def _about(self) -> Mapping[str, Any]:
        about = self._ask("GET", "")
        if not isinstance(about.get("flownet"), str):
            raise self._stranger("its answer does not say so")
        return about

    def _act(self, job: str, action: str, body: Mapping[str, Any], *, waits: bool = False) -> Mapping[str, Any]:
        if not self._about().get("actions"):
            raise UiRightsError(
                f"{self.url} shows jobs and takes no orders: allow them where the job is started, by flownet run --ui "
                "--ui-actions or fn.serve_ui(actions=True)",
                url=self.url,
            )
        return self._ask("POST", _path(job, action), job=job, body=body, waits=waits)

    def _ask(
        self,
        method: str,
        path: str,
        *,
        job: str | None = None,
        body: Mapping[str, Any] | None = None,
        waits: bool = False,
        takes: float = 0.0,
    ) -> Mapping[str, Any]:
        status, text = self._exchange(method, path, body, waits=waits, timeout=self._timeout + takes)
        try:
            answer = _printable(json.loads(text))
        except (ValueError, RecursionError):
            answer = None
        said = answer.get("error") if isinstance(answer, dict) else None
        if status >= 300:
            raise self._refused(status, said if isinstance(said, str) else None, job)
        if not isinstance(answer, dict):
            raise self._stranger("its answer is no JSON")
        return answer

    def _exchange(
        self, method: str, path: str, body: Mapping[str, Any] | None, *, waits: bool, timeout: float
    ) -> tuple[int, bytes]:
        """Send one request on a connection of its own, and read all of the answer."""
        headers = {"Accept": "application/json", "Connection": "close"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection = self._connection_class(*self._address, timeout=timeout)
        try:
            connection.connect()
            if waits:
                # As long as it takes; a host that has vanished meanwhile is noticed all the same.
                connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                connection.sock.settimeout(None)
            sent = None if body is None else json.dumps(body)
            connection.request(method, f"{self._path}/api/v1{path}", sent, headers)
            response = connection.getresponse()
            text = response.read(_MOST_BYTES)
        except TimeoutError as error:
            raise UiTimeoutError(
                f"{self.url} did not answer within {timeout:g} s: the process is stopped, or very busy",
                url=self.url,
            ) from error
        except http.client.RemoteDisconnected as error:
            raise self._gone("hung up") from error
        except http.client.HTTPException as error:
            raise self._stranger(f"it does not speak HTTP ({type(error).__name__})") from error
        except OSError as error:
            raise self._gone(error.strerror or str(error)) from error
        finally:
            connection.close()
        return response.status, text

    def _gone(self, why: str) -> UiUnreachableError:
        return UiUnreachableError(
            f"nothing answers at {self.url} ({why}): start the job with flownet run --ui or env.execute(ui=True), and "
            "give the address that it prints as URL or FLOWNET_UI",
            url=self.url,
        )

    def _stranger(self, why: str) -> UiError:
        return UiError(f"what answers at {self.url} is no flownet that this one knows: {why}", url=self.url)

    def _refused(self, status: int, said: str | None, job: str | None) -> UiError:
        about: dict[str, Any] = {"url": self.url, "status": status}
        if status == 401 and self._token is None:
            return UiRightsError(f"{self.url} wants a token: --token TOKEN or FLOWNET_UI_TOKEN", **about)
        if status == 401:
            return UiRightsError(f"{self.url} does not know this token: see the address that it printed", **about)
        if said is None:
            return self._stranger(f"its answer is an HTTP {status}")
        if status == 403:
            return UiRightsError(f"{self.url}: {said}", **about)
        if status == 404 and job is not None and said.startswith("there is no job "):
            return NoSuchJobError(f"{self.url} has no job {job!r}: flownet jobs lists them", job=job, **about)
        return UiError(f"{self.url}: {said}", **about)

    def _flame(self, answer: Mapping[str, Any]) -> Flame:
        frames = tuple(self._read(FlameFrame, one) for one in self._listed(answer, "frames"))
        if any(frame.below is not None and not 0 <= frame.below < at for at, frame in enumerate(frames)):
            raise self._stranger("a frame of a flame graph is on none")
        return self._read(Flame, answer, {"frames": frames})

    def _status_of(self, answer: Mapping[str, Any]) -> JobStatus:
        parts = {
            "tasks": tuple(self._task(one) for one in self._listed(answer, "tasks")),
            "checkpoints": tuple(self._checkpoint(one) for one in self._listed(answer, "checkpoints")),
            "restarts": tuple(self._restart(one) for one in self._listed(answer, "restarts")),
            "checkpoint_under_way": self._under_way(answer.get("checkpoint_under_way")),
            "metrics": self._metrics(answer),
        }
        return self._read(JobStatus, answer, parts)

    def _under_way(self, answer: Any) -> CheckpointUnderWay | None:
        if answer is None:
            return None
        told = answer.get("unanswered", []) if isinstance(answer, dict) else []
        unanswered = tuple(self._unanswered(one) for one in (told if isinstance(told, list) else []))
        return self._read(CheckpointUnderWay, answer, {"unanswered": unanswered})

    def _unanswered(self, answer: Any) -> UnansweredTask:
        subtasks = tuple(self._listed(answer, "subtasks")) if isinstance(answer, dict) else ()
        if not all(_fits(subtask, int) for subtask in subtasks):
            raise self._stranger("the subtasks of a checkpoint are no numbers")
        return self._read(UnansweredTask, answer, {"subtasks": subtasks})

    def _checkpoint(self, answer: Any) -> CheckpointSummary:
        # A flownet before these says nothing of parts.
        told = answer.get("parts", []) if isinstance(answer, dict) else []
        parts = tuple(self._read(CheckpointPart, one) for one in (told if isinstance(told, list) else []))
        return self._read(CheckpointSummary, answer, {"parts": parts})

    def _restart(self, answer: Any) -> RestartSummary:
        # A flownet before these restarts whole jobs.
        told = answer.get("tasks", []) if isinstance(answer, dict) else []
        tasks = tuple(str(task) for task in (told if isinstance(told, list) else []))
        return self._read(RestartSummary, answer, {"tasks": tasks})

    def _task_sample(self, answer: Any) -> TaskSample:
        parts = {"metrics": self._metrics(answer), "operators": self._operators(answer)}
        return self._read(TaskSample, answer, parts)

    def _task(self, answer: Any) -> TaskReport:
        return self._read(TaskReport, answer, {"operators": self._operators(answer)})

    def _operators(self, answer: Any) -> tuple[OperatorReport, ...]:
        """Read what went through operators. A flownet before these says nothing of it."""
        told = answer.get("operators", []) if isinstance(answer, dict) else []
        return tuple(self._read(OperatorReport, one) for one in (told if isinstance(told, list) else []))

    def _metrics(self, answer: Any) -> tuple[UserMetric, ...]:
        """Read what functions count. A flownet before these says nothing of it."""
        told = answer.get("metrics", []) if isinstance(answer, dict) else []
        return tuple(self._metric(one) for one in (told if isinstance(told, list) else []))

    def _metric(self, answer: Any) -> UserMetric:
        parts = {part: tuple(self._listed(answer, part)) for part in ("bounds", "buckets") if part in answer}
        if not all(_fits(number, float) for numbers in parts.values() for number in numbers):
            raise self._stranger("the buckets of a metric are no numbers")
        return self._read(UserMetric, answer, parts)

    def _listed(self, answer: Mapping[str, Any], name: str) -> list[Any]:
        found = answer.get(name)
        if not isinstance(found, list):
            raise self._stranger(f"{name!r} is no list")
        return found

    def _read(self, wanted: type[_Read], answer: Any, parts: Mapping[str, Any] | None = None) -> _Read:
        """Read the fields of a class, and leave out what a later flownet says beyond them."""
        if not isinstance(answer, dict):
            raise self._stranger(f"a {wanted.__name__} is no object")
        values = dict(parts or {})
        kinds = typing.get_type_hints(wanted)
        for field in dataclasses.fields(wanted):  # type: ignore[arg-type]
            if field.name in values or (field.name not in answer and field.default is not dataclasses.MISSING):
                continue
            value = answer.get(field.name)
            if not _fits(value, kinds[field.name]):
                raise self._stranger(f"{field.name!r} of a {wanted.__name__} is {value!r:.40}")
            values[field.name] = value
        return wanted(**values)


def _path(job: str, *more: str) -> str:
    return "/".join(("/jobs", quote(job, safe=""), *more))


def _fits(value: object, kind: Any) -> bool:
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return any(_fits(value, one) for one in kind.__args__)
    if typing.get_origin(kind) is typing.Literal:
        return value in kind.__args__
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def _printable(value: Any) -> Any:
    """Take out what would steer a terminal: names and errors are those of a stranger."""
    if isinstance(value, str):
        return "".join(letter if letter.isprintable() or letter in "\n\t" else "?" for letter in value)
    if isinstance(value, dict):
        return {_printable(name): _printable(one) for name, one in value.items()}
    return [_printable(one) for one in value] if isinstance(value, list) else value


def _is_line(text: str) -> bool:
    return text.isprintable() and " " not in text


_CONNECTIONS: Final = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
_MOST_BYTES: Final = 64 << 20
