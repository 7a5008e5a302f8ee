"""Protocol of hosts that provide workers, for ``Environment.execute(on=...)``.

`flownet.spark` is such a host. No other module of the package names a host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ..api.job import Lease


@dataclass(frozen=True)
class Frames:
    """Inputs and outputs that the host transfers to and from a job, such as Spark DataFrames."""

    inputs: Sequence[Any] = ()
    """Inputs of sources."""
    outputs: Sequence[Any] = ()
    """Outputs of sinks."""
    takes_checkpoints: bool = False
    """Whether the job would resume from checkpoints and not from its start."""

    def __bool__(self) -> bool:
        return bool(self.inputs or self.outputs)


class Host(Protocol):
    """A host, which provides the workers of jobs."""

    @property
    def workers(self) -> int:
        """Number of workers of a job."""

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
