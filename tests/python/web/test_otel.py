"""What a collector of OpenTelemetry is sent, and what bad ones do to a job: nothing.

No collector is to be had where these tests run. What stands for one is a server that decodes requests with the classes
of the protocol's own package, so what is tested is what is sent, and not what a collector makes of it.
"""

from __future__ import annotations

import gzip
import itertools
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

import flownet as fn
from flownet import errors, otel
from flownet.otel import points

from .test_server import Client


class Receiver:
    """Takes what is exported, and answers as it is told."""

    def __init__(self) -> None:
        self.requests: list[ExportMetricsServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.status = 200
        self.answers = threading.Event()
        """Cleared: it reads, and does not answer."""
        self.answers.set()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                receiver.requests.append(ExportMetricsServiceRequest.FromString(body))
                receiver.headers.append(dict(self.headers))
                receiver.paths.append(self.path)
                receiver.answers.wait()
                self.send_response(receiver.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def close(self) -> None:
        self.answers.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def last(self) -> dict[str, Any]:
        """Give the metrics of the last request by name."""
        (resource,) = self.requests[-1].resource_metrics
        (scope,) = resource.scope_metrics
        assert scope.scope.name == "flownet"
        return {metric.name: metric for metric in scope.metrics}

    def resource(self) -> dict[str, str]:
        (resource,) = self.requests[-1].resource_metrics
        return {one.key: one.value.string_value for one in resource.resource.attributes}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture(autouse=True)
def _no_variable_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ENDPOINT", "METRICS_ENDPOINT", "HEADERS", "COMPRESSION"):
        monkeypatch.delenv(f"OTEL_EXPORTER_OTLP_{name}", raising=False)
    for name in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_METRIC_EXPORT_INTERVAL"):
        monkeypatch.delenv(name, raising=False)


def numbers(metric: Any) -> list[tuple[dict[str, str], int | float]]:
    data = metric.gauge if metric.HasField("gauge") else metric.sum
    return [(attributes(point), getattr(point, point.WhichOneof("value"))) for point in data.data_points]


def attributes(point: Any) -> dict[str, str]:
    return {one.key: one.value.string_value for one in point.attributes}


def until(holds: Callable[[], Any]) -> Any:
    """Wait until something is true, and give it."""
    while not (value := holds()):
        time.sleep(0.02)
    return value


class Measured(fn.MapFunction[int, int]):
    """Has metrics of its own."""

    def open(self, ctx: fn.TaskContext) -> None:
        self.seen = ctx.metrics.counter("seen")
        self.half = ctx.metrics.gauge("half")
        self.never = ctx.metrics.gauge("never")
        self.sizes = ctx.metrics.histogram("size_seconds", buckets=[1, 10])

    def map(self, value: int) -> int:
        self.seen.inc()
        self.half.set(value / 2)
        self.sizes.observe(value)
        return value


def described(count: int | None, **settings: Any) -> fn.Environment:
    env = fn.Environment(parallelism=2, name="exported", status_interval="50ms", **settings)
    source = itertools.count() if count is None else range(count)
    env.from_iterable(source).key_by(lambda number: number % 8).map(Measured()).name("counts").filter(
        lambda number: number % 2 == 0
    ).collect()
    return env


def test_the_last_export_says_what_the_result_says(receiver: Receiver, workers: int) -> None:
    with described(100).execute_async(workers) as job, otel.export(job, endpoint=receiver.url) as exporter:
        result = job.wait()
        exporter.close()
        status = job.status()
        processes = job.sample().workers
    told = receiver.last()
    assert receiver.paths[-1] == "/v1/metrics"
    for position, task in enumerate(result.tasks):
        for name, count in (("records_in", task.records_in), ("records_out", task.records_out)):
            points = numbers(told[f"flownet.subtask.{name}"])
            own = [value for labels, value in points if labels["task_id"] == str(position)]
            assert (len(own), sum(own)) == (task.parallelism, count)
    labels, uptime = numbers(told["flownet.job.uptime"])[0]
    assert (labels, uptime) == ({"job": "exported"}, status.seconds)
    assert (told["flownet.job.uptime"].unit, told["flownet.job.uptime"].description) == (
        "s",
        "Time since the job was submitted, until its end",
    )
    states = {labels["state"] for labels, _ in numbers(told["flownet.subtask.time"])}
    assert states == {
        "busy",
        "soft_back_pressured",
        "hard_back_pressured",
        "idle",
        "awaiting",
        "aligning",
        "waiting_for_barrier",
        "interpreter",
    }
    assert sorted(labels["worker"] for labels, _ in numbers(told["flownet.worker.cpu"])) == [
        str(one.worker) for one in processes
    ]
    assert told["flownet.subtask.records_in"].sum.is_monotonic
    began = {point.start_time_unix_nano for point in told["flownet.subtask.records_in"].sum.data_points}
    assert all(abs(ns / 1e9 - (time.time() - status.seconds)) < 60 for ns in began)


def test_what_functions_count_is_exported_too(receiver: Receiver) -> None:
    with described(100).execute_async() as job, otel.export(job, endpoint=receiver.url):
        job.wait()
    told = receiver.last()
    counted = numbers(told["flownet.counted.seen"])
    assert sum(value for _, value in counted) == 100
    assert {(labels["operator"], labels["task_id"]) for labels, _ in counted} == {("counts", "1")}
    assert max(value for _, value in numbers(told["flownet.gauged.half"])) == 49.5
    assert "flownet.gauged.never" not in told, "what was not set is no number"
    spread = told["flownet.observed.size"].histogram.data_points
    assert told["flownet.observed.size"].unit == "s"
    assert sum(point.count for point in spread) == 100
    assert sum(point.sum for point in spread) == sum(range(100))
    assert {tuple(point.explicit_bounds) for point in spread} == {(1, 10)}
    assert [sum(counts) for counts in zip(*(point.bucket_counts for point in spread), strict=True)] == [2, 9, 89]
    assert max(point.max for point in spread) == 99
    assert not any(point.HasField("min") for point in spread)


def test_it_has_the_metrics_of_prometheus(receiver: Receiver, tmp_path: Path) -> None:
    env = described(100)
    env.enable_checkpointing("10s", storage=str(tmp_path), allow_non_replayable=True)
    with fn.serve_ui(0) as ui, env.execute_async(ui=ui) as job:
        with otel.export(job, endpoint=receiver.url):
            job.wait()
        _, _, text = Client(ui).ask("/metrics")
    lines = [line.partition(" ")[2].split(" ") for line in text.splitlines() if line.startswith("# TYPE")]
    scraped = [line[1] for line in lines]
    samples = {line.split("{")[0].removesuffix("_total") for line in text.splitlines() if not line.startswith("#")}
    shown = [name for name in scraped if name in samples or f"{name}_count" in samples]
    assert [points.named(name.removeprefix("flownet_"))[0] for name in shown] == list(receiver.last())
    assert len(shown) > 30


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("subtask_watermark_lag_seconds", ("flownet.subtask.watermark_lag", "s")),
        ("task_busy_ratio", ("flownet.task.busy", "1")),
        ("subtask_tcp_bytes_in", ("flownet.subtask.tcp_bytes_in", "By")),
        ("job_checkpoints_failed", ("flownet.job.checkpoints_failed", "{checkpoint}")),
        ("job_last_checkpoint_number", ("flownet.job.last_checkpoint_number", "")),
        ("counted_bad_lines", ("flownet.counted.bad_lines", "")),
    ],
)
def test_units_are_not_in_names(name: str, expected: tuple[str, str]) -> None:
    assert points.named(name) == expected


