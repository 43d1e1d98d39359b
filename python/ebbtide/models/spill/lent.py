"""What memory that another GPU lends is worth to a program: a shot with it, without it, and the least that can be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from rich.table import Table

from ebbtide._units import format_size
from ebbtide.errors import InvalidArgument
from ebbtide.sim import Link, Machine, Shot, Size, Tier, Topology, bound, run, spill
from ebbtide.sim.machine import plain_bytes


@dataclass(frozen=True)
class Node:
    """GPUs that write checkpoints, and what is around them. Rates are bytes per second.

    topology: the links of the node's GPUs. writers: GPUs that write at the same time, each with a lender of its own: a GPU
    that does not write or, where there are too few of them, one that does. copy: within a GPU. host_read: of all links from the host
    together; 0 is no limit. disk_write, disk_read: of the one disk. relayed: in a burst, a writer also has a staging ring in the memory
    of its lender and of the other GPUs that do not write. chunk: bytes of a copy between memories; 0 is the simulator's default.
    """

    topology: Topology
    writers: int = 1
    copy: float = 1.85e12
    host_read: float = 272e9
    disk_write: float = 2.5e9
    disk_read: float = 1.7e9
    relayed: bool = False
    chunk: int = 0

    @property
    def lenders(self) -> list[int]:
        """The GPU that lends to each writer; the writers are the first GPUs."""
        gpus = self.topology.gpus
        return [(gpu + (self.writers % gpus or 1)) % gpus for gpu in range(self.writers)]

    def relays(self, gpu: int) -> list[int]:
        """The GPUs that pass on to the host what a writer sends: its lender, and idle ones with a link as fast, dealt to the writers."""
        pairs, lender = self.topology.pairs, self.lenders[gpu]
        idle = range(self.writers + gpu, self.topology.gpus, self.writers)
        return [lender, *(other for other in idle if other != lender and pairs.get((gpu, other), 0) >= self.pair)]

    @property
    def pair(self) -> float:
        """Of the link between a writer and its lender, where it is slowest."""
        pairs = [tuple(sorted(pair)) for pair in enumerate(self.lenders)]
        for one, other in pairs:
            if (one, other) not in self.topology.pairs:
                raise InvalidArgument(f"GPUs {one} and {other} have no link, over which one would lend to the other")
        return min(self.topology.pairs[pair] for pair in pairs)

    def machine(self, device: Size, lent: Size, host: Size, disk: Size = "1TiB", *, relayed: bool = False) -> Machine:
        """The tiers device, peer (none if ``lent`` is 0), host and local, as a store of each writer has them.

        relayed: beside what its lender lends, each writer has a staging ring in the memory of all GPUs that relay for it.
        """
        up, of, pair = self.topology.host, self.topology, self.pair
        lenders = [self.relays(gpu) if relayed else [self.lenders[gpu]] for gpu in range(self.writers)]
        peer = Tier("peer", lent, "device")
        if relayed:
            ring = 4 * (self.chunk or 4 << 20)  # of two slots for each direction
            rings = [ring] * min(len(row) for row in lenders)
            peer = Tier("peer", 0, "device", lent=[ring + plain_bytes("lent", lent), *rings[1:]])
        tiers = [Tier("device", device), peer, Tier("host", host), Tier("local", disk)]
        links = {name: Link(self.copy) for name in ("app>device", "device>app")}
        links |= dict.fromkeys(("app>peer", "device>peer"), Link(pair, group=("out", "lender in")))
        links |= dict.fromkeys(("peer>app", "peer>device"), Link(pair, group=("lender out", "in")))
        links |= dict.fromkeys(("app>host", "device>host"), Link(up, group=("down", "host write")))
        links |= dict.fromkeys(("host>app", "host>device"), Link(up, group=("up", "host read")))
        links["peer>host"] = Link(up, group=("lender down", "host write"))
        links["host>peer"] = Link(up, group=("lender up", "host read"))
        links["host>local"] = Link(self.disk_write, group="disk")
        links["local>host"] = Link(self.disk_read, group="disk")
        of_memory = {name for name in links if "app" not in name}
        links |= {name: replace(links[name], chunk=self.chunk) for name in of_memory if "local" not in name}
        present = set(Machine(tiers)._bare().link_names())
        all_links = of.gpus * up
        groups = {"disk": 0.0, "host write": of.host_memory or all_links, "host read": self.host_read or all_links}
        own = {"out": of.egress or of.gpus * pair, "in": of.ingress or of.gpus * pair, "down": up, "up": up}
        return Machine(
            tiers,
            {name: link for name, link in links.items() if name in present},
            groups,
            gpu_groups=own,
            lender_groups={f"lender {name}": name for name in own},
            lenders=lenders,
        )


@dataclass(frozen=True)
class Lent:
    """Seconds that a shot's calls block, a writer's on average: with the lent memory, without it, and at least.

    intervals: its computing time.
    """

    blocked: float
    without: float
    bound: float
    intervals: float


def shot(node: Node, sizes: list[int], interval: float, device: Size, lent: Size, host: Size) -> Lent:
    """Each writer writes checkpoints of these sizes and reads them in reverse, with ``interval`` seconds before each call.

    >>> from ebbtide.sim import Topology
    >>> found = shot(Node(Topology.nvswitch_h200()), [128 << 20] * 96, 0.01, "1GiB", "4GiB", "8GiB")
    >>> found.blocked < found.without
    True
    """
    trace = Shot(sizes, interval=interval)
    machine, bare = node.machine(device, lent, host), node.machine(device, 0, host)
    ranks = node.writers
    return Lent(
        run(machine, trace, ranks=ranks).blocked_s / ranks,
        run(bare, trace, ranks=ranks).blocked_s / ranks,
        bound(machine, [trace] * ranks).blocked_s / ranks,
        2 * interval * len(sizes),
    )


@dataclass(frozen=True)
class Burst:
    """Seconds until all writers' bursts are written: with spare memory on peers, to the host alone, and the least (``flow``)."""

    written: float
    without: float
    least: float


