"""The planner in virtual time: what a machine would do with a trace, before it is run.

The same code decides as in a real store; only time is modelled. Sizes are bytes (or text such as ``"4GiB"``), times are
seconds, rates are bytes per second.

>>> machine = Machine.usual(device_cache="64MiB", host_cache="256MiB", disk="8GiB", file_write=1e9, file_read=2e9)
>>> result = run(machine, Shot([16 << 20] * 128, interval=0.02))
>>> result.blocked_s, result.restores[0].found_on
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ebbtide import _core
from ebbtide.errors import InvalidArgument

Size = int | str
Medium = Literal["device", "host", "file"]

_MEDIA: dict[str, Medium] = {"device": "device", "host": "host", "local": "file"}


def _bytes(key: str, size: Size) -> int:
    return _core.parse_bytes(key, str(size))


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


@dataclass(frozen=True)
class Tier:
    """A level that holds checkpoints. ``medium`` follows from the names ``device``, ``host`` and ``local``."""

    name: str
    capacity: Size
    medium: Medium | None = None

    def _plain(self) -> tuple[str, str, int]:
        medium = self.medium or _MEDIA.get(self.name)
        if medium is None:
            raise InvalidArgument(f'tier {self.name!r} needs its medium: "device", "host" or "file"')
        return self.name, medium, _bytes(f"capacity of {self.name}", self.capacity)


@dataclass(frozen=True)
class Link:
    """A directed path between two tiers, or a tier and the application.

    bytes_per_s, latency: of each transfer. chunk: the longest transfer; 0 for the default. depth: transfers held at once.
    side_by_side: those held move together, each at an equal share, else one after the other. group: links of one group
    share a device (a disk's reads and writes).
    """

    bytes_per_s: float
    latency: float = 0.0
    chunk: Size = 0
    depth: int = 2
    side_by_side: bool = False
    group: str | None = None


@dataclass(frozen=True)
class Machine:
    """Tiers, fastest first, and links by name (``"app>device"``, ``"device>host"``, ``"host>local"``, ...).

    Links that are not named move 1 GB/s. groups: the rate that a group's links share; 0 lets each of n active links run
    at a part of its own rate.
    """

    tiers: Sequence[Tier]
    links: Mapping[str, Link] = field(default_factory=dict)
    groups: Mapping[str, float] = field(default_factory=dict)
    eviction: Literal["score", "score_paper", "lru", "fifo"] = "score"
    prefetch: Literal["auto", "manual"] = "auto"
    ring_slot: Size = 4 << 20
    ring_slots: int = 8

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
    ) -> Machine:
        """The row device, host, local (a size of 0 leaves a tier out).

        copy: the application and memory, either way; device_host: between device and host, either way; memory: what all
        copies share (0: they do not); the disk's reads and writes share its time.
        """
        tiers = [Tier("device", device_cache), Tier("host", host_cache), Tier("local", disk)]
        groups: dict[str, float] = {"disk": 0.0}
        if memory:
            groups["memory"] = memory
        share = "memory" if memory else None
        links = {name: Link(copy, copy_latency, group=share) for name in ("app>host", "host>app", "app>device", "device>app")}
        links |= {name: Link(device_host, copy_latency, group=share) for name in ("host>device", "device>host")}
        links["host>local"] = Link(file_write, file_latency, group="disk")
        links["local>host"] = Link(file_read, file_latency, group="disk")
        machine = cls(tiers, links, groups, eviction, prefetch)
        present = set(machine._bare().link_names())
        return cls(tiers, {name: link for name, link in links.items() if name in present}, groups, eviction, prefetch)

    def _bare(self) -> _core.SimMachine:
        return _core.SimMachine.make(
            [tier._plain() for tier in self.tiers],
            self.eviction,
            self.prefetch == "manual",
            _bytes("ring_slot", self.ring_slot),
            self.ring_slots,
        )

    def _make(self) -> _core.SimMachine:
        machine = self._bare()
        groups = {name: machine.add_group(round(rate), True) for name, rate in self.groups.items()}
        for name, link in self.links.items():
            if link.group is not None and link.group not in groups:
                raise InvalidArgument(f"link {name!r} is of group {link.group!r}, which is not among the machine's groups")
            group = -1 if link.group is None else groups[link.group]
            machine.set_link(
                name,
                link.bytes_per_s,
                _ns(link.latency),
                _bytes(f"chunk of {name}", link.chunk),
                link.depth,
                link.side_by_side,
                group,
            )
        return machine

    @property
    def _present(self) -> list[str]:
        return [tier.name for tier in self.tiers if tier._plain()[2] != 0]

    def _tier(self, name: str) -> int:
        if name not in self._present:
            raise InvalidArgument(f"tier {name!r} is not there: the tiers are {', '.join(self._present)}")
        return self._present.index(name)


@dataclass(frozen=True)
class Shot:
    """The papers' shot (hpdc23 sec. 5.3): one pass writes version 0, 1, ..., the other reads all of them.

    sizes: bytes of each version. interval: computing before each call; forward, backward: or one time for each call.
    wait: for every flush between the passes. restore_order: an order of one's own, in place of ``order``.
    """

    sizes: Sequence[int]
    order: Literal["reverse", "sequential", "irregular"] = "reverse"
    hints: Literal["all", "one", "none"] = "all"
    interval: float = 0.01
    forward: Sequence[float] = ()
    backward: Sequence[float] = ()
    compute_after_restore: bool = False
    wait: bool = False
    barriers: bool = False
    seed: int = 1
    restore_order: Sequence[int] = ()

    def _make(self) -> _core.SimShot:
        return _core.SimShot.make(
            list(self.sizes),
            self.order,
            self.hints,
            _ns(self.interval),
            [_ns(t) for t in self.forward],
            [_ns(t) for t in self.backward],
            self.compute_after_restore,
            self.wait,
            self.barriers,
            self.seed,
            list(self.restore_order),
        )

    def versions(self) -> list[int]:
        """The versions in the order in which they are restored."""
        return self._make().restore_order()

    def _program(self, machine: Machine) -> tuple[int, int, list[_core.SimOp]]:
        return 0, 0, self._make().ops(len(machine._present) - 1)


class Program:
    """What one thread of an application does, built call by call; each method returns the program.

    >>> Program().hint([1, 0]).checkpoint(0, "1MiB").sleep(0.01).checkpoint(1, "1MiB").restore(1).restore(0)
    """

    def __init__(self, history: int = 0, start: float = 0.0) -> None:
        self.history = history
        self.start = start
        self._ops: list[tuple[str, dict[str, Any]]] = []

    def _add(self, kind: str, **arguments: Any) -> Program:
        self._ops.append((kind, arguments))
        return self

    def checkpoint(self, version: int, size: Size, timeout: float = 0.0, background: bool = False) -> Program:
        """Write a version of ``size`` bytes. background: go on at once; :meth:`join` waits."""
        return self._add("checkpoint", version=version, bytes=_bytes("size", size), time=_ns(timeout), async_=background)

    def restore(self, version: int, keep: bool = False, background: bool = False) -> Program:
        """Read a version; consumed unless ``keep`` or hinted again."""
        return self._add("restore", version=version, flag=keep, async_=background)

    def reserve(self, version: int, size: Size, timeout: float = 0.0) -> Program:
        """Ask for memory of the device cache; :meth:`commit` or :meth:`abandon` ends it."""
        return self._add("reserve", version=version, bytes=_bytes("size", size), time=_ns(timeout))

    def commit(self, version: int) -> Program:
        """What was reserved is complete."""
        return self._add("commit", version=version)

    def abandon(self, version: int) -> Program:
        """What was reserved is forgotten."""
        return self._add("abandon", version=version)

    def borrow(self, version: int) -> Program:
        """Look at the device cache's own copy; :meth:`release` ends it."""
        return self._add("borrow", version=version)

    def release(self, version: int, keep: bool = False) -> Program:
        """Give a borrowed version back."""
        return self._add("release", version=version, flag=keep)

    def hint(self, order: Iterable[int], replace: bool = False) -> Program:
        """Say what will be restored, in order."""
        return self._add("hint", versions=list(order), flag=replace)

    def hint_front(self, version: int) -> Program:
        """Say that ``version`` will be restored before all that was hinted."""
        return self._add("hint_front", version=version)

    def unhint(self, versions: Iterable[int] | None = None) -> Program:
        """Withdraw hints; all of them without an argument."""
        return self._add("unhint", versions=[] if versions is None else list(versions))

    def start_prefetch(self) -> Program:
        """Begin to prefetch, on a machine with ``prefetch="manual"``."""
        return self._add("start_prefetch")

    def drop(self, version: int | None = None) -> Program:
        """Forget a version, or all of the history."""
        return self._add("drop", version=version or 0, flag=version is None)

    def wait(self, level: str, version: int | None = None) -> Program:
        """Wait until a version (or each one written) is complete on a tier or below."""
        return self._add("wait", version=version or 0, flag=version is None, tier=level)

    def sleep(self, seconds: float) -> Program:
        """Compute."""
        return self._add("sleep", time=_ns(seconds))

    def join(self) -> Program:
        """Wait for what runs in the background."""
        return self._add("join")

    def _program(self, machine: Machine) -> tuple[int, int, list[_core.SimOp]]:
        ops = []
        for kind, arguments in self._ops:
            if "tier" in arguments:
                arguments = arguments | {"tier": machine._tier(arguments["tier"])}
            ops.append(_core.SimOp.make(kind, **arguments))
        return self.history, _ns(self.start), ops


Trace = Shot | Program | Sequence[Program]
"""A shot, one thread's program, or several threads'."""


class Call(NamedTuple):
    """One call and how it went."""

    kind: str
    history: int
    version: int
    bytes: int
    begun_s: float
    ended_s: float
    reason: str
    found_on: str | None
    prefetch_distance: int
    detail: str
    rank: int

    @property
    def blocked_s(self) -> float:
        """How long the program stood in it."""
        return self.ended_s - self.begun_s


@dataclass(frozen=True)
class Result:
    """What a run gave. ``calls`` in the order in which they began; ``tiers`` and ``links`` are rank 0's."""

    calls: list[Call]
    wall_s: float
    checkpoint_blocked_s: float
    restore_blocked_s: float
    wait_blocked_s: float
    tiers: list[dict[str, Any]]
    links: list[dict[str, Any]]
    ranks: list[dict[str, Any]]
    peaks: dict[str, int]

    @property
    def blocked_s(self) -> float:
        """The time that the program stood in checkpoint and restore calls."""
        return self.checkpoint_blocked_s + self.restore_blocked_s

    @property
    def checkpoints(self) -> list[Call]:
        """The calls that write."""
        return [call for call in self.calls if call.kind in ("checkpoint", "reserve")]

    @property
    def restores(self) -> list[Call]:
        """The calls that read."""
        return [call for call in self.calls if call.kind in ("restore", "borrow")]

    @property
    def refused(self) -> list[Call]:
        """The calls that did not succeed; ``reason`` and ``detail`` say why."""
        return [call for call in self.calls if call.reason != "ok"]


def run(
    machine: Machine,
    trace: Trace,
    *,
    ranks: int = 1,
    fault: float = 0.0,
    permanent: float = 0.0,
    seed: int = 1,
    verify: bool = False,
) -> Result:
    """Runs ``trace`` on ``machine`` in virtual time.

    ranks: so many processes, each with its caches and the same trace, which share the groups of links.
    fault, permanent: how likely a transfer is to fail once, or for good, drawn from ``seed``.
    verify: follow every byte and raise RuntimeError when one is not what was written.
    """
    return run_ranks(machine, [trace] * ranks, fault=fault, permanent=permanent, seed=seed, verify=verify)


def run_ranks(
    machine: Machine,
    traces: Sequence[Trace],
    *,
    fault: float = 0.0,
    permanent: float = 0.0,
    seed: int = 1,
    verify: bool = False,
) -> Result:
    """Like :func:`run`, with a trace of its own for each rank."""
    plain = []
    for trace in traces:
        programs = [trace] if isinstance(trace, (Shot, Program)) else trace
        plain.append([program._program(machine) for program in programs])
    simulation = _core.Simulation(machine._make(), plain, fault, permanent, seed, verify, 1 if verify else 0, True)
    simulation.run()
    return _result(machine._present, simulation.result())


def _result(tiers: list[str], raw: dict[str, Any]) -> Result:
    calls = []
    for _, kind, history, version, size, begun, ended, reason, found_on, distance, detail, rank in raw["calls"]:
        where = tiers[found_on] if found_on >= 0 else None
        end = begun if ended is None else ended
        calls.append(Call(kind, history, version, size, begun / 1e9, end / 1e9, reason, where, distance, detail, rank))
    return Result(
        calls,
        raw["makespan"] / 1e9,
        raw["checkpoint_blocked"] / 1e9,
        raw["restore_blocked"] / 1e9,
        raw["wait_blocked"] / 1e9,
        raw["ranks"][0]["tiers"],
        raw["ranks"][0]["links"],
        raw["ranks"],
        dict(zip(tiers, raw["peaks"])),
    )


def predict(machine: Machine, trace: Trace, *, ranks: int = 1) -> float:
    """The seconds that the program will stand in checkpoint and restore calls, over all ranks."""
    return run(machine, trace, ranks=ranks).blocked_s


@dataclass(frozen=True)
class Bound:
    """The least time that any schedule could reach, in seconds, summed over the ranks.

    blocked_s: in calls, each charged with its own bare copy (copies_s) while nothing else moves; overlapped_s: if links
    run during those copies. flush_wait_s: what a wait between the passes must take then. wall_s: of the whole run.
    """

    blocked_s: float
    overlapped_s: float
    copies_s: float
    flush_wait_s: float
    wall_s: float


def bound(machine: Machine, traces: Shot | Program | Sequence[Shot | Program]) -> Bound:
    """The bound of a trace, or of one trace for each rank (caches of their own, the path below shared).

    >>> bound(machine, Shot([16 << 20] * 128, interval=0.02)).blocked_s
    """
    ranks = [traces] if isinstance(traces, (Shot, Program)) else traces
    return Bound(**_core.joint_bound(machine._make(), [trace._program(machine) for trace in ranks]))


@dataclass(frozen=True)
class Need:
    """What a history needs of one tier, in bytes."""

    capacity: int
    peak: int
    written: int
    read: int


@dataclass(frozen=True)
class Estimate:
    """What a history will need on each tier. ``refused`` says why it cannot be run so, or is None."""

    total: int
    tiers: dict[str, Need]
    refused: str | None

    def __str__(self) -> str:
        def text(size: int) -> str:
            return _core.format_bytes(size)

        lines = [f"{text(self.total)} in all", f"{'tier':<8}{'capacity':>14}{'held at most':>16}{'written':>14}{'read':>14}"]
        for name, need in self.tiers.items():
            sizes = f"{text(need.capacity):>14}{text(need.peak):>16}{text(need.written):>14}{text(need.read):>14}"
            lines.append(f"{name:<8}{sizes}")
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
) -> Estimate:
    """What a history of checkpoints of ``sizes`` bytes, written and then restored in ``order``, will need on each tier.

    device_cache, host_cache: 0 leaves the tier out. disk: None for as much as it takes. interval: seconds of computing
    before each call; the longer, the more is flushed ahead of need.

    It runs the planner itself, with usual rates and every hint given.

    >>> print(ebbtide.estimate(["16MiB"] * 128, device_cache="64MiB", host_cache="256MiB"))
    """
    plain = [_bytes("sizes", size) for size in sizes]
    total = sum(plain)
    device, host = _bytes("device_cache", device_cache), _bytes("host_cache", host_cache)
    room = 2 * total + (len(plain) + 1) * 4096 if disk is None else _bytes("disk", disk)
    capacities = {"device": device, "host": host, "local": room}
    result = run(Machine.usual(device, host, room), Shot(plain, order=order, interval=interval))
    refused = result.refused
    moved = {link["name"]: link["bytes"] for link in result.links}
    tiers = {}
    for name, peak in result.peaks.items():
        written = sum(size for link, size in moved.items() if link.endswith(">" + name))
        read = sum(size for link, size in moved.items() if link.startswith(name + ">"))
        capacity = peak if name == "local" and disk is None else capacities[name]
        tiers[name] = Need(capacity, peak, written, read)
    why = f"version {refused[0].version} ({refused[0].reason}): {refused[0].detail}" if refused else None
    return Estimate(total, tiers, why)
