"""The peers that each worker in Spark dials before any job, to find ports that are closed."""

from __future__ import annotations

import math

import pytest


@pytest.mark.parametrize("workers", [1, 2, 3, 8, 80, 400, 1024])
def test_each_worker_dials_few_and_is_dialed_by_as_many(workers: int) -> None:
    from flownet.spark.member import peers_to_dial

    dialed = {worker: peers_to_dial(worker, workers) for worker in range(1, workers + 1)}
    most = math.ceil(math.log2(workers))
    assert all(len(set(peers)) == len(peers) == most and worker not in peers for worker, peers in dialed.items())
    times = [sum(worker in peers for peers in dialed.values()) for worker in dialed]
    assert set(times) == {most}
