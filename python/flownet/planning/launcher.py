"""Where the workers of a job run, if not as processes of this machine: what ``Environment.execute(on=...)`` takes.

`flownet.spark` is one such host. Nothing else in the package knows any of them by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ..api.job import Lease


@dataclass(frozen=True)
class Frames:
    """Rows that the host of the workers carries into a job and out of it, such as DataFrames of Spark."""

    inputs: Sequence[Any] = ()
    """What sources read."""
    outputs: Sequence[Any] = ()
    """What sinks fill."""
    takes_checkpoints: bool = False
    """Whether the job would go on from checkpoints, and not from its start."""

    def __bool__(self) -> bool:
        return bool(self.inputs or self.outputs)


class Host(Protocol):
    """Gives jobs their workers."""

    @property
    def workers(self) -> int:
        """How many workers a job gets."""

    def lease(self, job_name: str, tls: str, frames: Frames | None = None) -> Lease:
        """Get the workers for a job.

        Parameters
        ----------
        job_name
            Name of the job.
        tls
            Which connections between its processes are encrypted, as in the setting.
        frames
            Rows that the host carries into the job and out of it, if any.

        Raises
        ------
        ConfigError
            The host cannot carry these rows.
        LaunchError
            They are not to be had: too few places, or they did not come in time.
        """
