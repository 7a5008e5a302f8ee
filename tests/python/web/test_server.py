"""What is served of jobs: REST, events, metrics; who may ask, and what bad clients do to a job: nothing."""

from __future__ import annotations

import functools
import http.client
import itertools
import json
import logging
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import flownet as fn
from flownet import errors
from flownet.cli.words import with_places_apart
from flownet.client import Client as RemoteJobs

JSON = {"Content-Type": "application/json"}


class Client:
    """Asks one page."""

    def __init__(self, ui: fn.observation.Ui, *, shows_token: bool = True) -> None:
        self.port = ui.port
        self.token = {"Authorization": f"Bearer {ui.token}"} if ui.token and shows_token else {}

    def ask(
        self, path: str, *, method: str = "GET", body: str | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], str]:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request(method, path, body, {**self.token, **(headers or {})})
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read().decode()

    def get(self, path: str) -> Any:
        status, _, text = self.ask(path)
        assert status == 200, (path, status, text)
        return json.loads(text)

    def post(self, path: str, body: object) -> tuple[int, Any]:
        status, _, text = self.ask(path, method="POST", body=json.dumps(body), headers=JSON)
        return status, json.loads(text)


def request(ui: fn.observation.Ui, path: str) -> bytes:
    """Write a request as it goes over the wire."""
    headers = "".join(f"{name}: {value}\r\n" for name, value in Client(ui).token.items())
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode()


def until(holds: Callable[[], Any]) -> Any:
    """Wait until something is true, and give it."""
    while not (value := holds()):
        time.sleep(0.05)
    return value


@pytest.fixture
def ui() -> Iterator[fn.observation.Ui]:
    with fn.serve_ui(0, actions=True) as ui:
        yield ui


@pytest.fixture
def client(ui: fn.observation.Ui) -> Client:
    return Client(ui)


def slow(number: int) -> int:
    time.sleep(0.002)
    return number


def endless(name: str = "endless", parallelism: int = 2) -> fn.Environment:
    """Describe a job whose second task is slower than the first."""
    env = fn.Environment(parallelism=parallelism, name=name, status_interval="50ms")
    numbers = env.from_iterable(itertools.count())
    numbers.key_by(lambda number: number % 8).map(slow).name("slow").filter(lambda _: False).collect()
    return env


def have_run(job: dict[str, Any]) -> bool:
    """Whether each task has spent time."""
    return all(task["busy"] + task["back_pressured"] + task["idle"] + task["interpreter"] > 0 for task in job["tasks"])


def test_a_job_is_shown_as_its_status_says_while_it_runs_and_after(
    ui: fn.observation.Ui, client: Client, workers: int
) -> None:
    with endless().execute_async(workers, ui=ui) as job:
        shown = until(lambda: (found := client.get("/api/v1/jobs/1"))["bottleneck"] and have_run(found) and found)
        assert (shown["id"], shown["name"], shown["state"], shown["workers"]) == ("1", "endless", "running", workers)
        assert shown["bottleneck"].startswith("slow")
        assert shown["tasks"][shown["bottleneck_task"]]["name"].startswith("slow")
        exchanges = [(edge["from"], edge["to"], edge["partitioner"], edge["channels"]) for edge in shown["exchanges"]]
        assert exchanges == [(0, 1, "keyed", 2), (1, 2, "rebalance", 2)]
        for task in shown["tasks"]:
            assert task["busy"] + task["back_pressured"] + task["idle"] + task["interpreter"] == pytest.approx(
                1, abs=0.01
            )
        subtasks = client.get("/api/v1/jobs/1/subtasks")["tasks"]
        assert [(one["task"], one["subtask"]) for one in subtasks] == [
            (one.task, one.subtask) for one in job.sample().tasks
        ]
        of_one = client.get("/api/v1/jobs/1/subtasks?task=1")
        assert [(one["task"], one["subtask"]) for one in of_one["tasks"]] == [
            (one["task"], one["subtask"]) for one in subtasks if one["task"] == 1
        ]
        assert of_one["tasks"]
        assert client.get("/api/v1/jobs/1/subtasks?task=9")["tasks"] == []
        for wrong in ("task=-1", "task=x", "other=1"):
            status, _, text = client.ask(f"/api/v1/jobs/1/subtasks?{wrong}")
            assert (status, "error" in json.loads(text)) == (400, True), wrong
        workers_alone = client.get("/api/v1/jobs/1/workers")
        assert list(workers_alone) == ["workers"]
        assert [one["worker"] for one in workers_alone["workers"]] == [one["worker"] for one in of_one["workers"]]
        job.stop()
        result = job.wait()
    ended = client.get("/api/v1/jobs/1")
    assert (ended["state"], ended["error"]) == ("ended", None)
    assert [task["records_in"] for task in ended["tasks"]] == [task.records_in for task in result.tasks]
    assert [task["busy"] for task in ended["tasks"]] == [task.busy for task in result.tasks]
    assert ended["seconds"] == result.seconds == client.get("/api/v1/jobs/1")["seconds"], "time goes on after the end"
    assert job.status().seconds == result.seconds
    assert job.ui_url == f"{ui.url}#/jobs/1"