def test_a_restart_begins_the_counters_of_subtasks_anew(receiver: Receiver, tmp_path: Path) -> None:
    gate, failed = tmp_path / "go", tmp_path / "failed"

    def fails_once(number: int, gate: str = str(gate), failed: str = str(failed)) -> int:
        while not Path(gate).exists():
            time.sleep(0.01)
        if not Path(failed).exists():
            Path(failed).touch()
            raise ValueError(number)
        return number

    env = fn.Environment(name="restarted", status_interval="50ms", restart="fixed:1:10ms")
    env.enable_checkpointing("100ms", storage=str(tmp_path / "checkpoints"), allow_non_replayable=True)
    env.from_collection([1, 2]).map(fails_once).collect()
    with env.execute_async() as job, otel.export(job, endpoint=receiver.url, interval="100ms"):
        until(lambda: receiver.requests and "flownet.subtask.records_in" in receiver.last())
        before = receiver.last()
        gate.touch()
        job.wait()
        (restart,) = job.status().restarts
        anew = job.status().tasks[0].began_seconds
    after = receiver.last()
    assert numbers(before["flownet.job.restarts"])[0][1] == 0
    assert numbers(after["flownet.job.restarts"])[0][1] == 1

    def began(told: dict[str, Any], name: str) -> int:
        nanoseconds: int = told[name].sum.data_points[0].start_time_unix_nano
        return nanoseconds

    name = "flownet.subtask.records_in"
    assert anew >= restart.at_seconds
    assert began(after, name) - began(before, name) == int(anew * 1e9)
    assert began(after, "flownet.job.restarts") == began(before, "flownet.job.restarts")


