"""Under each scenario the sentence that a job tells of its bottleneck names who was slowed."""

from __future__ import annotations

import time

import pytest

from flownet.api.job import Job
from flownet.lab.scenarios import SCENARIOS
from flownet.lab.settings import with_settings
from flownet.lab.trace import Trace
from flownet.observation import JobSample

from .conftest import SHORT

SLOWED = {
    "overflow": "consumer",
    "head-of-line": "B",
    "propagation": "sink",
    "varying": "consumer",
    "skew": "consumers",
}
"""Who is slow, as long as the sources go on. ``buffer-timeout`` slows nobody."""


@pytest.mark.parametrize("name", SLOWED)
def test_the_sentence_names_who_was_slowed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[float, str | None]] = []
    sample = Job.sample

    def sampled(job: Job) -> JobSample:
        told.append((time.monotonic(), job.status().bottleneck))
        return sample(job)

    # The laboratory samples its jobs from time zero on.
    monkeypatch.setattr(Job, "sample", sampled)
    scenario = with_settings(SCENARIOS[name](), SHORT[name])
    trace = Trace(name, "credit")
    scenario.run(trace)
    zero, _ = told[0]
    # Before it is slow the job goes at the pace of its source, and when that has ended nobody is slow any more.
    named = [sentence for at, sentence in told if sentence is not None and at - zero <= trace.until]
    assert named, "nobody was named"
    assert named[-1].startswith((f"{SLOWED[name]} (", f"{SLOWED[name]} -> ")), named
