"""Calls that wait for others: against a real server, over TCP and HTTP, in an event loop of each subtask."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import random
import re
import socketserver
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import flownet as fn
from flownet import errors

if TYPE_CHECKING:
    from tests.python.conftest import Run

GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "call-services.md"
PACKAGE = str(Path(fn.__file__).parent)


class Slow(socketserver.StreamRequestHandler):
    """Answers ``GET /number/milliseconds`` with the double of the number, that many milliseconds later."""

    def handle(self) -> None:
        server = self.server
        assert isinstance(server, Server)
        _, path, _ = self.rfile.readline().split()
        while self.rfile.readline().strip():
            pass
        _, number, delay_ms = path.decode().split("/")
        with server.lock:
            server.now += 1
            server.most = max(server.most, server.now)
        time.sleep(int(delay_ms) / 1000)
        with server.lock:
            server.now -= 1
        body = str(2 * int(number)).encode()
        self.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 1000

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Slow)
        self.lock = threading.Lock()
        self.now = self.most = 0
        """Requests under way, and the most there were."""

    @property
    def port(self) -> int:
        port: int = self.server_address[1]
        return port


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


async def fetch(port: int, number: int, delay_ms: int) -> tuple[int, int]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /%d/%d HTTP/1.0\r\n\r\n" % (number, delay_ms))
    answer = await reader.read()
    writer.close()
    return number, int(answer.split(b"\r\n\r\n")[1])


@pytest.fixture
def env() -> fn.Environment:
    return fn.Environment(parallelism=1, buffer_timeout="5ms")


def call_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.endswith(" calls")]


@pytest.fixture(autouse=True)
def _leaves_no_thread() -> Iterator[None]:
    yield
    assert not call_threads()


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("chained", [True, False])
def test_records_are_enriched_by_a_server(
    env: fn.Environment, run: Run, server: Server, ordered: bool, chained: bool
) -> None:
    port = server.port

    async def look_up(number: int) -> tuple[int, int]:
        return await fetch(port, number, number % 7)

    doubled = env.from_collection(range(200)).map_async(look_up, capacity=20, ordered=ordered)
    after = doubled.map(lambda pair: (pair[0], pair[1] + 1))
    if not chained:
        doubled.start_new_chain()
        after.start_new_chain()
    got = run(after)
    assert sorted(got) == [(number, 2 * number + 1) for number in range(200)]
    if ordered:
        assert got == sorted(got)
    assert server.most <= 20


def test_capacity_is_what_may_be_under_way_in_a_subtask(env: fn.Environment, server: Server) -> None:
    port = server.port

    async def look_up(number: int) -> tuple[int, int]:
        return await fetch(port, number, 5)

    env.from_collection(range(100)).map_async(look_up, capacity=4).collect()
    env.execute()
    assert server.most <= 4
    assert server.most > 1


def test_calls_wait_together_and_not_one_after_the_other(env: fn.Environment) -> None:
    """A thousand calls of 10 ms, a hundred at a time, take some hundred milliseconds and not ten seconds."""

    async def wait(number: int) -> int:
        await asyncio.sleep(0.01)
        return number

    def seconds(capacity: int, records: int) -> float:
        env = fn.Environment()
        env.from_collection(range(records)).map_async(wait, capacity=capacity).collect()
        return env.execute().seconds

    assert seconds(100, 1000) < 10 * seconds(1, 100)


def test_who_is_faster_overtakes_where_order_is_not_kept(env: fn.Environment, run: Run) -> None:
    async def wait(number: int) -> int:
        await asyncio.sleep(0 if number else 0.2)
        return number

    stream = env.from_collection(range(50))
    unordered = run(stream.map_async(wait, ordered=False))
    assert unordered[-1] == 0
    assert sorted(unordered) == list(range(50))


def test_a_call_may_give_any_number_of_records(env: fn.Environment, run: Run) -> None:
    async def repeat(number: int) -> list[int]:
        await asyncio.sleep(0.001 * (5 - number))
        return [number] * number

    got = run(env.from_collection(range(5)).flat_map_async(repeat))
    assert got == [number for number in range(5) for _ in range(number)]


def test_what_makes_several_records_at_once_waits_for_room_in_the_middle(env: fn.Environment, run: Run) -> None:
    async def wait(number: int) -> int:
        await asyncio.sleep(0.001)
        return number

    stream = env.from_collection([0]).flat_map(lambda _: range(200)).map_async(wait, capacity=3)
    assert run(stream) == list(range(200))


def test_keyed_records_are_called_for_where_their_key_is(env: fn.Environment, run: Run) -> None:
    async def wait(pair: tuple[str, int]) -> tuple[str, int]:
        await asyncio.sleep(random.random() / 1000)
        return pair

    pairs = [(key, number) for number in range(30) for key in "abc"]
    got = run(env.from_collection(pairs).key_by(0).map_async(wait))
    for key in "abc":
        assert [pair for pair in got if pair[0] == key] == [(key, number) for number in range(30)]


def test_answers_that_come_while_the_task_waits_for_a_buffer_are_seen(env: fn.Environment) -> None:
    """Nobody rings a second time for them: at first each output has room for one record, so emitting waits."""

    async def wait(number: int) -> int:
        await asyncio.sleep(random.random() / 1000)
        return number

    for _ in range(20):
        env = fn.Environment()
        after = env.from_collection(range(90)).map_async(wait).start_new_chain().map(abs).start_new_chain().collect()
        env.execute()
        assert list(after) == list(range(90))


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("capacity", [1, 7])
def test_event_time_waits_for_the_records_before_it(
    env: fn.Environment, run: Run, ordered: bool, capacity: int
) -> None:
    """Windows behind calls of random length have all their records, and none is late."""

    class Punctuated(fn.WatermarkGenerator[int]):
        def on_event(self, value: Any, timestamp_ms: int, output: fn.WatermarkOutput) -> None:
            output.emit_watermark(timestamp_ms)

        def on_periodic_emit(self, output: fn.WatermarkOutput) -> None:
            pass

    async def wait(number: int) -> int:
        await asyncio.sleep(random.random() / 500)
        return number

    strategy = fn.WatermarkStrategy.for_generator(Punctuated).with_timestamp_assigner(lambda number: number)
    numbers = env.from_collection(range(300)).assign_timestamps_and_watermarks(strategy)
    called = numbers.map_async(wait, capacity=capacity, ordered=ordered)
    windows = run(called.key_by(lambda _: "all").window(fn.Tumbling("10ms")).count())
    assert windows == [("all", 10)] * 30


@pytest.mark.parametrize("ordered", [True, False])
def test_an_exception_names_operator_and_record_and_shows_the_frames_of_the_coroutine(
    env: fn.Environment, run: Run, ordered: bool
) -> None:
    async def inner(number: int) -> int:
        await asyncio.sleep(0.001)
        return 1 // number

    async def divide(number: int) -> int:
        return await inner(number)

    stream = env.from_collection([3, 2, 1, 0]).map_async(divide, ordered=ordered).name("divide")
    with pytest.raises(errors.OperatorError) as caught:
        run(stream)
    error = caught.value
    assert (error.operator, error.record, error.error_type) == ("divide", "0", "ZeroDivisionError")
    assert error.traceback is not None
    assert [line for line in error.traceback.splitlines() if ", in " in line and PACKAGE not in line]
    assert "in divide" in error.traceback
    assert "in inner" in error.traceback
    assert "asynchronous.py" not in error.traceback


def test_a_call_that_never_returns_ends_with_its_timeout(env: fn.Environment, run: Run) -> None:
    async def hang(number: int) -> int:
        if number == 7:
            await asyncio.Event().wait()
        return number

    stream = env.from_collection(range(20)).map_async(hang, timeout="200ms").name("hang")
    with pytest.raises(errors.CallTimeoutError, match=r"did not return within 0.2 s; raise its timeout") as caught:
        run(stream)
    assert (caught.value.operator, caught.value.record, caught.value.seconds) == ("hang", "7", 0.2)


def test_a_call_that_refuses_to_be_cancelled_keeps_nobody(env: fn.Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flownet.internal.asynchronous._CLOSE_SECONDS", 0.2)

    async def stubborn(number: int) -> int:
        while True:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                continue

    env.from_collection([1]).map_async(stubborn, timeout="100ms").collect()
    with pytest.raises(errors.CallTimeoutError):
        env.execute()


def test_a_job_is_cancelled_while_calls_wait_for_ever(env: fn.Environment, workers: int) -> None:
    begun = threading.Event()

    class Begun:
        def extend(self, records: list[int]) -> None:
            begun.set()

    async def hang(number: int) -> int:
        if number:
            await asyncio.Event().wait()
        return number

    env.from_collection(range(1000)).map_async(hang, capacity=5, timeout=None).collect(into=Begun())
    with env.execute_async(workers) as job:
        assert begun.wait(30)
        job.cancel()
        with pytest.raises(errors.CancelledError):
            job.wait()


@pytest.mark.parametrize("drain", [True, False])
def test_what_is_under_way_is_worked_off_when_the_job_is_stopped(
    env: fn.Environment, workers: int, drain: bool
) -> None:
    begun, pulled, seen = threading.Event(), [], list[int]()

    def numbers() -> Iterator[int]:
        for number in itertools.count():
            pulled.append(number)
            if number == 100:
                begun.set()
            yield number

    async def wait(number: int) -> int:
        await asyncio.sleep(0.01)
        return number

    env.from_iterable(numbers()).map_async(wait, capacity=10).collect(into=seen)
    with env.execute_async(workers) as job:
        assert begun.wait(30)
        job.stop(drain=drain)
        job.wait()
    assert seen == pulled[: len(seen)]
    assert len(pulled) - len(seen) <= 1, "one may have been pulled as the source ended"


class Session(fn.AsyncFunction[int, tuple[int, int]]):
    """Counts its calls in the loop in which it was opened."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    async def open(self, ctx: fn.TaskContext) -> None:
        await asyncio.sleep(0.05)
        self.place = (ctx.operator, ctx.subtask, ctx.parallelism)
        self.loop = asyncio.get_running_loop()
        self.calls = 0
        self.lock = asyncio.Lock()

    async def call(self, value: int) -> tuple[int, int]:
        assert asyncio.get_running_loop() is self.loop
        async with self.lock:
            self.calls += 1
        await asyncio.sleep(0.001)
        return value, self.calls

    async def close(self) -> None:
        assert asyncio.get_running_loop() is self.loop
        await asyncio.sleep(0.001)
        (Path(self.folder) / f"{self.place[1]} of {self.place[2]}").write_text(str(self.calls))