def test_a_collector_that_is_down_is_told_of_once_and_disturbs_nobody(
    closed_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = f"http://127.0.0.1:{closed_port}"
    with (
        described(None).execute_async() as job,
        caplog.at_level(logging.DEBUG),
        otel.export(job, endpoint=endpoint, interval="100ms"),
    ):
        until(lambda: "do not reach" in caplog.text)
        moved = job.status().records
        until(lambda: job.status().records > moved)
        job.stop()
        job.wait()
    (said,) = (one for one in caplog.records if one.name.startswith(("flownet", "opentelemetry")))
    assert said.levelname == "WARNING"
    assert said.getMessage().startswith(f"metrics of job 'exported' do not reach {endpoint}/v1/metrics (")
    assert "Connection refused" in said.getMessage()


def test_a_collector_that_refuses_and_takes_again_is_told_of(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.status = 400
    with (
        described(None).execute_async() as job,
        otel.export(job, endpoint=f"{receiver.url}/custom/path", interval="100ms"),
    ):
        until(lambda: len(receiver.requests) > 2)
        receiver.status = 200
        until(lambda: "again" in caplog.text)
        job.stop()
        job.wait()
    first, second = (one.getMessage() for one in caplog.records if one.name == "flownet.otel")
    assert "code: 400" in first
    assert second == f"metrics of job 'exported' reach {receiver.url}/custom/path again"
    assert set(receiver.paths) == {"/custom/path"}


def test_a_collector_that_hangs_holds_up_neither_the_job_nor_for_long_its_end(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers.clear()
    with described(None).execute_async() as job, otel.export(job, endpoint=receiver.url, interval="100ms") as exporter:
        until(lambda: receiver.requests)
        moved = job.status().records
        until(lambda: job.status().records > moved)
        job.stop()
        job.wait()
        exporter.close()
        assert not receiver.answers.is_set()
        assert len(receiver.requests) == 1, "one request at a time"
    (said,) = (one.getMessage() for one in caplog.records if one.name == "flownet.otel")
    assert "no answer within 5 s" in said
    receiver.answers.set()
    until(lambda: not any(thread.name == "flownet-otel" for thread in threading.enumerate()))


def test_the_standard_variables_say_where_and_how(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer abc")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,team=a")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
    with described(None).execute_async() as job:
        with otel.export(job, resource={"team": "b"}):
            until(lambda: len(receiver.requests) > 1)
        first = receiver.resource()
        monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
        with otel.export(job, interval=timedelta(hours=1)):
            pass
        second = receiver.resource()
    sent = {name.lower(): value for name, value in receiver.headers[-1].items()}
    assert (sent["authorization"], sent["content-encoding"]) == ("Bearer abc", "gzip")
    assert (first["service.name"], second["service.name"]) == ("flownet", "mine")
    assert (first["deployment.environment.name"], first["team"]) == ("test", "b")
    assert first["service.instance.id"] != second["service.instance.id"]


@pytest.mark.parametrize("endpoint", ["collector:4318", "ftp://collector", "http://", "http://h:port"])
def test_what_is_no_address_is_refused(endpoint: str) -> None:
    with described(1).execute_async() as job:
        with pytest.raises(errors.ConfigError, match="endpoint is"):
            otel.export(job, endpoint=endpoint)
        job.wait()


def test_an_interval_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    with described(1).execute_async() as job:
        with pytest.raises(errors.ConfigError, match="must lie between 100 ms and 1 h"):
            otel.export(job, interval="1ms")
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "soon")
        with pytest.raises(errors.ConfigError, match="OTEL_METRIC_EXPORT_INTERVAL"):
            otel.export(job)
        job.wait()


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.metrics", None)
    with described(1).execute_async() as job:
        with pytest.raises(errors.FlownetError, match=r"pip install 'flownet-streams\[otel\]'"):
            otel.export(job)
        job.wait()


def test_the_command_exports(
    receiver: Receiver, python: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "job.py").write_text(
        "import flownet as fn\n\nenv = fn.Environment(name='commanded')\nenv.from_collection(range(10)).collect()\n"
    )
    finished = python("-m", "flownet", "run", "--otel", receiver.url, "job:env")
    assert finished.returncode == 0, finished.stderr
    assert numbers(receiver.last()["flownet.subtask.records_out"])[0][1] == 10
    finished = python("-m", "flownet", "run", "--otel", "job:env", env={"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url})
    assert finished.returncode == 0, finished.stderr
    assert len(receiver.requests) >= 2


def test_a_script_that_ends_has_sent_its_last_numbers(
    receiver: Receiver, python: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "script.py").write_text(
        "import flownet as fn\nfrom flownet import otel\n\n"
        "env = fn.Environment()\nnumbers = env.from_collection(range(10)).collect()\njob = env.execute_async()\n"
        f"otel.export(job, endpoint={receiver.url!r})\njob.wait()\n"
    )
    finished = python("script.py")
    assert (finished.returncode, finished.stderr) == (0, "")
    assert numbers(receiver.last()["flownet.subtask.records_out"])[0][1] == 10
