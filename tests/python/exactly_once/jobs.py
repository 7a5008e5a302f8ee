"""Jobs that are killed: each reads files and writes files, and is run by ``flownet run`` again and again."""

from __future__ import annotations

import os
from typing import Any

import flownet as fn

INPUT, OUTPUT, RATE = (os.environ.get(f"CHAOS_{name}", "") for name in ("INPUT", "OUTPUT", "RATE"))


def _env() -> fn.Environment:
    return fn.Environment(parallelism=2, buffer_timeout="5ms", restart="fixed:10000:20ms", heartbeat_timeout="30s")


def running_counts() -> fn.Environment:
    """Every word with how often it has come so far: each number once."""
    env = _env()
    words = env.read_text(INPUT, rate_limit=RATE or None).map(lambda line: line.split()[1])
    words.key_by(lambda word: word).count().map(lambda pair: f"{pair[0]} {pair[1]}").write_text(OUTPUT)
    return env


class _Counted(fn.ProcessWindowFunction[str, str, str]):
    def process(self, key: str, ctx: fn.WindowContext, values: list[str]) -> list[str]:
        return [f"{key} {ctx.window.start_ms} {len(values)}"]


def windowed_counts() -> fn.Environment:
    """How often each word came in each second of event time."""
    env = _env()
    strategy: Any = fn.WatermarkStrategy.for_bounded_out_of_orderness("2s")
    lines = env.read_text(INPUT, rate_limit=RATE or None).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(lambda line: int(line.split()[0]))
    )
    windows = lines.key_by(lambda line: line.split()[1]).window(fn.Tumbling("1s"))
    windows.process(_Counted()).write_text(OUTPUT)
    return env