def test_what_is_said_is_asked_for_piece_by_piece(ui: fn.observation.Ui, client: Client) -> None:
    def say(number: int) -> int:
        print("line", number)
        logging.getLogger("jobs").warning("record %d", number)
        return number

    env = fn.Environment(parallelism=1)
    env.from_collection(range(10)).rebalance().map(say).collect()
    env.execute(1, ui=ui)
    path = "/api/v1/jobs/1/log"
    said = client.get(path)
    assert said["last"] == 20
    assert [entry["number"] for entry in said["entries"]] == list(range(1, 21))
    assert said["entries"][-1] == {
        "number": 20,
        "at_ms": said["entries"][-1]["at_ms"],
        "worker": 1,
        "task": said["entries"][0]["task"],
        "subtask": 0,
        "kind": "python",
        "level": "warning",
        "logger": "jobs",
        "text": "record 9",
    }
    numbers: list[int] = []
    while more := client.get(f"{path}?after={numbers[-1] if numbers else 0}&most=3&level=warning")["entries"]:
        numbers.extend(entry["number"] for entry in more)
    assert numbers == list(range(2, 21, 2))
    assert [entry["number"] for entry in client.get(f"{path}?most=2&newest=true")["entries"]] == [19, 20]
    for wrong in ("after=-1", "level=bad", "most=x", "other=1"):
        status, _, text = client.ask(f"{path}?{wrong}")
        assert (status, "error" in json.loads(text)) == (400, True), wrong


