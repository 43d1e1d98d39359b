"""The machine: nodes of ics19's table 1, as the simulator has them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ebbtide.errors import InvalidArgument
from ebbtide.models.efficiency import Levels, ics19
from ebbtide.sim import Link, Machine, Tier

CPUS = 2  # of a node
_NETWORK = 100e9  # bytes a second of a node; the file system is the limit
_PIECES = 8  # that a checkpoint moves in


@dataclass(frozen=True)
class Cluster:
    """Nodes of ``gpus`` GPUs and two CPUs, with the rates and failures of ics19's table 1 at that scale.

    ``state``: bytes of a GPU in a checkpoint. ``interval``: seconds of work between two checkpoints. Each goes to the node's
    memory, its disk, and, each ``every``-th (0: as often as the file system can take them), to the shared file system.
    ``gpu_failures`` multiplies the failures of GPUs. Raises InvalidArgument, naming the field.
    """

    nodes: int
    gpus: int = 8
    state: float = 32e9
    interval: float = 160
    every: int = 0
    gpu_failures: float = 1

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= 100_000:
            raise InvalidArgument(f"nodes: {self.nodes!r} is not from 1 to 100000")
        if self.gpus / CPUS not in ics19.CPU_FAILURES:
            known = ", ".join(str(density * CPUS) for density in ics19.CPU_FAILURES)
            raise InvalidArgument(f"gpus: {self.gpus!r} a node are not in table 1; it has {known}")
        for name in ("state", "interval"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InvalidArgument(f"{name}: {value!r} is not a finite number above 0")
        if not (math.isfinite(self.gpu_failures) and self.gpu_failures >= 0):
            raise InvalidArgument(f"gpu_failures: {self.gpu_failures!r} is not a finite factor of at least 0")
        if self.every < 0:
            raise InvalidArgument(f"every: {self.every!r} is not at least 0")
        if self.disk_seconds >= self.interval:
            raise InvalidArgument(
                f"interval: {self.interval:g} s is not longer than the {self.disk_seconds:.3g} s that a disk takes for a checkpoint"
            )

    @property
    def row(self) -> dict[str, float]:
        """Table 1 for this machine."""
        return ics19.table_row(self.nodes * self.gpus / 128000, self.gpus // CPUS)

    @property
    def bytes(self) -> int:
        """Of a node's checkpoint in its memory; disk and file system store ``ics19.OUTSIDE_GPUS`` times as much."""
        return round(self.state * self.gpus)

    @property
    def rates(self) -> tuple[float, float, float]:
        """Bytes of a checkpoint a second: of a node to its memory and its disk, of all to the file system."""
        row = self.row
        return (
            row["pcie_gb_s"] * 1e9 / self.nodes,
            row["local_gb_s"] * 1e9 / self.nodes / ics19.OUTSIDE_GPUS,
            row["pfs_gb_s"] * 1e9 / ics19.OUTSIDE_GPUS,
        )

    @property
    def memory_seconds(self) -> float:
        return self.bytes / self.rates[0]

    @property
    def disk_seconds(self) -> float:
        return self.bytes / self.rates[1]

    @property
    def shared_seconds(self) -> float:
        """Of a checkpoint of all nodes."""
        return self.bytes * self.nodes / self.rates[2]

    @property
    def shared_every(self) -> int:
        """Of how many checkpoints one goes to the file system."""
        return self.every or max(1, math.ceil(1.1 * self.shared_seconds / (self.interval + self.memory_seconds)))

    @property
    def levels(self) -> Levels:
        """As the analytic models see it, with copies that block."""
        row = self.row
        process = self.gpu_failures * row["gpu_failures_s"] + row["cpu_failures_s"]
        return Levels(
            (self.memory_seconds, self.disk_seconds, self.shared_seconds),
            (process, row["node_failures_s"], row["system_failures_s"]),
        )

    def node(self, sharing: int) -> Machine:
        """A node for the simulator, in which ``sharing`` of them have that part of the file system.

        The planner's three tiers are the three levels: its device is the node's memory, its host the node's disk, and its file the
        shared file system.
        """
        memory, disk, shared = self.rates
        piece = math.ceil(self.bytes / _PIECES)
        tiers = [
            Tier("device", 4 * self.bytes),
            Tier("host", 2 * (self.shared_every + 4) * self.bytes),
            Tier("local", 2**62),
        ]
        links = {name: Link(memory, chunk=piece) for name in ("app>device", "device>app")}
        links |= {name: Link(disk, chunk=piece) for name in ("device>host", "host>device", "app>host", "host>app")}
        links |= {name: Link(_NETWORK, chunk=piece, group="shared") for name in ("host>local", "local>host")}
        return Machine(tiers, links, {"shared": shared * sharing / self.nodes}, ring_slot=piece)
