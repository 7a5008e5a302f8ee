"""Checkpoints that overtake queued records do not wait for slow functions, and lose and double nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import flownet as fn
from flownet import errors

from .failures import manifests, run_until

RECORDS = 30_000


@dataclass
class Row:
    """Of a class that a reader has to know before the records that were on their way."""

    key: int
    at: int


def rows(position: Any) -> Iterator[tuple[int, Row]]:
    for number in range(position or 0, RECORDS):
        yield number + 1, Row(number % 50, 1_000 + number)


def at(row: Row) -> int:
    return row.at


def key(row: Row) -> int:
    return row.key


def slowly(row: Row) -> Row:
    """So slow that what is queued before it takes a minute."""
    time.sleep(0.01)
    return row


def quickly(row: Row) -> Row:
    return row


def steadily(row: Row) -> Row:
    """So slow that the job takes a second, and no queue lasts for long."""
    time.sleep(0.00005)
    return row


class Told(fn.ProcessWindowFunction[int, Row, str]):
    """Tells which rows of a key were in each second."""

    def process(self, key: int, ctx: fn.WindowContext, values: list[Row]) -> list[str]:
        return [f"{key} {ctx.window.start_ms} {len(values)} {sum(value.at for value in values)}"]


def job(
    folder: Path,
    *,
    slow: bool = False,
    each: Callable[[Row], Row] = quickly,
    parallelism: int = 2,
    spread: Callable[[fn.Stream[Row]], fn.Stream[Row]] = fn.Stream.rebalance,
    **checkpointing: Any,
) -> fn.Environment:
    env = fn.Environment(parallelism=parallelism, max_parallelism=16, buffer_timeout="5ms", stop_timeout="5min")
    how = {} if "aligned_timeout" in checkpointing else {"unaligned": True}
    checkpointing = {"storage": folder / "kept", **how, **checkpointing}
    env.enable_checkpointing("50ms", **checkpointing)
    strategy: Any = fn.WatermarkStrategy.for_bounded_out_of_orderness("100ms").with_timestamp_assigner(at)
    timed = env.from_generator(rows).uid("rows").assign_timestamps_and_watermarks(strategy)
    passed = spread(timed).map(slowly if slow else each)
    told = passed.key_by(key).window(fn.Tumbling("1s")).process(Told()).uid("told")
    told.write_text(folder / "out").uid("written")
    return env


class Seconds(fn.KeyedProcessFunction[int, Row, str]):
    """The same, by timers, with a slow function."""

    def __init__(self, slow: bool) -> None:
        self.slow = slow

    def open(self, ctx: fn.OpenContext) -> None:
        self.rows = ctx.get_map_state(fn.MapStateDescriptor("rows"))

    def process(self, value: Row, ctx: fn.ProcessContext[int]) -> None:
        if self.slow:
            time.sleep(0.01)
        second = value.at // 1000
        self.rows[second] = [*self.rows.get(second, []), value.at]
        ctx.timer_service().register_event_time_timer(second * 1000 + 999)

    def on_timer(self, timestamp_ms: int, ctx: fn.ProcessContext[int]) -> list[str]:
        ats = self.rows.pop(timestamp_ms // 1000)
        assert ats == sorted(ats), "records of a key come in their order"
        return [f"{ctx.key} {timestamp_ms // 1000 * 1000} {len(ats)} {sum(ats)}"]


def keyed_job(folder: Path, *, slow: bool, parallelism: int) -> fn.Environment:
    env = fn.Environment(parallelism=parallelism, max_parallelism=16, buffer_timeout="5ms", stop_timeout="5min")
    env.enable_checkpointing("50ms", storage=folder / "kept", unaligned=True)
    strategy: Any = fn.WatermarkStrategy.for_bounded_out_of_orderness("100ms").with_timestamp_assigner(at)
    timed = env.from_generator(rows).uid("rows").assign_timestamps_and_watermarks(strategy)
    timed.key_by(key).process(Seconds(slow)).uid("told").write_text(folder / "out").uid("written")
    return env


def expected() -> list[str]:
    found: dict[tuple[int, int], list[int]] = {}
    for _, row in rows(None):
        found.setdefault((row.key, row.at // 1000 * 1000), []).append(row.at)
    return sorted(f"{key} {start} {len(ats)} {sum(ats)}" for (key, start), ats in found.items())


def lines(folder: Path) -> list[str]:
    return sorted(line for file in (folder / "out").glob("*.txt") for line in file.read_text().splitlines())


@pytest.mark.parametrize("workers", [0, 2])
def test_a_job_goes_on_from_what_was_queued_before_a_slow_function(workers: int, tmp_path: Path) -> None:
    for checkpoints in (3, 1, 2):
        run_until(job(tmp_path, slow=True), workers, checkpoints)
    result = job(tmp_path, slow=False).execute(workers)
    assert result.resumed_from is not None
    assert lines(tmp_path) == expected()


def has_in_flight(folder: Path) -> bool:
    """Say whether one of the checkpoints that are kept has overtaken records."""
    return any(b"in_flight." in manifest for manifest in manifests(folder / "kept"))


def test_markers_of_latency_are_no_part_of_what_was_queued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOWNET_LATENCY_INTERVAL", "1ms")
    for checkpoints in (3, 1):
        run_until(job(tmp_path, slow=True), 2, checkpoints, holds=lambda: has_in_flight(tmp_path))
    result = job(tmp_path, slow=False).execute(2)
    assert result.resumed_from is not None
    assert all(task.latency_max_seconds is not None for task in result.tasks[1:])
    assert lines(tmp_path) == expected()


def test_a_checkpoint_that_waits_too_long_overtakes_and_one_in_time_holds_nothing(tmp_path: Path) -> None:
    run_until(job(tmp_path, slow=True, aligned_timeout="20ms"), 2, 2, holds=lambda: has_in_flight(tmp_path))
    job(tmp_path, slow=False, aligned_timeout=0).execute(2)
    assert lines(tmp_path) == expected()

    in_time = tmp_path / "in_time"
    in_time.mkdir()
    result = job(in_time, each=steadily, aligned_timeout="9min", retained=1000).execute(0)
    assert result.checkpoints_made > 1
    assert not has_in_flight(in_time)
    assert lines(in_time) == expected()


@pytest.mark.parametrize("shapes", [[2, 3, 3], [3, 1, 2], [4, 2, 5]], ids=str)
def test_records_on_their_way_by_key_go_on_with_another_parallelism(shapes: list[int], tmp_path: Path) -> None:
    for parallelism in shapes:
        env = keyed_job(tmp_path, slow=True, parallelism=parallelism)
        run_until(env, parallelism % 3, 2, holds=lambda: has_in_flight(tmp_path))
        assert has_in_flight(tmp_path)
    result = keyed_job(tmp_path, slow=False, parallelism=2).execute(2)
    assert result.resumed_from is not None
    assert lines(tmp_path) == expected()


SPREADS: dict[str, Callable[[fn.Stream[Row]], fn.Stream[Row]]] = {
    "rebalance": fn.Stream.rebalance,
    "rescale": fn.Stream.rescale,
    "forward": lambda stream: stream.rebalance().filter(lambda row: True).disable_chaining().forward(),
}


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("shapes", [[2, 3, 3], [3, 1, 2], [4, 2, 5]], ids=str)
def test_records_on_their_way_without_a_key_go_on_with_another_parallelism(
    shapes: list[int], spread: str, tmp_path: Path
) -> None:
    for parallelism in shapes:
        env = job(tmp_path, slow=True, parallelism=parallelism, spread=SPREADS[spread])
        run_until(env, parallelism % 3, 2, holds=lambda: has_in_flight(tmp_path))
        assert has_in_flight(tmp_path)
    result = job(tmp_path, slow=False, parallelism=2, spread=SPREADS[spread]).execute(2)
    assert result.resumed_from is not None
    assert lines(tmp_path) == expected()


def large(position: Any) -> Iterator[tuple[int, str]]:
    for number in range(position or 0, 300):
        yield number + 1, f"{number} " + "x" * (1_000 + number % 8 * 9_000)


def test_records_larger_than_a_buffer_are_whole_where_others_take_them(tmp_path: Path) -> None:
    def job(parallelism: int, each: Callable[[str], str]) -> fn.Environment:
        env = fn.Environment(parallelism=parallelism, max_parallelism=16, segment_size="4KiB", stop_timeout="5min")
        env.enable_checkpointing("50ms", storage=tmp_path / "kept", unaligned=True)
        texts = env.from_generator(large).uid("texts").rebalance().map(each).key_by(lambda text: text[:1])
        texts.map(each).map(lambda text: f"{text.split()[0]} {len(text)}").write_text(tmp_path / "out").uid("written")
        return env

    def slowly(text: str) -> str:
        time.sleep(0.02)
        return text

    for parallelism in (2, 3, 1, 4):
        run_until(job(parallelism, slowly), parallelism % 3, 2, holds=lambda: has_in_flight(tmp_path))
        assert has_in_flight(tmp_path)
    job(3, lambda text: text).execute(2)
    assert lines(tmp_path) == sorted(f"{text.split()[0]} {len(text)}" for _, text in large(None))


def test_what_a_user_directed_goes_on_by_the_ways_it_was_on(tmp_path: Path) -> None:
    def spread(stream: fn.Stream[Row]) -> fn.Stream[Row]:
        return stream.partition_custom(lambda number, subtasks: number % subtasks, key)

    run_until(job(tmp_path, slow=True, spread=spread), 0, 1, holds=lambda: has_in_flight(tmp_path))
    with pytest.raises(errors.RestoreError, match="records were on their way to .*take a savepoint") as refused:
        job(tmp_path, slow=False, parallelism=3, spread=spread).execute(0)
    assert refused.value.operators
    # Nothing is on its way in a savepoint.
    with job(tmp_path, slow=False, spread=spread).execute_async(0) as running:
        running.stop(drain=False, savepoint=tmp_path / "saved")
        running.wait()
    again: dict[str, Any] = {"storage": tmp_path / "again", "restore_from": tmp_path / "saved"}
    job(tmp_path, slow=False, parallelism=3, spread=spread, **again).execute(0)
    assert lines(tmp_path) == expected()


def test_barriers_that_overtake_make_no_sense_where_nobody_waits(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match="checkpoint_unaligned is set, and checkpoint_mode is at_least_once"):
        job(tmp_path, slow=False, mode="at_least_once")
    with pytest.raises(errors.ConfigError, match="checkpoint_aligned_timeout is set, and checkpoint_mode is at_least"):
        job(tmp_path, slow=False, mode="at_least_once", aligned_timeout="1s")


def test_a_checkpoint_overtakes_before_it_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match=r"checkpoint_aligned_timeout is 2s, it must be less than .* \(2s\)"):
        job(tmp_path, slow=False, aligned_timeout="2s", timeout="2s")
    with pytest.raises(errors.ConfigError, match="aligned_timeout"):
        job(tmp_path, slow=False, aligned_timeout="soon")


def rules(position: Any) -> Iterator[tuple[int, int]]:
    if position is None:
        # By then all subtasks have rows to work on.
        time.sleep(0.3)
    for number in range(position or 0, 20):
        yield number + 1, number


class Heard(fn.KeyedBroadcastProcessFunction[int, Row, int, str]):
    """Tells how often the subtask has heard the same rule; one is busy with rows for long before it hears of any."""

    def __init__(self, slow: bool) -> None:
        self.slow = slow

    def open(self, ctx: fn.OpenContext) -> None:
        self.slow = self.slow and ctx.subtask == 0

    def process(self, value: Row, ctx: fn.ProcessContext[int]) -> list[str]:
        if self.slow:
            time.sleep(0.01)
        return [str(max(ctx.broadcast_state.values(), default=0))]

    def process_broadcast(self, value: int, ctx: fn.ProcessContext[int]) -> None:
        ctx.broadcast_state[value] = ctx.broadcast_state.get(value, 0) + 1


def test_who_has_heard_nothing_yet_hears_what_is_on_its_way_once(tmp_path: Path) -> None:
    def job(*, slow: bool) -> fn.Environment:
        env = fn.Environment(parallelism=2, buffer_timeout="5ms")
        env.enable_checkpointing("50ms", storage=tmp_path / "kept", unaligned=True)
        known = env.from_generator(rules).uid("rules").broadcast()
        heard = env.from_generator(rows).uid("rows").key_by(key).connect(known).process(Heard(slow)).uid("heard")
        heard.write_text(tmp_path / "out").uid("written")
        return env

    for checkpoints in (2, 4, 4):
        run_until(job(slow=True), 2, checkpoints)
    assert has_in_flight(tmp_path)
    job(slow=False).execute(2)
    told = lines(tmp_path)
    assert len(told) == RECORDS
    assert "1" in told
    assert set(told) <= {"0", "1"}
