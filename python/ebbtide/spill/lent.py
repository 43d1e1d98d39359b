"""What memory that another GPU lends is worth to a program: a shot with it, without it, and the least that can be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.table import Table

from ebbtide._units import format_size
from ebbtide.sim import Link, Machine, Shot, Size, Tier, Topology, bound, run, spill
from ebbtide.sim.machine import plain_bytes


@dataclass(frozen=True)
class Node:
    """A GPU that writes checkpoints, and what is around it. Rates are bytes per second.

    topology: the links of the node's GPUs; the first pair's is that to the lender. writers: GPUs that write at the same time,
    each with a lender of its own; they share the memory of the host. copy: within a GPU. disk_write, disk_read: shared by the
    writers.
    """

    topology: Topology
    writers: int = 1
    copy: float = 1.85e12
    disk_write: float = 2.5e9
    disk_read: float = 1.7e9

    @property
    def host(self) -> float:
        """Of one writer's link to the host."""
        shared = self.topology.host_memory / self.writers if self.topology.host_memory else self.topology.host
        return min(self.topology.host, shared)

    def machine(self, device: Size, lent: Size, host: Size, disk: Size = "1TiB") -> Machine:
        """The tiers device, peer (none if ``lent`` is 0), host and local, as a store has them."""
        pair, up = next(iter(self.topology.pairs.values())), self.host
        tiers = [Tier("device", device), Tier("peer", lent, "device"), Tier("host", host), Tier("local", disk)]
        rates = {"app>device": self.copy, "device>app": self.copy, "host>local": self.disk_write / self.writers}
        rates["local>host"] = self.disk_read / self.writers
        rates |= dict.fromkeys(("app>peer", "device>peer", "peer>app", "peer>device"), pair)
        rates |= dict.fromkeys(("app>host", "device>host", "host>app", "host>device", "peer>host", "host>peer"), up)
        groups = {"out": pair, "in": pair, "down": up, "up": up, "lender down": up, "lender up": up, "disk": 0.0}
        of = {"app>peer": "out", "device>peer": "out", "peer>app": "in", "peer>device": "in"}
        of |= {"app>host": "down", "device>host": "down", "host>app": "up", "host>device": "up"}
        of |= {"peer>host": "lender down", "host>peer": "lender up", "host>local": "disk", "local>host": "disk"}
        present = set(Machine(tiers)._bare().link_names())
        links = {name: Link(rate, group=of.get(name)) for name, rate in rates.items() if name in present}
        return Machine(tiers, links, groups)


@dataclass(frozen=True)
class Lent:
    """Seconds that a shot's calls block: with the lent memory, without it, and at least. intervals: its computing time."""

    blocked: float
    without: float
    bound: float
    intervals: float


def shot(node: Node, sizes: list[int], interval: float, device: Size, lent: Size, host: Size) -> Lent:
    """One pass that writes checkpoints of these sizes and one that reads them in reverse, ``interval`` seconds apart.

    >>> from ebbtide.sim import Topology
    >>> found = shot(Node(Topology.nvswitch_h200()), [128 << 20] * 96, 0.01, "1GiB", "4GiB", "8GiB")
    >>> found.blocked < found.without
    True
    """
    trace = Shot(sizes, interval=interval)
    machine, bare = node.machine(device, lent, host), node.machine(device, 0, host)
    return Lent(
        run(machine, trace).blocked_s,
        run(bare, trace).blocked_s,
        bound(machine, trace).blocked_s,
        2 * interval * len(sizes),
    )


@dataclass(frozen=True)
class Burst:
    """Seconds until a burst is written: with spare memory on a peer, to the host alone, and the least (``flow``)."""

    written: float
    without: float
    least: float


def burst(node: Node, sizes: list[int], device: Size, spare: Size) -> Burst:
    """Checkpoints written without a pause into a small cache, a peer that can spare more than they are, and the host."""
    trace = Shot(sizes, interval=0.0)
    held = plain_bytes("device", device)

    def written(lent: Size) -> float:
        calls = run(node.machine(device, lent, sum(sizes) * 2), trace).checkpoints
        return max(call.ended_s for call in calls)

    topology = node.topology
    others = [0] * (topology.gpus - 2)
    least = spill(topology, [max(0, sum(sizes) - held), 0, *others], [0, plain_bytes("spare", spare), *others]).seconds
    return Burst(written(spare), written(0), least)


def document(node: Node, count: int, size: int, interval: float, device: int, lent: int, host: int) -> dict[str, Any]:
    """Both, as ``ebbtide sim lent`` has them; times are seconds."""
    found = shot(node, [size] * count, interval, device, lent, host)
    many = max(8, (8 << 30) // size)
    at_once = burst(node, [size] * many, 2 * size, max(lent, size * many))
    return {
        "writers": node.writers,
        "shot": {
            "blocked": found.blocked,
            "without": found.without,
            "bound": found.bound,
            "without_over_with": found.without / found.blocked,
            "above_bound": (found.blocked - found.bound) / (found.intervals + found.bound),
        },
        "burst": {
            "bytes": size * many,
            "written": at_once.written,
            "without": at_once.without,
            "least": at_once.least,
            "over_least": at_once.written / at_once.least,
            "without_over_with": at_once.without / at_once.written,
        },
    }


def table(found: dict[str, Any]) -> Table:
    """A row for the shot, and one for the burst."""
    out = Table(title_justify="left")
    out.add_column("")
    for name in ("with", "without", "least", "over the least", "without over with"):
        out.add_column(name, justify="right")
    one = found["shot"]
    cells = [f"{one[name]:.3f} s" for name in ("blocked", "without", "bound")]
    out.add_row("a shot blocks", *cells, f"{one['above_bound']:+.2%} of all", f"{one['without_over_with']:.1f}")
    one = found["burst"]
    cells = [f"{one[name] * 1e3:.1f} ms" for name in ("written", "without", "least")]
    out.add_row(
        f"{format_size(one['bytes'])} at once take",
        *cells,
        f"{one['over_least']:.2f} times",
        f"{one['without_over_with']:.1f}",
    )
    return out


def page() -> list[str]:
    """The lines of docs/design/peers.md on what lent memory is worth."""
    lines = [
        "Memory that another GPU lends, on eight H200 as measured (`ebbtide sim lent`): 384 checkpoints of 128 MiB, 10 ms apart,",
        "over 4 GiB on the GPU and 32 GiB on the host, without and with 16 GiB of a peer; and 8 GiB at once, into a cache of two",
        "checkpoints and a peer that has room for all of it.",
        "",
        "| GPUs that write | blocked without, over with | above the bound | a burst, over the least time | to the host alone, over it |",
        "|---|---|---|---|---|",
    ]
    for writers in (1, 2, 4):
        node = Node(Topology.nvswitch_h200(), writers)
        found = document(node, 384, 128 << 20, 0.01, 4 << 30, 16 << 30, 32 << 30)
        one, at_once = found["shot"], found["burst"]
        lines.append(
            f"| {writers} | {one['without_over_with']:.0f} | {one['above_bound']:.2%} | {at_once['over_least']:.2f} | "
            f"{at_once['without_over_with']:.1f} |"
        )
    return [
        *lines,
        "",
        "The least time of a burst uses the GPU's own link to the host as well, and so does the planner, when it has given the link to "
        "the peer enough to do.",
    ]
