"""Controls: the ways of controlling flow that scenarios compare, by the settings that choose them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from ..api.environment import Environment
from ..planning.graph import FlowControl
from .parts import RECORD_BYTES


@dataclass(frozen=True, slots=True)
class Control:
    """One way of controlling flow."""

    name: str
    """As on the command line."""
    flow_control: FlowControl
    """The setting of the engine."""
    how: str
    """How it works, in a line."""
    is_limited: bool = False
    """Whether sources are held to a rate that was chosen beforehand."""


CONTROLS: Final = {
    control.name: control
    for control in (
        Control(
            "credit", "credit", "each channel says how many buffers it has free; a sender spends one for each it sends"
        ),
        Control("tcp", "tcp", "no credit: a channel without a buffer stops the connection that others share"),
        Control("static", "drop", "the source is held to a rate chosen beforehand; what does not fit is dropped", True),
        Control("storm", "storm", "a monitor stops all sources while a queue is nearly full, as Storm 1.0 did"),
        Control("pid", "pid", "a controller sets the sources' rate once a second, as Spark Streaming did"),
        Control("drop", "drop", "none: what does not fit into the receive buffer is dropped"),
        Control("unbounded", "unbounded", "none: everything is kept, until memory reaches a limit and the run ends"),
    )
}
"""In the order in which they are run and shown."""

SEGMENT_BYTES: Final = 32 * 1024
EXCLUSIVE_BUFFERS: Final = 2
FLOATING_BUFFERS: Final = 8
SENDER_BUFFERS: Final = 10
"""Buffers that may wait in a channel's sender before its task stops."""
OVERDRAFT_BUFFERS: Final = 1
"""A record that was begun is finished; one of the laboratory's needs no more than one buffer for that."""
RECEIVE_BYTES: Final = (EXCLUSIVE_BUFFERS + FLOATING_BUFFERS) * SEGMENT_BYTES
"""What an input of one channel holds where nothing else is said."""
STATUS_INTERVAL: Final = "50ms"


def environment(
    control: str,
    *,
    receive_buffer: int = RECEIVE_BYTES,
    receive_limit: int,
    segment_size: int = SEGMENT_BYTES,
    **settings: Any,
) -> Environment:
    """Make an environment whose exchanges are under a control.

    Parameters
    ----------
    control
        Its name.
    receive_buffer
        Bytes that an input of one channel may hold, the same for every control.
    receive_limit
        Bytes at which a control without bound is stopped.
    segment_size
        Size of a buffer.
    **settings
        Others of `Environment`.
    """
    return Environment(
        flow_control=CONTROLS[control].flow_control,
        receive_buffer=receive_buffer,
        receive_limit=receive_limit,
        segment_size=segment_size,
        exclusive_buffers=EXCLUSIVE_BUFFERS,
        status_interval=STATUS_INTERVAL,
        **settings,
    )


def rate_limit(control: str, bytes_per_second: float) -> float | None:
    """Limit of the sources in records a second, if the control sets one; they go at ``bytes_per_second`` then."""
    return bytes_per_second / RECORD_BYTES if CONTROLS[control].is_limited else None


def pool_bound_bytes(control: str, exchanges: int = 1, receive_buffer: int = RECEIVE_BYTES) -> int | None:
    """Bytes that so many exchanges of one channel hold at most; None where the control sets no bound."""
    if control != "credit":
        return None
    return exchanges * (math.ceil(receive_buffer / SEGMENT_BYTES) + SENDER_BUFFERS + OVERDRAFT_BUFFERS) * SEGMENT_BYTES
