"""What a history will need of each tier."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ebbtide import _core
from ebbtide._units import format_time
from ebbtide.sim.machine import Machine, Size, plain_bytes
from ebbtide.sim.program import Shot
from ebbtide.sim.runs import run


@dataclass(frozen=True)
class Need:
    """What a history needs of one tier, in bytes."""

    capacity: int
    peak: int
    written: int
    read: int


@dataclass(frozen=True)
class Estimate:
    """What a history will need on each tier. ``refused`` says why it cannot be run so, or is None.

    seconds: how long both passes take; blocked_s: how long the calls hold up the program in all.
    """

    total: int
    tiers: dict[str, Need]
    refused: str | None
    seconds: float
    blocked_s: float

    def __str__(self) -> str:
        def text(size: int) -> str:
            return _core.format_bytes(size)

        lines = [
            f"{text(self.total)} in all",
            f"{'tier':<8}{'capacity':>14}{'held at most':>16}{'written':>14}{'read':>14}",
        ]
        for name, need in self.tiers.items():
            sizes = f"{text(need.capacity):>14}{text(need.peak):>16}{text(need.written):>14}{text(need.read):>14}"
            lines.append(f"{name:<8}{sizes}")
        lines.append(f"{format_time(self.seconds)} in all, {format_time(self.blocked_s)} of it blocked in calls")
        if self.refused is not None:
            lines.append(f"cannot be run: {self.refused}")
        return "\n".join(lines)


def estimate(
    sizes: Iterable[Size],
    *,
    device_cache: Size = 0,
    host_cache: Size = 0,
    disk: Size | None = None,
    order: Literal["reverse", "sequential", "irregular"] = "reverse",
    interval: float = 0.0,
    rates: Mapping[str, float] | None = None,
) -> Estimate:
    """What a history of checkpoints of ``sizes`` bytes, written and then restored in ``order``, will need on each tier.

    device_cache, host_cache: 0 leaves the tier out. disk: None for as much as needed. interval: seconds of computing
    before each call; the longer, the more is flushed ahead of need. rates: bytes per second, by the names of
    :meth:`ebbtide.sim.Machine.usual` (``{"copy": 10e9, "file_write": 2e9}``); usual ones for those left out.

    It runs the planner itself, with every hint given.

    >>> print(ebbtide.estimate(["16MiB"] * 128, device_cache="64MiB", host_cache="256MiB"))
    """
    plain = [plain_bytes("sizes", size) for size in sizes]
    total = sum(plain)
    device, host = plain_bytes("device_cache", device_cache), plain_bytes("host_cache", host_cache)
    room = 2 * total + (len(plain) + 1) * 4096 if disk is None else plain_bytes("disk", disk)
    capacities = {"device": device, "host": host, "local": room}
    given: Mapping[str, Any] = rates or {}
    result = run(Machine.usual(device, host, room, **given), Shot(plain, order=order, interval=interval))
    refused = result.refused
    moved = {link["name"]: link["bytes"] for link in result.links}
    tiers = {}
    for name, peak in result.peaks.items():
        written = sum(size for link, size in moved.items() if link.endswith(">" + name))
        read = sum(size for link, size in moved.items() if link.startswith(name + ">"))
        capacity = peak if name == "local" and disk is None else capacities[name]
        tiers[name] = Need(capacity, peak, written, read)
    why = f"version {refused[0].version} ({refused[0].reason}): {refused[0].detail}" if refused else None
    return Estimate(total, tiers, why, result.wall_s, result.blocked_s)