def burst(node: Node, sizes: list[int], device: Size, spare: Size) -> Burst:
    """Each writer's checkpoints are written without a pause into a small cache, a peer that can spare more, and the host."""
    trace = Shot(sizes, interval=0.0)

    def written(lent: Size, relayed: bool) -> float:
        machine = node.machine(device, lent, sum(sizes) * 2, relayed=relayed)
        return max(call.ended_s for call in run(machine, trace, ranks=node.writers).checkpoints)

    excess, room = max(0, sum(sizes) - plain_bytes("device", device)), plain_bytes("spare", spare)
    gpus, lenders = range(node.topology.gpus), node.lenders
    remainders = [excess if gpu < node.writers else 0 for gpu in gpus]
    with_relays = replace(node.topology, relays=True)
    least = spill(with_relays, remainders, [room if gpu in lenders else 0 for gpu in gpus]).seconds
    return Burst(written(spare, node.relayed), written(0, False), least)


ROOMS = (16, 8, 4, 2, 1)
"""Of a burst, neighbours have room for one part in so many."""


def by_room(topology: Topology, bursts: list[int], sizes: list[int]) -> list[dict[str, Any]]:
    """One GPU's bursts of checkpoints, over the least time, where a neighbour has room for a part of each.

    The writer's cache holds two checkpoints, every other GPU lends a staging ring, and copies are of 16 MiB, as a store makes them.
    A row for each burst and size, in bytes; ``over_least`` in the order of :data:`ROOMS`.

    >>> from ebbtide.sim import Topology
    >>> by_room(Topology.nvswitch_h200(2), [1 << 30], [128 << 20])[0]["over_least"][0] < 1.5
    True
    """
    node = Node(topology, relayed=True, chunk=16 << 20)
    rows: list[dict[str, Any]] = []
    for burst_bytes in bursts:
        for size in sizes:
            found = [burst(node, [size] * (burst_bytes // size), 2 * size, burst_bytes // part) for part in ROOMS]
            over = [one.written / one.least for one in found]
            rows.append({"gpus": topology.gpus, "burst": burst_bytes, "size": size, "over_least": over})
    return rows


def document(node: Node, count: int, size: int, interval: float, device: int, lent: int, host: int) -> dict[str, Any]:
    """Both, as ``ebbtide sim lent`` has them; times are seconds."""
    found = shot(node, [size] * count, interval, device, lent, host)
    many = max(8, (8 << 30) // size)
    at_once = burst(node, [size] * many, 2 * size, max(lent, size * many))
    return {
        "gpus": node.topology.gpus,
        "writers": node.writers,
        "lenders": node.lenders,
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


def room_table(rows: list[dict[str, Any]]) -> Table:
    """A row for each burst, a column for each room."""
    out = Table(title="bursts, over the least time, by the room that a neighbour has for them", title_justify="left")
    for name in ("GPUs", "burst", "checkpoints of", *(_room_name(part) for part in ROOMS)):
        out.add_column(name, justify="right")
    for row in rows:
        over = [f"{ratio:.2f}" for ratio in row["over_least"]]
        out.add_row(str(row["gpus"]), format_size(row["burst"]), format_size(row["size"]), *over)
    return out


def _room_name(part: int) -> str:
    return "all" if part == 1 else f"1/{part}"


def room_page() -> list[str]:
    """The lines of docs/peers.md on bursts for which neighbours have little room."""
    rows = [
        row
        for gpus in (2, 8)
        for row in by_room(Topology.nvswitch_h200(gpus), [1 << 30, 8 << 30], [16 << 20, 128 << 20])
    ]
    lines = [
        "One GPU writes checkpoints without a pause into a cache that holds two of them. One neighbour has room for a part of the burst,",
        "or for all of it, and every other GPU lends 64 MiB. The table has the time until the last call returns, over the least time that",
        "any plan for these links could take (`flow` in [the design](design/peers.md#the-least-time)). The simulator computes it, which runs",
        "a store's planner, for H200 behind an NVSwitch as measured (`ebbtide sim lent --rooms`).",
        "",
        "| GPUs | burst | checkpoints of | " + " | ".join(f"room for {_room_name(part)}" for part in ROOMS) + " |",
        "|---|---|---|" + "---|" * len(ROOMS),
    ]
    for row in rows:
        over = " | ".join(f"{ratio:.2f}" for ratio in row["over_least"])
        lines.append(f"| {row['gpus']} | {format_size(row['burst'])} | {format_size(row['size'])} | {over} |")
    return [
        *lines,
        "",
        "Each checkpoint goes [in two parts](design/peers.md#two-parts), to the neighbour and to the host, there over all links at once.",
        "Hints name all of them, so the neighbour's room is divided among them. With eight GPUs the host's memory is the limit of the links",
        "to it, which the store learns only while it uses them. A checkpoint of 16 MiB has four pieces, too few for all of these links.",
    ]


def page() -> list[str]:
    """The lines of docs/design/peers.md on what lent memory is worth."""
    lines = [
        "Memory that another GPU lends, on H200 behind an NVSwitch as measured (`ebbtide sim lent`): each GPU that writes has 384",
        "checkpoints of 128 MiB, 10 ms apart, over 4 GiB on the GPU and 32 GiB on the host, without and with 16 GiB of another GPU;",
        "and 8 GiB at once, into a cache of two checkpoints and a peer that has room for all of it.",
        "",
        "| GPUs | that write | blocked without, over with | above the bound | a burst, over the least time | to the host alone, over it |",
        "|---|---|---|---|---|---|",
    ]
    for gpus, writers in ((4, 2), (4, 4), (8, 1), (8, 2), (8, 4), (8, 8)):
        node = Node(Topology.nvswitch_h200(gpus), writers)
        found = document(node, 384, 128 << 20, 0.01, 4 << 30, 16 << 30, 32 << 30)
        one, at_once = found["shot"], found["burst"]
        lines.append(
            f"| {gpus} | {writers} | {one['without_over_with']:.0f} | {one['above_bound']:.2%} | {at_once['over_least']:.2f} | "
            f"{at_once['without_over_with']:.1f} |"
        )
    return [
        *lines,
        "",
        "All of them share the memory of the host and the disk. A lender shares its links, to the NVSwitch and to the host, with the",
        "GPU that it lends to. GPUs that do not write lend; if there are none, those that write do. The least time of a burst uses",
        "the GPU's own link to the host as well, and the planner sends a part of each checkpoint over it.",
    ]
