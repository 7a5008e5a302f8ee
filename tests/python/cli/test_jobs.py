"""Commands that ask the page of a running process, or tell its jobs what to do."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import flownet as fn
from flownet import errors
from flownet.client import Client

from .served import Serve, Served

Flownet = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def flownet(python: Flownet) -> Flownet:
    return lambda *arguments, **options: python("-m", "flownet", *arguments, **options)


def test_jobs_lists_the_jobs_of_a_process(serve: Serve, flownet: Flownet) -> None:
    served = serve("first", "second")
    served.wait_for(lambda status: status.records > 0)
    listed = json.loads(flownet("jobs", served.url, "--json").stdout)
    assert [(job["id"], job["name"]) for job in listed] == [("2", "second"), ("1", "first")]
    assert all(job["state"] == "running" and job["error"] is None for job in listed)
    head, *rows = flownet("jobs", served.url).stdout.splitlines()
    assert head.split() == ["id", "name", "state", "time", "rate", "bottleneck"]
    assert [row.split()[:3] for row in rows] == [["2", "second", "running"], ["1", "first", "running"]]


def test_the_address_can_be_a_variable_or_the_page_as_it_is_printed(serve: Serve, flownet: Flownet) -> None:
    served = serve("words", token="secret-1")
    variables = {**served.variables, "FLOWNET_UI": served.url}
    assert flownet("jobs", env={**variables, "FLOWNET_UI_TOKEN": "secret-1"}).returncode == 0
    assert flownet("jobs", served.url, "--token", "secret-1").returncode == 0
    assert flownet("jobs", f"{served.url}/?token=secret-1").returncode == 0
    assert flownet("jobs", f"{served.url.removeprefix('http://')}?token=secret-1").returncode == 0


def test_logs_shows_what_was_said_until_the_end(serve: Serve, flownet: Flownet) -> None:
    served = serve("words")
    served.wait_for(lambda status: status.records > 0)
    assert (flownet("logs", served.url).returncode, flownet("logs", served.url).stdout) == (0, "")
    served.fail()
    followed = flownet("logs", served.url, "--follow", "--json")
    assert followed.returncode == 0, followed.stderr
    said = [json.loads(line) for line in followed.stdout.splitlines()]
    assert [(entry["kind"], entry["level"], entry["logger"]) for entry in said] == [
        ("python", "warning", "work")
    ] * len(said)
    assert {entry["text"] for entry in said} == {"about to fail"}
    (line, *_) = flownet("logs", served.url, "--level", "warning").stdout.splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d\d\d WARNING  \[slow \d/2\] work: about to fail", line)
    assert flownet("logs", served.url, "--level", "error").stdout == ""


def test_cancel_ends_a_job(serve: Serve, flownet: Flownet) -> None:
    served = serve("words", actions=True)
    told = flownet("cancel", served.url)
    assert (told.returncode, told.stdout) == (0, "job 1, words: told to cancel\n"), told.stderr
    served.wait_for(lambda status: status.state == "ended")


@pytest.mark.parametrize("drain", [[], ["--no-drain"], ["--drain"]])
def test_stop_ends_a_job_well_with_a_savepoint_of_its_end(
    drain: list[str], serve: Serve, flownet: Flownet, tmp_path: Path
) -> None:
    served = serve("words", actions=True)
    served.wait_for(lambda status: status.records > 0)
    told = flownet("stop", served.url, *drain, "--savepoint", "saved")
    assert (told.returncode, told.stdout) == (0, "job 1, words: told to stop\n"), told.stderr
    served.wait_for(lambda status: status.state == "ended")
    listed = flownet("checkpoints", str(tmp_path / "saved"))
    has_ended = "ended" in listed.stdout.splitlines()[1]
    assert has_ended == (drain == ["--drain"]), "a job with checkpoints that was not drained goes on from there"
    assert "words" in listed.stdout


def test_savepoint_takes_a_new_one_from_a_page_and_copies_the_last_of_a_folder(
    serve: Serve, flownet: Flownet, tmp_path: Path
) -> None:
    served = serve("words", actions=True)
    served.wait_for(lambda status: status.checkpoints_made > 0)
    taken = flownet("savepoint", served.url, "taken", "--job", "1")
    assert taken.returncode == 0, taken.stderr
    assert taken.stdout.startswith(f"file://{tmp_path}/taken: checkpoint ")
    by_variable = flownet("savepoint", "again", env={**served.variables, "FLOWNET_UI": served.url})
    assert by_variable.returncode == 0, by_variable.stderr
    copied = flownet("savepoint", str(served.storage("words")), "copied")
    assert copied.returncode == 0, copied.stderr
    for folder in ("taken", "again", "copied"):
        assert len(json.loads(flownet("checkpoints", folder, "--json").stdout)) == 1
    assert served.client.status("1").state == "running"
    refused = flownet("savepoint", served.url, "taken")
    assert refused.returncode == 1
    assert "taken" in refused.stderr, "there is something in that folder"
    refused = flownet("savepoint", str(served.storage("words")), "more", "--job", "1")
    assert "--job is for a page" in refused.stderr


def test_of_several_jobs_one_has_to_be_named(serve: Serve, flownet: Flownet) -> None:
    served = serve("first", "second", actions=True)
    refused = flownet("cancel", served.url)
    assert refused.returncode == 1
    assert refused.stderr.startswith("flownet.errors.NoSuchJobError: 2 jobs run at ")
    assert "say which by --job: 2 (second), 1 (first)" in refused.stderr
    assert flownet("cancel", served.url, "--job", "1").returncode == 0
    served.wait_for(lambda status: status.state == "ended", job="1")
    assert flownet("cancel", served.url).stdout == "job 2, second: told to cancel\n", "the only one that runs"
    served.wait_for(lambda status: status.state == "ended", job="2")
    assert "has no job that runs" in flownet("cancel", served.url).stderr


@pytest.mark.parametrize("command", [("cancel",), ("stop",), ("savepoint",), ("top", "--once")])
def test_a_job_that_is_not_there_is_told_with_those_that_are(
    serve: Serve, flownet: Flownet, command: tuple[str, ...]
) -> None:
    served = serve("words", actions=True)
    more = ["saved"] if command == ("savepoint",) else []
    refused = flownet(*command, served.url, *more, "--job", "7/../1")
    assert refused.returncode == 1
    assert refused.stderr == (
        f"flownet.errors.NoSuchJobError: {served.client.url} has no job '7/../1'; it has: 1 (words)\n"
    )


def test_a_number_is_taken_for_no_address(flownet: Flownet) -> None:
    told = flownet("jobs", "1")
    assert told.returncode == 1
    assert "'1' is no address of a page, such as http://127.0.0.1:8081: --job 1 if a job is meant" in told.stderr


@pytest.mark.parametrize("command", ["cancel", "stop", "savepoint"])
def test_a_page_that_takes_no_orders_says_how_to_allow_them(serve: Serve, flownet: Flownet, command: str) -> None:
    served = serve("words")
    refused = flownet(command, served.url, *(["saved"] if command == "savepoint" else []))
    assert refused.returncode == 1
    assert refused.stderr.startswith("flownet.errors.UiRightsError: ")
    assert "flownet run --ui --ui-actions or fn.serve_ui(actions=True)" in refused.stderr
    assert served.client.status("1").state in ("created", "running")


def test_a_token_that_is_missing_or_wrong_is_told(serve: Serve, flownet: Flownet) -> None:
    served = serve("words", token="secret-1")
    refused = flownet("jobs", served.url)
    assert refused.stderr.startswith("flownet.errors.UiRightsError: ")
    assert "wants a token: --token TOKEN or FLOWNET_UI_TOKEN" in refused.stderr
    refused = flownet("jobs", served.url, "--token", "guess")
    assert "does not know this token" in refused.stderr
    assert "guess" not in refused.stderr
    with pytest.raises(errors.UiRightsError) as caught:
        Client(f"{served.url}?token=guess").jobs()
    assert (caught.value.url, caught.value.status) == (served.url, 401)


@pytest.mark.parametrize("command", [("jobs",), ("top",), ("cancel",), ("stop",), ("savepoint",)])
def test_where_nothing_listens_the_way_to_a_page_is_said(
    flownet: Flownet, closed_port: int, command: tuple[str, ...]
) -> None:
    more = ["saved"] if command == ("savepoint",) else []
    refused = flownet(*command, f"http://127.0.0.1:{closed_port}", *more)
    assert refused.returncode == 1
    assert refused.stderr == (
        f"flownet.errors.UiUnreachableError: nothing answers at http://127.0.0.1:{closed_port} (Connection refused): "
        "start the job with flownet run --ui or env.execute(ui=True), and give the address that it prints as URL or "
        "FLOWNET_UI\n"
    )


@contextmanager
def stranger(answer: bytes | None) -> Iterator[str]:
    """Somebody who listens and gives everybody the same answer, or none at all."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            held = []
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    break
                if answer is None:
                    held.append(connection)
                    continue
                with connection:
                    connection.recv(65536)
                    connection.sendall(answer)
            for connection in held:
                connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def http(body: str, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "(hung up)"),
        (b"220 mail.example ESMTP\r\n", "it does not speak HTTP"),
        (http("<html>hello</html>"), "its answer is no JSON"),
        (http("<html>no</html>", "404 Not Found"), "its answer is an HTTP 404"),
        (http("", "302 Found"), "its answer is an HTTP 302"),
        (http("[" * 100_000), "its answer is no JSON"),
        (http("{}"), "its answer does not say so"),
        (http('{"flownet": "9.0"}'), "'jobs' is no list"),
        (http('{"flownet": "9.0", "jobs": [7]}'), "a JobSummary is no object"),
        (http('{"flownet": "9.0", "jobs": [{"id": "1", "name": ["x"]}]}'), "'name' of a JobSummary is ['x']"),
    ],
)
def test_who_is_no_flownet_is_told_to_be_none(flownet: Flownet, answer: bytes, why: str) -> None:
    with stranger(answer) as url:
        refused = flownet("jobs", url)
    assert refused.returncode == 1
    assert refused.stderr.startswith("flownet.errors.Ui")
    assert url in refused.stderr
    assert why in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_a_process_that_does_not_answer_is_not_waited_for_without_end() -> None:
    with stranger(None) as url, pytest.raises(errors.UiTimeoutError, match="did not answer within 0.2 s"):
        Client(url, timeout=0.2).check()


