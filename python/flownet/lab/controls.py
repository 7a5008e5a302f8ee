"""Controls: the ways of controlling flow that scenarios compare, by the settings that choose them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ..environment import Environment


@dataclass(frozen=True, slots=True)
class Control:
    """One way of controlling flow."""

    name: str
    """As on the command line."""
    how: str
    """How it works, in a line."""


CONTROLS: Final = {
    control.name: control
    for control in (
        Control("credit", "each channel announces the buffers it has free; a sender spends one for each it sends"),
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


def environment(
    control: str,
    *,
    receive_buffer: int | None = None,
    receive_limit: int | None = None,
    segment_size: int = SEGMENT_BYTES,
    **settings: Any,
) -> Environment:
    """Make an environment whose exchanges are under a control.

    Parameters
    ----------
    control
        Its name.
    receive_buffer
        Bytes that an input of one channel may hold, the same for every control. None: the default of credit.
    receive_limit
        Bytes at which a control without bound is stopped.
    segment_size
        Size of a buffer.
    **settings
        Others of `Environment`.
    """
    floating = FLOATING_BUFFERS if receive_buffer is None else receive_buffer // segment_size - EXCLUSIVE_BUFFERS
    return Environment(
        segment_size=segment_size, exclusive_buffers=EXCLUSIVE_BUFFERS, floating_buffers=floating, **settings
    )


def pool_bound_bytes(control: str, exchanges: int = 1, receive_buffer: int | None = None) -> int | None:
    """Bytes that so many exchanges of one channel hold at most; None where the control sets no bound."""
    if control != "credit":
        return None
    receiver = EXCLUSIVE_BUFFERS + FLOATING_BUFFERS if receive_buffer is None else receive_buffer // SEGMENT_BYTES
    return exchanges * (receiver + SENDER_BUFFERS + OVERDRAFT_BUFFERS) * SEGMENT_BYTES
