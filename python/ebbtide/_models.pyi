"""The C++ side of ebbtide.sim and ebbtide.models. Use their names."""

from collections.abc import Sequence
from typing import Any


class SimMachine:
    """Tiers and links, as ``ebbtide.sim.Machine`` makes them."""

    @staticmethod
    def make(tiers: Sequence[tuple[str, str, int, bool]], eviction: str, manual_prefetch: bool, ring_slot: int, ring_slots: int, lent_slots: int, ephemeral: bool) -> SimMachine: ...

    def set_link(self, name: str, bytes_per_s: float, latency_ns: int, chunk: int, depth: int, shared: bool, groups: Sequence[int]) -> None: ...

    def add_group(self, bytes_per_s: int, of_node: bool, of_lender: int = -1) -> int: ...

    @property
    def lenders(self) -> list[list[int]]: ...

    @lenders.setter
    def lenders(self, arg: Sequence[Sequence[int]], /) -> None: ...

    def lend(self, tier: int, lender: int, bytes: int) -> None: ...

    def provision(self, tier: int, touch: float, pin: float, pin_latency_ns: int) -> None: ...

    def link_names(self) -> list[str]: ...

class SimOp:
    """One operation of a program; times in nanoseconds."""

    @staticmethod
    def make(kind: str, version: int = 0, bytes: int = 0, time: int = 0, deadline: int = 0, tier: int = -1, flag: bool = False, async_: bool = False, link: int = -1, versions: Sequence[int] = []) -> SimOp: ...

class SimShot:
    """The papers' shot; times in nanoseconds."""

    @staticmethod
    def make(sizes: Sequence[int], order: str, hints: str, interval: int, forward: Sequence[int], backward: Sequence[int], compute_after_restore: bool, wait: bool, barriers: bool, seed: int, given_order: Sequence[int]) -> SimShot: ...

    def restore_order(self) -> list[int]: ...

    def ops(self, lowest_tier: int) -> list[SimOp]: ...

def joint_bound(machine: SimMachine, ranks: list[tuple[int, int, list[SimOp]]]) -> dict[str, float]:
    """
    The least blocked time that any schedule could reach; one client (history, start, operations) per rank.
    """

class Simulation:
    """
    The planner in virtual time, step by step. Times in nanoseconds.

    programs: by rank, then by client: (history, start, operations). A planner that breaks a contract, leaves a call
    unanswered while nothing moves, or hands out bytes that are not those asked for (``verify``) raises RuntimeError.
    """

    def __init__(self, machine: SimMachine, programs: Sequence[Sequence[tuple[int, int, Sequence[SimOp]]]], fault: float = 0.0, permanent: float = 0.0, seed: int = 1, verify: bool = False, check_every: int = 0, peaks: bool = False) -> None: ...

    def step(self) -> bool:
        """
        Carry out what comes next: one event or operation. False when everything has ended.
        """

    def run(self) -> None:
        """Step to the end."""

    def run_until(self, time: int) -> None:
        """Step until that time, or to the end."""

    def append(self, client: int, op: SimOp) -> None:
        """Give a client one more operation."""

    def run_client(self, client: int) -> bool:
        """Step until a client has nothing left to do."""

    def check(self) -> None:
        """Raise if an invariant of the planner is broken."""

    def take_answers(self) -> list[tuple[Any, ...]]:
        """The calls answered since the last time."""

    def known(self, history: int, version: int) -> bool:
        """Whether a version can be restored or is being written."""

    def fastest(self, history: int, version: int) -> int:
        """The index of the fastest tier with a complete replica; -1: none."""

    def slowest(self, rank: int, history: int, version: int) -> int:
        """The index of the slowest tier with a complete replica; -1: none."""

    def used(self, tier: int) -> int:
        """Bytes held on a tier."""

    @property
    def now(self) -> int: ...

    @property
    def pending(self) -> int:
        """Transfers in flight, or waiting for a link or for room."""

    def result(self) -> dict[str, Any]: ...

class SimPeers:
    """
    The links of a node's GPUs, as ``ebbtide.sim.Topology`` makes them; bytes a second.
    """

    @staticmethod
    def make(pairs: Sequence[int], egress: Sequence[int], ingress: Sequence[int], host: Sequence[int], host_memory: int, relays: bool) -> SimPeers: ...

    def plan(self, remainder: Sequence[int], spare: Sequence[int], strategy: str, unit: int) -> tuple[list[tuple[int, str, int, int]], list[int], int]:
        """
        Transfers (from, route, peer, bytes), when each GPU's end, and how long it took to plan them; nanoseconds.
        """

class SimZoneProgram:
    """What a program writes around a cut; see ebbtide.sim.ZoneProgram."""

    @staticmethod
    def of_pattern(memory: int, dirty: float, filled: float, reuse: float, order: str, pace: float, seed: int) -> SimZoneProgram: ...

    @staticmethod
    def of_trace(memory: int, before: Sequence[int], times: Sequence[int], pages: Sequence[int]) -> SimZoneProgram: ...

    @property
    def memory(self) -> int: ...

class SimZoneHardware:
    """The memory-zone hardware; see ebbtide.sim.ZoneHardware."""

    @staticmethod
    def make(channels: int, table_cache: int, link_rate: float, link_half: float, memory_rate: float, round_trip: int, buffer: int, slots: int, reserve: float, held_zones: int) -> SimZoneHardware: ...

    def run(self, mode: str, program: SimZoneProgram) -> dict[str, Any]:
        """One cut; times are nanoseconds."""

def sim_zone_patterns() -> list[tuple[Any, ...]]:
    """
    Name, words, adversarial, dirty, filled, reuse, order, pace and seed of each known pattern.
    """
