"""What the exact model of three levels expects of the same machine."""

from __future__ import annotations

from ebbtide.models.efficiency import Pattern, drained, efficiency

from .machine import Cluster


def expected(cluster: Cluster) -> float:
    """Efficiency, 0 to 1, of checkpoints of that interval with disk and file system written in the background (ics19, sec. 5.2)."""
    return efficiency(drained(cluster.levels), Pattern(cluster.interval, 1, cluster.shared_every))
