"""The command ``flownet``, in processes of its own."""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flownet.internal.extras import DISTRIBUTION

Python = Callable[..., subprocess.CompletedProcess[str]]

SQUARES = """
import flownet as fn
env = fn.Environment(parallelism=2)
def square(n):
    return n * n
env.from_collection(range(100)).rebalance().map(square).name("square").write_text("out")
other = fn.Environment()
def make():
    return env
if __name__ == "__main__":
    raise SystemExit("flownet run does not run scripts as __main__")
"""


@pytest.fixture
def flownet(python: Python) -> Python:
    def flownet(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return python("-m", "flownet", *arguments, **options)

    return flownet


@pytest.fixture
def squares(tmp_path: Path) -> Path:
    (tmp_path / "squares.py").write_text(SQUARES)
    return tmp_path


def written(folder: Path) -> list[int]:
    return sorted(int(line) for path in (folder / "out").iterdir() for line in path.read_text().split())


def test_version_is_that_of_the_package(flownet: Python) -> None:
    assert flownet("--version").stdout == f"flownet {importlib.metadata.version(DISTRIBUTION)}\n"


def test_without_a_command_usage_and_exit_code_2(flownet: Python) -> None:
    finished = flownet()
    assert finished.returncode == 2
    assert "usage: flownet" in finished.stderr


@pytest.mark.parametrize("target", ["squares:env", "squares", "squares.py:env", "squares:make"])
def test_run_takes_modules_scripts_and_functions(flownet: Python, squares: Path, target: str) -> None:
    finished = flownet("run", target)
    assert (finished.returncode, finished.stdout) == (0, "")
    assert "100 records" in finished.stderr
    assert written(squares) == [n * n for n in range(100)]


def test_run_starts_workers_which_need_not_import_the_script(flownet: Python, squares: Path) -> None:
    finished = flownet("run", "squares:env", "--workers", "2", "--parallelism", "3", "--json")
    assert finished.returncode == 0, finished.stderr
    result = json.loads(finished.stdout)
    assert (result["name"], result["workers"], result["records"]) == ("squares", 2, 100)
    assert result["bytes_tcp"] > 0
    assert [task["parallelism"] for task in result["tasks"]] == [1, 3]
    assert written(squares) == [n * n for n in range(100)]


def test_settings_can_come_from_the_environment(flownet: Python, squares: Path) -> None:
    variables = {**os.environ, "FLOWNET_WORKERS": "1", "FLOWNET_PARALLELISM": "4", "FLOWNET_NAME": "from outside"}
    result = json.loads(flownet("run", "squares:env", "--json", env=variables).stdout)
    assert (result["name"], result["workers"], result["tasks"][1]["parallelism"]) == ("from outside", 1, 4)


def test_a_script_is_read_up_to_its_own_execute(flownet: Python, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import sys\nimport flownet as fn\n"
        "env = fn.Environment()\n"
        "env.from_collection(sys.argv[1:]).print()\n"
        "try:\n    env.execute(workers=5)\nexcept Exception:\n    print('caught')\n"
        "print('never')\n"
    )
    finished = flownet("run", "script:env", "--", "to", "--be")
    assert finished.stdout == "to\n--be\n"
    assert finished.returncode == 0


def test_explain_prints_the_plan_and_runs_nothing(flownet: Python, squares: Path) -> None:
    finished = flownet("explain", "squares:env", "--workers", "2")
    assert finished.returncode == 0
    for part in ("from_collection", "square", "write_text", "buffers", "32 KiB"):
        assert part in finished.stdout
    assert not (squares / "out").exists()


def test_explain_prints_the_plan_of_what_would_be_refused(flownet: Python, squares: Path) -> None:
    small = ("--workers", "2", "--parallelism", "8", "--set", "network_memory=64KiB")
    finished = flownet("explain", "squares:env", *small)
    assert (finished.returncode, finished.stderr) == (0, "")
    assert "square" in finished.stdout
    assert finished.stdout.splitlines()[-1].startswith("refused: ")
    refused = flownet("run", "squares:env", *small)
    assert refused.returncode == 1
    assert refused.stderr.startswith("flownet.errors.InsufficientBuffersError: ")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["squares:nope"], "module 'squares' has no 'nope'; it has: env, other"),
        (["squares:square"], "missing 1 required positional argument"),
        (["squares:fn"], "'fn' of module 'squares' is module, not a flownet.Environment"),
        (["nope:env"], "no module 'nope'"),
        (["no.pe:env"], "no module 'no.pe'"),
        ([":env"], "no module ''"),
        (["squares:env", "--set", "bufer_timeout=1ms"], "unknown setting 'bufer_timeout'"),
        (["squares:env", "--set", "buffer_timeout=1"], "buffer_timeout=1 needs a unit"),
        (["squares:env", "--set", "buffer_timeout"], "write NAME=VALUE"),
        (["squares:env", "--workers", "-1"], "workers=-1 must lie between 0 and 1024"),
        (["squares:env", "--parallelism", "0"], "parallelism=0 must lie between"),
        (["squares:other"], "the dataflow is empty"),
    ],
)
def test_what_is_wrong_is_said_in_one_message(flownet: Python, squares: Path, arguments: list[str], text: str) -> None:
    finished = flownet("run", *arguments)
    assert finished.returncode == 1
    assert text in finished.stderr
    if "missing 1" not in text:
        assert finished.stderr.startswith("flownet.errors.")
        assert "Traceback" not in finished.stderr


