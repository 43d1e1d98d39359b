"""Where the bytes go that GPUs cannot hold: a neighbour's memory, the host, or the host over a neighbour's link."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ebbtide.errors import InvalidArgument
from ebbtide.sim.machine import Size, plain_bytes
from ebbtide.sim.topology import Topology

Strategy = Literal["local", "greedy", "flow_paper", "flow_paper_added", "flow"]
STRATEGIES: tuple[Strategy, ...] = ("local", "greedy", "flow_paper", "flow_paper_added", "flow")


@dataclass(frozen=True)
class SpillTransfer:
    """Bytes of GPU ``source``. route: "peer" (to its memory), "host" (over its own link) or "relay" (over the peer's)."""

    source: int
    route: str
    peer: int | None
    bytes: int


@dataclass(frozen=True)
class Spill:
    """A plan. seconds: until the last transfer ends; ends: those of each GPU; decision_s: what it took to plan."""

    seconds: float
    ends: list[float]
    transfers: list[SpillTransfer]
    decision_s: float


def spill(
    topology: Topology,
    remainder: Sequence[Size],
    spare: Sequence[Size],
    strategy: Strategy = "flow",
    unit: Size = 1_000_000,
) -> Spill:
    """Plans where each GPU's ``remainder`` goes, which its cache cannot hold, given what each can ``spare`` (sc22, slide 49).

    strategy: ``local`` (slide 15: all to the host), ``greedy`` (16), ``flow_paper`` (17: unit by unit over the path whose
    slowest link is cheapest; ``flow_paper_added``: whose links are cheapest in sum) or ``flow``: the least time. unit: bytes,
    of both ``flow_paper``. Sizes are bytes or text such as ``"240MB"``, one for each GPU. Raises InvalidArgument.

    >>> spill(Topology(2, host=12e9, pairs={(0, 1): 48e9}), ["600MB", 0], [0, "480MB"]).seconds
    0.01
    """

    def plain(name: str, sizes: Sequence[Size]) -> list[int]:
        if len(sizes) != topology.gpus:
            raise InvalidArgument(f"{name} has {len(sizes)} sizes where there are {topology.gpus} GPUs")
        return [plain_bytes(name, size) for size in sizes]

    transfers, ends, took = topology._make().plan(
        plain("remainder", remainder), plain("spare", spare), strategy, plain_bytes("unit", unit)
    )
    return Spill(
        max(ends) * 1e-9,
        [end * 1e-9 for end in ends],
        [SpillTransfer(source, route, None if peer < 0 else peer, size) for source, route, peer, size in transfers],
        took * 1e-9,
    )