def test_an_object_lives_in_one_loop_from_open_to_close(env: fn.Environment, run: Run, tmp_path: Path) -> None:
    got = run(env.from_iterable(range(40)).rebalance().map_async(Session(str(tmp_path))).set_parallelism(2))
    assert sorted(value for value, _ in got) == list(range(40))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"0 of 2": "20", "1 of 2": "20"}


class Broken(fn.AsyncFunction[int, int]):
    def __init__(self, hook: str) -> None:
        self.hook = hook

    async def open(self, ctx: fn.TaskContext) -> None:
        if self.hook == "open":
            raise OSError("no server")

    async def call(self, value: int) -> int:
        if self.hook == "loop":
            raise SystemExit("enough")
        return value

    async def close(self) -> None:
        if self.hook == "close":
            raise OSError("not flushed")


@pytest.mark.parametrize(
    ("hook", "error_type", "message"),
    [("open", "OSError", "no server"), ("close", "OSError", "not flushed"), ("loop", "SystemExit", "enough")],
)
def test_what_a_hook_raises_fails_the_job(
    env: fn.Environment, run: Run, hook: str, error_type: str, message: str
) -> None:
    with pytest.raises(errors.OperatorError, match=message) as caught:
        run(env.from_collection([1]).map_async(Broken(hook)).name("session"))
    assert (caught.value.operator, caught.value.error_type) == ("session", error_type)