def test_a_name_steers_no_terminal(flownet: Flownet) -> None:
    job = {"id": "1", "name": "a\x1b]0;b\x07\nc", "state": "running", "seconds": 1, "records_per_second": 1.5}
    with stranger(http(json.dumps({"flownet": "9.0", "jobs": [{**job, "bottleneck": None, "new": 1}]}))) as url:
        listed = flownet("jobs", url)
    assert listed.returncode == 0, listed.stderr
    assert "a?]0;b?" in listed.stdout
    assert "\x1b" not in listed.stdout


@pytest.mark.parametrize(
    "url", ["ftp://a:1", "http://", "http://a:b", "http://a b:1", "http://[:1", "http://a:99999", ""]
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(fn.errors.ConfigError, match=r"write http://HOST:PORT"):
        Client(url)


def test_a_token_that_no_header_can_carry_is_refused() -> None:
    with pytest.raises(fn.errors.ConfigError, match="no header can have"):
        Client("http://127.0.0.1:1", "a\r\nHost: b")


def test_a_served_job_is_read_as_the_job_itself_says_it(serve: Serve) -> None:
    served: Served = serve("words")
    served.wait_for(lambda status: status.records > 0)
    status, sample = served.client.status("1"), served.client.sample("1")
    assert (status.name, status.state) == ("words", "running")
    assert [task.parallelism for task in status.tasks] == [1, 2, 2]
    assert [(part.task, part.subtask) for part in sample.tasks] == [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1)]
