"""Where the workers of a job run, if not as processes of this machine: what ``Environment.execute(on=...)`` takes.

`flownet.spark` is one such host. Nothing else in the package knows any of them by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from .job import Lease


class Host(Protocol):
    """Gives jobs their workers."""

    @property
    def workers(self) -> int:
        """How many workers a job gets."""

    def lease(self, job_name: str, tls: str, inputs: Sequence[Any] = ()) -> Lease:
        """Get the workers for a job.

        Parameters
        ----------
        job_name
            Name of the job.
        tls
            Which connections between its processes are encrypted, as in the setting.
        inputs
            What its sources read from the host, such as a DataFrame of Spark.

        Raises
        ------
        ConfigError
            The host cannot bring the inputs.
        LaunchError
            They are not to be had: too few places, or they did not come in time.
        """