def test_a_plain_function_is_told_from_a_coroutine_function(env: fn.Environment, run: Run) -> None:
    with pytest.raises(errors.OperatorError, match="which cannot be awaited: map_async"):
        run(env.from_collection([1]).map_async(str))  # type: ignore[arg-type]


def test_a_coroutine_function_with_other_arguments_is_told_what_it_is_called_with(
    env: fn.Environment, run: Run
) -> None:
    async def two(one: int, other: int) -> int:
        return one + other

    with pytest.raises(errors.OperatorError, match="it is called with one record") as caught:
        run(env.from_collection([1]).map_async(two))  # type: ignore[arg-type]
    assert caught.value.record == "1"


async def same(number: int) -> int:
    return number


async def generate(number: int) -> Any:
    yield number


class NotAsync(fn.AsyncFunction[int, int]):
    def call(self, value: int) -> int:  # type: ignore[override]
        return value


@pytest.mark.parametrize(
    ("function", "settings", "message"),
    [
        (3, {}, "needs a coroutine function"),
        (Session, {}, "the class Session: make an instance"),
        (NotAsync(), {}, "NotAsync.call must be async"),
        (generate, {}, "got an async generator"),
        (same, {"capacity": 0}, "capacity"),
        (same, {"timeout": "0s"}, "no call returns at once"),
        (same, {"timeout": 5}, "needs a unit"),
    ],
)
def test_mistakes_are_told_when_the_dataflow_is_described(
    env: fn.Environment, function: Any, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises((errors.PlanError, errors.ConfigError), match=message):
        env.from_collection([1]).map_async(function, **settings)


def test_waiting_for_calls_is_idle_and_named_as_the_bottleneck(env: fn.Environment, workers: int) -> None:
    async def wait(number: int) -> int:
        await asyncio.sleep(0.02)
        return number

    numbers = env.from_iterable(range(100)).rebalance()
    numbers.map_async(wait, capacity=1).name("enrich").start_new_chain().collect()
    result = env.execute(workers)
    (enrich,) = [task for task in result.tasks if task.name.startswith("enrich")]
    assert enrich.awaiting > 0.5
    assert enrich.idle >= enrich.awaiting
    assert result.bottleneck is not None
    assert result.bottleneck.startswith("enrich")
    assert "waiting for calls of its functions: a greater capacity" in result.bottleneck


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL))
def test_the_examples_of_the_guide_give_what_they_say(block: str, capsys: pytest.CaptureFixture[str]) -> None:
    (said,) = re.findall(r"^print.*# (.*)$", block.strip(), re.MULTILINE)
    exec(block, {})
    assert capsys.readouterr().out.strip() == said


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_call_that_ends_the_event_loop_leaves_no_descriptor_open(error: type[BaseException]) -> None:
    async def fail(record: int) -> int:
        raise error()

    def run_and_count() -> int:
        env = fn.Environment()
        env.from_collection([1]).map_async(fail).collect()
        with pytest.raises(errors.OperatorError, match=error.__name__):
            env.execute()
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    run_and_count()
    assert max(run_and_count() for _ in range(20)) <= min(run_and_count() for _ in range(3)) + 1
