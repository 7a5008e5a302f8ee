from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import flownet as fn

if TYPE_CHECKING:
    from tests.python.conftest import Run


class Running(fn.KeyedProcessFunction[str, int, tuple[str, int]]):
    def process(self, value: int, ctx: fn.ProcessContext[str]) -> Iterator[tuple[str, int]]:
        ctx.state["sum"] = ctx.state.get("sum", 0) + value
        yield ctx.key, ctx.state["sum"]


class AtTheEnd(fn.KeyedProcessFunction[str, int, tuple[str, int]]):
    """Sets a timer that only the end of the input can fire."""

    def process(self, value: int, ctx: fn.ProcessContext[str]) -> None:
        ctx.state["count"] = ctx.state.get("count", 0) + 1
        ctx.set_timer(ctx.now_ms() // 3_600_000 * 3_600_000 + 48 * 3_600_000)

    def on_timer(self, timestamp_ms: int, ctx: fn.ProcessContext[str]) -> list[tuple[str, int]]:
        return [(ctx.key, ctx.state["count"])]


class Soon(fn.KeyedProcessFunction[str, str, str]):
    def process(self, value: str, ctx: fn.ProcessContext[str]) -> None:
        if value == "forget":
            ctx.delete_timer(ctx.state["at"])
        else:
            ctx.state["at"] = ctx.now_ms() + 1
            ctx.set_timer(ctx.state["at"])

    def on_timer(self, timestamp_ms: int, ctx: fn.ProcessContext[str]) -> list[str]:
        assert ctx.now_ms() >= timestamp_ms
        return [ctx.key]


def keyed(env: fn.Environment) -> fn.KeyedStream[str, int]:
    return env.from_collection([1, 2, 3, 4]).key_by(lambda n: "odd" if n % 2 else "even")


def test_state_belongs_to_the_key(env: fn.Environment, run: Run) -> None:
    assert sorted(run(keyed(env).process(Running()))) == [("even", 2), ("even", 6), ("odd", 1), ("odd", 4)]


def test_timers_that_are_pending_at_the_end_fire_once_a_key(env: fn.Environment, run: Run) -> None:
    assert sorted(run(keyed(env).process(AtTheEnd()))) == [("even", 2), ("odd", 2)]


def test_a_timer_fires_while_the_source_is_silent(env: fn.Environment, workers: int) -> None:
    fired = threading.Event()

    class Fired:
        def extend(self, records: list[str]) -> None:
            assert records == ["key"]
            fired.set()

    def words() -> Iterator[str]:
        yield "word"
        assert fired.wait(30), "the timer did not fire before the source went on"

    env.from_iterable(words()).key_by(lambda _: "key").process(Soon()).collect(into=Fired())
    env.execute(workers)
    assert fired.is_set()


def test_a_deleted_timer_does_not_fire(env: fn.Environment, run: Run) -> None:
    class Forgets(fn.KeyedProcessFunction[int, int, int]):
        def process(self, value: int, ctx: fn.ProcessContext[int]) -> None:
            ctx.set_timer(2**53)
            ctx.delete_timer(2**53)
            ctx.delete_timer(5)

        def on_timer(self, timestamp_ms: int, ctx: fn.ProcessContext[int]) -> list[int]:
            return [timestamp_ms]

    assert run(env.from_collection([1]).key_by(lambda n: n).process(Forgets())) == []


def test_open_and_close_frame_the_records_of_each_subtask(env: fn.Environment, workers: int, tmp_path: Path) -> None:
    class Logs(fn.KeyedProcessFunction[int, int, int]):
        def __init__(self, folder: str) -> None:
            self.folder = folder

        def open(self, ctx: fn.TaskContext) -> None:
            self.path = os.path.join(self.folder, f"{ctx.operator}-{ctx.subtask}-of-{ctx.parallelism}")
            self.log("open")

        def process(self, value: int, ctx: fn.ProcessContext[int]) -> None:
            self.log("record")

        def close(self) -> None:
            self.log("close")

        def log(self, line: str) -> None:
            with open(self.path, "a") as file:
                file.write(f"{line}\n")

    env.from_collection(range(20)).key_by(lambda n: n).process(Logs(str(tmp_path))).name("logs")
    env.execute(workers)
    logs = {path.name: path.read_text().split() for path in tmp_path.iterdir()}
    assert sorted(logs) == ["logs-0-of-2", "logs-1-of-2"]
    for log in logs.values():
        assert (log[0], log[-1], log.count("open"), log.count("close")) == ("open", "close", 1, 1)
    assert sum(log.count("record") for log in logs.values()) == 20


def test_process_wants_an_instance(env: fn.Environment) -> None:
    with pytest.raises(fn.errors.PlanError, match="not the class Running: make an instance of it"):
        keyed(env).process(Running)  # type: ignore[arg-type]


def test_a_function_without_process_says_so(env: fn.Environment, run: Run) -> None:
    with pytest.raises(fn.errors.OperatorError, match=r"KeyedProcessFunction must define process\(value, ctx\)"):
        run(keyed(env).process(fn.KeyedProcessFunction()))
