"""How the GPUs of a node are connected with each other and with the host."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from itertools import combinations
from pathlib import Path
from typing import Any

import ebbtide._models as _models
from ebbtide.errors import InvalidArgument

# The eight GPUs of a DGX-1 with V100: pairs with two NVLinks, and with one (sc22, slide 46).
_TWO = ((0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7))
_ONE = ((0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7))


@dataclass(frozen=True)
class Topology:
    """The links of a node's GPUs, in bytes per second; each works at the same time as all others.

    host: of each GPU to the host. pairs: of the link of two GPUs, either way, by their numbers; others have none. egress,
    ingress: of each GPU to and from all others together. host_memory: of all links to the host together. 0 is no limit.
    relays: bytes may also go to the host through the memory of a peer, over the peer's link.

    >>> Topology(gpus=2, host=12e9, pairs={(0, 1): 48e9})
    """

    gpus: int
    host: float
    pairs: Mapping[tuple[int, int], float] = field(default_factory=dict)
    egress: float = 0.0
    ingress: float = 0.0
    host_memory: float = 0.0
    relays: bool = False

    @classmethod
    def dgx1v(cls) -> Topology:
        """The slides' machine, as they have it: 48, 24 and 12 GB/s, and nothing that GPUs share (sc22, slide 15)."""
        return cls(8, 12e9, dict.fromkeys(_TWO, 48e9) | dict.fromkeys(_ONE, 24e9))

    @classmethod
    def nvswitch_h200(cls, gpus: int = 8) -> Topology:
        """H200 behind NVSwitch, as measured: a GPU's own rate limits it, not that of a pair, and host memory is shared."""
        pairs = dict.fromkeys(combinations(range(gpus), 2), 396e9)
        return cls(gpus, 55.3e9, pairs, egress=396e9, ingress=396e9, host_memory=155e9, relays=True)

    @classmethod
    def read(cls, path: Path) -> Topology:
        """From a JSON object with the names of the fields; pairs are ``[[0, 1, 48e9], ...]``, or a rate for all of them.

        Raises InvalidArgument that names the file and what is wrong in it, and OSError.
        """
        try:
            given: Any = json.loads(path.read_text(encoding="utf-8"))
            known = {one.name for one in fields(cls)}
            if not isinstance(given, dict) or not {"gpus", "host"} <= set(given) <= known:
                raise ValueError(f"it must be an object with gpus, host and no others than {', '.join(sorted(known))}")
            pairs = given.get("pairs", [])
            if isinstance(pairs, (int, float)):
                pairs = [(a, b, pairs) for a, b in combinations(range(int(given["gpus"])), 2)]
            topology = cls(**{**given, "pairs": {(a, b): rate for a, b, rate in pairs}})
            topology._make()
        except (ValueError, TypeError, InvalidArgument) as error:
            raise InvalidArgument(f"{path}: {error}") from None
        return topology

    def _make(self) -> _models.SimPeers:
        n = self.gpus
        if not isinstance(n, int) or not 1 <= n <= 64:
            raise InvalidArgument(f"gpus={n!r} is not valid: from 1 to 64")

        def plain(name: str, rate: float, least: int) -> int:
            if not isinstance(rate, (int, float)) or not least <= rate <= 1e15:
                raise InvalidArgument(f"{name}={rate!r} is not valid: from {least} to 1e15 bytes per second")
            return round(rate)

        pairs = [0] * (n * n)
        for (a, b), rate in self.pairs.items():
            if a == b or not {a, b} <= set(range(n)):
                raise InvalidArgument(f"pair ({a}, {b}) is not one of {n} GPUs")
            if pairs[a * n + b]:
                raise InvalidArgument(f"pair ({a}, {b}) is given twice")
            pairs[a * n + b] = pairs[b * n + a] = plain(f"pair ({a}, {b})", rate, 1)
        return _models.SimPeers.make(
            pairs,
            [plain("egress", self.egress, 0)] * n,
            [plain("ingress", self.ingress, 0)] * n,
            [plain("host", self.host, 1)] * n,
            plain("host_memory", self.host_memory, 0),
            bool(self.relays),
        )