def test_a_job_that_failed_says_why_with_the_traceback(ui: fn.observation.Ui, client: Client) -> None:
    env = fn.Environment()
    env.from_collection([1, 0]).map(lambda number: 1 // number).name("divide").collect()
    with pytest.raises(errors.OperatorError):
        env.execute(ui=ui)
    shown = client.get("/api/v1/jobs/1")
    assert shown["error"].startswith("operator 'divide'")
    assert "Traceback" in shown["error"]
    assert shown["error"].endswith("ZeroDivisionError: integer division or modulo by zero")
    assert client.get("/api/v1/jobs")["jobs"][0]["error"] == shown["error"]


def test_events_tell_of_a_job_until_it_has_ended(ui: fn.observation.Ui, client: Client) -> None:
    read, heard_some = 0, threading.Event()

    def numbers() -> Iterator[int]:
        nonlocal read
        while not heard_some.is_set():
            read += 1
            yield read

    env = fn.Environment()
    env.from_iterable(numbers(), rate_limit=200).collect()
    text = ""
    with env.execute_async(ui=ui) as job, closing(http.client.HTTPConnection("127.0.0.1", ui.port)) as connection:
        connection.request("GET", "/api/v1/jobs/1/events", headers=Client(ui).token)
        answer = connection.getresponse()
        while line := answer.readline().decode():
            text += line
            if text.count("event: job") == 3:
                heard_some.set()
        job.wait()
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
    events = [dict(line.split(": ", 1) for line in event.splitlines()) for event in text.strip().split("\n\n")]
    assert [event["event"] for event in events[-2:]] == ["job", "end"]
    told = [json.loads(event["data"]) for event in events[:-1]]
    assert len(told) >= 3
    assert told[-1]["state"] == "ended"
    assert told[-1]["records"] == read
    assert sorted(one["records"] for one in told) == [one["records"] for one in told]


def test_the_channels_of_a_subtask_say_who_is_at_their_other_end_and_who_is_blocked(
    ui: fn.observation.Ui, client: Client, workers: int
) -> None:
    env = fn.Environment(parallelism=2, status_interval="50ms", segment_size="1KiB")
    numbers = env.from_iterable(lambda subtask, subtasks: itertools.count()).rebalance()
    numbers.map(lambda number: time.sleep(0.01)).name("slow").filter(lambda _: False).collect()
    with env.execute_async(workers, ui=ui) as job:
        until(lambda: job.status().tasks[0].back_pressured > 0.9)
        places = {(one.task, one.subtask): one.worker for one in job.sample().tasks}

        def look(task: int, subtask: int) -> Any:
            return client.get(f"/api/v1/jobs/1/channels/{task}/{subtask}")

        def waits(subtask: int) -> bool:
            return any(one["buffers"] for one in look(0, subtask)["outputs"])

        ends = [{"task": 1, "subtask": subtask, "worker": places[1, subtask]} for subtask in range(2)]
        writers = [{"task": 0, "subtask": subtask, "worker": places[0, subtask]} for subtask in range(2)]
        for subtask in range(2):
            source = look(0, subtask)
            assert source["inputs"] == []
            assert [{name: one[name] for name in ends[0]} for one in source["outputs"]] == ends
            assert all(0 <= one["bytes"] <= one["buffers"] * 1024 for one in source["outputs"])
            assert all(one["records_out"] > 0 < one["bytes_out"] for one in source["outputs"])
            until(functools.partial(waits, subtask))
            slow = look(1, subtask)
            assert [{name: one[name] for name in writers[0]} for one in slow["inputs"]] == writers
            for one in slow["inputs"]:
                is_local = one["worker"] == places[1, subtask]
                assert (one["credit"] is None) == is_local
            assert len(slow["outputs"]) == 1
        if workers:
            until(lambda: any(one["credit"] == 0 and one["queued"] for one in look(1, 0)["inputs"]))
        for nobody in ("1/2", "9/0", "0/4294967295"):
            assert client.ask(f"/api/v1/jobs/1/channels/{nobody}")[0] == 409
        for nothing in ("0/x", "-1/0", "0/4294967296"):
            status, _, text = client.ask(f"/api/v1/jobs/1/channels/{nothing}")
            assert (status, "are to be the numbers" in json.loads(text)["error"]) == (404, True)
        job.cancel()
        with pytest.raises(errors.CancelledError):
            job.wait()
        status, _, text = client.ask("/api/v1/jobs/1/channels/0/0")
        assert status == 409
        assert "does not run now" in json.loads(text)["error"]


def test_what_goes_by_the_channels_of_a_task_is_what_the_task_counts_at_both_of_their_ends(
    ui: fn.observation.Ui, client: Client, workers: int, tmp_path: Path
) -> None:
    def numbers(records: int) -> Callable[[int, int], Iterator[int]]:
        def numbers_of(subtask: int, subtasks: int) -> Iterator[int]:
            yield from range(subtask, records, subtasks)
            while not (tmp_path / "go on").exists():
                time.sleep(0.01)

        return numbers_of

    env = fn.Environment(status_interval="50ms", segment_size="1KiB")
    some = env.from_iterable(numbers(3000)).set_parallelism(2).rebalance()
    others = env.from_iterable(numbers(200)).set_parallelism(1).broadcast()
    padded = some.union(others).map(lambda number: "x" * (number % 3000)).name("pad").set_parallelism(3)
    padded.filter(lambda _: True).name("forward").disable_chaining().set_parallelism(3).collect()
    padded.key_by(len).count().set_parallelism(2).filter(lambda _: False).set_parallelism(2).collect()
    with env.execute_async(workers, ui=ui) as job:
        until(lambda: job.status().state == "running")
        document = client.get("/api/v1/jobs/1")
        broadcast = {edge["from"] for edge in document["exchanges"] if edge["partitioner"] == "broadcast"}

        def agrees() -> bool:
            written, read = {}, {}
            for one in job.sample().tasks:
                me = (one.task, one.subtask)
                channels = client.get(f"/api/v1/jobs/1/channels/{one.task}/{one.subtask}")
                for end in channels["outputs"]:
                    written[*me, end["task"], end["subtask"]] = (end["records_out"], end["bytes_out"])
                for end in channels["inputs"]:
                    read[end["task"], end["subtask"], *me] = (end["records_in"], end["bytes_in"])
                sums = [sum(end[name] for end in channels["inputs"]) for name in ("records_in", "bytes_in")]
                if channels["inputs"] and sums != [one.records_in, one.bytes_local + one.bytes_tcp]:
                    return False
                sums = [sum(end[name] for end in channels["outputs"]) for name in ("records_out", "bytes_out")]
                copies = len(channels["outputs"]) if one.task in broadcast else 1
                if channels["outputs"] and sums != [copies * one.records_out, one.bytes_out]:
                    return False
            return written == read and job.status().tasks[2].records_in == 3000 + 3 * 200

        until(agrees)
        (tmp_path / "go on").touch()
        job.wait()


def test_the_rates_of_channels_are_those_since_a_look_before(ui: fn.observation.Ui, client: Client) -> None:
    env = fn.Environment(buffer_timeout="1ms")
    env.from_iterable(itertools.count(), rate_limit=1000).rebalance().filter(lambda _: False).collect()
    with env.execute_async(ui=ui) as job:
        until(lambda: job.status().records > 10)
        first, looks = client.get("/api/v1/jobs/1/channels/0/0"), list[Any]()
        (channel,) = first["outputs"]
        assert channel["records_out_per_second"] is channel["bytes_out_per_second"] is None
        while not looks or looks[-1]["outputs"][0]["records_out_per_second"] is None:
            looks.append(client.get("/api/v1/jobs/1/channels/0/0"))
        (now,) = looks[-1]["outputs"]
        seconds = looks[-1]["seconds"] - first["seconds"]
        for name in ("records_out", "bytes_out"):
            assert now[f"{name}_per_second"] == pytest.approx((now[name] - channel[name]) / seconds)
        assert now["records_out_per_second"] > 0


def test_many_may_look_at_channels_while_a_job_runs_and_ends(
    ui: fn.observation.Ui, client: Client, workers: int
) -> None:
    with endless().execute_async(workers, ui=ui) as job:
        until(lambda: job.status().records > 100)
        seen: list[int] = []

        def look() -> None:
            for _ in range(20):
                seen.append(client.ask("/api/v1/jobs/1/channels/1/0")[0])

        looking = [threading.Thread(target=look) for _ in range(8)]
        for thread in looking:
            thread.start()
        until(lambda: len(seen) > 40)
        job.stop()
        job.wait()
        for thread in looking:
            thread.join()
    assert 200 in seen
    assert set(seen) <= {200, 409}


def test_what_was_is_told_second_by_second(ui: fn.observation.Ui, client: Client) -> None:
    def waits(history: Any) -> bool:
        return any(share > 0.5 for share in history["tasks"][0]["back_pressured"])

    with endless().execute_async(ui=ui):
        lines = until(
            lambda: len((found := client.get("/api/v1/jobs/1/history"))["seconds"]) >= 3 and waits(found) and found
        )
    assert lines["seconds"] == sorted(lines["seconds"])
    assert len(lines["tasks"]) == 3
    for task in lines["tasks"]:
        assert {len(line) for line in task.values()} == {len(lines["seconds"])}


def test_the_plan_and_all_settings_are_shown(ui: fn.observation.Ui, client: Client) -> None:
    env = endless()
    explained = env.explain()
    with env.execute_async(ui=ui):
        plan = client.get("/api/v1/jobs/1/plan")
    assert plan["explain"] == explained
    assert plan["settings"]["status_interval"] == "50ms"
    assert plan["settings"]["network_memory"] == "none"


def test_metrics_are_read_by_prometheus_own_parser_and_time_sums_to_the_whole(
    ui: fn.observation.Ui, client: Client, workers: int
) -> None:
    with endless(name='odd "name"\\\n').execute_async(workers, ui=ui) as job:
        until(lambda: job.status().records > 100)
        job.stop()
        result = job.wait()
        status, headers, text = client.ask("/metrics")
    assert (status, headers["content-type"].split(";")[0]) == (200, "application/openmetrics-text")
    families = {family.name: family for family in text_string_to_metric_families(text)}  # type: ignore[no-untyped-call]
    labels = {"job": 'odd "name"\\\n', "job_id": "1"}
    (uptime,) = families["flownet_job_uptime_seconds"].samples
    assert uptime.labels == labels
    assert uptime.value == pytest.approx(result.seconds)
    for position, task in enumerate(result.tasks):
        counted = [
            sample.value
            for sample in families["flownet_subtask_records_in"].samples
            if sample.labels["task_id"] == str(position)
        ]
        assert len(counted) == task.parallelism
        assert sum(counted) == task.records_in
    spent: dict[tuple[str, str], float] = {}
    for sample in families["flownet_subtask_time_seconds"].samples:
        subtask = sample.labels["task_id"], sample.labels["subtask"]
        spent[subtask] = spent.get(subtask, 0.0) + sample.value
    for (task_id, _), seconds in spent.items():
        task = result.tasks[int(task_id)]
        assert 0 < seconds < result.seconds
        shares = task.busy + task.back_pressured + task.idle + task.interpreter
        assert shares == pytest.approx(1), task
    states = {sample.labels["state"] for sample in families["flownet_subtask_time_seconds"].samples}
    assert len(states) == 8
    waits = [sample.value for sample in families["flownet_subtask_back_pressured_seconds"].samples]
    pressed = [
        sample.value
        for sample in families["flownet_subtask_time_seconds"].samples
        if sample.labels["state"] in ("soft_back_pressured", "hard_back_pressured")
    ]
    assert sum(waits) == pytest.approx(sum(pressed))
    (running,) = families["flownet_job_running"].samples
    assert running.value == 0


class Counts(fn.ProcessFunction[int, int]):
    """Has metrics of its own."""

    def open(self, ctx: fn.TaskContext) -> None:
        self.seen = ctx.metrics.counter("seen")
        self.half = ctx.metrics.gauge("half")
        self.sizes = ctx.metrics.histogram("sizes", buckets=[1, 10])
        ctx.metrics.gauge("unset")

    def process(self, value: int, ctx: fn.RecordContext) -> Iterator[int]:
        self.seen.inc()
        self.half.set(value / 2)
        self.sizes.observe(value)
        yield value


class Otherwise(fn.ProcessFunction[int, int]):
    """Has one of the same name and of another kind."""

    def open(self, ctx: fn.TaskContext) -> None:
        ctx.metrics.gauge("seen").set(-1)

    def process(self, value: int, ctx: fn.RecordContext) -> None:
        return None


def test_what_functions_count_is_told_by_rest_and_by_metrics(
    ui: fn.observation.Ui, client: Client, workers: int
) -> None:
    env = fn.Environment(parallelism=2)
    numbers = env.from_collection(range(20)).rebalance().process(Counts()).name("counts")
    numbers.process(Otherwise()).name("otherwise").collect()
    with env.execute_async(workers, ui=ui) as job:
        result, sample = job.wait(), job.sample()
        _, _, text = client.ask("/metrics")
        told = client.get("/api/v1/jobs/1")["metrics"]
    shown = RemoteJobs(ui.url)
    assert shown.sample("1").tasks == sample.tasks
    assert shown.status("1").metrics == result.metrics
    assert told[0] == {"operator": "counts", "name": "seen", "kind": "counter", "value": 20}
    families = {family.name: family for family in text_string_to_metric_families(text)}  # type: ignore[no-untyped-call]
    counted = families["flownet_counted_seen"].samples
    assert {(one.labels["operator"], one.labels["subtask"]) for one in counted} == {("counts", "0"), ("counts", "1")}
    assert sum(one.value for one in counted) == 20
    assert [one.value for one in families["flownet_gauged_seen"].samples] == [-1, -1]
    assert {one.value for one in families["flownet_gauged_half"].samples} == {9.0, 9.5}
    assert families["flownet_gauged_unset"].samples == []
    buckets: dict[str, float] = {}
    for one in families["flownet_observed_sizes"].samples:
        if one.name.endswith("_bucket"):
            buckets[one.labels["le"]] = buckets.get(one.labels["le"], 0) + one.value
    assert buckets == {"1.0": 2, "10.0": 11, "+Inf": 20}, "each holds those below it, too"


def test_jobs_are_cancelled_stopped_and_saved_by_rest(ui: fn.observation.Ui, client: Client, tmp_path: Path) -> None:
    env = endless()
    env.enable_checkpointing("10s", storage=str(tmp_path / "checkpoints"), allow_non_replayable=True)
    with env.execute_async(ui=ui) as job:
        until(lambda: job.status().state == "running")
        assert client.post("/api/v1/jobs/1/checkpoint", {}) == (202, {})
        until(lambda: client.get("/api/v1/jobs/1")["checkpoints_made"] > 0)
        status, saved = client.post("/api/v1/jobs/1/savepoint", {"path": str(tmp_path / "saved")})
        assert status == 200, saved
        assert saved["checkpoint"] > 0
        assert (tmp_path / "saved").exists()
        status, refused = client.post("/api/v1/jobs/1/savepoint", {"path": str(tmp_path / "saved")})
        assert status == 409
        assert "saved" in refused["error"]
        assert client.post("/api/v1/jobs/1/stop", {"drain": False}) == (202, {})
        job.wait()
        status, refused = client.post("/api/v1/jobs/1/savepoint", {"path": str(tmp_path / "later")})
        assert (status, refused) == (409, {"error": "no savepoint was taken: the job has ended"})
        ended = (409, {"error": "no checkpoint was triggered: the job has ended"})
        assert client.post("/api/v1/jobs/1/checkpoint", {}) == ended
        with pytest.raises(errors.CheckpointError, match="the job has ended"):
            job.trigger_checkpoint()
    with endless().execute_async(ui=ui) as job:
        status, refused = client.post("/api/v1/jobs/2/savepoint", {"path": str(tmp_path / "none")})
        assert status == 409
        assert "enable_checkpointing" in refused["error"]
        with pytest.raises(errors.CheckpointError, match="enable_checkpointing"):
            job.trigger_checkpoint()
        assert client.post("/api/v1/jobs/2/cancel", {}) == (202, {})
        with pytest.raises(errors.CancelledError):
            job.wait()


@pytest.mark.parametrize(
    ("body", "status"),
    [("", 400), ("{", 400), ('{"drain": 3}', 422), ('{"drian": true}', 422), ('{"x": "' + "y" * 20_000 + '"}', 413)],
)
def test_bodies_that_are_none_are_refused(ui: fn.observation.Ui, client: Client, body: str, status: int) -> None:
    with endless().execute_async(ui=ui) as job:
        answer, _, text = client.ask("/api/v1/jobs/1/stop", method="POST", body=body, headers=JSON)
        assert (answer, list(json.loads(text))) == (status, ["error"])
        assert job.status().state != "stopping"


def test_what_is_not_there_is_said(client: Client) -> None:
    for path in ["/api/v1/jobs/7", "/api/v1/jobs/%00/events", "/nothing", "/../../etc/passwd", "/api/v2/jobs"]:
        status, _, text = client.ask(path)
        assert (status, list(json.loads(text))) == (404, ["error"]), path


def test_nothing_is_kept_framed_or_loaded_from_elsewhere(client: Client) -> None:
    for path in ["/", "/page.js", "/page.css", "/api/v1", "/metrics", "/nothing"]:
        _, headers, _ = client.ask(path)
        assert headers["cache-control"] == "no-store"
        assert "default-src 'self'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_other_names_of_this_machine_are_not_answered() -> None:
    with fn.serve_ui(0) as ui:
        client = Client(ui)
        for host in ["evil.example", "localhost.evil.example:80", "192.168.1.7"]:
            assert client.ask("/api/v1/jobs", headers={"Host": host})[0] == 403
        assert client.ask("/api/v1/jobs", headers={"Host": "localhost:1"})[0] == 200


def test_other_users_of_this_machine_cannot_act_on_jobs(ui: fn.observation.Ui, client: Client) -> None:
    stranger = Client(ui, shows_token=False)
    assert ui.token is not None
    with endless().execute_async(ui=ui) as job:
        assert "?token=" in str(job.ui_url)
        for action, body in [("cancel", {}), ("stop", {"drain": True}), ("savepoint", {"path": "/tmp/a"})]:
            assert stranger.post(f"/api/v1/jobs/1/{action}", body)[0] == 401
        assert job.status().state in {"created", "deploying", "running"}
        assert client.post("/api/v1/jobs/1/cancel", {})[0] == 202
        with pytest.raises(errors.CancelledError):
            job.wait()


def test_a_cookie_is_of_one_port() -> None:
    with fn.serve_ui(0, actions=True) as first, fn.serve_ui(0, actions=True) as second:
        cookies = []
        for ui in (first, second):
            _, headers, _ = Client(ui, shows_token=False).ask(f"/?token={ui.token}")
            cookies.append(headers["set-cookie"].split("; ")[0])
        assert len({cookie.split("=")[0] for cookie in cookies}) == 2
        for ui in (first, second):
            of_both = {"Cookie": "; ".join(cookies)}
            assert Client(ui, shows_token=False).ask("/api/v1/jobs", headers=of_both)[0] == 200


def test_pages_of_others_change_nothing(ui: fn.observation.Ui, client: Client) -> None:
    with endless().execute_async(ui=ui) as job:
        for headers in [
            {**JSON, "Origin": "http://evil.example"},
            {**JSON, "Origin": "null"},
            {"Content-Type": "text/plain"},
        ]:
            status, _, _ = client.ask("/api/v1/jobs/1/cancel", method="POST", body="{}", headers=headers)
            assert status in {403, 415}
        with fn.serve_ui(0) as shows_only:
            shows_only.show(job)
            status, answer = Client(shows_only).post("/api/v1/jobs/1/cancel", {})
            assert status == 403
            assert "--ui-actions" in answer["error"]
        assert job.status().state in {"created", "deploying", "running"}


def test_a_token_is_asked_for_and_kept_by_a_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    with fn.serve_ui(0, token="a-secret-of-mine") as ui:
        client = Client(ui, shows_token=False)
        assert ui.url.endswith("?token=a-secret-of-mine")
        assert "a-secret" not in repr(ui)
        for headers in [{}, {"Authorization": "Bearer a-secret-of-min"}, {"Cookie": f"flownet_token_{ui.port}=wrong"}]:
            for path in ["/", "/metrics", "/api/v1/jobs", "/page.js", "/nothing", "/?token=wrong"]:
                assert client.ask(path, headers=headers)[0] == 401
        assert client.ask("/api/v1/jobs", headers={"Authorization": "Bearer a-secret-of-mine"})[0] == 200
        status, headers, _ = client.ask("/?token=a-secret-of-mine")
        assert (status, headers["location"]) == (303, "/")
        cookie, *attributes = headers["set-cookie"].split("; ")
        assert {"HttpOnly", "SameSite=Strict"} <= set(attributes)
        assert client.ask("/api/v1/jobs", headers={"Cookie": cookie})[0] == 200
        assert client.ask("/api/v1/jobs?token=a-secret-of-mine")[0] == 401, "only the page takes it from the address"
    monkeypatch.setenv("FLOWNET_UI_TOKEN", "from-the-environment")
    with fn.serve_ui(0) as ui:
        assert ui.token == "from-the-environment"
    monkeypatch.delenv("FLOWNET_UI_TOKEN")
    with fn.serve_ui("0.0.0.0:0") as ui:
        assert ui.token is not None
        assert len(ui.token) >= 32


@pytest.mark.parametrize("token", ["short", "with space in it", "newline\nnewline", "ünïcödé-letters", "x" * 129])
def test_tokens_that_headers_cannot_carry_are_refused(token: str) -> None:
    with pytest.raises(errors.ConfigError, match="a token has 8 to 128"):
        fn.serve_ui(0, token=token)


@pytest.mark.parametrize(
    "address", ["nowhere.invalid", "a b:1", "127.0.0.1:http", 70_000, -1, 3.5, "127.0.0.1:99999", False]
)
def test_addresses_that_are_none_are_refused(address: Any) -> None:
    with pytest.raises(errors.ConfigError, match="ui"):
        fn.serve_ui(address)


def test_a_port_that_is_taken_is_an_error_where_it_was_asked_for_and_else_the_next_one_does(
    ui: fn.observation.Ui,
) -> None:
    with pytest.raises(errors.ConfigError, match=rf"cannot listen on 127\.0\.0\.1:{ui.port}: .*in use"):
        fn.serve_ui(ui.port)
    env = fn.Environment()
    env.from_collection([1]).collect()
    with pytest.raises(errors.ConfigError, match="cannot listen"):
        env.execute(ui=f"127.0.0.1:{ui.port}")
    with fn.serve_ui() as first, fn.serve_ui() as second:
        assert first.port != second.port
        assert {first.port, second.port} <= set(range(8081, 8102))


def test_when_closed_the_port_is_free_and_jobs_go_on() -> None:
    env = endless()
    with fn.serve_ui(0) as ui:
        job = env.execute_async(ui=ui)
        events = socket.create_connection(("127.0.0.1", ui.port))
        events.sendall(b"GET /api/v1/jobs/1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert events.recv(1000).startswith(b"HTTP/1.1 200")
    with closing(events):
        while events.recv(100_000):
            pass
    with job:
        before = job.status().records
        until(lambda: job.status().records > before)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", ui.port))
        with pytest.raises(errors.ConfigError, match="closed"):
            ui.show(job)


def test_clients_that_are_many_never_read_or_never_end_hold_up_nobody(ui: fn.observation.Ui, client: Client) -> None:
    with endless().execute_async(ui=ui) as job:
        until(lambda: job.status().records > 0)
        never_read = []
        for _ in range(20):
            connection = socket.create_connection(("127.0.0.1", ui.port))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(request(ui, "/metrics") * 50)
            never_read.append(connection)
        giant = socket.create_connection(("127.0.0.1", ui.port))
        giant.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 100_000)
        assert giant.recv(100).startswith(b"HTTP/1.1 431")
        assert client.get("/api/v1/jobs/1")["state"] == "running"
        silent = [socket.create_connection(("127.0.0.1", ui.port)) for _ in range(400)]
        answers = b"".join(turned_away(one) for one in silent[300:])
        assert b"503" in answers
        assert b"too many connections" in answers
        before = job.status().records
        until(lambda: job.status().records > before)
        for one in [*never_read, giant, *silent]:
            one.close()
        until(lambda: answers_again(client))


def turned_away(connection: socket.socket) -> bytes:
    connection.settimeout(60)
    try:
        return connection.recv(1000)
    except ConnectionResetError:
        return b""


def answers_again(client: Client) -> bool:
    try:
        return client.ask("/api/v1/jobs")[0] == 200
    except (ConnectionError, http.client.HTTPException):
        return False


def test_one_is_asked_while_jobs_come_fail_and_go(ui: fn.observation.Ui, client: Client) -> None:
    ended = threading.Event()
    asked: list[int] = []

    def ask() -> None:
        while not ended.is_set():
            asked.append(client.ask("/metrics")[0])
            for job in client.get("/api/v1/jobs")["jobs"]:
                status = client.ask(f"/api/v1/jobs/{job['id']}")[0]
                assert status == 200 or (status == 404 and len(asked) > 1)

    asking = threading.Thread(target=ask)
    asking.start()
    for number in range(25):
        env = fn.Environment(name=f"job {number}")
        env.from_collection([1, 0] if number % 3 == 0 else [1]).map(lambda value: 1 // value).collect()
        try:
            env.execute(ui=ui)
        except errors.OperatorError:
            assert number % 3 == 0
    ended.set()
    asking.join()
    assert asked
    assert set(asked) == {200}
    jobs = client.get("/api/v1/jobs")["jobs"]
    assert [job["id"] for job in jobs] == [str(number) for number in range(25, 5, -1)], (
        "the last of those that have ended"
    )


def test_true_opens_a_page_of_the_process_and_says_where(python: Callable[..., Any]) -> None:
    finished = python(
        "-c",
        "import flownet as fn, urllib.request\n"
        "for number in range(2):\n"
        "    env = fn.Environment(name=f'job {number}')\n"
        "    env.from_collection([1]).collect()\n"
        "    with env.execute_async(ui=True) as job:\n"
        "        job.wait()\n"
        "print(urllib.request.urlopen(job.ui_url.split('#')[0] + 'api/v1/jobs').read().decode())\n",
    )
    said = re.findall(r"flownet: job 'job (\d)' is shown at (http://127\.0\.0\.1:\d+/)#/jobs/(\d)", finished.stderr)
    assert [(name, number) for name, _, number in said] == [("0", "1"), ("1", "2")]
    assert said[0][1] == said[1][1]
    assert [job["name"] for job in json.loads(finished.stdout)["jobs"]] == ["job 1", "job 0"]


def test_flownet_run_serves_a_page_while_the_job_runs(
    tmp_path: Path, python: Callable[..., Any], free_port: int
) -> None:
    (tmp_path / "shown.py").write_text(
        "import flownet as fn, urllib.request, json\n"
        "env = fn.Environment()\n"
        "def look(number):\n"
        f"    jobs = json.load(urllib.request.urlopen('http://127.0.0.1:{free_port}/api/v1/jobs'))['jobs']\n"
        "    return jobs[0]['name'] if jobs else ''\n"
        "env.from_iterable(range(100), rate_limit=50).map(look).write_text('out')\n"
    )
    finished = python("-m", "flownet", "run", "--ui", f"127.0.0.1:{free_port}", "shown:env", cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert f"flownet: job 'shown' is shown at http://127.0.0.1:{free_port}/#/jobs/1" in finished.stderr
    assert "shown" in "".join(path.read_text() for path in (tmp_path / "out").iterdir())


def test_who_watches_a_job_is_sent_its_end_before_the_process_ends(
    tmp_path: Path, python: Callable[..., Any], free_port: int
) -> None:
    # The process closes its page, and ends, right behind the job.
    (tmp_path / "watched.py").write_text(
        "import flownet as fn\nenv = fn.Environment()\nenv.from_iterable(iter(open('go'))).write_text('out')\n"
    )
    os.mkfifo(tmp_path / "go")
    command = [sys.executable, "-m", "flownet", "run", "--ui", f"{free_port}", "watched:env"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    said = process.stderr
    assert said is not None
    with (tmp_path / "go").open("w") as go:
        until(lambda: "is shown at" in said.readline())
        connection = http.client.HTTPConnection("127.0.0.1", free_port)
        connection.request("GET", "/api/v1/jobs/1/events")
        answer = connection.getresponse()
        assert answer.readline() == b"event: job\n"
        go.write("a\n")
    with closing(connection):
        text = answer.read().decode()
    process.communicate()
    *_, last, end = text.strip().split("\n\n")
    assert "event: end" in end
    told = json.loads(last.split("data: ")[1])
    assert (told["state"], told["outcome"], told["records"]) == ("ended", "finished", 1)


def test_flownet_run_takes_no_module_for_an_address() -> None:
    apart = with_places_apart(["run", "--ui", "job:env", "--ui", "8081", "--ui", "h:1", "--ui"])
    assert apart == ["run", "--ui=", "job:env", "--ui", "8081", "--ui", "h:1", "--ui"]
    apart = with_places_apart(["run", "--otel", "job:env", "--otel", "http://h:1", "--otel", "8081", "--otel"])
    assert apart == ["run", "--otel=", "job:env", "--otel", "http://h:1", "--otel=", "8081", "--otel"]
