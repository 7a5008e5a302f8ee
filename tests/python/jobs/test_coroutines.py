"""Jobs beside other coroutines, and in a notebook."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator

import pytest

import flownet as fn
from flownet import errors


def endless() -> fn.Environment:
    env = fn.Environment(name="<b>endless</b>")
    env.from_iterable(itertools.count(), rate_limit=1000).filter(lambda _: False).collect()
    return env


def test_jobs_are_awaited_beside_each_other(workers: int) -> None:
    async def both() -> list[fn.observation.JobResult]:
        jobs = []
        for count in (10, 20):
            env = fn.Environment()
            env.from_collection(range(count)).collect()
            jobs.append(env.execute_async(workers))
        return [await job for job in jobs]

    assert [result.records for result in asyncio.run(both())] == [10, 20]


def test_other_coroutines_go_on_meanwhile() -> None:
    gone_on = threading.Event()

    def one() -> Iterator[int]:
        gone_on.wait()
        yield 1

    async def turns() -> fn.observation.JobResult:
        env = fn.Environment()
        # Were it nobody else's turn while the job is awaited, neither would come to its end.
        env.from_iterable(one()).collect()
        job = asyncio.ensure_future(ended(env))
        for _ in range(10):
            await asyncio.sleep(0.01)
            assert not job.done()
        gone_on.set()
        return await job

    async def ended(env: fn.Environment) -> fn.observation.JobResult:
        return await env.execute_async()

    assert asyncio.run(turns()).records == 1


def test_what_ends_a_job_is_raised_and_nothing_of_it_is_left(workers: int) -> None:
    async def fail() -> None:
        env = fn.Environment()
        env.from_collection([1, 0]).map(lambda number: 1 // number).name("divide").collect()
        await env.execute_async(workers)

    with pytest.raises(errors.OperatorError, match="divide"):
        asyncio.run(fail())


def test_a_job_goes_on_when_its_waiting_is_cancelled() -> None:
    async def give_up(job: fn.Job) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(waited(job), 0.2)

    async def waited(job: fn.Job) -> fn.observation.JobResult:
        return await job

    with endless().execute_async() as job:
        asyncio.run(give_up(job))
        assert job.status().state == "running"
        job.stop()
        assert asyncio.run(waited(job)).records > 0


def test_in_a_notebook_a_job_is_a_table_that_names_cannot_break_and_leads_to_its_page() -> None:
    with fn.serve_ui(0) as ui, endless().execute_async(ui=ui) as job:
        shown = job._repr_html_()
        assert "&lt;b&gt;endless&lt;/b&gt;" in shown
        assert "<b>endless" not in shown
        assert f'<a href="{job.ui_url}">' in shown
        assert "<table>" in shown
    with endless().execute_async() as job:
        assert "<a " not in job._repr_html_()
