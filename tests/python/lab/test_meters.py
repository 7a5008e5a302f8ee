from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

from flownet.lab.meters import Count, Meters
from flownet.lab.parts import destination, to_destination
from flownet.lab.skew import HotRoute


def test_what_another_process_counts_is_read_here(tmp_path: Path) -> None:
    meters = Meters.create(str(tmp_path / "meters"), {"a": 1, "b": 3})
    assert meters.of("b").clock() < 0
    meters.start()
    script = (
        "import pickle, sys; meters = pickle.loads(bytes.fromhex(sys.argv[1]))\n"
        "for subtask in range(3):\n"
        "    meter = meters.of('b', subtask); meter.open(); meter.take(10 * subtask); meter.give(1)\n"
        "assert 0 <= meter.clock() < 60"
    )
    subprocess.run([sys.executable, "-c", script, pickle.dumps(meters).hex()], check=True, timeout=30)
    assert meters.read() == {"a": Count(), "b": Count(30, 3)}
    assert len(meters.pids("b")) == 1
    assert os.getpid() not in meters.pids("b")
    assert meters.pids("a") == set()
    meters.close()


def test_a_route_gives_the_hot_channel_its_share_and_the_others_the_rest_in_turn() -> None:
    route = HotRoute(channels=5, share=0.5)
    records = [route(0, number) for number in range(80)]
    assert [records.count(channel) for channel in range(5)] == [40, 10, 10, 10, 10]
    assert max(records[at : at + 4].count(0) for at in range(76)) == 2


def test_a_record_says_where_it_goes() -> None:
    record = (513).to_bytes(2, "big") + bytes(10)
    assert destination(record) == to_destination(record, 1000) == 513
