"""The simulated machine: tiers, links, and the options of the store over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import ebbtide._models as _models
from ebbtide import _core
from ebbtide.errors import InvalidArgument

Size = int | str
Medium = Literal["device", "host", "file"]

_MEDIA: dict[str, Medium] = {"device": "device", "host": "host", "local": "file", "shared": "file"}


def plain_bytes(key: str, size: Size) -> int:
    """Bytes, from an int or text such as ``"4GiB"``; an error names ``key``."""
    return _core.parse_bytes(key, str(size))


def plain_ns(seconds: float) -> int:
    """Nanoseconds, as the simulator counts."""
    return round(seconds * 1e9)


@dataclass(frozen=True)
class Provision:
    """The rates at which a tier's memory comes in the background while the programs run, decided as in a store.

    touch: bytes per second with which pages are touched, by all threads together. pin, pin_latency: of each registration
    with the GPU; one at a time, for all ranks together.
    """

    touch: float = 30e9
    pin: float = 50e9
    pin_latency: float = 60e-6


@dataclass(frozen=True)
class Tier:
    """A level that holds checkpoints. ``medium`` follows from the names ``device``, ``host``, ``local`` and ``shared``.

    provision: None gives a tier in memory all of it from the start. lent: bytes that each of the rank's lenders
    (:attr:`Machine.lenders`) lends to it, which is then all that the tier has; the end of each is a staging ring, through which
    the lender passes on what goes to the host.
    """

    name: str
    capacity: Size
    medium: Medium | None = None
    provision: Provision | None = None
    lent: Sequence[Size] = ()

    def _plain(self) -> tuple[str, str, int, bool]:
        medium = self.medium or _MEDIA.get(self.name)
        if medium is None:
            raise InvalidArgument(f'tier {self.name!r} needs its medium: "device", "host" or "file"')
        capacity = plain_bytes(f"capacity of {self.name}", self.capacity)
        if self.lent and capacity:
            raise InvalidArgument(
                f"tier {self.name!r} has a capacity of {capacity} and memory that is lent: one of both"
            )
        return self.name, medium, capacity, bool(self.lent)


@dataclass(frozen=True)
class Link:
    """A directed path between two tiers, or a tier and the application.

    bytes_per_s, latency: of each transfer. chunk: the longest transfer; 0 for the default. depth: transfers held at once.
    side_by_side: those held move together, each at an equal share, else one after the other. group: links of one group
    share a device (a disk's reads and writes); a link may be of several.
    """

    bytes_per_s: float
    latency: float = 0.0
    chunk: Size = 0
    depth: int = 2
    side_by_side: bool = False
    group: str | Sequence[str] | None = None


@dataclass(frozen=True)
class Machine:
    """Tiers, fastest first, and links by name (``"app>device"``, ``"device>host"``, ``"host>local"``, ...).

    Links that are not named move 1 GB/s. groups: the rate that a group's links share, each as much as any other unless it
    can use less; 0 lets each of n active links run at a part of its own rate. All ranks share them; of gpu_groups each GPU
    has its own. ephemeral: as of a store without a durability, where consumed means discarded; else every version goes down
    to the files, and stays. Rank r has GPU r. lenders: by rank, the GPUs that lend to it, which may have no rank. lender_groups: names for links of those
    of the gpu_groups that belong to the GPU whose memory is copied; what is not lent is the first one's. lent_slots: of a lender's staging ring, for
    each direction, each of a link's chunk.

    >>> Machine(tiers, {"peer>host": Link(55e9, group=("its down", "memory"))}, {"memory": 155e9},
    ...         gpu_groups={"down": 55e9}, lender_groups={"its down": "down"}, lenders=[[1], [0]])
    """

    tiers: Sequence[Tier]
    links: Mapping[str, Link] = field(default_factory=dict)
    groups: Mapping[str, float] = field(default_factory=dict)
    eviction: Literal["score", "score_paper", "lru", "fifo"] = "score"
    prefetch: Literal["auto", "manual"] = "auto"
    ring_slot: Size = 4 << 20
    ring_slots: int = 8
    gpu_groups: Mapping[str, float] = field(default_factory=dict)
    lender_groups: Mapping[str, str] = field(default_factory=dict)
    lenders: Sequence[Sequence[int]] = ()
    lent_slots: int = 2
    ephemeral: bool = True

    @classmethod
    def usual(
        cls,
        device_cache: Size = "4GiB",
        host_cache: Size = "32GiB",
        disk: Size = "1TiB",
        *,
        copy: float = 8e9,
        device_host: float = 8e9,
        file_write: float = 1.5e9,
        file_read: float = 1.5e9,
        memory: float = 0.0,
        copy_latency: float = 0.0,
        file_latency: float = 0.0,
        eviction: Literal["score", "score_paper", "lru", "fifo"] = "score",
        prefetch: Literal["auto", "manual"] = "auto",
        provision: Provision | None = None,
    ) -> Machine:
        """The tiers device, host and local (a size of 0 leaves a tier out).

        copy: the application and memory, either way; device_host: between device and host, either way; memory: what all
        copies share (0: they do not); the disk's reads and writes share its time. provision: of the host cache.
        """
        tiers = [Tier("device", device_cache), Tier("host", host_cache, provision=provision), Tier("local", disk)]
        groups: dict[str, float] = {"disk": 0.0}
        if memory:
            groups["memory"] = memory
        share = "memory" if memory else None
        links = {
            name: Link(copy, copy_latency, group=share) for name in ("app>host", "host>app", "app>device", "device>app")
        }
        links |= {name: Link(device_host, copy_latency, group=share) for name in ("host>device", "device>host")}
        links["host>local"] = Link(file_write, file_latency, group="disk")
        links["local>host"] = Link(file_read, file_latency, group="disk")
        machine = cls(tiers, links, groups, eviction, prefetch)
        present = set(machine._bare().link_names())
        return cls(tiers, {name: link for name, link in links.items() if name in present}, groups, eviction, prefetch)

    def _bare(self) -> _models.SimMachine:
        return _models.SimMachine.make(
            [tier._plain() for tier in self.tiers],
            self.eviction,
            self.prefetch == "manual",
            plain_bytes("ring_slot", self.ring_slot),
            self.ring_slots,
            self.lent_slots,
            self.ephemeral,
        )

    def _make(self) -> _models.SimMachine:
        machine = self._bare()
        groups = {name: machine.add_group(round(rate), True) for name, rate in self.groups.items()}
        groups |= {name: machine.add_group(round(rate), False) for name, rate in self.gpu_groups.items()}
        for name, theirs in self.lender_groups.items():
            if theirs not in self.gpu_groups:
                raise InvalidArgument(f"group {name!r} is the lender's {theirs!r}, which is not among the GPUs' groups")
            groups[name] = machine.add_group(0, False, groups[theirs])
        machine.lenders = [list(row) for row in self.lenders]
        for name, link in self.links.items():
            of = [link.group] if isinstance(link.group, str) else list(dict.fromkeys(link.group or ()))
            for group in of:
                if group not in groups:
                    raise InvalidArgument(
                        f"link {name!r} is of group {group!r}, which is not among the machine's groups"
                    )
            machine.set_link(
                name,
                link.bytes_per_s,
                plain_ns(link.latency),
                plain_bytes(f"chunk of {name}", link.chunk),
                link.depth,
                link.side_by_side,
                [groups[group] for group in of],
            )
        for tier in self.tiers:
            if tier.name in self._present:
                for lender, size in enumerate(tier.lent):
                    if any(lender >= len(row) for row in self.lenders) or not self.lenders:
                        raise InvalidArgument(
                            f"tier {tier.name!r} has memory of {len(tier.lent)} lenders; lenders={self.lenders!r}"
                        )
                    machine.lend(self._tier(tier.name), lender, plain_bytes(f"lent to {tier.name}", size))
            how = tier.provision
            if how is not None and tier.name in self._present:
                machine.provision(self._tier(tier.name), how.touch, how.pin, plain_ns(how.pin_latency))
        return machine

    @property
    def _present(self) -> list[str]:
        return [tier.name for tier in self.tiers if tier.lent or tier._plain()[2] != 0]

    def _tier(self, name: str) -> int:
        if name not in self._present:
            raise InvalidArgument(f"tier {name!r} does not exist: the tiers are {', '.join(self._present)}")
        return self._present.index(name)
