"""Test dataflows and functions deterministically and without waiting.

`Harness` feeds one function or windowed operation with records, watermarks and time. You can read its output and state.
`RowsHarness` does the same for operators of rows. `Environment.from_script` is a source for tests of whole jobs. It
emits the records, watermarks and idleness of a script.

>>> import flownet as fn
>>> from flownet import testing
>>> with testing.Harness(lambda words: words.key_by(str).window(fn.Tumbling("10s")).count()) as harness:
...     harness.send("to", 1_000), harness.send("be", 2_000), harness.send("to", 9_000)
...     harness.watermark(9_999)
([], [], [])
[('to', 2), ('be', 1)]
"""

from .harness import Harness, OpenWindow, PendingTimer
from .harness_base import EmittedRecord, HarnessState
from .rows import RowsHarness
from .script import Active, Idle, Record, Step, Watermark

__all__ = [
    "Active",
    "EmittedRecord",
    "Harness",
    "HarnessState",
    "Idle",
    "OpenWindow",
    "PendingTimer",
    "Record",
    "RowsHarness",
    "Step",
    "Watermark",
]
