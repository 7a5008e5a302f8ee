"""Every way of controlling flow: what arrives, what is lost and counted, and what stops the job."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import pytest

import flownet as fn
from flownet.errors import ConfigError, ReceiveLimitError
from flownet.planning.graph import FlowControl

RECORDS = 20_000
TEXT = "x" * 200


def numbered(subtask: int, subtasks: int) -> list[tuple[int, str]]:
    """Give a subtask its share of the records."""
    return [(number, TEXT) for number in range(subtask, RECORDS, subtasks)]


def slow(record: tuple[int, str]) -> int:
    """Fall behind now and then."""
    if record[0] % 1000 == 0:
        time.sleep(0.02)
    return record[0]


def describe(env: fn.Environment) -> fn.streams.CollectedRecords[int]:
    """Send numbered records between workers to operators that fall behind."""
    source = env.from_iterable(numbered)
    return source.rebalance().map(slow).disable_chaining().collect()


@pytest.mark.parametrize("control", ["credit", "tcp", "storm", "pid", "unbounded"])
@pytest.mark.parametrize("segment_size", ["1KiB", "32KiB"])
def test_every_record_arrives_once(control: FlowControl, segment_size: str) -> None:
    env = fn.Environment(
        parallelism=2, flow_control=control, segment_size=segment_size, network_memory="2MiB", buffer_timeout="1ms"
    )
    numbers = describe(env)
    result = env.execute(workers=2)
    assert sorted(numbers) == list(range(RECORDS))
    assert sum(task.dropped_records for task in result.tasks) == 0


def test_what_is_dropped_and_what_is_delivered_is_what_was_sent() -> None:
    env = fn.Environment(parallelism=2, flow_control="drop", receive_buffer="20KB", segment_size="1KiB")
    sent = env.from_iterable(numbered).set_flow_control("drop").rebalance()
    seen = sent.map(slow).disable_chaining().set_flow_control("credit").collect()
    result = env.execute(workers=2)
    numbers = list(seen)
    (_, mapped, _) = result.tasks
    assert mapped.dropped_records > 0
    assert len(numbers) + mapped.dropped_records == RECORDS
    assert len(set(numbers)) == len(numbers)
    assert mapped.dropped_bytes > mapped.dropped_records * len(TEXT)
    assert f"dropped: {mapped.dropped_records:,} records" in str(result)


def crawl(record: tuple[int, str]) -> int:
    """Take a millisecond for each record."""
    time.sleep(0.001)
    return record[0]


def crawling(env: fn.Environment, records: int, rate_limit: int | None = None) -> fn.streams.CollectedRecords[int]:
    """Send records to a worker that takes a thousand a second."""
    source = env.from_iterable(
        lambda subtask, subtasks: ((number, TEXT) for number in range(records)), rate_limit=rate_limit
    )
    return source.place_on(1).map(crawl).place_on(2).collect()


def test_storm_stops_the_sources_while_a_queue_is_congested() -> None:
    env = fn.Environment(
        flow_control="storm", receive_buffer="100KB", segment_size="1KiB", status_interval="20ms", buffer_timeout="1ms"
    )
    numbers = crawling(env, 10_000_000, rate_limit=4000)
    queued: list[int] = []
    with env.execute_async(workers=2) as job:

        def is_held() -> bool:
            time.sleep(0.01)
            source, mapped, _ = job.sample().tasks
            queued.append(mapped.receive_bytes)
            return source.back_pressured > 0.5

        # Nothing else would hold the source: of what has come and waits, as much may be queued as there is.
        for held in (True, False, True, False):
            while is_held() != held:
                pass
        job.stop()
        job.wait()
    assert list(numbers) == list(range(len(numbers)))
    assert max(queued) > 50_000, "it was congested by then"


def test_pid_brings_the_source_to_the_rate_of_its_consumer() -> None:
    env = fn.Environment(flow_control="pid", status_interval="50ms", buffer_timeout="1ms")
    # At full speed a fast machine would reach what an input may queue before the first batch is through.
    crawling(env, 10_000_000, rate_limit=100_000)
    rates: list[float] = []
    with env.execute_async(workers=2) as job:
        while len(rates) < 40 or sum(rates[-20:]) / 20 > 3000:
            time.sleep(0.1)
            source, mapped, _ = job.sample().tasks
            rates.append(source.records_out_per_second)
            assert job.status().state != "failing"
    assert max(rates) > 5000, "before the first batch it goes as fast as it may"


def test_a_sample_tells_what_each_subtask_and_process_holds() -> None:
    env = fn.Environment(status_interval="20ms", buffer_timeout="1ms")
    crawling(env, 10_000_000)
    with env.execute_async(workers=2) as job:
        while True:
            sample = job.sample()
            source, mapped, _ = sample.tasks
            if mapped.receive_bytes and source.send_bytes and source.back_pressured:
                break
            time.sleep(0.01)
    assert (source.name, source.worker, mapped.worker) == ("from_iterable", 1, 2)
    assert mapped.receive_buffers * 32 * 1024 >= mapped.receive_bytes
    assert source.send_buffers * 32 * 1024 >= source.send_bytes
    assert 0 < mapped.pool_used <= mapped.pool_size
    assert 0 < mapped.in_pool_used <= mapped.in_pool_size < mapped.pool_size
    assert (source.in_pool_used, source.in_pool_size) == (0, 0)
    assert source.records_out >= mapped.records_in
    assert [worker.worker for worker in sample.workers] == [0, 1, 2]
    for worker in sample.workers[1:]:
        assert worker.resident_bytes is not None
        assert worker.resident_bytes > 1 << 20
        assert 0 < worker.segments_used < worker.segments == 2048


def an_iterable(env: fn.Environment) -> fn.Stream[tuple[int, str]]:
    """Make records one by one."""
    return env.from_iterable(lambda subtask, subtasks: ((number, TEXT) for number in itertools.count()))


def a_collection(env: fn.Environment) -> fn.Stream[tuple[int, str]]:
    """Bring records that are there."""
    return env.from_collection([(number, TEXT) for number in range(50_000)])


@pytest.mark.parametrize("source", [an_iterable, a_collection])
def test_a_source_uses_no_overdraft_for_records_that_it_has_not_begun(
    source: Callable[[fn.Environment], fn.Stream[tuple[int, str]]],
) -> None:
    env = fn.Environment(status_interval="20ms", buffer_timeout="1ms")
    source(env).place_on(1).map(crawl).place_on(2).collect()
    held: list[int] = []
    with env.execute_async(workers=2) as job:
        # A look may find the task as it takes the next one.
        while len(held) < 20 or max(held) < 10:
            time.sleep(0.02)
            sample = job.sample().tasks[0]
            if sample.back_pressured > 0.9:
                held.append(sample.send_buffers)
    # As many as may wait in one channel, of which the last is begun.
    assert max(held) == 10


def test_an_input_without_bound_stops_the_job_at_its_limit() -> None:
    env = fn.Environment(parallelism=1, flow_control="unbounded", receive_limit="100KB")

    env.from_iterable(numbered).place_on(1).map(crawl).place_on(2).collect()
    with pytest.raises(ReceiveLimitError) as caught:
        env.execute(workers=2)
    error = caught.value
    assert error.operator == "map"
    assert error.limit_bytes == 100_000
    assert error.queued_bytes is not None
    assert error.queued_bytes > error.limit_bytes
    assert "receive_limit is 100000" in str(error)


def test_explain_names_the_control_of_each_exchange() -> None:
    env = fn.Environment(parallelism=2, flow_control="unbounded")
    env.from_iterable(numbered).set_flow_control("tcp").key_by(lambda record: record[0]).map(slow).rebalance().print()
    lines = [line for line in env.explain(workers=2).splitlines() if line.startswith("   |")]
    assert [line.split(", ")[2] for line in lines] == ["tcp", "unbounded"]


def test_a_receive_buffer_takes_the_place_of_the_floating_buffers() -> None:
    def wanted(**settings: object) -> int:
        env = fn.Environment(**settings)  # type: ignore[arg-type]
        env.from_iterable(numbered).place_on(1).map(slow).place_on(2).rebalance().print()
        return int(env.explain(workers=2).splitlines()[-1].split("wants ")[1].split()[0])

    assert (wanted(), wanted(receive_buffer="5MB")) == (20, 163)


def test_a_long_link_is_lent_as_many_buffers_as_it_holds() -> None:
    env = fn.Environment(bandwidth_delay="1.25MB")
    env.from_iterable(numbered).place_on(1).map(slow).place_on(2).rebalance().print()
    *_, exchange, _, buffers = env.explain(workers=2).splitlines()
    assert "credit for 1221 KiB on the way" in exchange, env.explain(workers=2)
    # One channel: the link, two batches of credit, and what the channel keeps.
    assert f"wants {(39 + 16 + 2) * 2}" in buffers


@pytest.mark.parametrize("control", ["credits", "", None, 1])
def test_a_control_that_there_is_not_is_refused_with_those_that_there_are(control: object) -> None:
    with pytest.raises(ConfigError, match="flow_control=.* must be 'credit', 'tcp'") as caught:
        fn.Environment(flow_control=control)  # type: ignore[arg-type]
    assert caught.value.setting == "flow_control"


def test_controls_of_the_whole_job_are_refused_for_one_exchange() -> None:
    stream = fn.Environment().from_collection([1])
    with pytest.raises(ConfigError, match="whole job"):
        stream.set_flow_control("storm")
    with pytest.raises(ConfigError, match="'drop' or 'unbounded'"):
        stream.set_flow_control("none")  # type: ignore[arg-type]
