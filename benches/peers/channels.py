"""Many channels, as Flink's own benchmark of its network stack has them: what of it both run."""

from __future__ import annotations

from dataclasses import dataclass

from interface import Workload


@dataclass(frozen=True, slots=True)
class Channels:
    """Records of 8 bytes from writers to one reader, each writer by channels of its own."""

    workload: Workload
    writers: int
    channels: int
    """Of each writer."""
    timeout_ms: int
    partitioner: str
    """How records are dealt out, by the name that ``flownet bench exchange`` and ``FlinkNetworkPeer`` have for it."""
    records: int
    """That all writers of flownet emit: enough to run for seconds, as memory is touched for the first time once."""

    @property
    def smoke_records(self) -> int:
        """How many are emitted to see that it runs."""
        return max(self.records // 1000, self.writers * self.channels * 10)


ALL = (
    Channels(Workload.CHANNELS_100, 4, 100, 100, "rr", 500_000_000),
    Channels(Workload.CHANNELS_1000, 4, 1000, 100, "rr", 600_000_000),
    Channels(Workload.CHANNELS_1000_1MS, 4, 1000, 1, "rr", 600_000_000),
    Channels(Workload.SKEWED, 10, 1000, 1, "skewed", 500_000_000),
    Channels(Workload.BROADCAST, 4, 100, 100, "broadcast", 4_000_000),
)