def test_an_exception_of_the_user_is_shown_with_its_own_traceback(flownet: Python, tmp_path: Path) -> None:
    (tmp_path / "clicks.py").write_text(
        "import flownet as fn\nenv = fn.Environment()\n"
        "def parse(line):\n    return float(line)\n"
        "env.from_collection(['1', 'oops']).map(parse).name('parse').print()\n"
    )
    finished = flownet("run", "clicks:env", "--workers", "1")
    assert finished.returncode == 1
    first, *rest = finished.stderr.strip().split("\n")
    assert first.startswith("flownet.errors.OperatorError: operator 'parse' (subtask 1 of 1, ")
    assert first.endswith("failed on record 'oops'")
    assert 'clicks.py", line 4, in parse' in rest[0]
    assert rest[-1] == "ValueError: could not convert string to float: 'oops'"
    assert "site-packages" not in finished.stderr


def test_a_script_that_raises_while_it_is_read_shows_its_traceback(flownet: Python, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import flownet\n1 / 0\n")
    finished = flownet("run", "broken:env")
    assert finished.returncode == 1
    assert 'broken.py", line 2' in finished.stderr
    assert "ZeroDivisionError" in finished.stderr


def test_ctrl_c_exits_with_130_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "endless.py").write_text(
        "import itertools\nimport flownet as fn\nenv = fn.Environment(parallelism=2, buffer_timeout='1ms')\n"
        "env.from_iterable(itertools.count()).rebalance().map(str).print()\n"
    )
    command = [sys.executable, "-m", "flownet", "run", "endless:env", "--workers", "2"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        children = {
            int(pid)
            for path in Path(f"/proc/{process.pid}/task").glob("*/children")
            for pid in path.read_text().split()
        }
        assert len(children) == 2
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate()
    assert process.returncode == 130
    assert "flownet: job 'endless': stopping" in stderr
    assert "records in" in stderr, "what was done until then"
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)


def test_demo_counts_given_files_and_checks_itself(flownet: Python, tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    for name in "ab":
        (tmp_path / "text" / name).write_bytes(b"to be or not\nto be \xff\xfe that is\r\n" * 500)
    finished = flownet("demo", "wordcount", "--input", "text", "--workers", "2", "--check", "--top", "3")
    assert finished.returncode == 0, finished.stderr
    for part in (
        "text: 31.0 kB in 2 files; 2 worker processes",
        "top 3 of 7 different words",
        "       2,000  to",
        "9,000 words in",
        "back-pressured",
        "over TCP",
        "check: equal to collections.Counter over the same text (9,000 words)",
    ):
        assert part in finished.stdout


def test_demo_takes_the_source_text_of_python_by_default(flownet: Python) -> None:
    finished = flownet("demo", "wordcount", "--workers", "0", "--check")
    assert finished.returncode == 0, finished.stderr
    assert "source text of Python's standard library: " in finished.stdout
    assert "check: equal" in finished.stdout


def test_demo_shows_who_waits_for_a_slow_sink(flownet: Python, tmp_path: Path) -> None:
    (tmp_path / "words").write_text(" ".join(f"word{n}" for n in range(4000)))
    finished = flownet("demo", "wordcount", "--input", "words", "--workers", "1", "--throttle", "2000")
    assert finished.returncode == 0, finished.stderr
    assert "4,000 words in" in finished.stdout
    seconds = float(finished.stdout.split("4,000 words in ")[1].split(" s")[0])
    assert seconds > 1, "4,000 results through a sink that takes 2,000 a second, with one second's worth at once"


@pytest.fixture
def line_server() -> Iterator[int]:
    """Serves some lines to the first who connects, then hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"to be or not to be\n" * 100)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


def test_demo_reads_a_live_source(flownet: Python, line_server: int) -> None:
    finished = flownet("demo", "wordcount", "--socket", f"127.0.0.1:{line_server}", "--workers", "1", "--top", "2")
    assert finished.returncode == 0, finished.stderr
    assert "600 words in" in finished.stdout
    assert "words: to " in finished.stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--socket", "nowhere"], "write HOST:PORT"),
        (["--socket", "a:1", "--check"], "cannot be combined"),
        (["--input", "nowhere"], "No such file or directory"),
        (["--throttle", "0"], "must be above 0"),
        (["--workers", "two"], "workers='two' must be a whole number"),
        (["--window", "5"], "size='5' is not a duration"),
    ],
)
def test_demo_refuses_what_makes_no_sense(flownet: Python, arguments: list[str], text: str) -> None:
    finished = flownet("demo", "wordcount", *arguments)
    assert finished.returncode == 1
    assert text in finished.stderr
    assert "Traceback" not in finished.stderr


def test_whoever_reads_the_output_may_go(tmp_path: Path) -> None:
    """As in ``flownet ... | head -2``."""
    (tmp_path / "squares.py").write_text(SQUARES)
    read, write = os.pipe()
    os.close(read)
    with open(write, "wb") as closed:
        command = [sys.executable, "-m", "flownet", "explain", "squares:env"]
        finished = subprocess.run(command, cwd=tmp_path, stdout=closed, stderr=subprocess.PIPE, text=True, check=False)
    assert (finished.returncode, finished.stderr) == (128 + signal.SIGPIPE, "")
